//! `plimsoll split`: compares the sessions that are served under a profile that is tried with those beside them. Owns
//! what is compared and its table. Reads the console's API, and never a store.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use plimsoll_lab::bootstrap::{Compared, Estimate, LEVEL, SAMPLES, Sums, compare};
use plimsoll_model::Arm;
use serde_json::Value;

use super::health::AdminPort;
use super::output::harmless_word;
use super::serve;
use super::sessions::{listed, text};
use crate::config::{Config, Flags};

/// With fewer sessions in an arm nothing is told: an interval by so few is too narrow.
const LEAST: usize = 20;

/// How deep sub-agents of sub-agents are followed.
const DEEPEST: usize = 32;

/// Compares the two arms of a split, over all sessions of the server on this machine.
#[derive(Debug, Args)]
pub struct SplitArgs {
    /// The profile that is or was tried [default: `split.profile` of the configuration].
    #[arg(value_name = "PROFILE")]
    profile: Option<String>,
    /// The admin address of the process [default: the configured one].
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// Configuration file [default: config/plimsoll.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The sums of a session by which arms are compared, by their places.
mod sum {
    pub const SESSIONS: usize = 0;
    pub const PRICED: usize = 1;
    pub const PAID: usize = 2;
    pub const WHOLE: usize = 3;
    pub const TURNS: usize = 4;
    pub const PASSES: usize = 5;
    pub const OVER: usize = 6;
    pub const AGAIN: usize = 7;
    pub const RECALLS: usize = 8;
    pub const MISSED: usize = 9;
    pub const NEEDED: usize = 10;
    /// How many there are.
    pub const ALL: usize = 11;
}

/// How a figure is written.
#[derive(Clone, Copy)]
enum Unit {
    Money,
    Ratio,
    Hundredths,
    Plain,
}

/// A figure of an arm: one sum over another.
struct Figure {
    name: &'static str,
    of: (usize, usize),
    unit: Unit,
}

const FIGURES: [Figure; 8] = [
    Figure::new("cost a session", (sum::PAID, sum::PRICED), Unit::Money),
    Figure::new(
        "paid over what was sent whole",
        (sum::PAID, sum::WHOLE),
        Unit::Ratio,
    ),
    Figure::new("turns a session", (sum::TURNS, sum::SESSIONS), Unit::Plain),
    Figure::new(
        "passes in 100 turns",
        (sum::PASSES, sum::TURNS),
        Unit::Hundredths,
    ),
    Figure::new(
        "over budget in 100 turns",
        (sum::OVER, sum::TURNS),
        Unit::Hundredths,
    ),
    Figure::new(
        "asked again in 100 turns",
        (sum::AGAIN, sum::TURNS),
        Unit::Hundredths,
    ),
    Figure::new(
        "recalled in 100 turns",
        (sum::RECALLS, sum::TURNS),
        Unit::Hundredths,
    ),
    Figure::new(
        "missed of 100 strings needed",
        (sum::MISSED, sum::NEEDED),
        Unit::Hundredths,
    ),
];

impl Figure {
    const fn new(name: &'static str, of: (usize, usize), unit: Unit) -> Self {
        Self { name, of, unit }
    }
}

/// Prints the comparison.
///
/// # Errors
/// If nobody answers, or no profile is known.
pub fn run(args: &SplitArgs) -> anyhow::Result<ExitCode> {
    let profile = match &args.profile {
        Some(profile) => profile.clone(),
        None => configured(args)?,
    };
    let port = AdminPort::proving(args.config.clone(), args.admin.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let asked = reqwest::Url::parse_with_params("http://localhost", [("split", &profile)])?;
    let asked = asked.query().unwrap_or_default();
    let rows = runtime.block_on(listed(&port, usize::MAX, &format!("&{asked}")))?;
    write!(std::io::stdout(), "{}", table(&profile, &rows))?;
    Ok(ExitCode::SUCCESS)
}

fn configured(args: &SplitArgs) -> anyhow::Result<String> {
    let flags = Flags {
        config: args.config.clone(),
        ..Flags::default()
    };
    let config = Config::load(&flags, serve::variables())?;
    let split = config.split.context(
        "no profile is tried: name one that was, or set `split.profile` (config/plimsoll.toml has its description)",
    )?;
    Ok(split.profile)
}

/// What the sessions of both arms came to, each with its sub-agents and branches. None of them counts twice.
fn sessions(rows: &[Value], money: &str) -> [Vec<Sums<{ sum::ALL }>>; 2] {
    let parents: HashMap<&str, &str> = rows
        .iter()
        .filter_map(|row| Some((text(row, "session"), row.get("parent")?.as_str()?)))
        .collect();
    let mut arms: [HashMap<&str, Sums<{ sum::ALL }>>; 2] = Default::default();
    for row in rows {
        let arm = row.pointer("/split/arm").and_then(Value::as_str);
        let arm = Arm::ALL.iter().position(|one| Some(one.name()) == arm);
        let Some(sums) = arm.and_then(|arm| arms.get_mut(arm)) else {
            continue;
        };
        let sums = sums
            .entry(root(&parents, text(row, "session")))
            .or_insert_with(|| {
                let mut sums = [0.0; sum::ALL];
                sums[sum::SESSIONS] = 1.0;
                sums[sum::PRICED] = 1.0;
                sums
            });
        add(sums, row, money);
    }
    arms.map(|sessions| {
        let mut sessions: Vec<_> = sessions.into_iter().collect();
        // The samples depend on the order, and the same sessions are to give the same intervals.
        sessions.sort_unstable_by(|one, other| one.0.cmp(other.0));
        sessions.into_iter().map(|(_, sums)| sums).collect()
    })
}

/// The session from which another descends. Only wrong headers make a circle of parents, or a chain that is longer than
/// what is followed.
fn root<'a>(parents: &HashMap<&'a str, &'a str>, session: &'a str) -> &'a str {
    let mut root = session;
    for _ in 0..DEEPEST {
        match parents.get(root) {
            Some(parent) => root = parent,
            None => break,
        }
    }
    root
}

