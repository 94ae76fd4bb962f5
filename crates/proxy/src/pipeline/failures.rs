//! Requests to models that failed, for those who look on: what the client got, which calls were made, and what was
//! said. Owns what counts as a failure, how much of them is kept, in memory alone, and which make room. Keeps what an
//! upstream said only where content may be shown, and costs a turn nothing that is answered.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use parking_lot::Mutex;
use plimsoll_model::{Erased, LabelSet as _, label_set};
use serde_json::Value;

use super::app::App;
use super::erasing::Began;
use super::error::ProxyError;
use super::listen::{AnswerEnd, HeardBody, Listener};
use super::live::{Happened, counts};
use super::reporter::Reporter;
use super::request_ids::request_id;
use super::send::REFUSAL_BYTES;
use super::settings::ShownContent;
use super::unpack::Unpack;
use crate::record::{AbortSide, FailedStage, RetryReason, Route, TurnReport};

/// The most bytes that all failures take which are kept.
const MOST_BYTES: usize = 1 << 20;
/// What an entry takes beside what it owns: its places in the maps and its counts.
const ENTRY_BYTES: usize = 128;
/// The most bytes of what an upstream said that are kept.
const TEXT_BYTES: usize = 2 << 10;
/// The most bytes of a refusal that are read for its word.
const READ_BYTES: usize = 16 << 10;
/// The longest word of a refusal, and how many characters of a model's name are kept.
const NAME_CHARS: usize = 80;

label_set!(
    /// How a request failed, as its client saw it.
    FailureKind {
        /// A status from 400 to 499.
        Refused => "4xx",
        /// A status from 500 on.
        Failed => "5xx",
        /// An answer that broke off, or that was an error under a status of success.
        Broken => "broken",
    }
);

/// What is known of why a request fails, as far as its turn has come.
#[derive(Clone, Debug, Default)]
pub struct FailureCause {
    /// What the proxy says of it.
    pub own: Option<String>,
    /// The word for programs in what the upstream said, or the proxy's own.
    pub code: Option<String>,
    /// What the upstream said, cut. `None` if it said nothing, or if that may not be shown.
    pub said: Option<String>,
    /// The call that passed the client's own request on, if no hop stands for it.
    passed: Option<FailedCall>,
    shown: ShownContent,
}

/// An upstream call of a request that failed.
#[derive(Clone, Debug)]
pub struct FailedCall {
    /// What it was answered. `None` if it was not.
    pub status: Option<StatusCode>,
    /// The upstream's id of it.
    pub request_id: Option<String>,
}

impl FailureCause {
    /// Nothing is known yet. `shown` says which content may be shown.
    pub(super) fn new(shown: ShownContent) -> Self {
        Self {
            shown,
            ..Self::default()
        }
    }

    /// Notes the error that ends the request.
    pub(super) fn stopped(&mut self, error: &ProxyError) {
        self.own = Some(error.to_string());
        self.code = Some(error.code().to_owned());
    }

    /// Notes why the answer ends before its end.
    pub(super) fn because(&mut self, cause: &str) {
        self.own = Some(cause.to_owned());
    }

    /// Notes what the upstream said as it refused.
    pub(super) fn refused(&mut self, said: &[u8]) {
        let read = said.get(..READ_BYTES).unwrap_or(said);
        let value: Value = serde_json::from_slice(read).unwrap_or_default();
        self.code = code(&value).map(str::to_owned);
        let text = said.get(..TEXT_BYTES).unwrap_or(said);
        // Half a letter at the cut is left out.
        let text = String::from_utf8_lossy(text);
        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER).trim();
        // Nothing of it is stored, so it may be shown where what is in memory may be.
        let shows = self.shown == ShownContent::Live && !text.is_empty();
        self.said = shows.then(|| text.to_owned());
    }

    /// Notes how the client's own request was refused, which no hop stands for.
    pub(super) fn passed(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.passed = Some(FailedCall {
            status: Some(status),
            request_id: request_id(headers),
        });
    }

    fn owned(&self) -> usize {
        let texts = [&self.own, &self.code, &self.said];
        texts.iter().map(|text| len(text.as_deref())).sum()
    }
}

