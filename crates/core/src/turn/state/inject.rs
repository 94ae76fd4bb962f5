//! Adds the hidden tools and their guidance to the client's request. Which tools is decided once
//! for a conversation, when they are first offered; later only a tool of the client changes their
//! names. Never decides when the guidance comes in, and never renders a view.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_model::{Digest, EditKind, Edits, Guide, HiddenTool, Role, TurnRecord};
use plimsoll_wire::names::Names;

use super::{HopContext, MiddleError, Prepared, TurnState};
use crate::render::tools::{self, Injected};
use crate::session::view::{Part, Parts};
use crate::turn::settings::Offer;

impl TurnState {
    /// Excludes some edits from views. The hidden tools and their guidance may be among them.
    ///
    /// # Errors
    /// As [`TurnState::inject`].
    pub fn go_without(&mut self, edits: Edits, tools: &HopContext<'_>) -> Result<(), MiddleError> {
        self.terms.go_without(edits);
        let offered = self.tools.is_none() || self.offers();
        let none = self.guidance.is_none() && self.among.is_none();
        let guided = none || !self.terms.without.has(EditKind::Guidance);
        let before = self.guide;
        self.guide = self.told(before, tools.family);
        // Nothing was put in, or it may stay.
        if offered && guided && self.guide == before {
            return Ok(());
        }
        self.among = None;
        if let Some((Some(at), _)) = self.guidance.take() {
            let shape = tools.reader.shape(self.request.message(at))?;
            if let Some(slot) = self.shapes.get_mut(at) {
                *slot = shape;
            }
        }
        self.tools = None;
        self.add(tools)
    }

    /// Whether the hidden tools are offered. They are not if the upstream refuses them or their
    /// calls. The decision which tools are injected stays: the model may call what it finds in its
    /// history, and the tools may be offered again if another edit was the cause.
    pub(in crate::turn) fn offers(&self) -> bool {
        self.injected.any() && !self.refuses_tools()
    }

    /// Whether the upstream is known to refuse the hidden tools or their calls.
    pub(super) fn refuses_tools(&self) -> bool {
        let without = self.terms.without;
        without.has(EditKind::Tools) || without.has(EditKind::Hidden)
    }

    /// The names of the hidden tools, with those of the client's tools, from which they are told
    /// apart.
    pub fn hidden_names(&self) -> Names {
        let own: Names = self.injected.names().collect();
        own.beside(&self.request.tools.names)
    }

    /// Whether the client, which asked for JSON, reads the answer as one text. The texts of several hops in a row would
    /// be no JSON.
    pub fn says_one_text(&self) -> bool {
        self.request.structured && self.injected.names().next().is_some()
    }

    /// Decides what is injected, and counts what is sent beside the transcript.
    ///
    /// # Errors
    /// [`MiddleError`] where the client's own tools or system message can't be extended.
    pub fn inject(&mut self, tools: &HopContext<'_>) -> Result<(), MiddleError> {
        self.client_tools = self.count_tools(tools);
        let sizes = self.read_sizes(tools.family);
        self.client_tokens = sizes.iter().sum::<u64>() + self.client_tools;
        self.client_spoken = self.spoken();
        self.client_held = self.client_tools + self.held_before(&sizes);
        self.front = self.front();
        let late = self.begins_behind_thoughts(tools.family);
        let first = || match late {
            true => Guide::WAITING,
            false => self.terms.first_guide(self.request.one_call),
        };
        self.guide = self.told(self.path.guide.unwrap_or_else(first), tools.family);
        self.injected = match late {
            true => Injected::default(),
            false => self.decide(),
        };
        self.add(tools)?;
        self.prologue_changed = self.differs_in_front();
        Ok(())
    }

    /// The tokens of a view by what they belong to.
    #[must_use]
    pub fn parts(&self, prepared: &Prepared) -> Parts {
        let mut parts = prepared.view.parts();
        parts.add(Part::Tools, self.client_tools);
        parts.add(Part::Own, self.fixed.saturating_sub(self.client_tools));
        parts.shift(Part::System, Part::Tools, self.declared());
        // The part of the client's system message that is guidance.
        let guidance = self.spoken().saturating_sub(self.client_spoken);
        parts.shift(Part::System, Part::Own, guidance);
        parts
    }

