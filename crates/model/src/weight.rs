//! The bytes of memory that cached values take, so that caches are bounded by bytes. Computes what
//! a value owns, with the overhead of an allocator; never measures.

use std::mem::size_of;

use super::caches::Shared;
use super::{
    BoundTo, CallShape, Effect, HiddenCall, Kept, PassFacts, Shape, StoredHop, TurnFacts,
    TurnRecord,
};

/// Bytes that an allocation of so many bytes takes: allocators round up.
#[must_use]
pub const fn block(bytes: usize) -> usize {
    if bytes == 0 {
        0
    } else {
        bytes + bytes / 8 + 16
    }
}

/// Bytes that an allocation of a shared value takes, with its two reference counts.
#[must_use]
pub const fn shared<T>() -> usize {
    block(size_of::<T>() + 2 * size_of::<usize>())
}

/// Bytes that a text owns.
#[must_use]
pub fn text(text: &String) -> usize {
    block(text.capacity())
}

fn optional(option: Option<&String>) -> usize {
    option.map_or(0, text)
}

/// Bytes that a list owns, without what its elements own.
#[must_use]
pub fn list<T>(list: &Vec<T>) -> usize {
    block(list.capacity() * size_of::<T>())
}

/// Bytes that a list and its elements own.
fn all<T>(elements: &Vec<T>, each: impl Fn(&T) -> usize) -> usize {
    list(elements) + elements.iter().map(each).sum::<usize>()
}

impl Shared for TurnRecord {
    fn weight(&self) -> usize {
        let calls = all(&self.calls, |(id, name)| text(&id.0) + text(name));
        let words = [&self.handed, &self.model, &self.session];
        let options = [
            &self.injected,
            &self.recall,
            &self.parent_session,
            &self.profile,
        ];
        shared::<Self>()
            + all(&self.hops, StoredHop::owned)
            + calls
            + words.into_iter().map(text).sum::<usize>()
            + optional(self.split.as_ref().map(|split| &split.profile))
            + options
                .map(|option| optional(option.as_ref()))
                .iter()
                .sum::<usize>()
            + list(&self.dropped)
            + self.facts.owned()
    }
}

impl TurnFacts {
    /// Bytes that it takes in a box.
    fn owned(&self) -> usize {
        block(size_of::<Self>())
            + all(&self.request_ids, text)
            + optional(self.fail_open.as_ref())
            + list(&self.items)
            + all(&self.tools, |(_, name)| text(name))
    }
}

impl StoredHop {
    fn owned(&self) -> usize {
        optional(self.message.as_ref())
            + all(&self.calls, HiddenCall::owned)
            + list(&self.marks)
            + list(&self.left)
            + all(&self.kept, |(_, kept)| kept.owned())
            + self.pass.as_deref().map_or(0, |pass| {
                let held = all(&pass.held, |(name, _, _)| text(name));
                block(size_of::<PassFacts>()) + text(&pass.trigger) + held
            })
            + self
                .bound_to
                .as_ref()
                .map_or(0, |_| block(size_of::<BoundTo>()))
    }
}

impl HiddenCall {
    fn owned(&self) -> usize {
        let texts = [&self.id.0, &self.bytes, &self.arguments, &self.result];
        let texts: usize = texts.into_iter().map(text).sum();
        texts + all(&self.pictures, text) + self.effect.owned()
    }
}

impl Effect {
    fn owned(&self) -> usize {
        match self {
            Self::Started {
                name, dependencies, ..
            } => text(name) + all(dependencies, text),
            Self::Ended { name, description } => text(name) + optional(description.as_ref()),
            Self::Recalled { id, originals, .. } => text(id) + list(originals),
            Self::Refused => 0,
        }
    }
}

impl Kept {
    /// Bytes that it owns.
    #[must_use]
    pub fn owned(&self) -> usize {
        list(&self.lines) + optional(self.refers.as_ref())
    }
}

impl Shared for Shape {
    fn weight(&self) -> usize {
        let call = |call: &CallShape| text(&call.id.0) + text(&call.name);
        let answers = self.result_of.as_ref().map_or(0, |id| text(&id.0));
        shared::<Self>() + all(&self.calls, call) + answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallId, ItemNo, ItemSize, StoredMark};

    const MUCH: usize = 10_000;

    fn much() -> String {
        "x".repeat(MUCH)
    }

    fn with(change: fn(&mut TurnRecord, String)) -> TurnRecord {
        let mut record = TurnRecord::default();
        change(&mut record, much());
        record
    }