/// The word for programs in an error. Anything that is no plain word may be content.
fn code(value: &Value) -> Option<&str> {
    let within = value.get("response").unwrap_or(value);
    let error = within.get("error").unwrap_or(within);
    let plain = |text: &&str| {
        let fits = !text.is_empty() && text.len() <= NAME_CHARS;
        fits && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    let words = ["code", "type"].into_iter();
    let mut words = words.filter_map(|name| error.get(name)?.as_str());
    words.find(plain)
}

fn len(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}

/// A request that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its number among all failures of the process, from 1.
    pub number: u64,
    /// When it ended, in milliseconds since 1970.
    pub at: u64,
    /// The short hash of its tenant; empty if it was refused before that was known.
    pub tenant: String,
    /// The name of its session; empty if it was not placed in one.
    pub session: String,
    /// The number that its turn would have had. 0 without a session.
    pub turn: u64,
    /// The model as the client named it; empty if that was not read.
    pub model: String,
    /// Its route.
    pub route: Route,
    /// How it failed.
    pub kind: FailureKind,
    /// The status that the client got.
    pub status: StatusCode,
    /// Its upstream calls, in order. Those of one hop that were tried again are one call.
    pub calls: Vec<FailedCall>,
    /// Why calls were repeated, in order.
    pub retried: Vec<RetryReason>,
    /// The stage because of which the client's own request was sent.
    pub fail_open: Option<FailedStage>,
    /// Why.
    pub cause: FailureCause,
}

impl Failure {
    /// The failure of a finished request, if it is one. A client that left took its question back, so that is none.
    /// `row` is the name of the row in which the turn counts, if it was recorded all the same.
    pub(super) fn of(
        report: &TurnReport,
        cause: Option<Box<FailureCause>>,
        row: Option<&str>,
    ) -> Option<Self> {
        let modelled = match report.route {
            Route::Chat | Route::Responses | Route::Messages => true,
            Route::CountTokens | Route::Forward => false,
        };
        let status = report.status.filter(|_| modelled)?;
        let cut = report.abort.map(|abort| abort.side);
        let kind = if status.is_client_error() {
            FailureKind::Refused
        } else if status.is_server_error() {
            FailureKind::Failed
        } else if cut == Some(AbortSide::Upstream) || (cut.is_none() && cause.is_some()) {
            FailureKind::Broken
        } else {
            return None;
        };
        let mut cause = cause.map(|cause| *cause).unwrap_or_default();
        let calls = report.hops.iter().map(|hop| FailedCall {
            status: hop.status,
            request_id: hop.request_id.clone(),
        });
        Some(Self {
            number: 0,
            at: 0,
            tenant: report.tenant.clone(),
            session: row.unwrap_or(&report.session).to_owned(),
            turn: report.number,
            model: report.model.chars().take(NAME_CHARS).collect(),
            route: report.route,
            kind,
            status,
            calls: calls.chain(cause.passed.take()).collect(),
            retried: report.retries.clone(),
            fail_open: report.fail_open,
            cause,
        })
    }

    /// Whether it is of what is erased. One without a session may be of any.
    pub(super) fn is_of(&self, erased: &Erased) -> bool {
        match erased {
            Erased::Session(name) => self.session.is_empty() || self.session == *name,
            Erased::Tenant(tenant) => self.tenant.is_empty() || self.tenant == tenant.0.short(),
        }
    }

