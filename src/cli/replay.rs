//! `plimsoll replay TRACE…`. Owns its flags, what it prints and the progress on a terminal; never
//! measures anything.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::commit::Floor;
use crate::pipeline::MIN_CEILING;
use crate::policy::Policy;
use crate::replay::explain::{self, ExplainError};
use crate::replay::{
    Annotate, Lab, Options, Pricing, Trace, Watch, html, json, policy_named, table, trace,
};

/// Replays recorded sessions through the code that serves, once for each policy, and compares what
/// would have been sent, what it would have cost, and what would have been missing.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Recorded sessions: .jsonl files, plain, gzipped or zstd, or directories of them. The first
    /// line may be {"_meta": {…}}; each other line is one chat message.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Policies to compare [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAMES",
          value_parser = PossibleValuesParser::new(Policy::ALL.map(Policy::name)))]
    policies: Vec<String>,
    /// Ceilings in tokens; the figures are summed over them.
    #[arg(long, value_delimiter = ',', default_value = "80000", value_name = "TOKENS",
          value_parser = clap::value_parser!(u32).range(i64::from(MIN_CEILING)..))]
    ceiling: Vec<u32>,
    /// Down to where a pass evicts: auto, ceiling, or a fraction of the ceiling.
    #[arg(long, default_value = "auto", value_parser = floor)]
    floor: Floor,
    /// Where the episodes of cwl and cwl-paper come from. none: nobody marks any. inferred: from
    /// the tools that are called; they cost nothing. scripted: a scripted model marks them as it
    /// works, some of them badly, and all that this takes is charged.
    #[arg(long, default_value = "inferred", value_name = "HOW",
          value_parser = PossibleValuesParser::new(Annotate::WORDS.iter().map(|(word, _)| *word)))]
    annotate: String,
    /// Leave out sessions below so many tokens.
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    min_tokens: u64,
    /// Prices and cache: ideal (read 0.1, write 1.25, every exact prefix is cached), automatic
    /// (steps of 128 tokens), breakpoint (at the newest message, for five minutes), or a model.
    #[arg(long, default_value = "ideal", value_name = "NAME")]
    prices: String,
    /// Write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with the charts: tokens per request, cost against retention, all sessions.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Say when and why an item of the session went, and whether it was needed later. Takes one
    /// file, one policy and one ceiling.
    #[arg(long, value_name = "ITEM", conflicts_with_all = ["json", "html"])]
    explain: Option<String>,
    /// Sessions that are played at once [default: one a core].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

fn floor(text: &str) -> Result<Floor, String> {
    match text {
        "auto" => return Ok(Floor::Auto),
        "ceiling" => return Ok(Floor::Ceiling),
        _ => {}
    }
    match text.parse::<f64>() {
        Ok(fraction) if fraction > 0.0 && fraction <= 1.0 => Ok(Floor::Fraction(fraction)),
        Ok(_) | Err(_) => Err("give auto, ceiling, or a fraction above 0 and at most 1".to_owned()),
    }
}

impl ReplayArgs {
    fn options(&self) -> anyhow::Result<Options> {
        let mut options = Options {
            ceilings: self.ceiling.clone(),
            floor: self.floor,
            min_tokens: self.min_tokens,
            pricing: Pricing::named(&self.prices)?,
            ..Options::default()
        };
        options.ceilings.sort_unstable();
        options.ceilings.dedup();
        let mut policies: Vec<Policy> = Vec::new();
        for policy in self.policies.iter().filter_map(|name| policy_named(name)) {
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
        if !policies.is_empty() {
            options.policies = policies;
        }
        let how = Annotate::WORDS
            .iter()
            .find(|(word, _)| *word == self.annotate);
        options.annotate = how.map_or(options.annotate, |(_, how)| *how);
        if let Some(threads) = self.threads {
            options.threads = usize::from(threads);
        }
        Ok(options)
    }
}

/// Replays what the arguments name and prints the table.
///
/// # Errors
/// If a file can't be read or written, or a session can't be replayed.
pub fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let files = trace::files(&args.traces)?;
    let lab = Lab::new(args.options()?)?;
    if let Some(item) = &args.explain {
        let [file] = files.as_slice() else {
            return Err(ExplainError::One.into());
        };
        let text = explain::explain(&lab, &trace::read(file)?, item)?;
        std::io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let progress = Progress::default();
    let report = lab.run(&files, &progress);
    progress.end();
    let report = report?;
    if report.sessions.is_empty() {
        anyhow::bail!(
            "all {} sessions are below {} tokens: lower --min-tokens",
            report.short,
            args.min_tokens
        );
    }
    let text = table::table(&report, lab.options());
    std::io::stdout().lock().write_all(text.as_bytes())?;
    if let Some(file) = &args.json {
        let value = json::report(&report, lab.options());
        write(file, &(serde_json::to_string_pretty(&value)? + "\n"))?;
    }
    if let Some(file) = &args.html {
        write(file, &html::page(&report, lab.options()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("can't write {}", file.display()))
}

/// Tells on stderr what was skipped, and on a terminal how far it is.
struct Progress {
    terminal: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
        }
    }
}

impl Progress {
    /// Takes the bar away.
    fn end(&self) {
        if self.terminal {
            self.say("\r\x1b[2K");
        }
    }

    fn say(&self, text: &str) {
        // A stderr that is gone is no reason to stop.
        let _unsaid = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

impl Watch for Progress {
    fn read(&self, trace: &Trace) {
        let Some(first) = trace.skipped.first() else {
            return;
        };
        let (name, count) = (&trace.name, trace.skipped.len());
        let clear = if self.terminal { "\r\x1b[2K" } else { "" };
        self.say(&format!(
            "{clear}{name}: {count} lines are no chat messages and were skipped, the first is line {first}\n"
        ));
    }

    fn done(&self, files: usize, of: usize) {
        const WIDTH: usize = 30;
        if self.terminal {
            let full = WIDTH * files / of.max(1);
            let bar: String = (0..WIDTH)
                .map(|at| if at < full { '█' } else { '░' })
                .collect();
            self.say(&format!("\r\x1b[2K{bar} {files}/{of} sessions"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_words_or_fractions() {
        assert_eq!(floor("auto"), Ok(Floor::Auto));
        assert_eq!(floor("ceiling"), Ok(Floor::Ceiling));
        assert_eq!(floor("0.7"), Ok(Floor::Fraction(0.7)));
        for wrong in ["0", "1.1", "-0.5", "nan", "low"] {
            assert!(floor(wrong).is_err(), "{wrong}");
        }
    }
}
