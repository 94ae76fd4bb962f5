//! Plays a few sessions against one proxy and audits what went upstream.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, LazyLock};

use plimsoll_model::is_failure;
use plimsoll_scripted::size::Sizer;
use plimsoll_scripted::{
    Auth, Client, ClientOptions, Options, Player, Provider, Received, Recording, Session,
    Violation, audit,
};
use plimsoll_tokens::{Counter, Encoding};

use super::proxy::{Guide, Process, post};

static COUNTER: LazyLock<Counter> = LazyLock::new(Counter::load);

/// Every so many turns a request is sent twice.
pub const TWICE: usize = 17;
/// A report that the budget is unmet counts only where this share of it is pinned.
const PINNED: f64 = 0.9;

pub fn count() -> Arc<dyn Fn(&str) -> usize + Send + Sync> {
    Arc::new(|text: &str| COUNTER.count(Encoding::O200k, text) as usize)
}

/// What came of some sessions.
#[derive(Default)]
pub struct Figures {
    turns: usize,
    requests: usize,
    tokens: usize,
    common: usize,
    peak: usize,
    breaks: usize,
    passes: f64,
    unmet: usize,
    violations: usize,
}

impl Figures {
    /// Takes in the figures of more sessions.
    pub fn add(&mut self, other: Self) {
        self.turns += other.turns;
        self.requests += other.requests;
        self.tokens += other.tokens;
        self.common += other.common;
        self.peak = self.peak.max(other.peak);
        self.breaks += other.breaks;
        self.passes += other.passes;
        self.unmet += other.unmet;
        self.violations += other.violations;
    }
}

impl Figures {
    /// Tokens that each request shares with the one before it, over all tokens.
    pub fn share(&self) -> f64 {
        self.common as f64 / self.tokens.max(1) as f64
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.share();
        write!(
            f,
            "{} turns, {} requests, peak {}, {} passes, {} breaks, {} unmet, cached share {share:.4}, {} violations",
            self.turns,
            self.requests,
            self.peak,
            self.passes,
            self.breaks,
            self.unmet,
            self.violations
        )
    }
}

/// A few sessions, one ceiling, streamed or not.
pub struct Play {
    sessions: Vec<Arc<Session>>,
    ceiling: u32,
    streamed: bool,
    guide: Guide,
    reported: HashSet<(String, usize)>,
}

impl Play {
    /// Plans the annotations of some recordings.
    pub fn new(recordings: &[Recording], ceiling: u32, streamed: bool, guide: Guide) -> Self {
        let sessions = recordings
            .iter()
            .map(|recording| Session::waiting(recording.clone(), 7))
            .collect();
        Self {
            sessions,
            ceiling,
            streamed,
            guide,
            reported: HashSet::new(),
        }
    }

    /// Plays them turn by turn in rotation, and gives what was found.
    pub async fn run(mut self, found: &mut Vec<Violation>) -> Figures {
        let player = Arc::new(Player::new(self.sessions.iter().cloned()).any_style(11));
        let options = Options {
            count: count(),
            auth: Auth::Any,
            ..Options::default()
        };
        let provider = Provider::start(player.script(), options).await.unwrap();
        let mut proxy = Process::start(&provider.base_url, self.ceiling, self.guide).await;
        let mut figures = Figures::default();
        let before = found.len();
        let mut clients: Vec<Client> = self
            .sessions
            .iter()
            .map(|session| self.client(session))
            .collect();
        let longest = self
            .sessions
            .iter()
            .map(|s| s.recording.turns.len())
            .max()
            .unwrap_or(0);
        let mut blanked = 0;
        for turn in 0..longest {
            if turn == longest / 3 || turn == longest * 2 / 3 {
                figures.passes += proxy.metric("plimsoll_passes_total").await;
                proxy.kill_and_restart().await;
            }
            for (client, session) in clients.iter_mut().zip(&self.sessions) {
                let half = session.recording.turns.len() / 2;
                if turn == half && client.blank_result().is_some() {
                    blanked += 1;
                }
                if client.request().is_none() {
                    continue;
                }
                let twice = turn % TWICE == TWICE - 1;
                figures.turns += 1;
                if !step(client, &proxy, twice, &mut self.reported, found).await {
                    break;
                }
            }
        }
        figures.passes += proxy.metric("plimsoll_passes_total").await;
        found.extend(player.violations());
        self.audit(&provider.take(), &mut figures, found);
        // Each pass, and each change of the client's own, breaks the prefix once; nothing else may.
        let allowed = figures.passes + f64::from(blanked);
        if figures.breaks as f64 > allowed {
            let text = format!(
                "{} breaks, {} passes, {blanked} blanked",
                figures.breaks, figures.passes
            );
            found.push(Violation::new("breaks", self.names(), text));
        }
        figures.violations = found.len() - before;
        figures
    }

