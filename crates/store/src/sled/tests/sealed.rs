//! What only a sealed directory can show: kills, and chunks that somebody exchanged.

use super::super::super::tests::sealed::{bytes_below, sealed};
use super::*;

pub(super) fn child_commits_sealed(dir: &Path, from: u64) {
    child_commits(&opened(dir), from);
}

fn opened(dir: &Path) -> Store {
    Store::open(&sealed(config(dir))).unwrap().store
}

/// A kill leaves what was acknowledged, and nothing of it as it came: not in the journal either.
#[test]
fn nothing_acknowledged_is_lost_to_kills_or_shown_by_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    let mut next = 0;
    for round in 0..4u64 {
        let mut child = spawn("commit-sealed", dir.path(), next, None);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = 30 + 50 * round;
        for line in lines.map_while(Result::ok) {
            let Some((_, number)) = line.split_once("say ack ") else {
                continue;
            };
            let number: u64 = number.parse().unwrap();
            acknowledged.push(number);
            next = number + 100;
            left = left.saturating_sub(1);
            if left == 0 {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success(), "killed, not ended");
        let kept = bytes_below(dir.path());
        for number in &acknowledged {
            let value = &numbered(*number).blobs[0].1;
            // What stands in front is in its row as well, which is not sealed.
            if let Some(part) = value.get(48..80) {
                assert!(memchr::memmem::find(&kept, part).is_none(), "{number}");
            }
        }
    }
    let store = opened(dir.path());
    for number in acknowledged {
        assert_eq!(present(&store, number..number + 1).unwrap(), 1, "{number}");
    }
}

#[test]
fn what_was_changed_or_exchanged_is_told_and_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let store = opened(dir.path());
    let (one, other) = (numbered(1), numbered(2));
    let ids = [one.blobs[0].0, other.blobs[0].0];
    for batch in [&one, &other] {
        wait(store.commit(batch.clone())).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let seals = sealed(config(dir.path())).seals;
    let mut encoder = codec::Encoder::new(seals).unwrap();
    let stored = encoder.encode(&ids[1], &other.blobs[0].1).unwrap();
    let mut changed = encoder.encode(&ids[0], &one.blobs[0].1).unwrap();
    *changed.last_mut().unwrap() ^= 1;
    // As it is where nothing is sealed, which whoever can write there can write.
    let mut open = codec::Encoder::new(Seals::default()).unwrap();
    let open = open.encode(&ids[1], &other.blobs[0].1).unwrap();
    let key = [&ids[0].as_bytes()[..], &[0; 4]].concat();
    for value in [stored, changed, open] {
        tamper(dir.path(), "blobs", &key, &value);
        let store = opened(dir.path());
        assert_eq!(store.blobs(&ids[..1]).unwrap(), [None]);
        assert_eq!(store.health().mismatched, 1);
        assert!(store.blobs(&ids[1..]).unwrap()[0].is_some());
        store.close().unwrap();
    }
}
