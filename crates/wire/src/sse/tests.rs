//! Tests of `sse`.

use proptest::prelude::*;

use super::*;

fn split(pieces: &[&[u8]]) -> Vec<Frame> {
    let mut splitter = Splitter::new(EVENT_CAP);
    let mut frames = Vec::new();
    for piece in pieces {
        splitter.push(Bytes::copy_from_slice(piece));
        while let Some(frame) = splitter.next_frame().unwrap() {
            frames.push(frame);
        }
    }
    frames.extend(splitter.finish());
    frames
}

fn show(frame: &Frame) -> (String, Option<String>, String, bool) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        text(frame.raw()),
        frame.data().map(|data| text(&data)),
        text(frame.event()),
        frame.is_whole(),
    )
}

#[test]
fn frames_of_every_kind() {
    type Want<'a> = &'a [(&'a str, Option<&'a str>, &'a str, bool)];
    let cases: [(&str, Want); 9] = [
        (
            "data: a\n\ndata:b\n\n",
            &[
                ("data: a\n\n", Some("a"), "", true),
                ("data:b\n\n", Some("b"), "", true),
            ],
        ),
        (
            "data: a\r\n\r\ndata: b\r\r",
            &[
                ("data: a\r\n\r\n", Some("a"), "", true),
                ("data: b\r\r", Some("b"), "", true),
            ],
        ),
        (
            ": hi\n\n\ndata\n\n",
            &[
                (": hi\n\n", None, "", true),
                ("\n", None, "", true),
                ("data\n\n", Some(""), "", true),
            ],
        ),
        (
            "event: x\ndata: 1\ndata:  2\nid: 7\n\n",
            &[(
                "event: x\ndata: 1\ndata:  2\nid: 7\n\n",
                Some("1\n 2"),
                "x",
                true,
            )],
        ),
        (
            "\u{feff}data: a\n\n",
            &[("\u{feff}data: a\n\n", Some("a"), "", true)],
        ),
        ("data: a\n", &[("data: a\n", Some("a"), "", false)]),
        ("data: a", &[("data: a", Some("a"), "", false)]),
        (
            "database: a\nevent\n\n",
            &[("database: a\nevent\n\n", None, "", true)],
        ),
        (
            "data: a\n\r\ndata: b\r\n\n",
            &[
                ("data: a\n\r\n", Some("a"), "", true),
                ("data: b\r\n\n", Some("b"), "", true),
            ],
        ),
    ];
    for (stream, want) in cases {
        let seen: Vec<_> = split(&[stream.as_bytes()]).iter().map(show).collect();
        let want: Vec<_> = want
            .iter()
            .map(|(raw, data, event, whole)| {
                (
                    (*raw).to_owned(),
                    data.map(str::to_owned),
                    (*event).to_owned(),
                    *whole,
                )
            })
            .collect();
        assert_eq!(seen, want, "{stream:?}");
    }
}

#[test]
fn a_frame_inside_one_read_is_not_copied() {
    let read = Bytes::from_static(b"data: one\n\ndata: two\n\n");
    let mut splitter = Splitter::new(EVENT_CAP);
    splitter.push(read.clone());
    let first = splitter.next_frame().unwrap().unwrap();
    let second = splitter.next_frame().unwrap().unwrap();
    assert_eq!(first.raw().as_ptr(), read.as_ptr());
    assert_eq!(second.data().unwrap().as_ptr(), read.slice(17..).as_ptr());
}

#[test]
fn a_read_that_is_used_up_is_let_go() {
    let mut splitter = Splitter::new(EVENT_CAP);
    let reads = ["data: o", "ne\n\n", "data: two\n\nda", "ta: three\n\n"];
    let mut frames = 0;
    for read in reads.map(|read| Bytes::from(read.as_bytes().to_vec())) {
        splitter.push(read.clone());
        while splitter.next_frame().unwrap().is_some() {
            frames += 1;
        }
        assert!(read.is_unique(), "{read:?}");
    }
    assert_eq!(frames, 3);
}

#[test]
fn the_cap_holds_however_it_is_cut() {
    let stream = b"data: 0123456789\n\n";
    for size in 1..=stream.len() {
        let mut splitter = Splitter::new(stream.len() - 1);
        let failed = stream.chunks(size).any(|piece| {
            splitter.push(Bytes::copy_from_slice(piece));
            splitter.next_frame()
                == Err(TooLarge {
                    cap: stream.len() - 1,
                })
        });
        assert!(failed, "pieces of {size}");
        assert_eq!(split(&[stream]).len(), 1);
    }
}

#[test]
fn new_data_leaves_the_other_lines() {
    let cases: [(&str, &str, &str); 4] = [
        (
            "event: x\r\ndata: {}\r\nid: 1\r\n\r\n",
            "{1}",
            "event: x\r\ndata: {1}\r\nid: 1\r\n\r\n",
        ),
        (
            ": c\ndata: {\ndata: }\n\n",
            "{\n1}",
            ": c\ndata: {\ndata: 1}\n\n",
        ),
        ("data:x\n\n", "y", "data:y\n\n"),
        ("data:x\n\n", "y\nz", "data: y\ndata: z\n\n"),
    ];
    for (raw, data, want) in cases {
        assert_eq!(Frame::of(Bytes::from(raw)).with_data(data.as_bytes()), want);
    }
    assert_eq!(event(b"a\r\nb"), "data: a\ndata: b\n\n");
}

#[test]
fn completing_adds_only_what_lacks() {
    for (raw, want) in [
        ("data: a", "data: a\n\n"),
        ("data: a\n", "data: a\n\n"),
        ("data: a\r", "data: a\r\n\n"),
        ("data: a\n\n", "data: a\n\n"),
    ] {
        let tail = split(&[raw.as_bytes()]).remove(0).completed();
        assert_eq!(
            (tail.raw().as_ref(), tail.is_whole()),
            (want.as_bytes(), true)
        );
        assert_eq!(tail.data().unwrap(), "a");
    }
}

proptest! {
    #[test]
    fn cuts_do_not_matter(
        parts in prop::collection::vec(
            prop::sample::select(vec!["data: x", "data:", ": c", "event: e", "\n", "\r", "\r\n", "\n\n", "\r\n\r\n", "é", "\u{feff}"]), 0..24),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let stream = parts.concat().into_bytes();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        places.extend([0, stream.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        let bytewise: Vec<&[u8]> = stream.chunks(1).collect();
        let whole = split(&[&stream]);
        prop_assert_eq!(&whole.iter().flat_map(|frame| frame.raw().to_vec()).collect::<Vec<_>>(), &stream);
        prop_assert_eq!(&split(&pieces), &whole);
        prop_assert_eq!(&split(&bytewise), &whole);
    }
}
