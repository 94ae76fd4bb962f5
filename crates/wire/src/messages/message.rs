//! One unit of a Messages conversation taken apart: who speaks, what is counted, and the canonical
//! digest that the chain is made of. Never changes a byte; `edit` does that.

use std::borrow::Cow;

use plimsoll_model::raw::Object;
use plimsoll_model::{CallId, Digest, Role};

use super::block::{Block, BlockType, Unit, UnitForm};
use crate::message::{Canonical, MessageError, Parsed, ParsedCall, Part, canonical_part};

/// How a text begins that an agent put in by itself.
const REMINDER: &str = "<system-reminder>";

/// Takes a unit apart.
///
/// # Errors
/// [`MessageError`] if it is not what the format allows.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, MessageError> {
    let unit = Unit::read(bytes)?;
    match &unit.form {
        UnitForm::System => said(Role::System, "system", &unit.blocks),
        UnitForm::Message { role, .. } => match role.as_ref() {
            "assistant" => assistant(&unit.blocks),
            "user" => said(Role::User, "user", &unit.blocks),
            "system" => said(Role::System, "system", &unit.blocks),
            other => said(Role::Other, other, &unit.blocks),
        },
        UnitForm::Result(block) => result(block, &unit.blocks),
        UnitForm::Run => {
            let role = match is_reminder(&unit.blocks) {
                true => Role::Other,
                false => Role::User,
            };
            said(role, "user", &unit.blocks)
        }
    }
}

/// Whether blocks beside results are the agent's words and not the user's.
fn is_reminder(blocks: &[Block<'_>]) -> bool {
    let mut texts = blocks.iter().map(Block::text);
    texts.all(|text| text.is_some_and(|text| text.trim_start().starts_with(REMINDER)))
}

/// The beginning of a digest. It names the format, because the same words in another format are
/// other bytes upstream.
fn canonical(role: &str) -> Canonical {
    let mut canonical = Canonical::new(role);
    canonical.put(b'd', b"messages");
    canonical
}

/// A unit that is no answer: everything in it is counted and is part of its digest.
fn said<'a>(role: Role, name: &str, blocks: &[Block<'a>]) -> Result<Parsed<'a>, MessageError> {
    let mut digest = canonical(name);
    put(&mut digest, blocks)?;
    Ok(Parsed {
        parts: parts(blocks)?,
        ..Parsed::new(role, &digest)
    })
}

fn put(digest: &mut Canonical, blocks: &[Block<'_>]) -> Result<(), MessageError> {
    for block in blocks {
        match block.kind == BlockType::Text {
            true => digest.text(&text(block)?),
            false => digest.put(b'o', &canonical_part(block.raw)),
        }
    }
    Ok(())
}

/// The text of a block of text.
fn text<'a>(block: &Block<'a>) -> Result<Cow<'a, str>, MessageError> {
    block.text().ok_or(MessageError::Field("text"))
}

fn result<'a>(block: &Block<'a>, content: &[Block<'a>]) -> Result<Parsed<'a>, MessageError> {
    const ID: &str = "tool_use_id";
    let id = block.field(ID).ok_or(MessageError::Field(ID))?;
    let mut digest = canonical("tool");
    put(&mut digest, content)?;
    if block.member("is_error") == Some(b"true") {
        digest.put(b'e', b"");
    }
    digest.id(b'u', &id);
    Ok(Parsed {
        parts: parts(content)?,
        result_of: Some(CallId(id.into_owned())),
        // A reference to a tool makes the tool callable from there on, so it must stay.
        opaque: content.iter().any(|block| block.kind == BlockType::Other),
        ..Parsed::new(Role::Tool, &digest)
    })
}

fn assistant<'a>(blocks: &[Block<'a>]) -> Result<Parsed<'a>, MessageError> {
    let (mut parts, mut reasoning, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    let (mut said, mut sealed, mut opaque) = (String::new(), 0, false);
    for block in blocks {
        match block.kind {
            BlockType::Text => {
                let text = text(block)?;
                said.push_str(&text);
                parts.push(Part::Text(text));
            }
            BlockType::Thinking => match block.field("thinking").unwrap_or_default() {
                // If the client is not shown the reasoning, the signature holds it.
                text if text.is_empty() => sealed += length(block, "signature"),
                text => reasoning.push(text),
            },
            BlockType::Redacted => sealed += length(block, "data"),
            BlockType::Call => {
                calls.push(block.call());
                opaque |= block.is_by_server();
            }
            BlockType::Result
            | BlockType::Image
            | BlockType::Document
            | BlockType::SearchResult
            | BlockType::Other => {
                parts.push(Part::Other(block.raw));
                opaque = true;
            }
        }
    }
    let digest = answer(&said, &calls);
    Ok(Parsed {
        parts,
        reasoning,
        sealed,
        calls,
        opaque,
        ..Parsed::new(Role::Assistant, &digest)
    })
}