    /// The bytes of memory that it takes.
    fn weight(&self) -> usize {
        let names = self.tenant.len() + self.session.len() + self.model.len();
        let ids = self.calls.iter().map(|call| {
            let id = call.request_id.as_deref();
            size_of::<FailedCall>() + len(id)
        });
        let lists = ids.sum::<usize>() + self.retried.len() * size_of::<RetryReason>();
        size_of::<Self>() + ENTRY_BYTES + names + lists + self.cause.owned()
    }
}

/// The failures of one session, oldest first.
type OfSession = VecDeque<Arc<Failure>>;

/// The failures of one tenant.
#[derive(Debug, Default)]
struct OfTenant {
    sessions: HashMap<String, OfSession>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Kept {
    tenants: HashMap<String, OfTenant>,
    bytes: usize,
    newest: u64,
}

/// The newest failures, and how many there were. The tenant with most of them makes room, and of its sessions the
/// one with most: a client that fails without end pushes out nobody else's.
#[derive(Debug, Default)]
pub struct Failures {
    kept: Mutex<Kept>,
    counted: [AtomicU64; FailureKind::ALL.len()],
}

impl Failures {
    /// Counts a failure, and keeps it unless it may not be.
    fn note(&self, failure: Failure, may_be_kept: bool) {
        if let Some(counter) = self.counted.get(failure.kind.place()) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if may_be_kept {
            self.kept.lock().keep(failure);
        }
    }

    /// How many there were, by kind.
    #[must_use]
    pub fn counted(&self) -> Vec<(&'static str, u64)> {
        let names = FailureKind::ALL.iter().map(|kind| kind.name());
        counts(names, &self.counted)
    }

    /// The newest ones of a session or of all, below a number: so many at most, and whether there are more.
    #[must_use]
    pub fn newest(
        &self,
        session: Option<&str>,
        below: Option<u64>,
        most: usize,
    ) -> (Vec<Arc<Failure>>, bool) {
        let fits = |one: &&Arc<Failure>| below.is_none_or(|below| one.number < below);
        let mut found: Vec<Arc<Failure>> = {
            let kept = self.kept.lock();
            let sessions = kept.tenants.values().flat_map(|tenant| &tenant.sessions);
            let asked = sessions.filter(|(name, _)| session.is_none_or(|session| *name == session));
            asked
                .flat_map(|(_, list)| list)
                .filter(fits)
                .cloned()
                .collect()
        };
        found.sort_by_key(|one| Reverse(one.number));
        let more = found.len() > most;
        found.truncate(most);
        (found, more)
    }

    /// Forgets those of what is erased.
    pub(super) fn forget(&self, whose: &Erased) {
        let mut kept = self.kept.lock();
        let lists = kept.tenants.values_mut();
        let lists = lists.flat_map(|tenant| tenant.sessions.values_mut());
        lists.for_each(|list| list.retain(|one| !one.is_of(whose)));
        kept.weigh();
    }
}

impl Kept {
    fn keep(&mut self, mut failure: Failure) {
        self.newest += 1;
        failure.number = self.newest;
        let weight = failure.weight();
        let tenant = self.tenants.entry(failure.tenant.clone()).or_default();
        let list = tenant.sessions.entry(failure.session.clone());
        list.or_default().push_back(Arc::new(failure));
        tenant.bytes += weight;
        self.bytes += weight;
        while self.bytes > MOST_BYTES && self.make_room() {}
    }

    /// Drops the oldest of the longest list of whoever has most. Among equals the oldest goes.
    fn make_room(&mut self) -> bool {
        let tenants = self.tenants.iter_mut();
        let Some((name, tenant)) = tenants.max_by_key(|(_, tenant)| tenant.bytes) else {
            return false;
        };
        let age = |list: &OfSession| list.front().map(|one| Reverse(one.number));
        let lists = tenant.sessions.iter_mut();
        let longest = lists.max_by_key(|(_, list)| (list.len(), age(list)));
        let Some(gone) = longest.and_then(|(_, list)| list.pop_front()) else {
            return false;
        };
        let weight = gone.weight();
        tenant.bytes -= weight;
        self.bytes -= weight;
        if tenant
            .sessions
            .get(&gone.session)
            .is_some_and(VecDeque::is_empty)
        {
            tenant.sessions.remove(&gone.session);
        }
        if tenant.sessions.is_empty() {
            let name = name.clone();
            self.tenants.remove(&name);
        }
        true
    }