/// Adds a row to what its session came to.
fn add(sums: &mut Sums<{ sum::ALL }>, row: &Value, money: &str) {
    let number = |field: &str| row.pointer(field).and_then(Value::as_f64);
    let counted = |field: &str| number(field).unwrap_or_default();
    // Of a session that is only watched it is known what it would have cost.
    let account = |part: &str| {
        let of = |account: &str| number(&format!("/{account}/{money}/{part}"));
        of("saved").or_else(|| of("projected"))
    };
    match (account("paid"), account("whole")) {
        (Some(paid), Some(whole)) if sums[sum::PRICED] > 0.0 => {
            sums[sum::PAID] += paid;
            sums[sum::WHOLE] += whole;
        }
        // What a session cost is known of all its turns, or not at all.
        _ => [sum::PRICED, sum::PAID, sum::WHOLE]
            .into_iter()
            .for_each(|at| sums[at] = 0.0),
    }
    for (at, counted) in [
        (sum::TURNS, counted("/turns")),
        (sum::PASSES, counted("/passes")),
        (sum::OVER, counted("/over")),
        (
            sum::AGAIN,
            counted("/needed/read_again") + counted("/needed/asked_again"),
        ),
        (sum::RECALLS, counted("/recalls")),
        (sum::MISSED, counted("/needed/missed")),
        (
            sum::NEEDED,
            counted("/needed/missed") + counted("/needed/held"),
        ),
    ] {
        sums[at] += counted;
    }
}

/// The comparison as a table.
fn table(profile: &str, rows: &[Value]) -> String {
    let priced = rows.iter().any(|row| {
        let usd = |account: &str| row.pointer(&format!("/{account}/usd/paid"));
        usd("saved").or_else(|| usd("projected")).is_some()
    });
    let money = if priced { "usd" } else { "units" };
    let [base, tried] = sessions(rows, money);
    let turns = |arm: &[Sums<{ sum::ALL }>]| {
        let turns = arm.iter().map(|sums| sums[sum::TURNS]);
        turns.fold(0.0, |all, turns| all + turns)
    };
    let profile = harmless_word(profile);
    let mut table = format!(
        "{profile} is tried in {} sessions ({} turns), beside {} others ({} turns); sub-agents count with their \
         sessions\n",
        tried.len(),
        turns(&tried),
        base.len(),
        turns(&base),
    );
    if base.len().min(tried.len()) < LEAST {
        let _ = writeln!(
            table,
            "can't tell yet: {LEAST} sessions in each arm are the least"
        );
        return table;
    }
    let _ = writeln!(
        table,
        "intervals hold {:.0} % of {SAMPLES} samples of the sessions\n\n{:<29} {:<26} {:<26} difference",
        LEVEL * 100.0,
        if priced {
            ""
        } else {
            "(no price is known: in tokens' worth)"
        },
        Arm::Base.name(),
        Arm::Tried.name(),
    );
    let places = FIGURES.map(|figure| figure.of);
    let compared = compare([&base, &tried], &places);
    for (figure, compared) in FIGURES.iter().zip(compared) {
        let shown = match compared {
            Some(compared) => line(figure.unit, &compared),
            None => "can't tell yet".to_owned(),
        };
        let _ = writeln!(table, "{:<29} {shown}", figure.name);
    }
    table
}

