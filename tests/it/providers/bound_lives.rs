//! Long lives of sessions whose thoughts are bound to their prefix: the proxy's process is killed on the way, or
//! the session takes hundreds of turns. The client gets no refusal, the provider refuses once, requests only grow
//! but at passes, and no thought that left returns.

use std::path::Path;
use std::time::Duration;

use plimsoll::config::Backend;
use plimsoll_scripted::rules::Mismatch;
use plimsoll_scripted::thoughts::Watcher;
use plimsoll_scripted::{Form, Rule, Rules};

use super::agent::{Agent, Heard};
use super::bound::{OPUS, ROUTED, SOL, host, refused};
use super::host::Host;
use super::script::{Quirks, goes_on, output};
use crate::process::Process;
use crate::support::{Proxy, soon};

const FORMS: [(Form, &str); 2] = [(Form::Messages, OPUS), (Form::Responses, SOL)];

/// A session, watched from both ends.
struct Life {
    agent: Agent,
    quirks: Quirks,
    watcher: Watcher,
    /// The tokens of the newest request.
    size: usize,
    turns: usize,
    passes: usize,
    requests: usize,
    /// Valid thoughts of a request at most.
    thoughts: usize,
    refusals: usize,
    /// Refusals at most: one, and each that came when nobody was there to hear it.
    most: usize,
}

/// What a turn brought.
#[derive(Default)]
struct Turned {
    passed: bool,
    refused: bool,
    /// The session has nothing more to say.
    ended: bool,
}

impl Life {
    fn new(mut agent: Agent, quirks: Quirks) -> Self {
        agent.user("go");
        Self {
            watcher: Watcher::new(agent.form),
            agent,
            quirks,
            size: 0,
            turns: 0,
            passes: 0,
            requests: 0,
            thoughts: 0,
            refusals: 0,
            most: 1,
        }
    }

    async fn turn(&mut self, host: &Host) -> Turned {
        let heard = self.agent.ask().await;
        self.go_on(host, &heard)
    }

    /// Goes on behind an answer.
    fn go_on(&mut self, host: &Host, heard: &Heard) -> Turned {
        let turn = self.turns;
        assert!(
            heard.is_whole(),
            "turn {turn}: {} {}",
            heard.status,
            heard.bytes
        );
        assert_eq!(heard.header("x-plimsoll-fail-open"), "", "turn {turn}");
        let mut turned = Turned::default();
        for request in host.take() {
            self.requests += 1;
            if refused(&&request) {
                turned.refused = true;
                self.refusals += 1;
                continue;
            }
            self.thoughts = self.thoughts.max(request.judged.valid());
            let differs = self.watcher.see(request.value());
            let differs = differs.unwrap_or_else(|fault| panic!("turn {turn}: {fault}"));
            let before = std::mem::replace(&mut self.size, request.size);
            if let Some(differs) = differs {
                // A pass leaves less than there was. Nothing else may change what was sent.
                assert!(self.size < before, "turn {turn}: {differs}");
                turned.passed = true;
            }
        }
        assert!(self.refusals <= self.most, "turn {turn}: refused again");
        self.passes += usize::from(turned.passed);
        self.turns += 1;
        self.agent.keep(heard);
        for (id, ..) in &heard.calls {
            self.agent.result(id, &output(id, self.quirks));
        }
        if heard.calls.is_empty() {
            match goes_on(&heard.text, self.quirks) {
                Some(words) => self.agent.user(&words),
                None => turned.ended = true,
            }
        }
        turned
    }

    /// Takes turns until the session ends.
    async fn until_done(&mut self, host: &Host) {
        for _ in 0..2 * self.quirks.last {
            if self.turn(host).await.ended {
                return;
            }
        }
        panic!("the session has lost its way after {} turns", self.turns);
    }
}

/// When the process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    /// Before anything is evicted.
    BeforePasses,
    /// Behind the answer to the first view that was refused.
    BehindRefusal,
    /// Behind each turn with a pass.
    BehindPasses,
    /// Behind every third turn, whatever it brought.
    Often,
    /// While it waits for an answer or hands one on, every few turns.
    InAnswers,
}

impl Kill {
    fn is_due(self, life: &Life, turned: &Turned) -> bool {
        match self {
            Self::BeforePasses => life.turns == 5,
            Self::BehindRefusal => turned.refused,
            Self::BehindPasses => turned.passed,
            Self::Often => life.turns.is_multiple_of(3),
            Self::InAnswers => false,
        }
    }
}

/// A proxy's process on some data.
pub fn process(data: &Path, host: &Host) -> Process {
    // What a slow disk does is judged elsewhere.
    let env = [
        ("PLIMSOLL__STORE__WAIT", "60s"),
        ("PLIMSOLL__STORE__READ_WAIT", "60s"),
    ];
    Process::start(data, host.addr, &[], &env)
}