    /// Whether the client changed its system text or tools since the newest turn. Asked before this
    /// turn brings anything in; if more or fewer tools are offered than then, this can't be told.
    fn differs_in_front(&self) -> bool {
        let tooled = self.request.takes_tools();
        let refused = |edits: Edits| edits.has(EditKind::Tools) || edits.has(EditKind::Hidden);
        let mut before = self.path.entries.iter().rev().map(|entry| &entry.record);
        before
            .find(|record| record.tooled == tooled)
            .is_some_and(|record| {
                record.prologue != self.prologue && refused(record.without) == self.refuses_tools()
            })
    }

    /// Adds the hidden tools to the tools array, and the guidance where it stands if it is given.
    ///
    /// # Errors
    /// As [`TurnState::inject`].
    pub(in crate::turn) fn add(&mut self, tools: &HopContext<'_>) -> Result<(), MiddleError> {
        self.fixed = self.count_tools(tools);
        let mut sent = None;
        if let (true, Some(bytes)) = (self.offers(), self.request.tools_bytes()) {
            let (dialect, waits) = (self.request.dialect, self.guide.waited);
            let with = tools::with_hidden(dialect, bytes, &self.injected, waits)
                .ok_or(MiddleError::Inject)?;
            let front = tools::front(dialect, &self.injected, waits);
            // The client's are counted already, in the conversation if they are declared there.
            self.fixed += match self.request.tools_inside() {
                Some(_) => tokens(&front, tools),
                None => tokens(&with, tools).saturating_sub(tokens(bytes, tools)),
            };
            self.tools = Some(front);
            sent = Some(with);
            if let Some(block) = self.terms.guidance(&self.injected, self.guide.given) {
                match self.guide.among {
                    true => self.stand_among(&block, tools)?,
                    false => self.append(&block, tools)?,
                }
            }
        }
        self.prologue = self.prologue(sent.as_deref());
        Ok(())
    }

    /// Marks of what the client says before its first message, and of how much the model is to think.
    fn front(&self) -> (u32, u32, u32) {
        let system = self.shapes.iter();
        let system = system.take_while(|shape| shape.role == Role::System);
        let system: Vec<&[u8]> = system
            .map(|shape| shape.canonical.as_bytes().as_slice())
            .collect();
        let arrays = &self.request.tools.arrays;
        let body = &self.request.body;
        let tools = arrays.iter().filter_map(|span| body.get(span.clone()));
        let tools: Vec<&[u8]> = tools.collect();
        (
            Digest::of(&system).mark(),
            Digest::of(&tools).mark(),
            self.request.effort,
        )
    }

    /// Tokens of the messages.
    pub(super) fn spoken(&self) -> u64 {
        let sizes = self.shapes.iter().map(|shape| u64::from(shape.tokens()));
        sizes.sum()
    }

    /// Tokens of the client's tools that stand beside the conversation. Those in it are counted with the
    /// units that declare them.
    fn count_tools(&self, tools: &HopContext<'_>) -> u64 {
        let beside = self.request.tools_beside();
        beside.map(|array| tokens(array, tools)).sum()
    }

    /// Tokens of the client's tools that its system text declares.
    fn declared(&self) -> u64 {
        let shapes = self.request.declaring();
        let shapes = shapes.filter_map(|unit| self.shapes.get(unit));
        let system = shapes.filter(|shape| shape.role == Role::System);
        system.map(|shape| u64::from(shape.text)).sum()
    }