fn length(block: &Block<'_>, key: &str) -> usize {
    block.member(key).map_or(0, <[u8]>::len)
}

/// The canonical digest of a turn's visible response: all texts as one, because clients merge and
/// split blocks of text, and the calls. The blocks of a server's own tools are left out: they come
/// back as they were handed out, or not at all.
pub fn canonical_of_answer(text: &str, calls: &[ParsedCall<'_>]) -> Digest {
    answer(text, calls).finish()
}

fn answer(text: &str, calls: &[ParsedCall<'_>]) -> Canonical {
    let mut digest = canonical("assistant");
    digest.text(text);
    // A call without arguments streams none at all, and comes back with an empty object.
    let calls = calls.iter().map(|call| ParsedCall {
        id: Cow::Borrowed(&call.id),
        name: Cow::Borrowed(&call.name),
        arguments: match Object::parse(call.arguments.as_bytes()) {
            Ok(_) => Cow::Borrowed(&call.arguments),
            Err(_) => Cow::Borrowed("{}"),
        },
    });
    digest.calls(&calls.collect::<Vec<_>>());
    digest
}

/// The parts to count of blocks that are no answer.
fn parts<'a>(blocks: &[Block<'a>]) -> Result<Vec<Part<'a>>, MessageError> {
    let mut parts = Vec::with_capacity(blocks.len());
    for block in blocks {
        match block.kind {
            BlockType::Text => parts.push(Part::Text(text(block)?)),
            BlockType::Image => parts.push(picture(block)),
            BlockType::Document => parts.extend(document(block)),
            BlockType::SearchResult => parts.extend(search_result(block)),
            BlockType::Thinking
            | BlockType::Redacted
            | BlockType::Call
            | BlockType::Result
            | BlockType::Other => {
                parts.push(Part::Other(block.raw));
            }
        }
    }
    parts.retain(|part| !matches!(part, Part::Text(text) | Part::Quoted(text) if text.is_empty()));
    Ok(parts)
}

/// The parts of blocks that stand in a document or in a search's result: whoever sent it need not have said it.
fn quoted<'a>(blocks: &[Block<'a>]) -> Result<Vec<Part<'a>>, MessageError> {
    let quoted = parts(blocks)?.into_iter().map(|part| match part {
        Part::Text(text) => Part::Quoted(text),
        other => other,
    });
    Ok(quoted.collect())
}

/// An image: its data, or nothing if it is an address or a file at the provider.
fn picture<'a>(block: &Block<'a>) -> Part<'a> {
    let data = block.child("source").and_then(|source| source.text("data"));
    Part::Picture(data.unwrap_or_default())
}

/// A document: its text if it is text or blocks, else the document as an attachment.
fn document<'a>(block: &Block<'a>) -> Vec<Part<'a>> {
    let Some(source) = block.child("source") else {
        return vec![Part::Other(block.raw)];
    };
    let inside = match source.text("type").as_deref() {
        Some("text") => source.text("data").map(|text| vec![Part::Quoted(text)]),
        Some("content") => source
            .present("content")
            .and_then(|raw| super::block::blocks(raw).ok())
            .and_then(|blocks| quoted(&blocks).ok()),
        _ => None,
    };
    inside.unwrap_or_else(|| vec![Part::Other(block.raw)])
}

/// A search result: its title, its source and its content.
fn search_result<'a>(block: &Block<'a>) -> Vec<Part<'a>> {
    let named = ["title", "source"].into_iter();
    let mut found: Vec<_> = named
        .filter_map(|key| block.field(key))
        .map(Part::Quoted)
        .collect();
    let content = block.content().and_then(|blocks| quoted(&blocks));
    found.extend(content.unwrap_or_else(|_| vec![Part::Other(block.raw)]));
    found
}
