//! The law of joined hops: what a client hears of an answer of several hops is what the hops said, one behind the other.
//! Texts, the characters that citations name, images, refusals, the tokens of all of them, and the calls that it may see:
//! in every dialect, streamed and whole, and where the client reads the answer as one text.

use bytes::Bytes;
use proptest::prelude::*;

use super::heard::Heard;
use super::hop::{Hop, turn};
use super::{bases, played, whole};
use crate::Dialect;
use crate::stream::Spec;

const HIDDEN: [&str; 2] = ["delimiter", "recall"];

fn dialect() -> impl Strategy<Value = Dialect> {
    prop::sample::select(vec![Dialect::Chat, Dialect::Messages, Dialect::Responses])
}

/// What a client has to hear of hops of which it would hear this, each for itself.
fn wanted(dialect: Dialect, hops: &[Heard], one_text: bool) -> Heard {
    let says = |hop: &Heard| {
        let blank = hop.texts.iter().all(|text| text.trim().is_empty());
        !blank || !hop.refusal.is_empty()
    };
    let last = hops.iter().rposition(says).filter(|_| one_text);
    Heard::joined(dialect, &hops[last.unwrap_or_default()..], &HIDDEN)
}

fn streams(dialect: Dialect, hops: &[Hop]) -> Vec<Bytes> {
    let hops = hops.iter().enumerate();
    hops.map(|(number, hop)| hop.stream(dialect, number))
        .collect()
}

fn bodies(dialect: Dialect, hops: &[Hop]) -> Vec<Bytes> {
    let hops = hops.iter().enumerate();
    hops.map(|(number, hop)| hop.body(dialect, number))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_client_of_a_stream_hears_what_the_hops_said(
        dialect in dialect(),
        hops in turn(),
        one_text in any::<bool>(),
        size in prop::sample::select(vec![1, 64, 1 << 20]),
    ) {
        let hops = streams(dialect, &hops);
        let spec = Spec { one_text, ..bases::spec(dialect) };
        let alone: Vec<Heard> = hops.iter().map(|hop| Heard::of_stream(dialect, hop)).collect();
        let (client, _) = played(&spec, &hops, size);
        let shown = String::from_utf8_lossy(&client).into_owned();
        prop_assert_eq!(Heard::of_stream(dialect, &client), wanted(dialect, &alone, one_text), "{}", shown);
    }

    #[test]
    fn a_client_of_a_body_hears_what_the_hops_said(
        dialect in dialect(),
        hops in turn(),
        one_text in any::<bool>(),
    ) {
        let hops = bodies(dialect, &hops);
        let spec = Spec { one_text, ..bases::spec(dialect) };
        let alone: Vec<Heard> = hops.iter().map(|hop| Heard::of_body(dialect, hop)).collect();
        let (client, _) = whole(&spec, &hops);
        let client = client.unwrap();
        let shown = String::from_utf8_lossy(&client).into_owned();
        prop_assert_eq!(Heard::of_body(dialect, &client), wanted(dialect, &alone, one_text), "{}", shown);
    }

    /// A hop says the same in both forms, so that the law says something of both.
    #[test]
    fn a_hop_is_heard_alike_as_a_stream_and_as_a_body(dialect in dialect(), hops in turn()) {
        for (stream, body) in streams(dialect, &hops).iter().zip(&bodies(dialect, &hops)) {
            prop_assert_eq!(Heard::of_stream(dialect, stream), Heard::of_body(dialect, body));
        }
    }
}
