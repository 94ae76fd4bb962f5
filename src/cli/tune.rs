//! `plimsoll tune`. Owns its flags and what it prints. Never chooses.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_console::assets::alone;
use plimsoll_core::commit::Floor;
use plimsoll_core::turn::sizes;
use plimsoll_lab::{Options, advice, page, tune};

use super::lab::{LabArgs, not_empty, rising};
use super::output::{print, write_recorded};
use super::progress::ProgressBar;

/// What the page says where no scripts run.
const OTHERWISE: &str = "This page draws its charts with scripts that it carries itself. The same figures are in \
    the table that <code>plimsoll tune</code> prints, and in its <code>--json</code> file.";

/// Replays recorded sessions with cwl at many budgets and floors, shows what each pair costs and
/// keeps, and recommends one.
#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    lab: LabArgs,
    /// Budgets to try, in tokens [default: shares of the long sessions' size, and 80000].
    #[arg(long, value_delimiter = ',', value_name = "TOKENS",
          value_parser = sizes::ceiling)]
    budgets: Vec<u32>,
    /// Floors to try: auto, budget, or fractions of the budget
    /// [default: auto,0.5,0.6,0.7,0.8,0.9].
    #[arg(long, value_delimiter = ',', value_name = "FLOORS", value_parser = sizes::floor)]
    floors: Vec<Floor>,
    /// Write the figures of every setting as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw every setting on one page. The page loads nothing from elsewhere.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Tries all settings that the arguments name, and prints the table and the recommendation.
///
/// # Errors
/// If a file can't be read or written, or a session can't be replayed.
pub fn run(args: &TuneArgs) -> anyhow::Result<ExitCode> {
    let sources = args.lab.sources()?;
    let mut options = args.lab.options()?;
    let progress = ProgressBar::default();
    // Without named budgets, those to try follow from the sizes of the sessions.
    options.ceilings = if args.budgets.is_empty() {
        let sizes = tune::sizes(&options, &sources, &progress);
        progress.clear();
        tune::ceilings(&sizes?)
    } else {
        rising(&args.budgets)
    };
    let floors = floors(&args.floors);
    let Options {
        min_tokens,
        pricing,
        ..
    } = options.clone();
    let surface = tune::sweep(options, &floors, &sources, &progress);
    progress.end();
    let surface = surface?;
    not_empty(surface.sessions, surface.short, min_tokens)?;
    let text = advice::text(&surface, &pricing.name);
    print(&text)?;
    if let Some(file) = &args.json {
        let value = advice::json(&surface, &pricing.name);
        write_recorded(file, &(serde_json::to_string_pretty(&value)? + "\n"))?;
    }
    if let Some(file) = &args.html {
        let data = page::surface(&surface, &pricing);
        let title = "budgets and floors on recorded sessions";
        write_recorded(file, &alone::page(title, "lab_tune.js", OTHERWISE, &data))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The floors to try, each once, in the order in which they were named.
fn floors(named: &[Floor]) -> Vec<Floor> {
    let mut floors: Vec<Floor> = Vec::new();
    let all: &[Floor] = if named.is_empty() {
        &tune::FLOORS
    } else {
        named
    };
    for floor in all {
        if !floors.contains(floor) {
            floors.push(*floor);
        }
    }
    floors
}
