//! What the ledger needs to know of a turn, gathered call by call: what was asked, which calls were
//! accepted, what was reported and said. Owns no arithmetic: that is `tokens::ledger`'s.

use crate::dialect::answer::{Answer, Verdict};
use crate::model::Usage;
use crate::tokens::ledger::{self, Account, Asked, Call, Said, Terms};
use crate::turn::hidden;
use crate::turn::hop::{Prepared, State};
use crate::turn::known::Reader;

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
}

impl Books {
    /// Opens them under what both sides have in common.
    pub(super) fn open(&mut self, terms: Terms) {
        self.terms = Some(terms);
    }

    /// A view is about to be sent. Where it takes the place of one that was refused, what was cut for
    /// that one is cut from this one too.
    pub(super) fn prepared(&mut self, state: &State, prepared: &Prepared) {
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
        ledger::account(self.terms.as_ref()?, self.client, &calls)
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