/// Kills the process as soon as the provider has a request, and asks again at the next one.
async fn cut(life: &mut Life, host: &Host, running: Process, data: &Path) -> (Heard, Process) {
    let asking = life.agent.clone();
    let asked = tokio::spawn(async move { asking.try_ask().await });
    soon(async {
        while host.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    drop(running);
    life.most += host.requests().iter().filter(refused).count();
    let cut = asked.await.unwrap();
    let next = process(data, host);
    life.agent.at(next.listen);
    match cut {
        // It was quicker.
        Ok(heard) if heard.is_whole() => (heard, next),
        Ok(_) | Err(_) => (life.agent.ask().await, next),
    }
}

/// Plays a session whose proxy is killed, and tells how often it was.
async fn killed((form, model): (Form, &str), stream: bool, kill: Kill) {
    let host = host(form, Mismatch::Refuse).await;
    let directory = tempfile::tempdir().unwrap();
    let mut running = process(directory.path(), &host);
    let mut agent = Agent::new(form, stream, model, 4_000);
    agent.at(running.listen);
    let mut life = Life::new(agent, Quirks::PLAIN);
    let mut kills = 0;
    for _ in 0..2 * Quirks::PLAIN.last {
        let in_answer = kill == Kill::InAnswers && life.turns % 4 == 3;
        let heard = if in_answer {
            let (heard, next) = cut(&mut life, &host, running, directory.path()).await;
            (running, kills) = (next, kills + 1);
            heard
        } else {
            life.agent.ask().await
        };
        let turned = life.go_on(&host, &heard);
        if turned.ended {
            break;
        }
        if kill.is_due(&life, &turned) {
            drop(running);
            running = process(directory.path(), &host);
            life.agent.at(running.listen);
            kills += 1;
        }
    }
    let refuses = usize::from(form == Form::Messages);
    assert!(
        life.passes >= 3 && life.turns > Quirks::PLAIN.last,
        "{form:?}"
    );
    assert!(life.refusals >= refuses, "{form:?}");
    let told = kill != Kill::BehindRefusal || form == Form::Messages;
    assert_eq!(kills > 0, told, "{form:?} {kill:?}");
}

const WAYS: [((Form, &str), bool); 4] = [
    (FORMS[0], true),
    (FORMS[1], false),
    (FORMS[0], false),
    (FORMS[1], true),
];

/// Tests of one moment to kill, with the first so many ways to play a session.
macro_rules! killed {
    ($name:ident, $kill:expr, $ways:expr) => {
        #[tokio::test]
        async fn $name() {
            for (form, stream) in WAYS.into_iter().take($ways) {
                killed(form, stream, $kill).await;
            }
        }
    };
}

killed!(killed_before_the_first_pass, Kill::BeforePasses, 4);
killed!(killed_behind_the_first_refusal, Kill::BehindRefusal, 4);
killed!(killed_behind_each_pass, Kill::BehindPasses, 4);
killed!(killed_in_answers, Kill::InAnswers, 3);
// A process takes a while to start.
killed!(killed_often, Kill::Often, 2);

/// Between two passes a request only goes on behind the one before it, and no thought that left returns.
#[tokio::test]
async fn what_is_compared_only_grows_but_at_passes() {
    for (form, model) in [(Form::Messages, OPUS), (Form::Chat, ROUTED)] {
        let host = host(form, Mismatch::Refuse).await;
        let proxy = Proxy::before(host.addr).await;
        let mut agent = Agent::new(form, true, model, 4_000);
        agent.at(proxy.addr);
        let mut life = Life::new(agent, Quirks::PLAIN);
        life.until_done(&host).await;
        assert!(life.passes >= 3, "{form:?}: {}", life.passes);
        assert_eq!(life.refusals, 1, "{form:?}");
        proxy.end().await;
    }
}

/// Plays a session of so many commands at a budget.
#[allow(clippy::print_stdout, reason = "the figures of a long play are told")]
async fn long((form, model): (Form, &str), stream: bool, last: usize, ceiling: u32) {
    let quirks = Quirks {
        last,
        thinks: 250,
        ..Quirks::PLAIN
    };
    let rules = Rules::new([Rule::Bound(Mismatch::Refuse)]);
    let host = Host::start(form, rules, quirks).await;
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::with(host.addr, |config| {
        config.store.backend = Backend::Sled;
        config.store.path = directory.path().to_owned();
        config.store.wait = Duration::from_secs(60);
        config.store.read_wait = Duration::from_secs(60);
    })
    .await;
    let mut agent = Agent::new(form, stream, model, ceiling);
    agent.at(proxy.addr);
    let mut life = Life::new(agent, quirks);
    let began = std::time::Instant::now();
    life.until_done(&host).await;
    println!(
        "{form:?}, streamed {stream}, {ceiling}: {} turns, {} requests, {} passes, {} thoughts at once, {} refused, {:.1?}",
        life.turns,
        life.requests,
        life.passes,
        life.thoughts,
        life.refusals,
        began.elapsed()
    );
    assert!(life.turns >= last && life.passes >= 3);
    proxy.end().await;
}

/// Four hundred commands, which takes minutes.
#[tokio::test]
#[ignore = "takes minutes: `cargo test --test it hundreds_of_turns -- --ignored --nocapture`"]
async fn hundreds_of_turns() {
    for (form, stream) in WAYS {
        for ceiling in [8_000, 40_000] {
            long(form, stream, 400, ceiling).await;
        }
    }
}

#[tokio::test]
async fn a_hundred_and_fifty_turns() {
    for ((form, stream), ceiling) in WAYS.into_iter().zip([8_000, 8_000, 40_000, 40_000]) {
        long(form, stream, 150, ceiling).await;
    }
}
