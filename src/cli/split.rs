//! `plimsoll split`: compares the sessions that are served under a profile that is tried with those of the base arm. Owns
//! what is compared and its table. Reads the console's API, and never a store.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use plimsoll_lab::bootstrap::{Compared, Estimate, LEVEL, SAMPLES, compare};
use plimsoll_model::Arm;
use serde_json::Value;

use super::health::{AdminArgs, AdminPort};
use super::output::{counted, harmless_word};
use super::serve;
use super::sessions::{listed, text};
use crate::config::{Config, Flags};

/// A figure of fewer sessions in an arm is not told.
const LEAST: usize = 20;
/// How many rows of the front of the list are read again.
const FRONT: usize = 100;
/// How deep sub-agents of sub-agents are followed.
const DEEPEST: usize = 32;

/// Compares the two arms of a split, over the newest sessions of the server on this machine.
#[derive(Debug, Args)]
pub struct SplitArgs {
    /// The profile that is or was tried [default: `split.profile` of the configuration].
    #[arg(value_name = "PROFILE")]
    profile: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// What is summed up of a session.
#[derive(Clone, Copy)]
enum Sum {
    Sessions,
    /// Sessions whose cost is known.
    Priced,
    Paid,
    Whole,
    Turns,
    Passes,
    Over,
    Again,
    Recalls,
    Missed,
    /// Missed or in view.
    Needed,
}

/// The sums of a session, in the order of [`Sum`].
type Sums = [f64; Sum::Needed as usize + 1];

impl Sum {
    /// The place of one of the sums of a session.
    #[expect(clippy::indexing_slicing, reason = "there is a place for each")]
    const fn of(self, sums: &mut Sums) -> &mut f64 {
        &mut sums[self as usize]
    }

