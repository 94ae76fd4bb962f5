//! Gathers what the ledger needs to know of a turn, call by call: what was asked, which calls were
//! accepted, what was reported and what was answered. Never computes anything: `tokens::ledger`
//! does that.

use plimsoll_core::turn::hidden;
use plimsoll_core::turn::memo::Reader;
use plimsoll_core::turn::state::{Prepared, TurnState};
use plimsoll_model::Usage;
use plimsoll_tokens::ledger::{
    self, Account, AnswerSizes, LedgerCall, LedgerTerms, RequestSizes, UnsentView,
};
use plimsoll_wire::answer::{Answer, Verdict};

/// The ledger's input for one turn. It is empty until the terms are set.
#[derive(Debug, Default)]
pub(super) struct LedgerInput {
    terms: Option<LedgerTerms>,
    /// The client's own request.
    client: RequestSizes,
    /// The client's own request, where it is sent in place of a view.
    own: RequestSizes,
    /// The calls in order. The flag says whether the upstream accepted the call.
    calls: Vec<(LedgerCall, bool)>,
    /// The view that was not sent, because the turn is only watched.
    unsent: Option<UnsentView>,
    /// Whether the conversation is shown otherwise than the client has it.
    edited: bool,
    /// Whether the client's request is forwarded by itself, so that there is nothing to compare it with.
    forwarded: bool,
    /// Whether the newest call's answer was heard.
    heard: bool,
}

impl LedgerInput {
    /// Sets what both sides of the ledger have in common.
    pub(super) fn open(&mut self, terms: LedgerTerms) {
        self.terms = Some(terms);
    }

    /// Notes that a view is about to be sent. If it replaces a view that was refused, it may not
    /// count on more of the cache than the refused view could.
    pub(super) fn prepared(&mut self, state: &TurnState, prepared: &Prepared) {
        (self.client, self.own) = (state.client_asked(), state.own_asked());
        self.edited = state.is_edited(prepared.estimate, prepared.whole);
        let mut asked = prepared.asked;
        if let Some((refused, _)) = self.calls.pop_if(|(_, accepted)| !*accepted) {
            asked.held = asked.held.min(refused.asked.held);
        }
        let call = LedgerCall {
            asked,
            whole: prepared.whole,
            front: state.added_in_front(),
            edited: self.edited,
            ..LedgerCall::default()
        };
        // Most turns have one call, and a list that grows by itself begins with room for four.
        self.calls.reserve_exact(1);
        self.calls.push((call, false));
        self.heard = false;
    }

    /// Notes that the client's own request is about to be sent, because a view was refused or the
    /// answer to a view can't be read.
    pub(super) fn own(&mut self) {
        self.calls.pop_if(|(_, accepted)| !*accepted);
        let call = LedgerCall {
            asked: self.own,
            whole: self.own.tokens,
            edited: self.edited,
            ..LedgerCall::default()
        };
        self.calls.push((call, false));
        self.heard = false;
    }

    /// Notes that the client's own request is about to be sent, because the turn is only watched.
    /// `anew` says that the conversation goes on but nothing is known of its past: the provider has
    /// it in its cache, and the view would have changed it.
    pub(super) fn watched(&mut self, state: &TurnState, anew: bool) {
        if let Some((view, _)) = self.calls.pop() {
            let (mut asked, whole) = (view.asked, view.whole);
            // `breaks` compares these two: the view would have broken the prefix that the provider holds.
            if anew {
                asked.before = asked.before.max(asked.held + 1);
            }
            let alike = state.before_answers();
            self.unsent = Some(UnsentView {
                asked,
                whole,
                edited: view.edited,
                alike,
            });
        }
        let call = LedgerCall {
            asked: self.client,
            whole: self.client.tokens,
            ..LedgerCall::default()
        };
        self.calls.push((call, false));
        self.heard = false;
    }

    /// Whether the newest call's answer was heard, so that the account is complete.
    pub(super) fn is_heard(&self) -> bool {
        self.heard
    }

    /// Whether the turn is only watched.
    pub(super) fn is_watched(&self) -> bool {
        self.unsent.is_some()
    }

    /// Notes what a forwarded request cost, under these terms if none are set. Where neither terms nor usage are known
    /// there is no account.
    pub(super) fn forwarded(&mut self, terms: LedgerTerms, usage: Option<Usage>) {
        self.terms = self.terms.or(usage.map(|_| terms));
        self.forwarded = true;
        if self.calls.is_empty() {
            self.calls.push((LedgerCall::default(), true));
        }
        self.ended(usage, AnswerSizes::default());
    }

    /// Notes whether the upstream accepted the newest call.
    pub(super) fn answered(&mut self, accepted: bool) {
        if let Some((_, is_accepted)) = self.calls.last_mut() {
            *is_accepted = accepted;
        }
    }

    /// Notes the end of the newest call's answer.
    pub(super) fn ended(&mut self, usage: Option<Usage>, said: AnswerSizes) {
        if let Some((call, _)) = self.calls.last_mut() {
            (call.usage, call.said) = (usage, said);
            self.heard = true;
        }
    }

    /// The account of the turn. `None` if no call was accepted, or if the terms are not known.
    pub(super) fn account(&self) -> Option<Account> {
        let accepted = self.calls.iter().filter(|(_, accepted)| *accepted);
        let calls: Vec<LedgerCall> = accepted.map(|(call, _)| *call).collect();
        let terms = self.terms.as_ref()?;
        match calls.as_slice() {
            [call] if self.is_watched() || self.forwarded => Some(ledger::untouched(terms, call)),
            _ => ledger::account(terms, self.client, &calls),
        }
    }

    /// The account that a watched turn would have had as a managed one. `None` for any other turn.
    pub(super) fn projected(&self) -> Option<Account> {
        let (call, accepted) = self.calls.last()?;
        let terms = self.terms.as_ref().filter(|_| *accepted)?;
        Some(ledger::projected(terms, self.unsent?, call))
    }
}

/// The sizes of an answer that the ledger asks for. What the upstream reported is not counted
/// again.
pub(super) fn answer_sizes(answer: &Answer, reader: &Reader<'_>) -> AnswerSizes {
    let call = |call: &plimsoll_wire::answer::Call| {
        u64::from(reader.count(&call.name)) + u64::from(reader.count(&call.arguments))
    };
    let hidden = answer.hidden_calls().map(|(_, one)| call(one)).sum();
    let alone = answer.verdict() == Verdict::HiddenOnly;
    let mut said = AnswerSizes {
        hidden,
        alone,
        ..AnswerSizes::default()
    };
    // Counting is not free. It is needed only where the provider's figures do not say enough.
    if alone || answer.usage.is_none() {
        let (text, reasoning) = hidden::weigh(answer, reader);
        let visible: u64 = answer.visible_calls().map(|(_, one)| call(one)).sum();
        said.text = u64::from(text);
        said.all = said.text + u64::from(reasoning) + hidden + visible;
    }
    said
}
