//! The law of hiding, over spoilt answers: whatever an upstream sends, streamed or whole and in any
//! dialect, no client that reads as loosely as any known one finds a call of a hidden tool in what
//! it gets, nor the id of one that was hidden from it. And its other half: what only talks about
//! hidden tools is never touched.

mod bases;
mod client;
mod heard;
mod hop;
mod joined;
mod spoil;

use bytes::Bytes;
use plimsoll_model::raw;
use proptest::prelude::*;

use super::harness::{end_of, line};
use super::unary::{self, Unstreamed};
use super::{Machine, MachineSettings, Spec, UsageMode};
use crate::Dialect;
use crate::answer::{Answer, Verdict};
use crate::one_text;
use spoil::Spoiling;

/// What a client gets of a turn that is played as a driver plays it, in reads of at most so many
/// bytes, and the ids of the hidden calls that were kept from it.
fn streamed(spec: &Spec, hops: &[Bytes], size: usize) -> (Vec<u8>, Vec<String>) {
    let (client, answers) = played(spec, hops, size);
    (client, hidden(&answers))
}

/// What a client gets of a turn that is played in such reads, and what the hops said.
fn played(spec: &Spec, hops: &[Bytes], size: usize) -> (Vec<u8>, Vec<Answer>) {
    let mut machine = Machine::new(MachineSettings::default(), spec);
    let (mut out, mut answers): (Vec<Bytes>, Vec<Answer>) = (Vec::new(), Vec::new());
    for (number, hop) in hops.iter().enumerate() {
        for read in hop.chunks(size) {
            if machine
                .push(Bytes::copy_from_slice(read), &mut out)
                .is_err()
            {
                break;
            }
        }
        let answer = machine.end_hop(&mut out);
        let verdict = answer.verdict();
        answers.push(answer);
        if machine.withheld() {
            break;
        }
        match verdict {
            Verdict::HiddenOnly if number + 1 < hops.len() => {
                machine.next_hop(&mut out);
                continue;
            }
            Verdict::HiddenOnly => machine.close(line(&answers), &mut out),
            Verdict::Done | Verdict::Mixed | Verdict::Cut => machine.release(&mut out),
            Verdict::Broken => {
                if answers.last().is_some_and(|answer| answer.error.is_some()) {
                    machine.release(&mut out);
                }
            }
        }
        break;
    }
    (out.concat(), answers)
}

/// What a client gets of a turn of whole bodies, and the ids of its hidden calls; none where nothing may be handed on.
fn whole(spec: &Spec, hops: &[Bytes]) -> (Option<Bytes>, Vec<String>) {
    let mut answers: Vec<Answer> = Vec::new();
    for (number, body) in hops.iter().enumerate() {
        let Some(answer) = unary::read(body, spec) else {
            let own = !unary::may_hide(body, spec);
            return (own.then(|| body.clone()), hidden(&answers));
        };
        let verdict = answer.verdict();
        answers.push(answer);
        if verdict == Verdict::HiddenOnly && number + 1 < hops.len() {
            continue;
        }
        let shown = if spec.one_text {
            one_text::first_shown(&answers)
        } else {
            0
        };
        let ended = Unstreamed {
            skipped: &answers[..shown],
            usage: UsageMode::default(),
            hidden: &spec.hidden,
            first: &hops[shown],
            last: body,
            hops: &answers[shown..],
            end: end_of((verdict == Verdict::HiddenOnly).then(|| line(&answers))),
        };
        let composed = unary::compose(&ended, spec);
        let own = !unary::still_hides(&composed, spec);
        return (own.then_some(composed), hidden(&answers));
    }
    (None, hidden(&answers))
}

fn hidden(answers: &[Answer]) -> Vec<String> {
    let calls = answers.iter().flat_map(Answer::hidden_calls);
    calls.map(|(_, call)| call.id.clone()).collect()
}