    fn client(&self, session: &Arc<Session>) -> Client {
        let options = ClientOptions {
            streamed: self.streamed,
            ..ClientOptions::default()
        };
        Client::new(session.clone(), options)
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self
            .sessions
            .iter()
            .map(|s| s.recording.id.as_str())
            .collect();
        names.join(" ")
    }

    fn audit(&self, requests: &[Received], figures: &mut Figures, found: &mut Vec<Violation>) {
        let sizer = Sizer::new(count());
        let by_session = audit::by_session(requests);
        for session in &self.sessions {
            let Some(requests) = by_session.get(&session.recording.id) else {
                continue;
            };
            figures.requests += requests.len();
            figures.peak = figures
                .peak
                .max(requests.iter().map(|r| r.size).max().unwrap_or(0));
            found.extend(audit::always(requests, session));
            found.extend(audit::open_episode(requests, session, &is_failure));
            let missing = audit::descriptions(requests, session);
            found.extend(
                missing
                    .into_iter()
                    .filter(|found| found.rule == "description"),
            );
            self.over(requests, &sizer, figures, found);
            let growth = audit::growth(requests, &sizer);
            figures.tokens += growth.total;
            figures.common += growth.shared;
            figures.breaks += growth.breaks.len();
            if std::env::var("PLIMSOLL_VERBOSE").is_ok() {
                for lost in &growth.breaks {
                    println!("    {lost:?}");
                }
                println!(
                    "  {} share {:.4} breaks {} of {}",
                    session.recording.id,
                    growth.share(),
                    growth.breaks.len(),
                    requests.len()
                );
            }
        }
    }

    /// A request above the ceiling is a fault unless it was reported, and rightly.
    fn over(
        &self,
        requests: &[&Received],
        sizer: &Sizer,
        figures: &mut Figures,
        found: &mut Vec<Violation>,
    ) {
        for request in requests.iter().filter(|r| r.size > self.ceiling as usize) {
            let (id, turn) = audit::turn_of(request).unwrap_or_default();
            let pinned = audit::pinned(request, sizer);
            let rightly = pinned as f64 > PINNED * f64::from(self.ceiling);
            let reported = self.reported.contains(&(id.to_owned(), turn));
            if reported && rightly {
                figures.unmet += 1;
                continue;
            }
            let text = format!(
                "{} tokens, {pinned} pinned, reported {reported}, rightly {rightly}",
                request.size
            );
            found.push(Violation::new("budget", format!("{id} turn {turn}"), text));
        }
    }
}

/// Sends the request that is due, twice where asked; false where the client can't go on.
async fn step(
    client: &mut Client,
    proxy: &Process,
    twice: bool,
    reported: &mut HashSet<(String, usize)>,
    found: &mut Vec<Violation>,
) -> bool {
    let Some(request) = client.request() else {
        return true;
    };
    if twice {
        let _ = send(proxy, &request, reported).await;
    }
    let (status, body) = send(proxy, &request, reported).await;
    let outcome = client.hear(status, &body);
    found.extend(outcome.violations);
    if !outcome.advanced {
        let text = String::from_utf8_lossy(&body)
            .chars()
            .take(300)
            .collect::<String>();
        found.push(Violation::new(
            "stuck",
            format!("turn {}", request.turn),
            format!("{status} {text}"),
        ));
    }
    outcome.advanced
}

async fn send(
    proxy: &Process,
    request: &plimsoll_scripted::ClientRequest,
    reported: &mut HashSet<(String, usize)>,
) -> (u16, Vec<u8>) {
    let response = post(&proxy.url(), request).await;
    let unmet = response
        .headers()
        .get("x-plimsoll-budget")
        .is_some_and(|b| b == "exceeded");
    if unmet {
        let place = request
            .headers
            .iter()
            .find_map(|(_, value)| value.rsplit_once(':'));
        if let Some((id, turn)) = place {
            reported.insert((id.to_owned(), turn.parse().unwrap_or_default()));
        }
    }
    let status = response.status().as_u16();
    (status, response.bytes().await.unwrap_or_default().to_vec())
}