/// A figure of both arms, their difference, and what that tells.
fn line(unit: Unit, compared: &Compared) -> String {
    let [base, tried] = compared.of.map(|one| shown(unit, one));
    let difference = compared.difference;
    let verdict = if difference.high < 0.0 {
        "lower"
    } else if difference.low > 0.0 {
        "higher"
    } else {
        "can't tell yet"
    };
    format!(
        "{base:<26} {tried:<26} {}: {verdict}",
        shown(unit, difference)
    )
}

fn shown(unit: Unit, one: Estimate) -> String {
    let number = |number: f64| match unit {
        Unit::Money if number.abs() >= 1_000.0 => format!("{number:.0}"),
        Unit::Money | Unit::Ratio => format!("{number:.3}"),
        Unit::Hundredths => format!("{:.1}", number * 100.0),
        Unit::Plain => format!("{number:.1}"),
    };
    let Estimate { figure, low, high } = one;
    format!("{} ({} to {})", number(figure), number(low), number(high))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(session: &str, parent: Option<&str>, arm: &str, paid: f64) -> Value {
        json!({
            "session": session, "parent": parent, "split": {"profile": "b", "arm": arm},
            "turns": 10, "passes": 2, "over": 1, "recalls": 3,
            "needed": {"held": 8, "missed": 2, "read_again": 1, "asked_again": 1, "recalled": 3},
            "saved": {"usd": {"paid": paid, "whole": 2.0}, "units": {"paid": 7.0, "whole": 9.0}},
        })
    }

    #[test]
    fn sub_agents_and_branches_count_with_their_session() {
        let mut unpriced = row("u", None, "tried", 1.0);
        unpriced["saved"] = Value::Null;
        let mut watched = row("w", None, "tried", 0.5);
        watched["projected"] = watched["saved"].take();
        let rows = [
            row("s", None, "base", 1.0),
            row("child", Some("s"), "base", 0.25),
            row("grandchild", Some("child"), "base", 0.25),
            // Its parent is in no arm, or has no row any more.
            row("alone", Some("gone"), "base", 1.0),
            unpriced,
            row("of u", Some("u"), "tried", 1.0),
            watched,
            // Wrong headers.
            row("x", Some("y"), "tried", 1.0),
            row("y", Some("x"), "tried", 1.0),
        ];
        let [base, tried] = sessions(&rows, "usd");
        let paid = |arm: &[Sums<{ sum::ALL }>]| -> Vec<(f64, f64, f64)> {
            let sums = arm.iter();
            sums.map(|sums| (sums[sum::PRICED], sums[sum::PAID], sums[sum::TURNS]))
                .collect()
        };
        assert_eq!(paid(&base), [(1.0, 1.0, 10.0), (1.0, 1.5, 30.0)]);
        assert_eq!(
            paid(&tried)
                .iter()
                .filter(|one| **one == (0.0, 0.0, 20.0))
                .count(),
            1
        );
        let turns: f64 = tried.iter().map(|sums| sums[sum::TURNS]).sum();
        assert_eq!(turns, 50.0);
        let [sums, ..] = base.as_slice() else {
            panic!()
        };
        assert_eq!(sums[sum::NEEDED], 10.0);
        assert_eq!(sums[sum::AGAIN], 2.0);
    }

    /// Rows of two arms: what a session cost in each.
    fn populations(count: usize, base: f64, tried: f64) -> Vec<Value> {
        let mut rows = Vec::new();
        for (session, apart) in (0..count).zip([0.6, 1.1, 0.8, 1.5, 0.7, 1.0, 1.3].iter().cycle()) {
            for (arm, paid) in [("base", base), ("tried", tried)] {
                rows.push(row(&format!("{arm} {session}"), None, arm, paid * apart));
            }
        }
        rows
    }

    #[test]
    fn a_known_difference_is_told_and_none_is_not() {
        let line = |rows: &[Value], name: &str| {
            let table = table("b", rows);
            let line = table.lines().find(|line| line.starts_with(name));
            line.unwrap_or_else(|| panic!("{table}")).to_owned()
        };
        let cheaper = populations(60, 1.0, 0.7);
        for name in ["cost a session", "paid over what was sent whole"] {
            assert!(line(&cheaper, name).ends_with(": lower"));
        }
        assert!(line(&populations(60, 0.7, 1.0), "cost a session").ends_with(": higher"));
        let same = populations(60, 1.0, 1.0);
        for figure in &FIGURES {
            assert!(line(&same, figure.name).ends_with("can't tell yet"));
        }
        assert_eq!(
            line(&same, "passes in 100 turns"),
            "passes in 100 turns           20.0 (20.0 to 20.0)        20.0 (20.0 to 20.0)        \
             0.0 (0.0 to 0.0): can't tell yet"
        );
        let few = table("b", &populations(LEAST - 1, 1.0, 0.1));
        assert!(few.ends_with("can't tell yet: 20 sessions in each arm are the least\n"));
    }
}