/// Nothing that a client reads is a hidden call. `base` is what the upstream's answers were before
/// they were spoilt.
fn holds(spec: &Spec, client: &[u8], kept: &[String], upstream: &[Bytes], base: &[Bytes]) {
    let what = || {
        format!(
            "upstream:\n{}\nclient:\n{}",
            String::from_utf8_lossy(&upstream.concat()),
            String::from_utf8_lossy(client)
        )
    };
    let calls = client::calls(spec.dialect, client);
    for call in &calls {
        assert!(!spec.hidden.contains(&call.name), "{call:?}\n{}", what());
    }
    // Where spoiling gave an id to two calls, or changed the name in one of several places that say
    // it, one that the client may see has it, too.
    let sent = upstream.iter();
    let sent = sent.flat_map(|hop| client::calls(spec.dialect, hop));
    let shown: Vec<String> = sent
        .filter(|call| !spec.hidden.contains(&call.name))
        .map(|call| call.id)
        .collect();
    let times = |hops: &[Bytes], id: &String| -> usize {
        let stands = |hop: &Bytes| memchr::memmem::find_iter(hop, id.as_bytes()).count();
        hops.iter().map(stands).sum()
    };
    let doubled = |id: &String| times(upstream, id) > times(base, id);
    let ids = client::ids(client);
    // The corpora have short ones that stand in much else; those of the law's own turns do not.
    let own = kept.iter().filter(|id| id.starts_with(bases::HIDDEN));
    for id in own.filter(|id| !shown.contains(id) && !doubled(id)) {
        assert!(!ids.contains(id), "{id}\n{}", what());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_spoilt_stream_shows_a_hidden_call(
        base in any::<prop::sample::Index>(),
        spoiling in spoil::any(),
        size in prop::sample::select(vec![1, 7, 64, 1 << 20]),
        one_text in any::<bool>(),
    ) {
        let (spec, hops) = bases::stream(base);
        let spec = &Spec { one_text, ..spec.clone() };
        let spoilt = spoiling.over(hops);
        let (client, kept) = streamed(spec, &spoilt, size);
        holds(spec, &client, &kept, &spoilt, hops);
    }

    /// A client of one text is told what a client of the hops with that text is told, and no more.
    #[test]
    fn one_text_is_told_as_if_nothing_stood_before_it(
        base in any::<prop::sample::Index>(),
        more in any::<prop::sample::Index>(),
        size in prop::sample::select(vec![1, 7, 64, 1 << 20]),
    ) {
        let ((spec, first), (other, then)) = (bases::stream(base), bases::stream(more));
        let spec = &Spec { one_text: true, ..spec.clone() };
        let alike = spec.dialect == other.dialect;
        let hops: Vec<Bytes> = first.iter().chain(then.iter().filter(|_| alike)).cloned().collect();
        let (client, answers) = played(spec, &hops, size);
        let shown = one_text::first_shown(&answers);
        let whole = answers.last().is_some_and(|last| last.verdict() != Verdict::Broken);
        // Usage adds up, and ids are those of the hops that are shown.
        let paid = answers.iter().take(shown).any(|answer| answer.usage.is_some());
        if whole && !paid && !client.is_empty() {
            let plain = Spec { one_text: false, ..spec.clone() };
            let (alone, _) = played(&plain, &hops[shown..answers.len()], size);
            prop_assert_eq!(String::from_utf8(client), String::from_utf8(alone));
        }
    }

    #[test]
    fn no_spoilt_body_shows_a_hidden_call(
        base in any::<prop::sample::Index>(),
        spoiling in spoil::any(),
    ) {
        let (spec, hops) = bases::body(base);
        let spoilt = spoiling.over(hops);
        let (client, kept) = whole(spec, &spoilt);
        holds(spec, &client.unwrap_or_default(), &kept, &spoilt, hops);
    }

    #[test]
    fn a_spoilt_stream_in_a_body_shows_none(
        base in any::<prop::sample::Index>(),
        spoiling in spoil::any(),
    ) {
        let (spec, hops) = bases::stream(base);
        let spoilt = spoiling.over(hops);
        let (client, kept) = whole(spec, &spoilt);
        holds(spec, &client.unwrap_or_default(), &kept, &spoilt, hops);
    }

    /// Whatever is said in strings is the client's.
    #[test]
    fn talk_of_hidden_calls_passes_byte_for_byte(
        parts in prop::collection::vec(prop::sample::select(bases::talk()), 0..6),
        dialect in prop::sample::select(vec![Dialect::Chat, Dialect::Responses, Dialect::Messages]),
    ) {
        let text = raw::quote(&parts.concat());
        for text in [text.clone(), text.replace('d', r"\u0064")] {
            let (spec, stream, body) = bases::saying(dialect, &text);
            let (client, _) = streamed(&spec, std::slice::from_ref(&stream), 64);
            prop_assert_eq!(Bytes::from(client), stream);
            let (client, _) = whole(&spec, std::slice::from_ref(&body));
            prop_assert_eq!(client, Some(body));
        }
    }
}

/// One edit of each kind everywhere, which random ones may miss.
#[test]
fn no_word_in_the_place_of_another_shows_a_hidden_call() {
    for (spec, hops) in bases::own() {
        for edit in Spoiling::words() {
            let spoilt = edit.over(&hops);
            let (client, kept) = streamed(&spec, &spoilt, 1 << 20);
            holds(&spec, &client, &kept, &spoilt, &hops);
        }
    }
    for (spec, hops) in bases::bodies() {
        for edit in Spoiling::words() {
            let spoilt = edit.over(&hops);
            let (client, kept) = whole(&spec, &spoilt);
            holds(&spec, &client.unwrap_or_default(), &kept, &spoilt, &hops);
        }
    }
}

/// The reader that the law is held by finds what it must: else the law would say nothing.
#[test]
fn the_loose_client_reads_hidden_calls_where_they_are() {
    for (spec, hops) in bases::own().into_iter().chain(bases::bodies()) {
        let calls = client::calls(spec.dialect, &hops[0]);
        let hidden = calls.iter().filter(|call| spec.hidden.contains(&call.name));
        assert!(hidden.count() >= 1, "{:?} {calls:?}", spec.dialect);
    }
}
