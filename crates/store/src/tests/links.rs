//! How much of a set of links is read, and from which end.

use super::*;

#[test]
fn links_that_lead_to_nothing_are_not_counted_among_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = Bytes::from_static(b"said");
    let live = blob_id(&bytes);
    let link = |turn: u32, id| Link {
        key: key(1),
        id,
        turn,
    };
    let gone = (0..70).map(|turn| link(turn, key(u64::from(turn) + 2)));
    let other = |link| Link {
        key: key(2),
        ..link
    };
    let other = [link(3, live), link(4, live)]
        .into_iter()
        .chain(gone.clone().skip(5))
        .map(other);
    let batch = Batch {
        blobs: vec![(live, bytes)],
        links: gone
            .chain([link(70, live), link(71, live)])
            .chain(other)
            .collect(),
        ..Batch::default()
    };
    for store in [open(dir.path()).store, Store::Memory(Memory::default())] {
        wait(store.commit(batch.clone())).unwrap();
        let first = |most| store.links(&[key(1)], Take::First(most)).unwrap();
        let last = |most| store.links(&[key(2)], Take::Last(most)).unwrap();
        assert_eq!(first(1), [[(70, live)]]);
        assert_eq!(first(65), [[(70, live), (71, live)]]);
        assert_eq!(last(1), [[(4, live)]]);
        assert_eq!(last(65), [[(3, live), (4, live)]]);
    }
}

/// Nobody waits for a set all of whose first members are gone.
#[test]
fn no_more_members_are_looked_at_than_may_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = Bytes::from_static(b"said");
    let live = blob_id(&bytes);
    let most = u32::try_from(MEMBERS).unwrap();
    let link = |turn: u32, id| Link {
        key: key(1),
        id,
        turn,
    };
    let gone = (1..=most).map(|turn| link(turn, key(u64::from(turn) + 2)));
    let store = open(dir.path()).store;
    wait(store.commit(Batch {
        blobs: vec![(live, bytes)],
        links: gone.chain([link(0, live), link(most + 1, live)]).collect(),
        ..Batch::default()
    }))
    .unwrap();
    // Until it is closed, a part may still wait to be written, and be looked at by itself.
    store.close().unwrap();
    let store = open(dir.path()).store;
    for (take, found) in [
        (Take::First(1), vec![(0, live)]),
        (Take::First(2), vec![(0, live)]),
        (Take::Last(1), vec![(most + 1, live)]),
        (Take::Last(2), vec![(most + 1, live)]),
    ] {
        assert_eq!(store.links(&[key(1)], take).unwrap(), [found], "{take:?}");
    }
}

/// What many sessions have said alike leads to as many records: no request waits for all of them.
#[test]
fn of_a_large_set_the_first_or_last_members_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let most = u32::try_from(MEMBERS).unwrap();
    let blobs: Vec<(Digest, Bytes)> = (0..most + 50)
        .map(|number| Bytes::from(number.to_le_bytes().to_vec()))
        .map(|bytes| (blob_id(&bytes), bytes))
        .collect();
    let links = blobs
        .iter()
        .zip((0..most + 50).rev())
        .map(|((id, _), turn)| Link {
            key: key(1),
            id: *id,
            turn,
        });
    let links: Vec<Link> = links.collect();
    let batch = Batch {
        blobs,
        links,
        ..Batch::default()
    };
    let store = open(dir.path()).store;
    for store in [store, Store::Memory(Memory::default())] {
        // Waiting to be written, and written.
        let ticket = store.commit(batch.clone());
        for _ in 0..2 {
            let sets = store.links(&[key(1)], Take::ALL).unwrap();
            let turns: Vec<u32> = sets[0].iter().map(|(turn, _)| *turn).collect();
            assert_eq!(turns, (0..most).collect::<Vec<u32>>());
            for few in [0, 1, 65, usize::MAX] {
                let first = store.links(&[key(1), key(2)], Take::First(few)).unwrap();
                assert_eq!(first, [&sets[0][..few.min(MEMBERS)], &[]]);
                let last = store.links(&[key(1), key(2)], Take::Last(few)).unwrap();
                let turns: Vec<u32> = last[0].iter().map(|(turn, _)| *turn).collect();
                let lowest = most + 50 - u32::try_from(few.min(MEMBERS)).unwrap();
                assert_eq!(turns, (lowest..most + 50).collect::<Vec<u32>>());
                assert!(last[1].is_empty());
            }
        }
        wait(ticket).unwrap();
        assert_eq!(store.links(&[key(1)], Take::ALL).unwrap()[0].len(), MEMBERS);
    }
}
