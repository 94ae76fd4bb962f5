//! Tests of `entry`.

use std::io::Write as _;

use bytes::Bytes;
use plimsoll_model::blob_id;

use super::super::super::batch::{BatchKind, Link, Listed};
use super::super::super::tests::noise;
use super::super::age::Age;
use super::*;

fn writes(seed: u64, length: usize) -> Writes {
    let bytes = noise(seed, length);
    let id = blob_id(&bytes);
    let link = |turn| Link {
        key: blob_id(&seed.to_le_bytes()),
        id,
        // The last byte is none that a file is filled up with.
        turn: u32::MAX - turn,
    };
    let age = Age::new(BatchKind::Content, 0x0102);
    let row = Listed {
        session: blob_id(b"session"),
        at: seed,
        id,
        row: noise(seed, 9),
    };
    Writes {
        blobs: vec![
            (id, age, bytes),
            (blob_id(b""), Age::default(), Bytes::new()),
        ],
        links: (0..3).map(|turn| (link(turn), 0xfffe)).collect(),
        named: vec![(id, Age::renewed(BatchKind::Records, 0x0304))],
        rows: vec![row],
    }
}

fn stamp(group: u64) -> Stamp {
    let (blobs, links) = (group * 2, group * 3);
    Stamp {
        first: group,
        last: group,
        counts: Counts {
            blobs,
            links,
            rows: 0,
        },
    }
}

/// The groups that are read whole, of entries in this form, and the last of which there is a trace.
fn read_as(bytes: &[u8], form: Form) -> (Vec<(u64, Vec<Writes>)>, u64) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let mut reader = EntryReader::new(&file, 0).unwrap();
    let (mut whole, mut top) = (Vec::new(), 0);
    while let Some(found) = reader.next().unwrap() {
        let met = match found {
            Scanned::Whole(met, batches, found) => {
                assert_eq!(found, form);
                whole.push((met.last, batches));
                met
            }
            Scanned::Trace(met) | Scanned::CutOff(met) => met,
        };
        assert_eq!(met, stamp(met.last));
        top = top.max(met.last);
    }
    (whole, top)
}

fn read(bytes: &[u8]) -> (Vec<(u64, Vec<Writes>)>, u64) {
    read_as(bytes, Form::Usual)
}

fn file(groups: &[(u64, Vec<Writes>)]) -> Vec<u8> {
    file_as(groups, Form::Usual)
}

fn file_as(groups: &[(u64, Vec<Writes>)], form: Form) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, group) in groups {
        let at = bytes.len() as u64;
        bytes.extend(entry(at, usize::MAX, &stamp(*number), (group, form)).unwrap());
    }
    bytes
}

#[test]
fn what_was_written_is_read_again_and_only_at_its_place() {
    let groups = [
        (1, vec![writes(1, 700), writes(2, 0)]),
        (2, vec![writes(3, 90_000)]),
        (3, vec![]),
    ];
    let bytes = file(&groups);
    assert_eq!(read(&bytes), (groups.to_vec(), 3));
    let stored = file_as(&groups, Form::Stored);
    assert_eq!(read_as(&stored, Form::Stored), (groups.to_vec(), 3));
    let moved = [&[0][..], &bytes].concat();
    assert_eq!(read(&moved), (vec![], 0));
    assert_eq!(read(&[]), (vec![], 0));
}

#[test]
fn an_entry_takes_the_room_that_it_says_or_none() {
    let group = [writes(1, 500)];
    let entry = |room| entry(0, room, &stamp(1), (&group, Form::Usual));
    let length = entry(usize::MAX).unwrap().len();
    assert!(entry(length).is_some());
    assert!(entry(length - 1).is_none());
}

#[test]
fn one_flipped_bit_takes_one_entry_and_never_its_trace() {
    let groups: Vec<_> = (1..4).map(|n| (n, vec![writes(n, 60)])).collect();
    let sound = file(&groups);
    let ends: Vec<usize> = (1..4).map(|n| file(&groups[..n]).len()).collect();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        let hit = ends.iter().filter(|end| **end <= at).count();
        let (whole, top) = read(&bytes);
        assert_eq!(top, 3, "byte {at}");
        let left: Vec<u64> = whole.iter().map(|(number, _)| *number).collect();
        let tail = ends[hit] - STAMP_BYTES <= at;
        let want: Vec<u64> = (1..4).filter(|n| tail || *n != hit as u64 + 1).collect();
        assert_eq!(left, want, "byte {at}");
        assert!(whole.iter().all(|entry| groups.contains(entry)));
    }
}

#[test]
fn a_cut_file_keeps_what_stands_before_the_cut() {
    let groups: Vec<_> = (1..4).map(|n| (n, vec![writes(n, 60)])).collect();
    let sound = file(&groups);
    for at in (0..sound.len()).step_by(7) {
        let whole = (1..4).filter(|n| file(&groups[..*n]).len() <= at).count();
        assert!(read(&sound[..at]).0.len() >= whole, "cut at {at}");
    }
}

#[test]
fn what_follows_a_long_damage_is_found() {
    let groups: Vec<_> = (1..4).map(|n| (n, vec![writes(n, 200_000)])).collect();
    let mut bytes = file(&groups);
    let from = file(&groups[..1]).len();
    let to = file(&groups[..2]).len();
    bytes[from..to].fill(0xd1);
    let (whole, top) = read(&bytes);
    assert_eq!(whole, [groups[0].clone(), groups[2].clone()]);
    assert_eq!(top, 3);
}
