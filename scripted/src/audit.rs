//! Checks over the requests that a provider received: what must hold however they came about.
//!
//! Owns pure functions from recorded requests to violations. It never decides which of them a
//! test has to insist on: a crash, a mode or an unmet budget may excuse some.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::plan::{Episode, Plan, TOOL};
use crate::player::{Session, TURN_HEADER};
use crate::received::{Received, Verdict};
use crate::size::{Outline, Sizer};
use crate::violation::Violation;

/// Results shorter than this, in bytes of JSON, may stay where others go: a stub is no shorter.
const SMALL_RESULT: usize = 400;
/// How much of a description a ledger line keeps, in characters.
const LEDGER_LINE: usize = 80;

/// Requests for completions by session, from the turn's header; in order of arrival.
#[must_use]
pub fn by_session(requests: &[Received]) -> BTreeMap<String, Vec<&Received>> {
    let mut sessions: BTreeMap<String, Vec<&Received>> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.is_chat()) {
        if let Some((session, _)) = turn_of(request) {
            sessions
                .entry(session.to_owned())
                .or_default()
                .push(request);
        }
    }
    sessions
}

/// The session and the turn that a request's header names.
#[must_use]
pub fn turn_of(request: &Received) -> Option<(&str, usize)> {
    let (session, turn) = request.header(TURN_HEADER).rsplit_once(':')?;
    Some((session, turn.parse().ok()?))
}

fn place(request: &Received) -> String {
    format!(
        "{} (request {})",
        request.header(TURN_HEADER),
        request.index
    )
}

/// Requests that the provider refused: rule `refused`.
#[must_use]
pub fn refused(requests: &[&Received]) -> Vec<Violation> {
    let mut found = Vec::new();
    for request in requests {
        match &request.verdict {
            Verdict::Refused(refusal) => {
                let text = format!("{:?}: {}", refusal.param, refusal.message);
                found.push(Violation::new("refused", place(request), text));
            }
            Verdict::Accepted | Verdict::Unchecked => {}
        }
    }
    found
}

/// Requests above a ceiling, by the formula: rule `ceiling`. Which of them were reported as
/// unmet is for the caller to say, who saw the response headers; [`pinned`] says whether a
/// report counts.
#[must_use]
pub fn over(requests: &[&Received], ceiling: usize) -> Vec<Violation> {
    let above = requests.iter().filter(|request| request.size > ceiling);
    above
        .map(|request| {
            let text = format!("{} tokens, the budget is {ceiling}", request.size);
            Violation::new("budget", place(request), text)
        })
        .collect()
}

/// Tokens of a request that nothing may evict: tools, system and user messages, and the newest
/// assistant message with what follows it.
#[must_use]
pub fn pinned(request: &Received, sizer: &Sizer) -> usize {
    let outline = Outline::read(&request.body);
    let roles: Vec<String> = outline.messages.iter().map(|raw| role(raw)).collect();
    let newest = roles.iter().rposition(|role| role == "assistant");
    let messages: usize = outline
        .messages
        .iter()
        .zip(&roles)
        .enumerate()
        .filter(|(at, (_, role))| {
            let own = !matches!(role.as_str(), "assistant" | "tool");
            own || newest.is_some_and(|newest| *at >= newest)
        })
        .map(|(_, (raw, _))| sizer.message(raw))
        .sum();
    messages + outline.tools.map_or(0, |tools| sizer.text(tools))
}

/// User messages unlike the client's in order or bytes: rule `user`.
#[must_use]
pub fn users(requests: &[&Received], session: &Session) -> Vec<Violation> {
    let mut found = Vec::new();
    for request in requests {
        let Some((_, turn)) = turn_of(request) else {
            continue;
        };
        let outline = Outline::read(&request.body);
        let have: Vec<&str> = outline
            .messages
            .into_iter()
            .filter(|raw| role(raw) == "user")
            .collect();
        let want: Vec<&str> = session
            .recording
            .users(turn)
            .map(|user| user.raw.as_str())
            .collect();
        if have != want {
            let at = have.iter().zip(&want).position(|(have, want)| have != want);
            let text = format!(
                "{} user messages, the client sent {}; the first unlike one is {at:?}",
                have.len(),
                want.len()
            );
            found.push(Violation::new("user", place(request), text));
        }
    }
    found
}

/// Tools arrays unlike that of the session's first request, byte for byte: rule `tools`. Where the
/// hidden tools come in with the guidance, it changes that once.
#[must_use]
pub fn tools(requests: &[&Received]) -> Vec<Violation> {
    let mut first: Option<String> = None;
    let mut found = Vec::new();
    for request in requests {
        let tools = Outline::read(&request.body)
            .tools
            .unwrap_or_default()
            .to_owned();
        let want = first.get_or_insert_with(|| tools.clone());
        let comes =
            !offered(want) && offered(&tools) && tools.ends_with(want.trim_start_matches('['));
        if comes {
            *want = tools;
        } else if *want != tools {
            let text = format!("now {tools:.200}, at first {want:.200}");
            found.push(Violation::new("tools", place(request), text));
        }
    }
    found
}

