//! Fills a view up to a size, so that views are compared at one: with the first lines of results of which a pass left a part,
//! the newest first. Never touches what was sent whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::explored::read;
use crate::{Lab, seats};

/// Fills a view up to a size. `originals` are the texts of results by call, and `but` the calls whose results stay as they are.
pub(super) fn fill(
    lab: &Lab,
    view: &mut [Vec<u8>],
    originals: &BTreeMap<&str, &str>,
    but: &BTreeSet<String>,
    target: u64,
) {
    let mut size = seats::tokens(lab, view);
    for message in view.iter_mut().rev() {
        let Some(room) = target.checked_sub(size).filter(|room| *room > 0) else {
            return;
        };
        let Some(shown) = read(message) else { continue };
        let (Some(id), Some(stub)) = (shown.answers, shown.text) else {
            continue;
        };
        let original = originals.get(id.as_str()).filter(|_| !but.contains(&id));
        if let (Some(original), true) = (original, is_stub(&stub)) {
            let filled = fitted(lab, message, &stub, original, room);
            size = size.saturating_sub(seats::tokens(lab, std::slice::from_ref(message)));
            size += seats::tokens(lab, std::slice::from_ref(&filled));
            *message = filled;
        }
    }
}

/// A result with its stub's lines, and as many of the first lines of its original as fit into some room.
pub(super) fn fitted(lab: &Lab, message: &[u8], stub: &str, original: &str, room: u64) -> Vec<u8> {
    let most = seats::tokens(lab, &[message.to_vec()]).saturating_add(room);
    let lines: Vec<&str> = original.lines().collect();
    let (head, rest) = stub.split_once('\n').unwrap_or((stub, ""));
    let mut left = rest.lines().filter(|line| *line != "…").peekable();
    // Which of the lines the stub shows.
    let shown: Vec<bool> = lines
        .iter()
        .map(|line| left.next_if_eq(line).is_some())
        .collect();
    let head = head.trim_end_matches(']').replace("[evicted", "[clipped");
    let head = head.trim_end_matches("; lines left out: …");
    let with = |count: usize| {
        let mut text = format!("{head}; lines left out: …]");
        let mut gap = false;
        for ((at, line), shown) in lines.iter().enumerate().zip(&shown) {
            if at < count || *shown {
                text.push('\n');
                text.push_str(line);
            } else if !gap {
                text.push_str("\n…");
            }
            gap = at >= count && !shown;
        }
        if count == lines.len() {
            original.clone_into(&mut text);
        }
        let mut value: Value = serde_json::from_slice(message).unwrap_or_default();
        if let Some(content) = value.get_mut("content") {
            *content = text.into();
        }
        value.to_string().into_bytes()
    };
    let fits = |count: &usize| seats::tokens(lab, &[with(*count)]) <= most;
    // Sizes grow with the lines.
    let counts: Vec<usize> = (1..=lines.len()).collect();
    match counts.partition_point(fits) {
        0 => message.to_vec(),
        count => with(count),
    }
}

/// Whether a text stands for a result of which a pass left a line, or some lines.
fn is_stub(text: &str) -> bool {
    text.starts_with("[evicted ") || text.starts_with("[clipped ")
}
