//! How a chunk, or an unstreamed body, is written anew for the client: without hidden calls, with
//! other numbers, with what signs calls moved to the calls that the client gets. One chunk at a
//! time, by a plan; it never decides what the plan says.

use bytes::Bytes;
use plimsoll_model::Usage;
use plimsoll_model::raw::{self, Edit};

use super::call_part::CallPart;
use super::chunk::{Chunk, is_nothing};
use super::proxy_events::Origin;
use super::usage::COUNTS;
use crate::chat::signature::{DETAILS, Signature};
use crate::chat::stream::beside_text;
use crate::json::{self, ListEdit, Node, splice};

/// How a chunk is written anew.
#[derive(Default)]
pub struct RewritePlan<'a> {
    /// The first hop's id and time, if the chunk is of a later hop.
    pub origin: Option<&'a Origin>,
    /// Whether the client has been told the role already.
    pub drop_role: bool,
    /// What becomes of each of [`Chunk::calls`].
    pub calls: &'a [CallPlan],
    /// What the chunk gets of calls that the client does not see.
    pub signs: Option<&'a ChunkSigns>,
    /// Whether the hop has a hidden call, so that the chunk's `logprobs` may tell of its tokens.
    pub hides: bool,
    /// Newlines to put into the text.
    pub seam: Option<Seam>,
    /// How many characters the client has before the hop's own text.
    pub before: usize,
    /// What becomes of the usage.
    pub usage: UsagePlan<'a>,
    /// Whether the finish reason becomes null, because another hop follows.
    pub goes_on: bool,
}

/// What becomes of one call in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPlan {
    /// It stays as it is.
    Keep,
    /// It stays, under this index (if it has one at all).
    Number(u64),
    /// It is left out.
    Hide,
}

/// Newlines that go into a chunk's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seam {
    /// Where in the data.
    pub at: usize,
    /// How many.
    pub newlines: usize,
}

/// What becomes of the usage in a chunk.
#[derive(Clone, Copy, Default)]
pub enum UsagePlan<'a> {
    /// It stays.
    #[default]
    Keep,
    /// It becomes null.
    Remove,
    /// These counts take its place.
    Replace(&'a Usage),
}

/// What one chunk gets, or loses, of what signs calls.
#[derive(Debug, Default)]
pub struct ChunkSigns {
    /// Signatures for calls, by their places in the chunk's array.
    pub calls: Vec<(usize, Signature)>,
    /// The chunk's `reasoning_details`, if they change.
    pub details: Option<ListEdit>,
}

impl ChunkSigns {
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.details.is_none()
    }

    /// The new `reasoning_details`, if there are any.
    fn new_details(&self) -> Option<&Bytes> {
        match &self.details {
            Some(ListEdit::Replace(array)) => Some(array),
            Some(ListEdit::Remove) | None => None,
        }
    }
}

impl RewritePlan<'_> {
    fn new_details(&self) -> Option<&Bytes> {
        self.signs.and_then(ChunkSigns::new_details)
    }

    fn removes_details(&self) -> bool {
        let details = self.signs.and_then(|signs| signs.details.as_ref());
        details == Some(&ListEdit::Remove)
    }

    /// Whether the call at this place of the array is left out.
    fn hides(&self, calls: &[CallPart<'_>], place: usize) -> bool {
        let mut calls = calls.iter().zip(self.calls);
        calls.any(|(part, plan)| part.place == place && *plan == CallPlan::Hide)
    }
}