    /// One of the sums of all sessions of an arm.
    fn over(self, arm: &[Sums]) -> f64 {
        let all = arm.iter().filter_map(|sums| sums.get(self as usize));
        all.fold(0.0, |all, one| all + one)
    }
}

/// How a figure is written.
#[derive(Clone, Copy)]
enum Unit {
    Money,
    Ratio,
    Hundredths,
    Plain,
}

/// The figures of an arm, each one sum over another.
const FIGURES: [(&str, Sum, Sum, Unit); 8] = [
    ("cost a session", Sum::Paid, Sum::Priced, Unit::Money),
    (
        "paid over what was sent whole",
        Sum::Paid,
        Sum::Whole,
        Unit::Ratio,
    ),
    ("turns a session", Sum::Turns, Sum::Sessions, Unit::Plain),
    (
        "passes in 100 turns",
        Sum::Passes,
        Sum::Turns,
        Unit::Hundredths,
    ),
    (
        "over budget in 100 turns",
        Sum::Over,
        Sum::Turns,
        Unit::Hundredths,
    ),
    (
        "called again in 100 turns",
        Sum::Again,
        Sum::Turns,
        Unit::Hundredths,
    ),
    (
        "recalled in 100 turns",
        Sum::Recalls,
        Sum::Turns,
        Unit::Hundredths,
    ),
    (
        "missed of 100 strings needed",
        Sum::Missed,
        Sum::Needed,
        Unit::Hundredths,
    ),
];

/// Prints the comparison.
///
/// # Errors
/// If nobody answers, or no profile is known.
pub fn run(args: &SplitArgs) -> anyhow::Result<ExitCode> {
    let profile = match &args.profile {
        Some(profile) => profile.clone(),
        None => configured(args)?,
    };
    let port = args.admin.port()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let asked = reqwest::Url::parse_with_params("http://localhost", [("split", &profile)])?;
    let asked = asked.query().unwrap_or_default();
    let rows = runtime.block_on(all(&port, &format!("&{asked}")))?;
    write!(std::io::stdout(), "{}", table(&profile, &rows))?;
    Ok(ExitCode::SUCCESS)
}

/// All rows, each as it is newest. A session that goes on while they are read moves to the front of the list, so the front
/// is read again until nothing is new there, or often enough.
async fn all(port: &AdminPort, asked: &str) -> anyhow::Result<Vec<Value>> {
    let mut rows: HashMap<String, Value> = HashMap::new();
    for most in std::iter::once(usize::MAX).chain([FRONT; 8]) {
        let read = listed(port, most, asked).await?;
        let before = rows.len();
        let mut changed = 0;
        for row in read {
            let ended = row.get("ended").cloned();
            let old = rows.insert(text(&row, "session").to_owned(), row);
            changed += usize::from(old.is_some_and(|old| old.get("ended") != ended.as_ref()));
        }
        if rows.len() == before && changed == 0 {
            break;
        }
    }
    Ok(rows.into_values().collect())
}

fn configured(args: &SplitArgs) -> anyhow::Result<String> {
    let flags = Flags {
        config: args.admin.config.clone(),
        ..Flags::default()
    };
    let config = Config::load(&flags, serve::variables())?;
    let split = config.split.context(
        "no profile is tried: name one that was, or set `split.profile` (config/plimsoll.toml has its description)",
    )?;
    Ok(split.profile)
}

/// What the sessions of each arm came to, each with its sub-agents and branches. Every row counts once.
fn sessions(rows: &[Value], money: &str) -> [Vec<Sums>; 2] {
    let mut parents: HashMap<&str, &str> = HashMap::new();
    let mut arms: HashMap<&str, usize> = HashMap::new();
    for row in rows {
        let (name, parent) = (text(row, "session"), row.get("parent"));
        parents.extend(parent.and_then(Value::as_str).map(|parent| (name, parent)));
        let arm = row.pointer("/split/arm").and_then(Value::as_str);
        let arm = Arm::ALL.iter().position(|one| Some(one.name()) == arm);
        arms.extend(arm.map(|arm| (name, arm)));
    }
    // The samples depend on the order, and the same sessions are to give the same intervals.
    let mut sessions: [BTreeMap<&str, Sums>; 2] = Default::default();
    for row in rows {
        let name = text(row, "session");
        let root = root(&parents, name);
        // A sub-agent whose parent was not known yet may have been drawn otherwise. It counts with its parent all the same.
        let arm = arms.get(root).or_else(|| arms.get(name));
        if let Some(sessions) = arm.and_then(|arm| sessions.get_mut(*arm)) {
            let sums = sessions.entry(root).or_default();
            add(sums, row, money);
            // What broke off has no cost. Sessions without a row of their own count as what is known of them.
            if name == root || !arms.contains_key(root) {
                *Sum::Priced.of(sums) = f64::from(u8::from(account(row, money, "paid").is_some()));
            }
        }
    }
    sessions.map(|sessions| sessions.into_values().map(priced_whole).collect())
}

/// What a session cost is known with the cost of its own row, or not at all.
fn priced_whole(mut sums: Sums) -> Sums {
    if *Sum::Priced.of(&mut sums) == 0.0 {
        *Sum::Paid.of(&mut sums) = 0.0;
        *Sum::Whole.of(&mut sums) = 0.0;
    }
    sums
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

/// A part of a row's account, if it has one.
fn account(row: &Value, money: &str, part: &str) -> Option<f64> {
    row.pointer(&format!("/saved/{money}/{part}"))?.as_f64()
}

/// Adds a row to what its session came to.
fn add(sums: &mut Sums, row: &Value, money: &str) {
    let number = |field: &str| row.pointer(field).and_then(Value::as_f64);
    let counted = |field: &str| number(field).unwrap_or_default();
    *Sum::Sessions.of(sums) = 1.0;
    if let (Some(paid), Some(whole)) = (account(row, money, "paid"), account(row, money, "whole")) {
        *Sum::Paid.of(sums) += paid;
        *Sum::Whole.of(sums) += whole;
    }
    let again = counted("/needed/read_again") + counted("/needed/asked_again");
    let missed = counted("/needed/missed");
    for (sum, counted) in [
        (Sum::Turns, counted("/turns")),
        (Sum::Passes, counted("/passes")),
        (Sum::Over, counted("/over")),
        (Sum::Again, again),
        (Sum::Recalls, counted("/recalls")),
        (Sum::Missed, missed),
        (Sum::Needed, missed + counted("/needed/in_view")),
    ] {
        *sum.of(sums) += counted;
    }
}

/// The comparison as a table.
fn table(profile: &str, rows: &[Value]) -> String {
    let priced = |row: &Value| row.pointer("/saved/usd/paid").is_some_and(Value::is_number);
    let usd = rows.iter().any(priced);
    let arms = sessions(rows, if usd { "usd" } else { "units" });
    let [base, tried] = &arms;
    let mut table = format!(
        "{} is tried in {} ({}), and the base arm has {} ({}); sub-agents count with their sessions\n",
        harmless_word(profile),
        counted(&tried.len(), "session"),
        counted(&Sum::Turns.over(tried), "turn"),
        counted(&base.len(), "session"),
        counted(&Sum::Turns.over(base), "turn"),
    );
    if base.len().min(tried.len()) < LEAST {
        let _ = writeln!(
            table,
            "can't tell yet: {LEAST} sessions in each arm are the least"
        );
        return table;
    }
    let unpriced = arms
        .each_ref()
        .map(|arm| arm.len() as f64 - Sum::Priced.over(arm));
    if unpriced.iter().any(|count| *count > 0.0) {
        let [base, tried] = unpriced;
        let _ = writeln!(
            table,
            "the cost of {} of the base arm and {tried} of the tried one is not known and left out",
            counted(&base, "session")
        );
    }
    let _ = writeln!(
        table,
        "intervals hold {:.0} % of {SAMPLES} samples of the sessions; chance: how many of so many random arms differ as much\n\
         \n{:<29} {:<28} {:<28} difference",
        LEVEL * 100.0,
        if usd {
            ""
        } else {
            "(cost: in plain input tokens)"
        },
        Arm::Base.name(),
        Arm::Tried.name(),
    );
    let places = FIGURES.map(|(_, over, under, _)| (over as usize, under as usize));
    let compared = compare([base.as_slice(), tried.as_slice()], &places, LEAST);
    for ((name, _, _, unit), compared) in FIGURES.iter().zip(compared) {
        let shown = match compared {
            Some(compared) => line(*unit, usd, &compared),
            None => "can't tell yet".to_owned(),
        };
        let _ = writeln!(table, "{name:<29} {shown}");
    }
    table
}

/// A figure of both arms, their difference, and what that tells.
fn line(unit: Unit, usd: bool, compared: &Compared) -> String {
    let [base, tried] = compared.of.map(|one| shown(unit, usd, one));
    let (difference, chance) = (compared.difference, compared.chance);
    let verdict = match compared.is_told() {
        false => "can't tell yet",
        true if difference.figure < 0.0 => "lower",
        true => "higher",
    };
    let difference = shown(unit, usd, difference);
    format!("{base:<28} {tried:<28} {difference}, chance {chance:.4}: {verdict}")
}

fn shown(unit: Unit, usd: bool, one: Estimate) -> String {
    let number = |number: f64| match unit {
        Unit::Money if !usd => format!("{number:.0}"),
        Unit::Money if number.abs() < 1.0 => format!("${number:.4}"),
        Unit::Money => format!("${number:.2}"),
        Unit::Ratio => format!("{number:.3}"),
        Unit::Hundredths => format!("{:.1}", number * 100.0),
        Unit::Plain => format!("{number:.1}"),
    };
    let Estimate { figure, low, high } = one;
    format!("{} ({} to {})", number(figure), number(low), number(high)).replace("$-", "-$")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(session: &str, parent: Option<&str>, arm: &str, paid: f64) -> Value {
        json!({
            "session": session, "parent": parent, "split": {"profile": "b", "arm": arm},
            "turns": 10, "passes": 2, "over": 1, "recalls": 3,
            "needed": {"in_view": 8, "missed": 2, "read_again": 1, "asked_again": 1, "recalled": 3},
            "saved": {"usd": {"paid": paid, "whole": 2.0}, "units": {"paid": 7.0, "whole": 9.0}},
        })
    }

    #[test]
    fn sub_agents_and_branches_count_with_their_session() {
        // An answer that broke off has no cost.
        let mut unpriced = row("u", None, "tried", 1.0);
        unpriced["saved"] = Value::Null;
        let rows = [
            row("s", None, "base", 1.0),
            row("child", Some("s"), "base", 0.25),
            row("grandchild", Some("child"), "base", 0.25),
            // Its parent is in no arm, or has no row any more.
            row("alone", Some("gone"), "base", 1.0),
            row("of u", Some("u"), "tried", 1.0),
            row("of no", Some("no"), "base", 1.0),
            row("no", None, "base", 1.0),
            // It spoke before its parent, and was drawn otherwise.
            row("first", Some("u"), "base", 1.0),
            unpriced,
            // Wrong headers.
            row("x", Some("y"), "tried", 1.0),
            row("y", Some("x"), "tried", 1.0),
        ];
        let [base, tried] = sessions(&rows, "usd");
        let sums = |arm: &[Sums]| -> Vec<[f64; 3]> {
            let of = [Sum::Priced, Sum::Paid, Sum::Turns];
            arm.iter()
                .map(|sums| of.map(|sum| sums[sum as usize]))
                .collect()
        };
        assert_eq!(
            sums(&base),
            [[1.0, 1.0, 10.0], [1.0, 2.0, 20.0], [1.0, 1.5, 30.0]]
        );
        assert_eq!(sums(&tried)[0], [0.0, 0.0, 30.0]);
        let turns: f64 = tried.iter().map(|sums| sums[Sum::Turns as usize]).sum();
        assert_eq!(turns, 50.0);
        let [sums, ..] = base.as_slice() else {
            panic!()
        };
        assert_eq!(sums[Sum::Needed as usize], 10.0);
        assert_eq!(sums[Sum::Again as usize], 2.0);
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
        for (name, ..) in &FIGURES {
            assert!(line(&same, name).ends_with("can't tell yet"));
        }
        assert_eq!(
            line(&same, "passes in 100 turns"),
            "passes in 100 turns           20.0 (20.0 to 20.0)          20.0 (20.0 to 20.0)          \
             0.0 (0.0 to 0.0), chance 1.0000: can't tell yet"
        );
        let cost = line(&cheaper, "cost a session");
        assert!(
            cost.starts_with("cost a session                $1.00 ($0."),
            "{cost}"
        );
        assert!(
            cost.contains(" -$0.3000 (-$0.") && cost.contains("chance 0.0005"),
            "{cost}"
        );
        let mut unpriced = populations(60, 1.0, 1.0);
        unpriced[0]["saved"] = Value::Null;
        let told = "\nthe cost of 1 session of the base arm and 0 of the tried one is not known and left out\n";
        assert!(table("b", &unpriced).contains(told));
        let few = table("b", &populations(LEAST - 1, 1.0, 0.1));
        assert!(few.ends_with("can't tell yet: 20 sessions in each arm are the least\n"));
    }
}
