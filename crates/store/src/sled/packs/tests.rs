//! Tests of `packs`: against a map, behind a split that was cut in two, and beside links that stand alone.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::super::settings::StoreSettings;
use super::*;

fn open(dir: &Path) -> Trees {
    Trees::open(dir, &StoreSettings::default()).unwrap()
}

fn digest(number: u8) -> Digest {
    Digest::of(&[&[number]])
}

fn link(key: u8, turn: u32, id: u8) -> Link {
    Link {
        key: digest(key),
        id: digest(id),
        turn,
    }
}

fn day_of(trees: &Trees, dir: &Path, link: &Link) -> Option<u16> {
    trees.link_day(dir, link, &mut Places::default()).unwrap()
}

/// Members of a key's set, all of which are stored.
fn found(trees: &Trees, dir: &Path, key: u8, take: Take) -> Vec<Member> {
    trees.links(dir, &digest(key), take, |_| Ok(true)).unwrap()
}

/// All links as reading in parts finds them.
fn all(trees: &Trees) -> Vec<(Link, u16)> {
    let packs = trees.packs_after(None).map(Result::unwrap);
    packs
        .flat_map(|pack| pack.links().collect::<Vec<_>>())
        .collect()
}

fn sorted(known: &BTreeMap<Link, u16>) -> Vec<(Link, u16)> {
    let mut all: Vec<_> = known.iter().map(|(link, day)| (*link, *day)).collect();
    all.sort_by_key(|(link, _)| link_key(link));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn packs_hold_what_a_map_holds(
        groups in prop::collection::vec(
            prop::collection::vec((0u8..12, 0u32..30, 0u8..3, 1u16..4), 1..40),
            1..20,
        ),
        looks in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (trees, mut known) = (open(dir.path()), BTreeMap::<Link, u16>::new());
        for group in groups {
            let mut places = Places::default();
            // A group may be looked at before it is put. Then every put makes some of that untrue.
            for (key, turn, id, _) in group.iter().filter(|_| looks) {
                let link = link(*key, *turn, *id);
                prop_assert_eq!(trees.link_day(dir.path(), &link, &mut places).unwrap(), known.get(&link).copied());
            }
            for (key, turn, id, day) in group {
                let link = link(key, turn, id);
                let before = known.get(&link).copied();
                let put = trees.put_link(dir.path(), (&link, day), &mut places).unwrap();
                prop_assert_eq!((put.new, put.wrote), (before.is_none(), before.is_none_or(|before| before < day)));
                known.insert(link, before.map_or(day, |before| before.max(day)));
                prop_assert_eq!(day_of(&trees, dir.path(), &link), known.get(&link).copied());
            }
        }
        let most = trees.packs_after(None).map(|pack| pack.unwrap().len()).max();
        prop_assert!(most <= Some(PACK_LINKS));
        prop_assert_eq!(all(&trees), sorted(&known));
        for key in 0..13 {
            let mut members: Vec<_> = known.keys().filter(|link| link.key == digest(key)).map(|link| (link.turn, link.id)).collect();
            members.sort_unstable();
            prop_assert_eq!(found(&trees, dir.path(), key, Take::ALL), members.clone());
            // From both ends, and without some whose blob is not stored.
            let most = members.len();
            for few in [0, 1, most / 2, most, most + 1] {
                prop_assert_eq!(found(&trees, dir.path(), key, Take::First(few)), &members[..few.min(most)]);
                members.reverse();
                prop_assert_eq!(found(&trees, dir.path(), key, Take::Last(few)), &members[..few.min(most)]);
                members.reverse();
            }
            members.retain(|(_, id)| *id != digest(1));
            let stored = |id: &Digest| Ok(*id != digest(1));
            let some = trees.links(dir.path(), &digest(key), Take::First(3), stored).unwrap();
            prop_assert_eq!(&some[..], &members[..some.len()]);
            prop_assert_eq!(some.len(), members.len().min(3));
        }
        let mut each = Vec::new();
        trees.each_member(dir.path(), |member| each.push(member)).unwrap();
        let members: Vec<_> = sorted(&known).iter().map(|(link, _)| (link.turn, link.id)).collect();
        prop_assert_eq!(each, members);
    }
}

#[test]
fn a_split_that_a_kill_cut_in_two_shows_no_link_twice_and_loses_none_later() {
    let dir = tempfile::tempdir().unwrap();
    let trees = open(dir.path());
    let mut known = BTreeMap::new();
    let mut put = |number: u32| {
        let link = link(1, number, 1);
        assert!(
            trees
                .put_link(dir.path(), (&link, 9), &mut Places::default())
                .unwrap()
                .new
        );
        known.insert(link, 9);
    };
    (0..8).for_each(|number| put(number * 10));
    let whole = trees.packs.get(FIRST_PACK).unwrap().unwrap();
    put(1);
    assert_eq!(trees.packs.len(), 2);
    put(55);
    put(65);
    // The lower half was not written.
    trees.packs.insert(FIRST_PACK, whole).unwrap();
    known.remove(&link(1, 1, 1));
    assert_eq!(all(&trees), sorted(&known));
    for take in [Take::ALL, Take::Last(MEMBERS)] {
        let mut turns: Vec<u32> = found(&trees, dir.path(), 1, take)
            .iter()
            .map(|(turn, _)| *turn)
            .collect();
        turns.sort_unstable();
        assert_eq!(turns, [0, 10, 20, 30, 40, 50, 55, 60, 65, 70]);
    }
    // The pack fills again beside what it shares, and is split again.
    for number in [2, 3, 4, 5, 6, 7, 12, 13, 14] {
        let link = link(1, number, 1);
        assert!(
            trees
                .put_link(dir.path(), (&link, 9), &mut Places::default())
                .unwrap()
                .new
        );
        known.insert(link, 9);
    }
    assert_eq!(trees.packs.len(), 3);
    assert_eq!(all(&trees), sorted(&known));
    let day = |number| {
        let link = link(1, number, 1);
        day_of(&trees, dir.path(), &link)
    };
    assert_eq!((day(65), day(70), day(1)), (Some(9), Some(9), None));
}
