//! What the turns of a session's row came to by the hour, from their records. Owns how that is found without reading all of
//! them at each turn. Never knows what a row is besides.

use plimsoll_model::{HourSums, TurnRecord, TurnSums, hours};

use super::path::PathEntry;

/// The longest name of a model that an hour keeps, in bytes. What a longer one cost counts under the row's.
const MODEL_BYTES: usize = 64;
/// Over how many of the newest turns growth is told.
const GROWTH_TURNS: usize = 8;

/// The turns at the end of a path that count in the row of the newest. They stand together, because what went on from a
/// branch is of that branch.
fn of_row(entries: &[PathEntry]) -> &[PathEntry] {
    let Some(newest) = entries.last() else {
        return entries;
    };
    let from = entries.partition_point(|entry| !shares_row(&entry.record, &newest.record));
    entries.get(from..).unwrap_or_default()
}

/// Whether two turns count in the same row.
fn shares_row(one: &TurnRecord, other: &TurnRecord) -> bool {
    one.session == other.session && one.facts.branch == other.facts.branch
}

/// What the turns of the newest one's row came to by the hour, the newest last. A record has the sums of all before it, so
/// this looks for the first of each hour, and costs as many searches as there are hours. Whatever the path lacks, all hours
/// together are the row's sums.
#[must_use]
pub fn of(entries: &[PathEntry]) -> Vec<HourSums> {
    let mut rest = of_row(entries);
    let newest = rest.last().map_or(0, |entry| hour(&entry.record));
    let mut found = Vec::new();
    while let Some(last) = rest.last() {
        let at = hours::entry_of(hour(&last.record), newest);
        let is_before = |entry: &PathEntry| hours::entry_of(hour(&entry.record), newest) < at;
        // The last one stands in its own hour, whatever the clocks of those before it said.
        let from = rest.partition_point(is_before).min(rest.len() - 1);
        let before = from.checked_sub(1).and_then(|before| rest.get(before));
        let before = before.map(|before| before.record.sums());
        // Records that an edit has dropped are in the sums of the next one that is known, so its hour has them.
        let before = before.unwrap_or_default();
        found.push(between(at, &before, &last.record));
        rest = rest.get(..from).unwrap_or_default();
    }
    found.reverse();
    found
}

/// These hours with one more turn, as its row shows them.
#[must_use]
pub fn with(mut before: Vec<HourSums>, turn: &TurnRecord) -> Vec<HourSums> {
    let newest = hour(turn);
    before.push(between(newest, &turn.facts.sums, turn));
    let mut all: Vec<HourSums> = Vec::with_capacity(before.len());
    for mut one in before {
        one.hour = hours::entry_of(one.hour, newest);
        match all.last_mut() {
            Some(last) if last.hour == one.hour => last.join(one),
            Some(_) | None => all.push(one),
        }
    }
    for one in &mut all {
        one.model = one.model.take().filter(|model| *model != turn.model);
    }
    all
}

/// By how many tokens the client's requests grew with each of the last turns, in the mean. 0 if they did not.
#[must_use]
pub fn growth(entries: &[PathEntry], turn: &TurnRecord) -> u32 {
    let newest = entries.iter().rev().take(GROWTH_TURNS);
    let own = newest.take_while(|entry| shares_row(&entry.record, turn));
    let sizes = own.map(|entry| entry.record.facts.tokens_in);
    let (mut count, mut first) = (0_u64, turn.facts.tokens_in);
    for size in sizes.filter(|size| *size > 0) {
        (count, first) = (count + 1, size);
    }
    let grown = turn.facts.tokens_in.saturating_sub(first);
    u32::try_from(grown / count.max(1)).unwrap_or(u32::MAX)
}

fn hour(record: &TurnRecord) -> u32 {
    hours::hour(record.ended)
}

