//! Models that think much behind the real binary, which is killed between turns and within them. No request is above
//! its budget as the provider counts it, none is refused, and each turn is sent what it is sent where nobody kills.

use std::time::Duration;

use plimsoll_scripted::{Form, Received, Rule, Rules, Scope, Verdict};
use serde_json::Value;

use super::agent::{Agent, Heard};
use super::bound_lives::process;
use super::host::Host;
use super::script::{Quirks, goes_on, output};
use super::session::reads;
use crate::process::Process;
use crate::support::soon;

/// A session.
#[derive(Clone, Copy)]
struct Case {
    form: Form,
    model: &'static str,
    rule: Rule,
    quirks: Quirks,
    ceiling: u32,
    stream: bool,
    /// A kill comes behind each turn whose number is a multiple of this, and within the one behind it.
    every: usize,
}

/// What came of a session.
#[derive(Default)]
struct Played {
    /// What was sent in each turn in the end.
    sent: Vec<Received>,
    kills: usize,
}

impl Played {
    /// How often the view shrank.
    fn passes(&self) -> usize {
        let shrinks = |pair: &&[Received]| pair[1].size < pair[0].size;
        self.sent.windows(2).filter(shrinks).count()
    }
}

impl Case {
    async fn play(self, kills: bool) -> Played {
        let rules = Rules::new([self.rule, Rule::Reads(reads(self.model))]);
        let host = Host::start(self.form, rules, self.quirks).await;
        let directory = tempfile::tempdir().unwrap();
        let mut running = process(directory.path(), &host);
        let mut agent = Agent::new(self.form, self.stream, self.model, self.ceiling);
        agent.user("go");
        agent.at(running.listen);
        let mut played = Played::default();
        for turn in 1..2 * self.quirks.last {
            let within = kills && turn % self.every == 1 && turn > 1;
            let mut heard = None;
            if within {
                heard = ask_while_killed(&agent, &host, running, 3 * played.kills).await;
                running = process(directory.path(), &host);
                agent.at(running.listen);
                played.kills += 1;
            }
            let heard = match heard {
                Some(heard) => heard,
                None => agent.ask().await,
            };
            if kills && turn % self.every == 0 {
                drop(running);
                running = process(directory.path(), &host);
                agent.at(running.listen);
                played.kills += 1;
            }
            self.look(turn, &heard, &host.take(), &mut played);
            agent.keep(&heard);
            for (id, ..) in &heard.calls {
                agent.result(id, &output(id, self.quirks));
            }
            if heard.calls.is_empty() {
                match goes_on(&heard.text, self.quirks) {
                    Some(words) => agent.user(&words),
                    None => return played,
                }
            }
        }
        panic!("the session has lost its way");
    }

    fn look(&self, turn: usize, heard: &Heard, requests: &[Received], played: &mut Played) {
        assert!(
            heard.is_whole(),
            "turn {turn}: {} {:.300}",
            heard.status,
            heard.bytes
        );
        for request in requests {
            assert_eq!(request.verdict, Verdict::Accepted, "turn {turn}");
            let size = request.size;
            assert!(size <= self.ceiling as usize, "turn {turn}: {size} tokens");
        }
        let newest = requests.last().unwrap();
        played.sent.push(newest.clone());
    }

    async fn compare(self) {
        let (alone, killed) = tokio::join!(self.play(false), self.play(true));
        let (passes, kills) = (alone.passes(), killed.kills);
        assert!(passes >= 2 && kills >= 4, "{passes} passes, {kills} kills");
        assert_eq!(alone.sent.len(), killed.sent.len());
        for (turn, (one, other)) in alone.sent.iter().zip(&killed.sent).enumerate() {
            if one.body != other.body {
                let differs = first_difference(&one.value(), &other.value(), "");
                assert_eq!(differs, None, "turn {}", turn + 1);
            }
        }
    }
}

/// Asks, and kills the process so many milliseconds after the provider has the request. None if the answer was cut.
async fn ask_while_killed(
    agent: &Agent,
    host: &Host,
    running: Process,
    wait: usize,
) -> Option<Heard> {
    let asking = agent.clone();
    let asked = tokio::spawn(async move { asking.try_ask().await });
    soon(async {
        while host.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    tokio::time::sleep(Duration::from_millis(wait as u64)).await;
    drop(running);
    let heard = asked.await.unwrap().ok();
    heard.filter(Heard::is_whole)
}

/// The first place where two values differ, with what stands there.
fn first_difference(one: &Value, other: &Value, path: &str) -> Option<String> {
    match (one, other) {
        _ if one == other => None,
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => a
            .iter()
            .find_map(|(key, value)| first_difference(value, &b[key], &format!("{path}.{key}"))),
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).enumerate();
            let mut differences =
                pairs.filter_map(|(at, (a, b))| first_difference(a, b, &format!("{path}.{at}")));
            let lengths = format!("{path}: {} and {}", a.len(), b.len());
            differences.next().or(Some(lengths))
        }
        _ => Some(format!("{path}: {one:.400} and {other:.400}")),
    }
}

const fn thinks(last: usize, thinks: usize) -> Quirks {
    Quirks {
        last,
        thinks,
        ..Quirks::PLAIN
    }
}

#[tokio::test]
async fn a_model_whose_long_thoughts_must_all_come_back() {
    let case = Case {
        form: Form::Chat,
        model: "kimi-k2.6",
        rule: Rule::KimiReasoning(Scope::All),
        quirks: Quirks {
            unmarked: true,
            ..thinks(24, 2_500)
        },
        ceiling: 24_000,
        stream: true,
        every: 9,
    };
    case.compare().await;
}

#[tokio::test]
async fn a_model_whose_thoughts_are_read_in_turns_with_calls() {
    let case = Case {
        form: Form::Chat,
        model: "deepseek-chat",
        rule: Rule::DeepSeekReasoning(Scope::All),
        quirks: thinks(28, 800),
        ceiling: 12_000,
        stream: false,
        every: 10,
    };
    case.compare().await;
}

#[tokio::test]
async fn a_model_whose_thoughts_are_signed() {
    let case = Case {
        form: Form::Messages,
        model: "claude-opus-4-6",
        rule: Rule::ClaudeThinking,
        quirks: thinks(28, 250),
        ceiling: 8_000,
        stream: true,
        every: 8,
    };
    case.compare().await;
}

#[tokio::test]
async fn a_model_that_explores_more_than_a_hundred_times() {
    let case = Case {
        form: Form::Chat,
        model: "kimi-k2.6",
        rule: Rule::KimiReasoning(Scope::All),
        quirks: Quirks {
            alone: true,
            explores: true,
            ..thinks(130, 100)
        },
        ceiling: 40_000,
        stream: true,
        every: 60,
    };
    case.compare().await;
}
