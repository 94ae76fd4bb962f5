//! That each message is where its list says, and how many blobs that takes.

use std::collections::HashSet;

use plimsoll_store::memory::Memory;
use proptest::prelude::*;

use super::*;
use crate::history::{Conversation, Reads};

/// What is read of a list, and its blobs.
fn kept(messages: &[Bytes]) -> (Vec<Bytes>, Vec<(Digest, Bytes)>) {
    let listed = ListedMessages::of(messages);
    let store = Store::Memory(Memory::default());
    drop(store.commit(Batch {
        blobs: listed.blobs.clone(),
        ..Batch::default()
    }));
    let conversation = Conversation {
        messages: listed.said,
        tools: None,
    };
    let reads = Reads::new(&store, &|_, _| {});
    let read = conversation.read(&reads, |_| true).unwrap();
    (read.unwrap(), listed.blobs)
}

/// Which of these messages are stored alone, and the places of the others.
fn places(messages: &[Bytes]) -> Vec<Option<u16>> {
    let listed = ListedMessages::of(messages);
    let place = |said| match said {
        Said::Alone(_) => None,
        Said::Among(_, at) => Some(at),
    };
    listed.said.into_iter().map(place).collect()
}

fn message(number: usize) -> Bytes {
    format!(r#"{{"role":"user","content":"{number}"}}"#).into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_message_is_read_as_it_was_said(
        lengths in prop::collection::vec(prop_oneof![4 => 0..60usize, 1 => 1_000..1_050usize], 0..300),
    ) {
        let text = |(number, length): (usize, &usize)| {
            let number = number % 40;
            Bytes::from(format!(r#"{{"content":"{number} {}"}}"#, "é".repeat(length / 2)))
        };
        let messages: Vec<Bytes> = lengths.iter().enumerate().map(text).collect();
        let (read, blobs) = kept(&messages);
        prop_assert_eq!(&read, &messages);
        let alone = |message: &Bytes| messages.len() <= FEW_MESSAGES || message.len() > SHORT_BYTES;
        for (message, place) in messages.iter().zip(places(&messages)) {
            prop_assert_eq!(place.is_none(), alone(message));
        }
        let short = messages.iter().filter(|message| message.len() <= SHORT_BYTES).count();
        let most = messages.len() - short + short / LEAST_TOGETHER + 1;
        prop_assert!(messages.len() <= FEW_MESSAGES || blobs.len() <= most, "{} blobs", blobs.len());
    }
}

#[test]
fn many_short_messages_lie_together_and_not_too_many_of_them() {
    // None of these ends what lies together.
    let goes_on = |number: &usize| blob_id(&message(*number)).0[0] >= ENDS;
    let number = (0..).find(goes_on).unwrap();
    let same = |count| vec![message(number); count];
    assert!(places(&same(64)).iter().all(Option::is_none));
    let expected = (0..65).map(|at| Some(at % 64));
    assert_eq!(places(&same(65)), expected.collect::<Vec<_>>());
    // Each of these does, but for the fewest that lie together.
    let ends = |number: &usize| blob_id(&message(*number)).0[0] < ENDS;
    let number = (0..).find(ends).unwrap();
    let expected = (0..65).map(|at| Some(at % 16));
    assert_eq!(
        places(&vec![message(number); 65]),
        expected.collect::<Vec<_>>()
    );
}

/// A client that drops a message sends all the others again.
#[test]
fn of_messages_that_are_sent_again_few_are_stored_again() {
    let all: Vec<Bytes> = (0..1_000).map(message).collect();
    let known: HashSet<Digest> = kept(&all).1.into_iter().map(|(id, _)| id).collect();
    for dropped in [0, 13, 500, 999] {
        let mut rest = all.clone();
        rest.remove(dropped);
        let blobs = kept(&rest).1;
        let new = blobs.iter().filter(|(id, _)| !known.contains(id)).count();
        assert!(new <= 8, "{new} of {} without {dropped}", blobs.len());
    }
}

#[test]
fn what_is_not_stored_or_not_wanted_ends_the_reading() {
    let messages: Vec<Bytes> = (0..100).map(message).collect();
    let listed = ListedMessages::of(&messages);
    let conversation = Conversation {
        messages: listed.said,
        tools: None,
    };
    let store = Store::Memory(Memory::default());
    let reads = Reads::new(&store, &|_, _| {});
    assert_eq!(conversation.read(&reads, |_| true).unwrap(), None);
    drop(store.commit(Batch {
        blobs: listed.blobs,
        ..Batch::default()
    }));
    let mut left = 99;
    let takes = |_: &Bytes| {
        left -= 1;
        left >= 0
    };
    assert_eq!(conversation.read(&reads, takes).unwrap(), None);
    assert_eq!(conversation.read(&reads, |_| true).unwrap(), Some(messages));
}
