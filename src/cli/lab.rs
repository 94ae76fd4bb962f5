//! What the commands on recorded sessions share: flags, and limits of arguments. Owns these flags. Never
//! measures anything.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use plimsoll_core::turn::sizes::{self, SizeError};
use plimsoll_core::turn::{Budget, Offer};
use plimsoll_lab::cache::Markers;
use plimsoll_lab::source::{self, Source, Sources};
use plimsoll_lab::{Annotate, Options, Pricing, Think, TraceError};
use plimsoll_model::ReasoningBack;
use plimsoll_scripted::plan::Habits;
use plimsoll_wire::cached_for;

use super::agents::{Agent, Environment};
use super::logs::say;
use super::output;
use crate::config::{Config, Flags};

/// How sessions are played.
#[derive(Debug, Args)]
pub struct LabArgs {
    /// What `--budget` and `--budgets` were called.
    #[arg(long = "ceiling", alias = "ceilings", hide = true, value_name = "TOKENS", value_parser = old_budget)]
    _ceiling: Option<String>,
    /// Recorded sessions: .jsonl files, plain or packed by gzip or zstd, or directories of them.
    /// Each line is one chat message, and the first may be {"_meta": {…}}. Files that Claude Code,
    /// codex or pi keep are read as they are, and so is opencode's database [default: what the agents
    /// on this machine keep].
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Of the agents on this machine, take only the sessions of these.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "AGENTS",
        conflicts_with = "traces"
    )]
    from: Vec<Agent>,
    /// Where the episodes of cwl and cwl-paper come from. none: there are no marks. inferred: from
    /// the tools that are called, at no cost. scripted: a scripted model marks them as it works,
    /// some of them badly, and everything that this takes is charged. obedient: the same with a
    /// model that does what the guidance asks [default: inferred; obedient for what replay says first].
    #[arg(long, value_name = "HOW",
          value_parser = PossibleValuesParser::new(Annotate::WORDS.iter().map(|(word, _)| *word)))]
    annotate: Option<String>,
    /// In how many of a hundred turns the obedient model marks its work in a request of its own.
    #[arg(long, default_value_t = Habits::default().alone, value_name = "PERCENT")]
    alone: usize,
    /// How many tokens an episode of the obedient model has at least.
    #[arg(long, default_value_t = Habits::default().episode, value_name = "TOKENS",
          value_parser = |text: &str| count(text).map(|tokens| tokens as usize))]
    episode: usize,
    /// Of a hundred actions that the scripted or the obedient model starts, how many it starts without saying
    /// what they depend on.
    #[arg(long, default_value_t = 0, value_name = "PERCENT")]
    undeclared: usize,
    /// When the hidden tools are offered to a model that marks its work: start or line.
    #[arg(long, default_value = "start",
          value_parser = PossibleValuesParser::new(Offer::WORDS.iter().map(|(word, _)| *word)))]
    offer: String,
    /// The share of the budget above which a model is asked to mark its work: 1 with the first pass, 0
    /// from the first request on.
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", value_parser = sizes::share)]
    guide_at: f64,
    /// A configuration file of which [admit], [keep], [rungs] and cache.none hold here too.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Leave out sessions with fewer tokens.
    #[arg(long, default_value_t = 0, value_name = "TOKENS",
          value_parser = |text: &str| count(text).map(u64::from))]
    pub min_tokens: u64,
    /// Prices and cache: ideal (read 0.1, write 1.25, every exact prefix is cached), automatic
    /// (steps of 128 tokens), breakpoint (at the newest message, for five minutes), or the name of
    /// a model.
    #[arg(long, default_value = "ideal", value_name = "NAME")]
    prices: String,
    /// Where requests have breakpoints, if the cache matches at those: tail (at the newest message, where OpenAI sets
    /// one by itself), prologue (at its end too, as agents do) or proxy (behind the user's messages before the first
    /// answer and before what the next pass is expected to edit first too, as the proxy does in Chat Completions and Responses).
    #[arg(long, default_value = "prologue", value_name = "WHERE",
          value_parser = PossibleValuesParser::new(Markers::WORDS.iter().map(|(word, _)| *word)))]
    breakpoints: String,
    /// What the provider demands of reasoning: none, calls (it comes back with its calls) or bound (a pass
    /// ends all that stands behind its first change) [default: as the model that gives the prices].
    #[arg(long, value_name = "RULE",
          value_parser = PossibleValuesParser::new(ReasoningBack::WORDS.iter().map(|(word, _)| *word)))]
    family: Option<String>,
    /// Give every answer a thought of N tokens, or of N-SPREAD to N+SPREAD, in place of what was recorded;
    /// with 0 it stays. Its words are drawn from the session, nothing is looked for in them, and its output
    /// is charged. What each policy came to on each session stands in the JSON.
    #[arg(long, value_name = "N[,SPREAD]", value_parser = Think::parse)]
    think: Option<Think>,
    /// How long requests ask their provider to keep what it caches, such as 5m or 1h [default: for an hour where an
    /// agent kept that the provider did so].
    #[arg(long, value_name = "TIME", value_parser = cached_for)]
    cached_for: Option<Duration>,
    /// How many sessions are played at once [default: one per core].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

