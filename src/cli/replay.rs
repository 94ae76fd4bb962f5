//! `plimsoll replay`. Owns its flags and what it prints. Never measures anything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use plimsoll_console::assets::alone;
use plimsoll_core::commit::Floor;
use plimsoll_core::policy::Ladder;
use plimsoll_core::turn::sizes;
use plimsoll_lab::cuts::CutPoints;
use plimsoll_lab::explain::{self, ExplainError};
use plimsoll_lab::{Lab, Options, Source, json, page, table, views, worth};

use super::lab::{LabArgs, not_empty, rising};
use super::output::{print, write_recorded};
use super::progress::ProgressBar;
use super::views::ViewsArgs;

/// What the page says where no scripts run.
const OTHERWISE: &str = "This page draws its charts with scripts that it carries itself. The same figures are in \
    the table that <code>plimsoll replay</code> prints, and in its <code>--json</code> file.";

/// Replays recorded sessions through the code that serves, once for each policy, and compares what
/// would have been sent, what it would have cost, and what would have been missing.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Policies to compare [default: all that evict]. Several that run together are joined by `+`:
    /// cwl,repeat+cwl.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    policies: Vec<Ladder>,
    /// Ceilings in tokens. The figures are summed over them.
    #[arg(long, value_delimiter = ',', default_value = "80000", value_name = "TOKENS",
          value_parser = sizes::ceiling)]
    ceiling: Vec<u32>,
    /// The level down to which a pass evicts: auto, ceiling, or a fraction of the ceiling.
    #[arg(long, default_value = "auto", value_parser = sizes::floor)]
    floor: Floor,
    #[command(flatten)]
    lab: LabArgs,
    /// Write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with charts: tokens per request, cost against retention, all sessions.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Say when and why an item of the session was evicted, and whether it was needed later. Takes
    /// one file, one policy and one ceiling.
    #[arg(long, value_name = "ITEM", conflicts_with_all = ["json", "html"])]
    explain: Option<String>,
    #[command(flatten)]
    views: ViewsArgs,
}

impl ReplayArgs {
    fn options(&self) -> anyhow::Result<Options> {
        let mut options = Options {
            ceilings: rising(&self.ceiling),
            floor: self.floor,
            ..self.lab.options()?
        };
        let mut policies: Vec<Ladder> = Vec::new();
        for ladder in &self.policies {
            if !policies.contains(ladder) {
                policies.push(ladder.clone());
            }
        }
        if !policies.is_empty() {
            options.policies = policies;
        }
        Ok(options)
    }
}

/// Replays what the arguments name, and prints the table.
///
/// # Errors
/// If a file can't be read or written, or a session can't be replayed.
pub fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let sources = args.lab.sources()?;
    let lab = Lab::new(args.options()?)?;
    // An explanation is about one run, so it needs no report over several.
    if let Some(item) = &args.explain {
        let [source] = sources.as_slice() else {
            return Err(ExplainError::One.into());
        };
        let traces = lab.read(source)?;
        let [trace] = traces.as_slice() else {
            return Err(ExplainError::One.into());
        };
        let text = explain::explain(&lab, trace, item)?;
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.views.cut_points {
        return cut(args, &lab, &sources);
    }
    if let Some(file) = &args.views.views {
        return drawn(args, &lab, &sources, file);
    }
    let progress = ProgressBar::default();
    let report = lab.run(&sources, &progress);
    progress.end();
    let report = report?;
    not_empty(report.sessions.len(), report.short, args.lab.min_tokens)?;
    let text = table::table(&report, lab.options());
    print(&text)?;
    if let Some(file) = &args.json {
        let value = json::report(&report, lab.options());
        write_recorded(file, &(serde_json::to_string_pretty(&value)? + "\n"))?;
    }
    if let Some(file) = &args.html {
        let data = page::report(&report, lab.options());
        let title = "policies on recorded sessions";
        write_recorded(file, &alone::page(title, "lab_replay.js", OTHERWISE, &data))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The only ceiling.
fn one_ceiling(lab: &Lab) -> anyhow::Result<u32> {
    match lab.options().ceilings.as_slice() {
        [ceiling] => Ok(*ceiling),
        _ => anyhow::bail!("views are looked at under one ceiling: give one"),
    }
}

/// Judges the policies at one point of each conversation, and writes their views there if that is asked for.
fn cut(args: &ReplayArgs, lab: &Lab, sources: &[Source]) -> anyhow::Result<ExitCode> {
    one_ceiling(lab)?;
    let progress = ProgressBar::default();
    let asked = &args.views;
    let (choice, horizon, size) = (asked.cuts(), asked.horizon(), asked.size());
    let points = CutPoints::draw(lab, sources, &choice, horizon, size, &progress);
    let judged = points.and_then(|points| {
        let rows = points.judge(lab, &progress)?;
        let views = asked.views.as_ref();
        let views = views.map(|_| views::of(lab, &points.drawn, &points.seats, &progress));
        Ok((points, rows, views.transpose()?))
    });
    progress.end();
    let (points, rows, views) = judged?;
    anyhow::ensure!(
        !points.drawn.is_empty(),
        "no conversation of --min-tokens or more has a request above the ceiling, within --longest, that was answered \
         with 40 bytes or more"
    );
    print(&table::cut_points(&points, &rows))?;
    if let (Some(file), Some(views)) = (&asked.views, &views) {
        write_recorded(file, &(views.lines.join("\n") + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the views of turns that are drawn, and says how large they are.
fn drawn(
    args: &ReplayArgs,
    lab: &Lab,
    sources: &[Source],
    file: &Path,
) -> anyhow::Result<ExitCode> {
    let choice = args.views.choice(one_ceiling(lab)?)?;
    let progress = ProgressBar::default();
    let views = match args.views.worth {
        true => worth::write(lab, sources, &choice, &progress),
        false => views::write(lab, sources, &choice, args.views.size(), &progress),
    };
    progress.end();
    let views = views?;
    let (turns, sessions) = views.counts;
    anyhow::ensure!(
        turns > 0,
        "no session has such a turn between the ceiling and --longest"
    );
    write_recorded(file, &(views.lines.join("\n") + "\n"))?;
    let mut text = format!("{turns} turns of {sessions} sessions\n");
    for (name, size, setting) in &views.sizes {
        text.push_str(&format!("{name}: {size:.0} tokens, {setting}\n"));
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