    /// Weighs what is left.
    fn weigh(&mut self) {
        self.tenants.retain(|_, tenant| {
            tenant.sessions.retain(|_, list| !list.is_empty());
            let left = tenant.sessions.values().flatten();
            tenant.bytes = left.map(|one| one.weight()).sum();
            tenant.bytes > 0
        });
        self.bytes = self.tenants.values().map(|tenant| tenant.bytes).sum();
    }
}

/// Counts a failure, and keeps it unless what it is of was erased since it began. Returns what those who look on are
/// told of it.
pub(super) fn keep(app: &App, mut failure: Failure, began: Began) -> Happened {
    failure.at = app.now();
    let happened = Happened::Failed {
        tenant: failure.tenant.clone(),
        session: failure.session.clone(),
    };
    let leave = app.erasing.leave(began, |erased| failure.is_of(erased));
    app.failures.note(failure, leave.is_some());
    happened
}

/// Passes a refusal on, and reads its beginning as it passes. The report ends with it.
pub(super) fn pass_refusal(response: Response<Body>, mut reporter: Reporter) -> Response<Body> {
    let status = response.status();
    if reporter.hears().is_none() {
        reporter.finish(Some(status));
        return response;
    }
    let (head, body) = response.into_parts();
    let reading = PassingRefusal {
        unpack: Unpack::of(&head.headers),
        text: Vec::new(),
        reporter,
        status,
    };
    Response::from_parts(head, HeardBody::of(body, reading))
}

/// A refusal that passes as it came.
struct PassingRefusal {
    reporter: Reporter,
    status: StatusCode,
    unpack: Unpack,
    text: Vec<u8>,
}

impl Listener for PassingRefusal {
    fn hear(&mut self, data: &Bytes) {
        let room = READ_BYTES.saturating_sub(self.text.len());
        let plain = self.unpack.push(data, REFUSAL_BYTES).filter(|_| room > 0);
        let plain = plain.unwrap_or_default();
        self.text.extend(plain.iter().take(room));
    }

    fn end(&mut self, end: AnswerEnd) {
        if end == AnswerEnd::Cut {
            self.reporter.aborted(AbortSide::Upstream);
        }
        self.reporter.cause().refused(&self.text);
    }

    fn lost(&mut self) {
        tracing::error!("what a refusal says was lost: the proxy made a mistake");
    }

    fn finish(mut self) {
        self.reporter.finish(Some(self.status));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_cut_between_letters_and_its_word_is_a_word() {
        let hear = |said: &str, shown| {
            let mut cause = FailureCause::new(shown);
            cause.refused(said.as_bytes());
            (cause.code, cause.said)
        };
        for (said, code) in [
            (r#"{"error":{"code":"odd","type":"x"}}"#, Some("odd")),
            (r#"{"error":{"code":null,"type":"x_y"}}"#, Some("x_y")),
            (r#"{"error":{"code":"what you said"}}"#, None),
            (r#"{"type":"error","error":"no"}"#, None),
            ("no JSON", None),
        ] {
            let heard = hear(said, ShownContent::Live);
            assert_eq!(heard, (code.map(str::to_owned), Some(said.to_owned())));
            assert_eq!(hear(said, ShownContent::Stored), (heard.0, None));
        }
        let long = "é".repeat(TEXT_BYTES);
        let (_, said) = hear(&format!("a{long}"), ShownContent::Live);
        assert_eq!(said.map(|said| said.len()), Some(TEXT_BYTES - 1));
        assert_eq!(hear("  ", ShownContent::Live), (None, None));
    }
}