/// Whether the tool that annotates stands in a tools array.
fn offered(tools: &str) -> bool {
    tools.contains(&format!("\"name\":\"{TOOL}\""))
}

/// A request that does not extend the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// Where.
    pub place: String,
    /// The first message that is unlike; `None` if the tools are.
    pub message: Option<usize>,
    /// Tokens of the request before it that are not shared.
    pub lost: usize,
}

/// How the requests of one session grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Growth {
    /// The requests that were looked at.
    pub requests: usize,
    /// Tokens of all requests.
    pub total: usize,
    /// Tokens that each request shares with the one before it, as a prefix.
    pub shared: usize,
    /// The prefix breaks. A request that is a prefix of the one before it, as a retry is, breaks
    /// nothing.
    pub breaks: Vec<Break>,
}

impl Growth {
    /// The token-weighted share of common prefixes; 0 without requests.
    #[must_use]
    pub fn share(&self) -> f64 {
        ratio(self.shared, self.total)
    }
}

/// How the accepted requests of one session extend each other, byte for byte.
#[must_use]
pub fn growth(requests: &[&Received], sizer: &Sizer) -> Growth {
    let mut growth = Growth::default();
    let mut before: Option<Outline<'_>> = None;
    let accepted = requests
        .iter()
        .filter(|request| request.verdict == Verdict::Accepted);
    for request in accepted {
        let outline = Outline::read(&request.body);
        growth.requests += 1;
        growth.total += request.size;
        if let Some(before) = &before {
            compare(before, &outline, request, sizer, &mut growth);
        }
        before = Some(outline);
    }
    growth
}

fn compare(
    before: &Outline<'_>,
    now: &Outline<'_>,
    request: &Received,
    sizer: &Sizer,
    growth: &mut Growth,
) {
    let weigh = |messages: &[&str]| messages.iter().map(|raw| sizer.message(raw)).sum::<usize>();
    if before.tools != now.tools {
        growth.breaks.push(Break {
            place: place(request),
            message: None,
            lost: weigh(&before.messages),
        });
        return;
    }
    let pairs = before.messages.iter().zip(&now.messages);
    let common = pairs.take_while(|(before, now)| before == now).count();
    let (shared, rest) = now.messages.split_at(common.min(now.messages.len()));
    growth.shared += weigh(shared) + now.tools.map_or(0, |tools| sizer.text(tools));
    if common < before.messages.len() && !rest.is_empty() {
        growth.breaks.push(Break {
            place: place(request),
            message: Some(common),
            lost: weigh(before.messages.get(common..).unwrap_or_default()),
        });
    }
}

/// The token-weighted share of accepted requests that the provider's ideal cache held, which may
/// match any earlier request of the credential.
#[must_use]
pub fn cached_share(requests: &[&Received]) -> f64 {
    let accepted = requests
        .iter()
        .filter(|request| request.verdict == Verdict::Accepted);
    let (cached, total) = accepted.fold((0, 0), |(cached, total), request| {
        (cached + request.cached, total + request.size)
    });
    ratio(cached, total)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^52"
)]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Closed explorations whose description is missing from a later turn's request. The beginning
/// of it, which a ledger line keeps, is enough. Rule `description`; where the request counts
/// what it leaves out ("312 earlier"), rule `description-counted`.
#[must_use]
pub fn descriptions(requests: &[&Received], session: &Session) -> Vec<Violation> {
    let mut found = Vec::new();
    for request in requests {
        let Some((_, turn)) = turn_of(request) else {
            continue;
        };
        let body = String::from_utf8_lossy(&request.body);
        let plan = session.plan();
        let closed = plan
            .episodes
            .iter()
            .filter(|episode| closed_before(episode, turn));
        for episode in closed {
            let Some(description) = &episode.description else {
                continue;
            };
            let head: String = description.chars().take(LEDGER_LINE).collect();
            if !body.contains(&head) {
                let rule = if counts_earlier(&body) {
                    "description-counted"
                } else {
                    "description"
                };
                let text = format!("{} ({head}) is missing", episode.name);
                found.push(Violation::new(rule, place(request), text));
            }
        }
    }
    found
}

fn closed_before(episode: &Episode, turn: usize) -> bool {
    episode.end.is_some_and(|(end, _)| end < turn)
}

fn counts_earlier(body: &str) -> bool {
    body.match_indices(" earlier").any(|(at, _)| {
        let before = body.get(..at).unwrap_or_default();
        before.ends_with(|last: char| last.is_ascii_digit())
    })
}

