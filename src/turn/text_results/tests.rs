//! Tests of `text_results`.

use serde_json::json;

use super::*;
use crate::model::{CacheName, Dialect, Digest, TenantId};
use crate::tokens::{Counter, Encoding};
use crate::turn::memo::Memo;

#[test]
fn every_pattern_of_ours_is_one() {
    for profile in TextProfile::ALL {
        assert_eq!(profile.compiled().len(), profile.patterns().len());
        for one in profile.patterns() {
            pattern(one).unwrap();
        }
    }
    for bad in [
        "Observation:",
        "(?i)^observation:",
        "^",
        "^(",
        "^.*",
        "^.",
        r"^\w",
        r"^\S+",
        r"^[A-Z]",
        "^[a-z]",
        "^[^<]",
        r"^\p{L}",
    ] {
        assert!(pattern(bad).is_err(), "{bad}");
    }
    for good in ["^(?i)observation:", "^/", r"^\d+\t", "^<", r"^\[[a-z]+\]"] {
        pattern(good).unwrap();
    }
}
#[test]
fn a_message_that_came_before_is_not_read_again() {
    let memo = Memo::default();
    let counter = Counter::load();
    let tenant = TenantId(Digest([7; 32]));
    let reader = memo.reader(&counter, Encoding::O200k, tenant, Dialect::Chat);
    let results = TextResults {
        profile: Some(TextProfile::Smolagents),
        ..TextResults::default()
    };
    let known = || memo.weight(CacheName::Fronts);
    let find = |results: &TextResults, turns: usize| {
        let user = |text: String| json!({"role": "user", "content": text});
        let mut messages = vec![user("go".to_owned())];
        for turn in 0..turns {
            messages.push(json!({"role": "assistant", "content": format!("run {turn}")}));
            messages.push(user(match turn % 2 {
                0 => format!("Observation: {turn}"),
                _ => format!("and now {turn}"),
            }));
        }
        let body = json!({"model": "m", "messages": messages}).to_string();
        let request = Dialect::Chat.decode(body.into()).unwrap();
        let shapes: Vec<_> = (0..request.messages.len())
            .map(|at| reader.shape(request.message(at)).unwrap())
            .collect();
        let fronts = results.find(None, &reader, &request, &shapes);
        fronts.iter().flatten().count()
    };
    assert_eq!(find(&results, 40), 20);
    let whole = known();
    assert_eq!(find(&results, 40), 20);
    assert_eq!(known(), whole, "read again");
    assert_eq!(find(&results, 42), 21);
    let two = known() - whole;
    assert!(
        0 < two && two <= whole / 20,
        "{two} of {whole} for two turns"
    );
    // What other patterns find is told apart.
    let other = TextResults {
        patterns: vec![pattern("^and now").unwrap()],
        profile: None,
    };
    assert_eq!(find(&other, 40), 20);
    assert!(known() > 2 * whole - whole / 4);
}
