//! What the ledger needs to know of a turn, gathered call by call: what was asked, which calls were
//! accepted, what was reported and said. Owns no arithmetic: that is `tokens::ledger`'s.

use crate::dialect::answer::{Answer, Verdict};
use crate::model::Usage;
use crate::tokens::ledger::{self, Account, Asked, Call, Said, Terms, Unsent};
use crate::turn::hidden;
use crate::turn::memo::Reader;
use crate::turn::state::{Prepared, TurnState};

/// The books of one turn. Nothing stands in them before they are opened.
#[derive(Debug, Default)]
pub(super) struct Books {
    terms: Option<Terms>,
    /// The client's own request.
    client: Asked,
    /// The same, sent in place of a view.
    own: Asked,
    /// Calls in order, and whether each was accepted.
    calls: Vec<(Call, bool)>,
    /// The view of a turn that is only watched.
    unsent: Option<Unsent>,
}

impl Books {
    /// Opens them under what both sides have in common.
    pub(super) fn open(&mut self, terms: Terms) {
        self.terms = Some(terms);
    }

    /// A view is about to be sent. Where it takes the place of one that was refused, what was cut for
    /// that one is cut from this one too.
    pub(super) fn prepared(&mut self, state: &TurnState, prepared: &Prepared) {
        (self.client, self.own) = (state.client_asked(), state.own_asked());
        let mut asked = prepared.asked;
        if let Some((refused, _)) = self.calls.pop_if(|(_, accepted)| !*accepted) {
            asked.held = asked.held.min(refused.asked.held);
        }
        let call = Call {
            asked,
            whole: prepared.whole,
            ..Call::default()
        };
        self.calls.push((call, false));
    }

    /// The client's own request is about to be sent, in place of a view that was refused or behind
    /// one that can't be read.
    pub(super) fn own(&mut self) {
        self.calls.pop_if(|(_, accepted)| !*accepted);
        let call = Call {
            asked: self.own,
            whole: self.own.tokens,
            ..Call::default()
        };
        self.calls.push((call, false));
    }

    /// The client's own request is about to be sent, because the turn is only watched. Where that goes
    /// on from what nothing is known of, the provider holds it, and the view would have changed it.
    pub(super) fn watched(&mut self, state: &TurnState, anew: bool) {
        if let Some((view, _)) = self.calls.pop() {
            let (mut asked, whole) = (view.asked, view.whole);
            if anew {
                asked.before = asked.before.max(asked.held + 1);
            }
            let alike = state.before_answers();
            self.unsent = Some(Unsent {
                asked,
                whole,
                alike,
            });
        }
        let call = Call {
            asked: self.client,
            whole: self.client.tokens,
            ..Call::default()
        };
        self.calls.push((call, false));
    }

    /// Whether the turn is only watched.
    pub(super) fn is_watched(&self) -> bool {
        self.unsent.is_some()
    }

    /// The newest call was answered.
    pub(super) fn answered(&mut self, accepted: bool) {
        if let Some((_, is_accepted)) = self.calls.last_mut() {
            *is_accepted = accepted;
        }
    }

    /// The answer of the newest call has ended.
    pub(super) fn ended(&mut self, usage: Option<Usage>, said: Said) {
        if let Some((call, _)) = self.calls.last_mut() {
            (call.usage, call.said) = (usage, said);
        }
    }

    /// What the turn came to; none where nothing was accepted or nothing is known of it.
    pub(super) fn account(&self) -> Option<Account> {
        let accepted = self.calls.iter().filter(|(_, accepted)| *accepted);
        let calls: Vec<Call> = accepted.map(|(call, _)| *call).collect();
        let terms = self.terms.as_ref()?;
        match (self.unsent, calls.as_slice()) {
            (Some(_), [call]) => Some(ledger::untouched(terms, call)),
            _ => ledger::account(terms, self.client, &calls),
        }
    }

    /// What a turn that is only watched would have come to; none of any other.
    pub(super) fn projected(&self) -> Option<Account> {
        let (call, accepted) = self.calls.last()?;
        let terms = self.terms.as_ref().filter(|_| *accepted)?;
        Some(ledger::projected(terms, self.unsent?, call))
    }
}

/// What an answer holds, as far as the ledger asks for it: what is reported need not be counted.
pub(super) fn said(answer: &Answer, reader: &Reader<'_>) -> Said {
    let call = |call: &crate::dialect::answer::Call| {
        u64::from(reader.count(&call.name)) + u64::from(reader.count(&call.arguments))
    };
    let hidden = answer.hidden_calls().map(|(_, one)| call(one)).sum();
    let alone = answer.verdict() == Verdict::HiddenOnly;
    let mut said = Said {
        hidden,
        alone,
        ..Said::default()
    };
    if alone || answer.usage.is_none() {
        let (text, reasoning) = hidden::weigh(answer, reader);
        let visible: u64 = answer.visible_calls().map(|(_, one)| call(one)).sum();
        said.text = u64::from(text);
        said.all = said.text + u64::from(reasoning) + hidden + visible;
    }
    said
}