/// Results of the open episode that are gone or changed, unless they were edited before they were first
/// sent, while a result of a closed episode before it still stands whole: rule `open-episode`. Explorations that an open
/// action depends on are not eligible and therefore don't count, nor do results under 400 bytes,
/// those to which others may point, and those whose text is `spared`.
#[must_use]
pub fn open_episode(
    requests: &[&Received],
    session: &Session,
    spared: &dyn Fn(&str) -> bool,
) -> Vec<Violation> {
    let plan = session.plan();
    let sent = results_of_client(session);
    let mut times: HashMap<String, u32> = HashMap::new();
    for raw in sent.values() {
        *times.entry(field(raw, "content")).or_default() += 1;
    }
    // A result may be edited before it is sent for the first time.
    let mut first: HashMap<String, String> = HashMap::new();
    let answered = turns_of_calls(session);
    let mut found = Vec::new();
    for request in requests {
        let have: HashMap<String, String> = results(&request.body);
        for (id, raw) in &have {
            first.entry(id.clone()).or_insert_with(|| raw.clone());
        }
        let Some((_, turn)) = turn_of(request) else {
            continue;
        };
        let Some(open) = open_at(&plan, turn, request) else {
            continue;
        };
        let stands = |id: &String| have.get(id).is_some_and(|raw| sent.get(id) == Some(raw));
        let touched = |id: &&String| {
            let cleared = have
                .get(*id)
                .is_some_and(|raw| raw.contains("\"[cleared]\""));
            let entered = first.get(*id).filter(|raw| is_entry(raw));
            !stands(id) && !cleared && (entered.is_none() || have.get(*id) != entered)
        };
        let points = |raw: &String| field(raw, "content").starts_with("[unchanged since ");
        let pointing = have.values().any(points);
        let left_out = left_out(&have, &sent);
        // Calls of this turn or a later one have no results yet.
        let before = |id: &&String| answered.get(id.as_str()).is_some_and(|made| *made < turn);
        let mut known = open.calls.iter().filter(before);
        let Some(gone) = known.find(touched) else {
            continue;
        };
        let closed = plan.episodes.iter().filter(|episode| {
            closed_before(episode, turn) && !open.dependencies.contains(&episode.name)
        });
        let left = closed.flat_map(|episode| &episode.calls).find(|id| {
            let raw = sent.get(*id).filter(|raw| raw.len() >= SMALL_RESULT);
            let text = raw.map(|raw| field(raw, "content"));
            // Others may point to a result that came more than once.
            let again = |text: &String| pointing && times.get(text) > Some(&1);
            // Or to one that has lines of theirs.
            let shared = |text: &String| left_out.iter().any(|run| text.contains(run.as_str()));
            let loose = |text: String| !again(&text) && !shared(&text) && !spared(&text);
            stands(id) && text.is_some_and(loose)
        });
        if let Some(left) = left {
            let text = format!(
                "{gone} of {} is gone, {left} of a closed one stands",
                open.name
            );
            found.push(Violation::new("open-episode", place(request), text));
        }
    }
    found
}

/// Whether a result reads as a rung for new results leaves it: a pointer, a clip with its counts, or
/// the whole of it with a line about a loop.
fn is_entry(raw: &str) -> bool {
    let text = field(raw, "content");
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let clipped = head.starts_with("[clipped ") && head.ends_with(" shown]");
    let looped = lines
        .next_back()
        .is_some_and(|line| line.ends_with("times running]"));
    let points = ["[unchanged since ", "[continues ", "[repeats "];
    clipped || looped || points.iter().any(|begins| head.starts_with(begins))
}

/// The lines that results leave out because an earlier one shows them.
fn left_out(have: &HashMap<String, String>, sent: &HashMap<String, String>) -> Vec<String> {
    let runs = |(id, raw): (&String, &String)| {
        let shown = field(raw, "content");
        let (head, rest) = shown.split_once('\n')?;
        let of = match head.strip_prefix("[repeats ") {
            Some(head) => Some(format!(" of {}]", head.split_once(" in part, ")?.0)),
            None if head.starts_with("[continues ") => None,
            None => return None,
        };
        // A line about a loop stands below.
        let looped = rest.ends_with(" times running]");
        let rest = rest
            .rsplit_once('\n')
            .filter(|_| looped)
            .map_or(rest, |(rest, _)| rest);
        let whole = field(sent.get(id)?, "content");
        let Some(of) = of else {
            return Some(vec![whole.strip_suffix(rest)?.to_owned()]);
        };
        let mut left = Vec::new();
        let mut behind = whole.as_str();
        for line in rest.split_inclusive('\n') {
            let Some(lines) = stands_for(line, &of) else {
                behind = behind.strip_prefix(line)?;
                continue;
            };
            let run: usize = behind.split_inclusive('\n').take(lines).map(str::len).sum();
            let (run, next) = behind.split_at(run);
            left.push(run.to_owned());
            behind = next;
        }
        Some(left)
    };
    let all = have.iter().filter_map(runs).flatten();
    let all = all.map(|run| run.trim_end_matches('\n').to_owned());
    all.filter(|run| !run.is_empty()).collect()
}

