//! `plimsoll replay`. Owns its flags and what it prints. Never measures anything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use plimsoll_console::assets::alone;
use plimsoll_core::commit::Floor;
use plimsoll_core::policy::{Ladder, LadderError, Policy};
use plimsoll_core::turn::{Budget, sizes};
use plimsoll_lab::cuts::CutPoints;
use plimsoll_lab::explain::{self, ExplainError};
use plimsoll_lab::{
    Annotate, Lab, Options, Report, Source, json, page, table, verdict, views, worth,
};

use super::lab::{LabArgs, not_empty, rising};
use super::output::{can_write, print, write_recorded};
use super::progress::ProgressBar;
use super::views::ViewsArgs;

/// What the page says where no scripts run.
const OTHERWISE: &str = "This page draws its charts with scripts that it carries itself. The same figures are in \
    the <code>--json</code> file of <code>plimsoll replay</code>.";

/// The budgets that are told of beside the one that is served by default, if none is named.
const BESIDE: [u32; 4] = [40_000, 60_000, 120_000, 160_000];

/// Policies that are compared.
#[derive(Clone, Debug)]
enum Compared {
    /// All that evict.
    All,
    /// One of them, or several that run together.
    One(Ladder),
}

/// Replays recorded sessions through the code that serves: says what they would have cost with Plimsoll, and how much of what
/// was needed later would have been in view. With --policies it compares these.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Policies to compare: names, or all that evict (all). Several that run together are joined by `+`:
    /// cwl,repeat+cwl.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = compared)]
    policies: Vec<Compared>,
    /// Budgets in tokens. The figures of policies are summed over them; of what is served each is told of, and the first
    /// is judged [default: 80000, beside which 40000 to 160000 are told of].
    #[arg(long, value_delimiter = ',', value_name = "TOKENS", value_parser = sizes::ceiling)]
    budget: Vec<u32>,
    /// The level down to which a pass evicts: auto, budget, or a fraction of the budget.
    #[arg(long, default_value = "auto", value_parser = sizes::floor)]
    floor: Floor,
    #[command(flatten)]
    lab: LabArgs,
    /// Say what each column means.
    #[arg(long)]
    explain_figures: bool,
    /// Write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with charts: tokens per request, cost against retention, all sessions.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Say when and why an item of the session was evicted, and whether it was needed later. Takes
    /// one file, one policy and one budget.
    #[arg(long, value_name = "ITEM", conflicts_with_all = ["json", "html"])]
    explain: Option<String>,
    #[command(flatten)]
    views: ViewsArgs,
}

/// The budget that is served by default.
fn served() -> u32 {
    Budget::default().ceiling
}

/// Reads what is compared.
fn compared(text: &str) -> Result<Compared, LadderError> {
    match text {
        "all" => Ok(Compared::All),
        name => name.parse().map(Compared::One),
    }
}

impl ReplayArgs {
    /// Whether it is told what is served comes to, and no policies are compared.
    fn judges(&self) -> bool {
        let looks = self.explain.is_some() || self.views.cut_points || self.views.views.is_some();
        self.policies.is_empty() && !looks
    }

    fn options(&self) -> anyhow::Result<Options> {
        let judges = self.judges();
        let mut options = self.lab.options()?;
        options.floor = self.floor;
        // A file holds sums over the ceilings, which are of no use where nobody has named any.
        let is_alone = !judges || self.json.is_some() || self.html.is_some();
        options.ceilings = match (self.budget.as_slice(), is_alone) {
            ([], true) => vec![served()],
            ([], false) => rising(&[&BESIDE[..], &[served()]].concat()),
            (named, _) => rising(named),
        };
        if self.views.worth {
            // Marks of the policy's own would stand beside those that are compared.
            anyhow::ensure!(
                !self.lab.says_annotate() || options.annotate == Annotate::None,
                "--worth compares what stands for work that nobody marked: give --annotate none"
            );
            options.annotate = Annotate::None;
        }
        if judges {
            options.policies = vec![Policy::None.into(), Ladder::default()];
            options.bill = true;
            // A served model is asked to mark its work, and that costs something.
            if !self.lab.says_annotate() {
                options.annotate = Annotate::Obedient;
            }
        } else if !self.policies.is_empty() {
            let all = std::mem::take(&mut options.policies);
            let named = self.policies.iter().flat_map(|one| match one {
                Compared::All => all.clone(),
                Compared::One(ladder) => vec![ladder.clone()],
            });
            for ladder in named {
                if !options.policies.contains(&ladder) {
                    options.policies.push(ladder);
                }
            }
        }
        anyhow::ensure!(
            !self.views.worth
                || options
                    .policies
                    .iter()
                    .any(|ladder| ladder.main() != Policy::None),
            "--worth takes the view of a policy that evicts: name one, such as --policies repeat+keep+cwl"
        );
        Ok(options)
    }
}

/// Replays what the arguments name, and prints what came out.
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
    // Nobody should wait for minutes to learn that a file can't be written.
    for file in [&args.json, &args.html, &args.views.views]
        .into_iter()
        .flatten()
    {
        can_write(file)?;
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
    print(&told(args, &lab, &report))?;
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

/// What a report says at the prompt.
fn told(args: &ReplayArgs, lab: &Lab, report: &Report) -> String {
    let (options, judges) = (lab.options(), args.judges());
    let mut text = if judges {
        let judged = args.budget.first().copied().unwrap_or_else(served);
        let mut ceilings = options.ceilings.iter();
        let at = ceilings.position(|ceiling| *ceiling == judged);
        verdict::verdict(report, options, at.unwrap_or_default())
    } else {
        table::table(report)
    };
    text.push('\n');
    text.push_str(&table::circumstances(report, options, !judges));
    match (args.explain_figures, judges) {
        (true, true) => text.push_str(verdict::FIGURES),
        (true, false) => text.push_str(&table::figures(options)),
        (false, true) => text.push_str(
            "--explain-figures says what the columns mean, --policies all compares other policies, and --html FILE draws \
             them.\n",
        ),
        (false, false) => text.push_str("--explain-figures says what the columns mean.\n"),
    }
    text
}

/// The only budget.
fn one_ceiling(lab: &Lab) -> anyhow::Result<u32> {
    match lab.options().ceilings.as_slice() {
        [ceiling] => Ok(*ceiling),
        _ => anyhow::bail!("views are looked at under one budget: give one"),
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
        "no conversation of --min-tokens or more has a request over the budget, within --longest, that was answered \
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
        "no session has {} between the budget and --longest",
        match args.views.worth {
            true => "a turn that needs what was evicted of an exploration",
            false => "a turn",
        }
    );
    write_recorded(file, &(views.lines.join("\n") + "\n"))?;
    let mut text = format!("{turns} turns of {sessions} sessions\n");
    for (name, size, setting) in &views.sizes {
        text.push_str(&format!("{name}: {size:.0} tokens, {setting}\n"));
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