    /// The tools to inject. This is decided when they are first offered, and kept, so that the
    /// tools array never changes.
    fn decide(&self) -> Injected {
        if !self.request.takes_tools() {
            return Injected::default();
        }
        let mut before = self.path.entries.iter().rev().map(|entry| &entry.record);
        // Records of requests without tools say nothing: a title or a compaction is a side branch.
        let newest = before.find(|record| record.tooled);
        // The client may have dropped the turn that brought the tools in. What it was told is kept,
        // and so are the tools.
        let offered = |record: &&Arc<TurnRecord>| {
            let named = record.injected.is_some() || record.recall.is_some();
            named || !record.guide.is_waiting() || self.guide.is_waiting()
        };
        if let Some(record) = newest.filter(offered) {
            return Injected {
                delimiter: self.still(HiddenTool::Delimiter, record.injected.as_deref()),
                recall: self.still(HiddenTool::Recall, record.recall.as_deref()),
            };
        }
        if self.guide.is_waiting() && self.terms.offer == Offer::Line {
            return Injected::default();
        }
        self.choose()
    }

    /// The tools for a conversation that has not been offered any.
    pub(super) fn choose(&self) -> Injected {
        // Text beside a hidden call is joined to the text after it, and two pieces of JSON are not
        // one.
        let safe = self.terms.may_inject(self.request.stored) && !self.request.structured;
        let name = |wanted: bool, tool| {
            let free = || tools::free_name(tool, &self.taken());
            (wanted && safe).then(free).flatten()
        };
        Injected {
            delimiter: name(self.terms.inject, HiddenTool::Delimiter),
            recall: name(self.terms.recall, HiddenTool::Recall),
        }
    }

    /// The name of a tool: the one that it had, or a new one if the client has brought a tool of
    /// that name since. The tools array has changed by then, so the new name costs nothing more. It
    /// is kept even if the client's tool goes again.
    fn still(&self, tool: HiddenTool, name: Option<&str>) -> Option<String> {
        let name = name?;
        if self.request.tools.names.iter().any(|taken| taken == name) {
            return tools::free_name(tool, &self.taken());
        }
        Some(name.to_owned())
    }

    /// The names of the client's tools, including tools that only its history calls.
    fn taken(&self) -> Vec<String> {
        let called = self.shapes.iter().flat_map(|shape| &shape.calls);
        let called = called.map(|call| call.name.to_string());
        self.request
            .tools
            .names
            .iter()
            .cloned()
            .chain(called)
            .collect()
    }

    /// Appends a block to the first system message. If there is none, makes one before all other
    /// messages.
    fn append(&mut self, block: &str, tools: &HopContext<'_>) -> Result<(), MiddleError> {
        // Only a system message before the conversation begins: a later one is part of it.
        let leading = self
            .shapes
            .iter()
            .take_while(|shape| !matches!(shape.role, Role::User | Role::Assistant | Role::Tool));
        let declaring: BTreeSet<usize> = self.request.declaring().collect();
        let first = leading
            .enumerate()
            .find(|(at, shape)| shape.role == Role::System && !declaring.contains(at));
        let Some((at, _)) = first else {
            let message = self.request.dialect.system(block);
            self.fixed += u64::from(tools.reader.shape(&message)?.tokens());
            self.guidance = Some((None, message));
            return Ok(());
        };
        let bytes = self.request.message(at);
        // A system message without content is left alone.
        if let Some(guided) = self.request.dialect.append_text(bytes, block) {
            let shape = tools.reader.shape(&guided)?;
            if let Some(slot) = self.shapes.get_mut(at) {
                *slot = shape;
            }
            self.guidance = Some((Some(at), guided));
        }
        Ok(())
    }

    fn prologue(&self, sent: Option<&[u8]>) -> Digest {
        let system = self
            .shapes
            .iter()
            .take_while(|shape| shape.role == Role::System);
        let mut parts: Vec<&[u8]> = system
            .map(|shape| shape.canonical.as_bytes().as_slice())
            .collect();
        let taking = self.request.tools_bytes();
        parts.push(sent.or(taking).unwrap_or_default());
        // Tools in the conversation are among its messages.
        let others = self.request.tools_beside();
        parts.extend(others.filter(|array| taking != Some(*array)));
        Digest::of(&parts)
    }
}

/// Tokens of a text that every request repeats.
fn tokens(text: &[u8], tools: &HopContext<'_>) -> u64 {
    u64::from(tools.reader.remembered(&String::from_utf8_lossy(text)))
}
