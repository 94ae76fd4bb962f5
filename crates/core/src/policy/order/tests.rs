//! Prints the tables of the order into its page, and holds the page to them.

use std::fmt::Write as _;

use super::*;

const PAGE_HEAD: &str = "# The order of eviction

<!-- Written by a test from crates/core/src/policy/order.rs: `PLIMSOLL_WRITE_DOCS=1 cargo test -p plimsoll-core policy::order`. -->

What a pass takes first, what next, and what last. Each row is a step of a table in `crates/core/src/policy/order.rs`, taken from the top down. A
step is over as soon as the view has come down to its size, and the pass goes on to the next. Another order is another row there. A
new kind of step is a variant of `Takes`, an arm of `act` in `crates/core/src/policy/run.rs` that calls what does it, and that function.

Which policies run, and when, the ladder says ([`policies.md`](../evidence/policies.md#several-policies-over-one-view)). Policies for new results
(`repeat`, `admit`, `loop-guard`) take nothing in passes, and `keep` only says what is of the tier `kept`. What an operator names
goes before all of this (`crates/core/src/policy/asked.rs`).
";

fn page_path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/build/order.md")
}

/// The page as the tables make it.
fn page() -> String {
    let mut page = PAGE_HEAD.to_owned();
    let mut compared = String::new();
    // The default first.
    for policy in Policy::ALL.into_iter().rev() {
        let table = Table::of(policy);
        if let (Rules::Off, Takes::Steps(steps)) = (table.rules, table.rounds[0].takes) {
            row(&mut compared, policy, table.tail, steps);
            continue;
        }
        let (name, tail) = (policy.name(), of_tail(table.tail));
        let _ = write!(page, "\n## `{name}`\n\nAt the tail {tail} are recent.\n\n");
        page.push_str(
            "| | tier | takes | down to | if | again while |\n|---|---|---|---|---|---|\n",
        );
        let steps: Vec<Step> = table.rounds.iter().chain(table.last).copied().collect();
        rows(&mut page, &mut Vec::new(), "", &steps);
    }
    page.push_str(COMPARED_HEAD);
    page.push_str(&compared);
    page.push_str(TIERS_HEAD);
    words(
        &mut page,
        Tier::ALL.map(|tier| (tier.name(), of_tier(tier))),
    );
    page.push_str("\n## Levels of results\n\nA level goes through all episodes before the next begins, but for those that are needed: there each episode goes by all levels.\n\n");
    for (at, stage) in STAGES.iter().enumerate() {
        let _ = writeln!(page, "{}. {}", at + 1, of_stage(*stage));
    }
    page.push_str("\n## Sizes\n\n| word | meaning |\n|---|---|\n");
    words(&mut page, SIZES.map(of_until));
    page.push_str("\n## Conditions\n\n| word | meaning |\n|---|---|\n");
    words(&mut page, CONDITIONS.map(of_due));
    words(&mut page, REPEATS.map(of_again));
    page
}

fn words<const N: usize>(page: &mut String, words: [(&str, &str); N]) {
    for (word, meaning) in words {
        let _ = writeln!(page, "| `{word}` | {meaning} |");
    }
}

/// Writes steps, each with its number. Steps that stand further up are named by their number.
fn rows(page: &mut String, seen: &mut Vec<(&'static [Step], String)>, above: &str, steps: &[Step]) {
    for (at, step) in steps.iter().enumerate() {
        let no = format!("{above}{}", at + 1);
        let mut inner: &[Step] = &[];
        let takes = if let Takes::Steps(steps) = step.takes {
            if let Some((_, known)) = seen.iter().find(|(known, _)| *known == steps) {
                format!("step {known} once more")
            } else {
                seen.push((steps, no.clone()));
                inner = steps;
                "in turn:".to_owned()
            }
        } else {
            of_takes(step.takes)
        };
        let word = |word: &str| match word {
            "" => String::new(),
            _ => format!("`{word}`"),
        };
        let cells = [
            step.tier.name(),
            of_until(step.until).0,
            of_due(step.due).0,
            of_again(step.again).0,
        ];
        let [tier, until, due, again] = cells.map(word);
        let _ = writeln!(
            page,
            "| {no} | {tier} | {takes} | {until} | {due} | {again} |"
        );
        rows(page, seen, &format!("{no}."), inner);
    }
}

const COMPARED_HEAD: &str = "
## For comparison

These take their steps while the view is over budget, and once more for what the tail or somebody's wish protected.

| policy | recent at the tail | takes, down to |
|---|---|---|
";

/// Writes a policy for comparison, if it takes anything: all of these share the frame that `Table::baseline` gives.
fn row(page: &mut String, policy: Policy, tail: Tail, steps: &[Step]) {
    let tail = of_tail(tail);
    let steps = steps.iter().map(|step| {
        let until = of_until(step.until).0;
        format!("{} (`{until}`)", of_takes(step.takes))
    });
    let steps = steps.collect::<Vec<_>>().join("; then ");
    if !steps.is_empty() {
        let _ = writeln!(page, "| `{}` | {tail} | {steps} |", policy.name());
    }
}

const TIERS_HEAD: &str = "
## Tiers

How early an item may go, the earliest last. A step takes items of its tier, and from then on what is behind that tier may go too. With
`strict_active`, and in the published order, no step of the tiers `depended` and `open` is taken. No tier is stored: an act that goes
frees what it depended on at once.

| tier | an item is of it if |
|---|---|
";

const SIZES: [Until; 6] = [
    Until::Floor,
    Until::Removal,
    Until::Answers,
    Until::Ceiling,
    Until::Half,
    Until::Nothing,
];
const CONDITIONS: [Due; 4] = [
    Due::FallsShort,
    Due::FreedPointers,
    Due::Unmet,
    Due::UnmetByTail,
];
const REPEATS: [Again; 2] = [Again::Moves, Again::FreesPointers];

fn of_tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Never => "its form must stay, its policy's filter leaves it out, or it is prologue",
        Tier::Newest => {
            "it belongs to the newest assistant message or comes after it; no pass ever takes it"
        }
        Tier::Kept => {
            "somebody asked to keep it, or it was recalled to stay and its episode is open"
        }
        Tier::Recent => "it belongs to the last tokens of the view",
        Tier::Depended => "it belongs to exploration that an act in view depends on",
        Tier::Open => "it belongs to an open episode",
        Tier::Free => "nothing needs it",
    }
}