    fn facts(change: fn(&mut TurnFacts, String)) -> TurnRecord {
        let mut facts = TurnFacts::default();
        change(&mut facts, much());
        TurnRecord {
            facts: Box::new(facts),
            ..TurnRecord::default()
        }
    }

    fn hop(hop: StoredHop) -> TurnRecord {
        TurnRecord {
            hops: vec![hop],
            ..TurnRecord::default()
        }
    }

    fn kept(change: fn(&mut Kept, Vec<(u32, u32)>)) -> TurnRecord {
        let mut kept = Kept::default();
        change(&mut kept, vec![(0, 0); MUCH / 8]);
        hop(StoredHop {
            kept: vec![(ItemNo(0), kept)],
            ..StoredHop::default()
        })
    }

    fn hidden(change: fn(&mut HiddenCall, String)) -> TurnRecord {
        let mut call = HiddenCall {
            id: CallId(String::new()),
            place: 0,
            bytes: String::new(),
            arguments: String::new(),
            tokens: 0,
            result: String::new(),
            pictures: Vec::new(),
            result_tokens: 0,
            effect: Effect::Refused,
            nudge: false,
            tells: false,
            tool: crate::HiddenTool::Delimiter,
            block: None,
            signed: false,
        };
        change(&mut call, much());
        hop(StoredHop {
            calls: vec![call],
            ..StoredHop::default()
        })
    }

    fn started(name: String, dependencies: Vec<String>) -> Effect {
        Effect::Started {
            name,
            kind: crate::ExplicitKind::Act,
            dependencies,
        }
    }

    /// Every field that can be large is weighed: what it grows by, the weight grows by.
    #[test]
    fn a_record_weighs_what_any_part_of_it_takes() {
        let records = [
            with(|record, much| record.handed = much),
            with(|record, much| record.model = much),
            with(|record, much| record.session = much),
            with(|record, much| record.injected = Some(much)),
            with(|record, much| record.recall = Some(much)),
            with(|record, much| record.parent_session = Some(much)),
            with(|record, much| record.profile = Some(much)),
            with(|record, much| {
                record.split = Some(crate::SplitPlace {
                    profile: much,
                    tried: true,
                });
            }),
            facts(|facts, much| facts.request_ids = vec![much]),
            facts(|facts, much| facts.fail_open = Some(much)),
            facts(|facts, much| facts.tools = vec![(ItemNo(0), much)]),
            facts(|facts, _| facts.items = vec![ItemSize(ItemNo(0), 0, 0); MUCH / 12 + 1]),
            hop(StoredHop {
                left: vec![0; MUCH / 4],
                ..StoredHop::default()
            }),
            hop(StoredHop {
                pass: Some(Box::new(PassFacts {
                    held: vec![(much(), 0, crate::Held::Open)],
                    ..PassFacts::default()
                })),
                ..StoredHop::default()
            }),
            with(|record, much| record.calls = vec![(CallId(much), String::new())]),
            with(|record, much| record.calls = vec![(CallId(String::new()), much)]),
            hop(StoredHop {
                message: Some(much()),
                ..StoredHop::default()
            }),
            hop(StoredHop {
                marks: vec![(ItemNo(0), StoredMark::Live); MUCH / 8],
                ..StoredHop::default()
            }),
            kept(|kept, spans| kept.lines = spans),
            hidden(|call, much| call.id = CallId(much)),
            hidden(|call, much| call.bytes = much),
            hidden(|call, much| call.arguments = much),
            hidden(|call, much| call.result = much),
            hidden(|call, much| call.effect = started(much, vec![])),
            hidden(|call, much| call.effect = started(String::new(), vec![much])),
            hidden(|call, much| {
                call.effect = Effect::Ended {
                    name: String::new(),
                    description: Some(much),
                };
            }),
        ];
        for record in records {
            let weight = record.weight();
            let most = MUCH + MUCH / 4 + 2_000;
            assert!((MUCH..most).contains(&weight), "{weight}: {record:?}");
        }
    }

    #[test]
    fn a_shape_weighs_its_ids() {
        let long = "x".repeat(5_000);
        let call = CallShape {
            id: CallId(long.clone()),
            name: long.clone(),
            tokens: 1,
            digest: 0,
        };
        let shape = Shape {
            role: crate::Role::Assistant,
            canonical: crate::Digest::default(),
            nameless: crate::Digest::default(),
            calls: vec![call],
            result_of: Some(CallId(long)),
            text: 0,
            reasoning: 0,
            opaque: false,
            whole: false,
            blank: false,
        };
        assert!(
            (15_000..20_000).contains(&shape.weight()),
            "{}",
            shape.weight()
        );
    }
}