fn between(at: u32, before: &TurnSums, last: &TurnRecord) -> HourSums {
    let model = Some(&last.model).filter(|model| model.len() <= MODEL_BYTES);
    HourSums {
        model: model.cloned(),
        ..HourSums::between(at, before, &last.sums())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use plimsoll_model::hours::HOUR_MS;
    use plimsoll_model::{Digest, ItemNo, RecordId, TurnAccount, TurnFacts};
    use proptest::prelude::*;

    use super::*;

    /// A turn of a row: how many minutes after the one before it ended, what it cost, and which model it asked.
    type Step = (u64, u8, u8);

    fn entry(record: TurnRecord) -> PathEntry {
        PathEntry {
            id: RecordId(Digest([0; 32])),
            record: Arc::new(record),
            position: 0,
            base: ItemNo(0),
        }
    }

    /// The records of a row's turns, each with the sums of those before it.
    fn row(branch: Option<&str>, from: u64, steps: &[Step]) -> Vec<TurnRecord> {
        let (mut ended, mut sums, mut records) = (from, TurnSums::default(), Vec::new());
        for (minutes, paid, model) in steps {
            ended += minutes * 60_000;
            let account = TurnAccount {
                paid: f64::from(*paid),
                whole: f64::from(*paid) * 2.0,
                evicted: f64::from(*paid),
                usd: Some(0.5),
                sent: (u64::from(*paid), 0),
                client: (u64::from(*paid) * 2, 0),
                ..TurnAccount::default()
            };
            let facts = TurnFacts {
                account: Some(account),
                sums,
                branch: branch.map(str::to_owned),
                tokens_in: 1_000 + 100 * records.len() as u64,
                ..TurnFacts::default()
            };
            let record = TurnRecord {
                ended,
                session: "s".to_owned(),
                model: format!("m{model}"),
                facts: Box::new(facts),
                ..TurnRecord::default()
            };
            sums = record.sums();
            records.push(record);
        }
        records
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Most turns follow at once, and some days or months later.
        let minutes = prop_oneof![8 => 0..90_u64, 2 => 0..20_000_u64, 1 => 0..100_000_u64];
        proptest::collection::vec((minutes, any::<u8>(), 0..3_u8), 1..60)
    }

    proptest! {
        /// Whatever the row went through, its hours are what its turns say one by one, and their sum is the row's.
        #[test]
        fn hours_are_what_the_turns_come_to(before in steps(), own in steps()) {
            let start = 470_000 * HOUR_MS;
            let session = row(None, start, &before);
            let forked = session.last().unwrap().ended;
            let records = row(Some("branch"), forked, &own);
            let mut entries: Vec<PathEntry> = session.into_iter().map(entry).collect();
            for (at, record) in records.iter().enumerate() {
                let known = if at == 0 { Vec::new() } else { of(&entries) };
                let found = with(known, record);
                let newest = hours::hour(record.ended);
                let mut expect: BTreeMap<u32, (u32, f64, String)> = BTreeMap::new();
                for turn in &records[..=at] {
                    let hour = hours::entry_of(hours::hour(turn.ended), newest);
                    let one = expect.entry(hour).or_default();
                    one.0 += 1;
                    one.1 += turn.facts.account.unwrap().paid * 0.5;
                    one.2.clone_from(&turn.model);
                }
                prop_assert_eq!(found.len(), expect.len());
                for (one, (hour, (turns, paid, model))) in found.iter().zip(expect) {
                    prop_assert_eq!((one.hour, one.turns), (hour, turns));
                    prop_assert!((f64::from(one.paid) - paid).abs() < 1e-3);
                    prop_assert_eq!(one.paid, one.saved);
                    let told = one.model.as_ref().unwrap_or(&record.model);
                    prop_assert_eq!(told, &model);
                }
                entries.push(entry(record.clone()));
            }
        }
    }

    proptest! {
        /// Whatever edits dropped, nothing that the row's sums have is in no hour.
        #[test]
        fn hours_of_any_part_of_a_path_are_the_rows_sums(own in steps(), dropped in any::<u64>()) {
            let mut records = row(None, 470_000 * HOUR_MS, &own);
            let newest = records.pop().unwrap();
            let kept = records.into_iter().enumerate();
            let kept = kept.filter(|(at, _)| dropped >> (at % 64) & 1 == 0);
            let entries: Vec<PathEntry> = kept.map(|(_, record)| entry(record)).collect();
            let before = entries.last().map_or(0, |last| last.record.sums().turns);
            prop_assert_eq!(of(&entries).iter().map(|one| one.turns).sum::<u32>(), before);
            let whole: Vec<PathEntry> = entries.into_iter().chain([entry(newest.clone())]).collect();
            let found = of(&whole);
            prop_assert_eq!(found.iter().map(|one| one.turns).sum::<u32>(), newest.sums().turns);
            let paid: f64 = found.iter().map(|one| f64::from(one.paid)).sum();
            prop_assert!((paid - newest.sums().account.paid * 0.5).abs() < 1e-2);
        }
    }

    #[test]
    fn growth_is_that_of_the_last_turns_of_a_row() {
        let mut records = row(None, 0, &[(1, 1, 0); 20]);
        let newest = records.pop().unwrap();
        let entries: Vec<PathEntry> = records.into_iter().map(entry).collect();
        assert_eq!(growth(&entries, &newest), 100);
        assert_eq!(growth(&[], &newest), 0);
        let other = row(Some("branch"), 0, &[(1, 1, 0)]).remove(0);
        assert_eq!(growth(&entries, &other), 0);
    }

    #[test]
    fn what_an_edit_dropped_counts_with_the_first_turn_that_is_known() {
        let records = row(None, 0, &[(60, 8, 0); 4]);
        let entries: Vec<PathEntry> = records.into_iter().skip(2).map(entry).collect();
        let found = of(&entries);
        let turns: Vec<u32> = found.iter().map(|one| one.turns).collect();
        assert_eq!(turns, [3, 1]);
    }
}