/// For how many lines a line stands; none if it stands for itself.
fn stands_for(line: &str, of: &str) -> Option<usize> {
    let line = line.trim_end().strip_suffix(of)?.replace(',', "");
    if line.starts_with("[line ") {
        return Some(1);
    }
    let (first, last) = line.strip_prefix("[lines ")?.split_once(" to ")?;
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    Some(last.checked_sub(first)? + 1)
}

/// The episode that is open for certain when a turn's request is sent: opened in an earlier turn,
/// and not closed before this request.
fn open_at<'a>(plan: &'a Plan, turn: usize, request: &Received) -> Option<&'a Episode> {
    let open = plan
        .episodes
        .iter()
        .find(|episode| episode.start.0 < turn && episode.end.is_none_or(|(end, _)| end >= turn))?;
    let closing = open.end.is_some_and(|(end, _)| end == turn);
    let first_hop = || {
        let body = String::from_utf8_lossy(&request.body);
        let hops = plan.hops(turn).iter();
        !hops
            .flat_map(|hop| hop.hidden_ids())
            .any(|id| body.contains(id))
    };
    (!closing || first_hop()).then_some(open)
}

/// The turn in which each call was answered to the client.
fn turns_of_calls(session: &Session) -> HashMap<&str, usize> {
    let turns = session.recording.turns.iter().enumerate();
    turns
        .flat_map(|(number, turn)| {
            turn.answer
                .calls
                .iter()
                .map(move |call| (call.id.as_str(), number))
        })
        .collect()
}

/// The client's results by call id, as the exact JSON that it sends.
fn results_of_client(session: &Session) -> HashMap<String, String> {
    let messages = session.recording.turns.iter().flat_map(|turn| &turn.before);
    messages
        .filter(|message| message.role == "tool")
        .map(|message| (call_id(&message.raw), message.raw.clone()))
        .collect()
}

fn results(body: &[u8]) -> HashMap<String, String> {
    let outline = Outline::read(body);
    let tool = outline
        .messages
        .into_iter()
        .filter(|raw| role(raw) == "tool");
    tool.map(|raw| (call_id(raw), raw.to_owned())).collect()
}

fn role(raw: &str) -> String {
    field(raw, "role")
}

fn call_id(raw: &str) -> String {
    field(raw, "tool_call_id")
}

fn field(raw: &str, name: &str) -> String {
    let message: Value = serde_json::from_str(raw).unwrap_or_default();
    message
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// The checks that hold for every request of a session whatever the budget: refusals, user
/// messages, tools.
#[must_use]
pub fn always(requests: &[&Received], session: &Session) -> Vec<Violation> {
    let mut found = refused(requests);
    found.extend(users(requests, session));
    found.extend(tools(requests));
    found
}

/// The rules among some violations, for a first look.
#[must_use]
pub fn rules(violations: &[Violation]) -> HashSet<&'static str> {
    violations.iter().map(|violation| violation.rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_result_leaves_out_is_told_from_what_it_shows() {
        let raw = |text: &str| serde_json::json!({"content": text}).to_string();
        let sent = HashMap::from([("a".to_owned(), raw("1\n2\n3\n4"))]);
        for (shown, left) in [
            ("[continues bash:4, 9 tokens: …]\n3\n4", Some("1\n2")),
            (
                "[continues bash:4, 9 tokens: …]\n3\n4\n[this call has brought the same result 3 times running]",
                Some("1\n2"),
            ),
            ("1\n2\n3\n4", None),
            ("[continues bash:4, 9 tokens: …]\n5", None),
            (
                "[repeats bash:4 in part, 9 tokens: …]\n1\n[lines 5 to 6 of bash:4]\n4",
                Some("2\n3"),
            ),
            (
                "[repeats bash:4 in part, 9 tokens: …]\n[line 5 of bash:4]\n2\n[line 9 of bash:4]\n4",
                Some("1\n3"),
            ),
            (
                "[repeats bash:4 in part, 9 tokens: …]\n1\n[lines 5 to 6 of bash:9]\n4",
                None,
            ),
        ] {
            let have = HashMap::from([("a".to_owned(), raw(shown))]);
            let found = left_out(&have, &sent);
            let found = (!found.is_empty()).then(|| found.join("\n"));
            assert_eq!(found.as_deref(), left, "{shown}");
        }
    }
}