fn of_tail(tail: Tail) -> &'static str {
    match tail {
        Tail::Recent => "`protect_recent` tokens",
        Tail::Verbatim => "8,000 tokens, or a quarter of a small budget",
        Tail::None => "nothing",
    }
}

fn of_takes(takes: Takes) -> String {
    let levels = |levels: &[Level]| levels.iter().map(|level| level.name()).collect::<Vec<_>>();
    let text = match takes {
        Takes::Steps(_) => "nothing",
        Takes::Thoughts(Reach::BehindTheCut) => {
            "thoughts behind the first edit; those before it only if thoughts alone are enough"
        }
        Takes::Thoughts(Reach::All) => "all thoughts",
        Takes::Results(stages) => {
            let no = |stage| STAGES.iter().position(|one| one == stage).unwrap() + 1;
            let levels: Vec<String> = stages.iter().map(|stage| no(stage).to_string()).collect();
            return format!("results by the levels {}", levels.join(", "));
        }
        Takes::Calls => "calls with their results, those of bulk tools first",
        Takes::Episodes => {
            "calls with their results, those of bulk tools first, then the episode; acts before exploration"
        }
        Takes::Texts => "texts of spans without calls; a line is left of each",
        Takes::Tombstones => {
            "tombstones, into the ledger, if they take more than a tenth of the budget"
        }
        Takes::AllTombstones => "tombstones, into the ledger",
        Takes::Folds => "all but the description, where a thought stays with its marks",
        Takes::LastResort => "all that the model said but the newest exchange",
        Takes::EachEpisode(of) => {
            return format!(
                "the oldest act, or else the oldest exploration, by its levels: {}; then the next",
                levels(of).join(", ")
            );
        }
        Takes::Pairs => "calls with their results, oldest first",
        Takes::Stubs(Pick::Oldest) => "results, oldest first; a line is left of each",
        Takes::Stubs(Pick::Largest) => "results, largest first; a line is left of each",
        Takes::Stubs(Pick::AllButNewest) => "results but the newest three; a line is left of each",
        Takes::Middles => "results of search and shell tools but their ends, oldest first",
        Takes::TurnFolds => "whole turns, oldest first; a line is left of each span",
        Takes::Turns => "whole turns, oldest first",
        Takes::ThreeTier => {
            "results before the last two turns of the user but the newest 40,000 tokens of them, if that frees 20,000"
        }
    };
    text.to_owned()
}

fn of_stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Superseded => "Results that stand again further on.",
        Stage::Effects => "Results of commands and writes, whose effects last without them.",
        Stage::Skeletons => "Large results, down to the lines whose strings stand nowhere else.",
        Stage::Stubs => "All other results, down to a line.",
        Stage::Arguments => "Only to meet the budget: long strings in calls.",
    }
}

fn of_until(until: Until) -> (&'static str, &'static str) {
    match until {
        Until::Floor => ("floor", "the floor of the pass"),
        Until::Removal => (
            "removal",
            "the floor and half of the results that are protected only now: the next pass can take those",
        ),
        Until::Answers => (
            "answers",
            "the budget less eight answers like the newest: whole prefixes are rewritten here",
        ),
        Until::Ceiling => ("budget", "the budget"),
        Until::Half => ("half", "half of the way to the floor"),
        Until::Nothing => ("0", "all that there is goes"),
    }
}

fn of_due(due: Due) -> (&'static str, &'static str) {
    match due {
        Due::Always => ("", ""),
        Due::FallsShort => (
            "short",
            "more than a twelfth of the room between floor and budget is filled, so the next pass would come too soon",
        ),
        Due::FreedPointers => (
            "short, pointers",
            "the same, and results pointed to others: what they pointed to may go now",
        ),
        Due::Unmet => ("unmet", "the view is over budget"),
        Due::UnmetByTail => (
            "unmet, spared",
            "the same, and the tail or something that is kept was protected",
        ),
    }
}

fn of_again(again: Again) -> (&'static str, &'static str) {
    match again {
        Again::Never => ("", ""),
        Again::Moves => ("it moves", "anything moved, and the view is above the size"),
        Again::FreesPointers => (
            "it frees",
            "the same, and results pointed to others: what they pointed to may stand further up",
        ),
    }
}

#[test]
fn the_page_of_the_order_says_what_there_is() {
    assert_eq!((HELD_PART, ANSWERS), (12, 8), "the page has them in words");
    let page = page();
    if std::env::var_os("PLIMSOLL_WRITE_DOCS").is_some() {
        std::fs::write(page_path(), &page).unwrap();
    }
    let written = std::fs::read_to_string(page_path()).unwrap_or_default();
    assert_eq!(
        written, page,
        "docs/build/order.md is not of these tables; its second line says how to write it"
    );
}