impl Chunk<'_> {
    /// Writes the chunk anew by the plan; `None` if nothing is left that says anything.
    pub fn rewrite(&self, plan: &RewritePlan<'_>) -> Option<Bytes> {
        if self.says_nothing(plan) {
            return None;
        }
        let mut edits = self.delta_edits(plan);
        edits.extend(self.token_edit(plan));
        if let Some(origin) = plan.origin {
            edits.extend(self.origin_edits(origin));
        }
        edits.extend(self.usage_edits(plan.usage));
        if let (true, Some(choice), Some(_)) = (plan.goes_on, &self.choice, self.finish()) {
            edits.push(choice.set("finish_reason", b"null"));
        }
        if let Some(seam) = &plan.seam {
            let newlines = Bytes::from(r"\n".repeat(seam.newlines));
            edits.push((seam.at..seam.at, newlines));
        }
        Some(splice(self.data, edits))
    }

    /// The edits of the delta: they take out hidden calls and a second role, give the visible calls
    /// their numbers, and put in what signs calls.
    pub fn delta_edits(&self, plan: &RewritePlan<'_>) -> Vec<Edit> {
        let Some(delta) = &self.delta else {
            return Vec::new();
        };
        let hidden = |place: usize| plan.hides(&self.calls, place);
        let all_hidden = !self.call_spans.is_empty() && (0..self.call_spans.len()).all(hidden);
        let members = delta.object.members();
        let gone = |place: usize| {
            let key = members.get(place).map(|member| member.key.as_ref());
            match key {
                Some("role") => plan.drop_role,
                Some("tool_calls") => all_hidden,
                Some(DETAILS) => plan.removes_details(),
                Some(_) | None => false,
            }
        };
        // If all members go, cutting them and appending `reasoning_details` would lack a comma.
        if let (Some(array), Some(first), Some(last)) =
            (plan.new_details(), members.first(), members.last())
            && (0..members.len()).all(gone)
        {
            let alone = [b"\"", DETAILS.as_bytes(), b"\":", array].concat();
            let all = first.span.start..last.span.end;
            return vec![delta.shifted((all, Bytes::from(alone)))];
        }
        let cuts = json::cuts(&delta.object, gone).into_iter();
        let mut edits: Vec<Edit> = cuts.map(|cut| delta.shifted(cut)).collect();
        for (place, own) in plan.signs.iter().flat_map(|signs| &signs.calls) {
            let call = self.call_spans.get(*place);
            let call = call.and_then(|span| Node::at(self.data, span));
            edits.extend(call.map(|call| call.set(&own.key, &own.raw)));
        }
        edits.extend(plan.new_details().map(|array| delta.set(DETAILS, array)));
        if plan.before > 0 {
            edits.extend(beside_text::moved_list(delta, plan.before));
        }
        if !all_hidden {
            let cuts = raw::remove_spans(&self.call_spans, hidden);
            edits.extend(cuts.into_iter().map(|cut| (cut, Bytes::new())));
        }
        for (part, plan) in self.calls.iter().zip(plan.calls) {
            if let (CallPlan::Number(number), Some(span)) = (plan, &part.index_span) {
                edits.push((span.clone(), Bytes::from(number.to_string())));
            }
        }
        edits
    }

    /// The edit that takes out `logprobs` that the client must not read.
    pub fn token_edit(&self, plan: &RewritePlan<'_>) -> Option<Edit> {
        let stray = plan.hides.then(|| self.stray_tokens()).flatten()?;
        Some((stray, Bytes::from_static(b"null")))
    }

    /// The edits that give the response the first hop's id and time.
    pub fn origin_edits(&self, origin: &Origin) -> Vec<Edit> {
        [("id", &origin.id), ("created", &origin.created)]
            .into_iter()
            .filter_map(|(key, value)| Some((self.top.span(key)?, value.clone()?)))
            .collect()
    }

    /// The edits of the usage.
    pub fn usage_edits(&self, plan: UsagePlan<'_>) -> Vec<Edit> {
        let usages = self.usages();
        match plan {
            UsagePlan::Keep => Vec::new(),
            UsagePlan::Remove => usages
                .map(|usage| (usage.whole(), Bytes::from_static(b"null")))
                .collect(),
            UsagePlan::Replace(counts) => usages
                .flat_map(|usage| COUNTS.write(&usage, counts))
                .collect(),
        }
    }

    /// The edit that gives the chunk this speech, if it has none.
    pub fn audio_edit(&self, audio: &[u8]) -> Option<Edit> {
        let delta = self.delta.as_ref()?;
        let mute = delta.object.present("audio").is_none();
        mute.then(|| delta.set("audio", audio))
    }

    /// The edit that gives the finish reason this value.
    pub fn finish_edit(&self, reason: &str) -> Option<Edit> {
        let reason = raw::quote(reason);
        Some(
            self.choice
                .as_ref()?
                .set("finish_reason", reason.as_bytes()),
        )
    }

    /// Whether nothing is left that says anything once the plan was carried out.
    fn says_nothing(&self, plan: &RewritePlan<'_>) -> bool {
        let counts = !matches!(plan.usage, UsagePlan::Remove) && self.has_usage();
        let ends = !plan.goes_on && self.finish().is_some();
        // A token that is half a character comes without a text, and is still needed.
        let tokens = self.tokens().is_some() && self.token_edit(plan).is_none();
        if counts || ends || tokens || plan.new_details().is_some() || self.choices > 1 {
            return false;
        }
        match (&self.choice, &self.delta) {
            // A chunk of usage only, and the usage goes.
            (None, _) => self.is_usage_only(),
            // No delta: filter results and the like, which are for the client to judge.
            (Some(_), None) => false,
            (Some(_), Some(delta)) => delta.object.members().iter().all(|member| {
                is_nothing(delta.value(member))
                    || match member.key.as_ref() {
                        "role" => plan.drop_role,
                        DETAILS => plan.removes_details(),
                        "tool_calls" => {
                            (0..self.call_spans.len()).all(|at| plan.hides(&self.calls, at))
                        }
                        _ => false,
                    }
            }),
        }
    }
}
