//! Tests of `turn_report`.

use super::*;

#[test]
fn usage_adds_up_over_hops_and_keeps_its_absence() {
    let mut turn = TurnReport::new(Route::Chat, Method::POST);
    turn.hops.push(HopReport::default());
    assert_eq!(turn.usage(), None);
    assert_eq!(turn.cached_ratio(), None);
    let one = Usage {
        prompt: 100,
        cached: 0,
        cache_write: 4,
        hour_write: Some(4),
        completion: 10,
        reasoning: 3,
    };
    let two = Usage {
        prompt: 300,
        cached: 100,
        cache_write: 1,
        hour_write: None,
        completion: 5,
        reasoning: 2,
    };
    turn.hops.push(HopReport {
        usage: Some(one),
        ..HopReport::default()
    });
    turn.hops.push(HopReport {
        usage: Some(two),
        ..HopReport::default()
    });
    let sum = Usage {
        prompt: 400,
        cached: 100,
        cache_write: 5,
        hour_write: Some(4),
        completion: 15,
        reasoning: 5,
    };
    assert_eq!(turn.usage(), Some(sum));
    assert_eq!(turn.cached_ratio(), Some(0.25));
    assert_eq!(turn.hidden_hops(), 2);
}

#[test]
fn a_phase_that_never_ran_is_not_zero() {
    let mut overhead = Overhead::default();
    assert_eq!(overhead.total(), None);
    overhead.add(Phase::Parse, Duration::from_micros(3));
    overhead.add(Phase::Parse, Duration::from_micros(4));
    overhead.add(Phase::Store, Duration::ZERO);
    assert_eq!(overhead.get(Phase::Parse), Some(Duration::from_micros(7)));
    assert_eq!(overhead.get(Phase::Store), Some(Duration::ZERO));
    assert_eq!(overhead.get(Phase::Render), None);
    assert_eq!(overhead.total(), Some(Duration::from_micros(7)));
}