impl LabArgs {
    /// The sessions that were named, or those that agents keep. Says on stderr which agents' these are.
    ///
    /// # Errors
    /// If something can't be read, or there is nothing.
    pub fn sources(&self) -> anyhow::Result<Vec<Source>> {
        if !self.traces.is_empty() {
            return Ok(noted(source::find(&self.traces)?));
        }
        let environment = Environment::process();
        let agents: &[Agent] = if self.from.is_empty() {
            &Agent::ALL
        } else {
            &self.from
        };
        let mut found = Vec::new();
        let mut places = Vec::new();
        for agent in agents {
            let Some(place) = agent.sessions(&environment) else {
                continue;
            };
            let own = match source::kept(&place) {
                Ok(own) => noted(own),
                // Who has not used an agent has no sessions of it.
                Err(TraceError::Nothing(_)) => Vec::new(),
                Err(TraceError::Read { cause, .. }) if cause.kind() == ErrorKind::NotFound => {
                    Vec::new()
                }
                Err(error) => return Err(error.into()),
            };
            places.push(place.display().to_string());
            if !own.is_empty() {
                say(&format!(
                    "{}: {} in {}",
                    agent.title(),
                    output::counted(&own.len(), "session"),
                    place.display()
                ));
            }
            found.extend(own);
        }
        anyhow::ensure!(
            !found.is_empty(),
            "found no sessions of agents in {}: name files or directories of recorded sessions",
            places.join(", ")
        );
        Ok(found)
    }

    /// Whether it is said where episodes come from.
    #[must_use]
    pub fn says_annotate(&self) -> bool {
        self.annotate.is_some()
    }

    /// The options that these flags ask for. Policies, budgets and floor stay at their defaults.
    ///
    /// # Errors
    /// If there are no prices of this name.
    pub fn options(&self) -> anyhow::Result<Options> {
        let default = Options::default();
        let mut words = Annotate::WORDS.iter();
        let how = words.find(|(word, _)| self.annotate.as_deref() == Some(*word));
        let mut offers = Offer::WORDS.iter();
        let offer = offers.find(|(word, _)| *word == self.offer);
        let set = self.settings.as_ref().map(|file| {
            let flags = Flags {
                config: Some(file.clone()),
                ..Flags::default()
            };
            Config::load(&flags, std::iter::empty()).map(|config| (config.budget, config.cache))
        });
        let (budget, cache) = set.transpose()?.unwrap_or_default();
        let Budget {
            admit, keep, rungs, ..
        } = budget;
        let mut pricing = Pricing::named(&self.prices)?;
        let mut markers = Markers::WORDS.iter();
        let set = markers.find(|(word, _)| *word == self.breakpoints);
        pricing.markers = set.map_or(pricing.markers, |(_, markers)| *markers);
        let mut rules = ReasoningBack::WORDS.iter();
        let rule = rules.find(|(word, _)| self.family.as_deref() == Some(*word));
        if let Some((_, rule)) = rule {
            pricing.family.reasoning_back = *rule;
        }
        Ok(Options {
            min_tokens: self.min_tokens,
            pricing,
            annotate: how.map_or(default.annotate, |(_, how)| *how),
            habits: Habits {
                alone: self.alone,
                episode: self.episode,
                undeclared: self.undeclared,
            },
            offer: offer.map_or(default.offer, |(_, offer)| *offer),
            guide_at: self.guide_at,
            admit,
            keep,
            uncached: cache.none,
            rungs,
            think: self.think,
            cached_for: self.cached_for,
            threads: self.threads.map_or(default.threads, usize::from),
            ..default
        })
    }
}

/// What there is to read. Says on stderr what was passed over.
fn noted(sources: Sources) -> Vec<Source> {
    for line in &sources.skipped {
        say(line);
    }
    sources.found
}

/// Says how the flag is called that a budget is named by.
fn old_budget(_: &str) -> Result<String, String> {
    Err("the flag is called --budget now, and --budgets of plimsoll tune".to_owned())
}

/// The budgets in rising order, each once.
#[must_use]
pub fn rising(ceilings: &[u32]) -> Vec<u32> {
    let mut ceilings = ceilings.to_vec();
    ceilings.sort_unstable();
    ceilings.dedup();
    ceilings
}

/// Refuses to compare nothing.
///
/// # Errors
/// If there was no session, or every one was too short.
pub fn not_empty(played: usize, short: usize, min_tokens: u64) -> anyhow::Result<()> {
    anyhow::ensure!(
        played + short > 0,
        "in none of the sessions was anything answered"
    );
    anyhow::ensure!(
        played > 0,
        "all {short} sessions are below {min_tokens} tokens: lower --min-tokens"
    );
    Ok(())
}

/// Reads how long something is cached.
fn cached_for(text: &str) -> Result<Duration, String> {
    cached_for::read(text).ok_or_else(|| format!("{text:?} is no time such as 5m, 1h or 24h"))
}

/// Reads any number of tokens.
///
/// # Errors
/// If it is none.
pub fn count(text: &str) -> Result<u32, SizeError> {
    sizes::tokens(text, 0)
}
