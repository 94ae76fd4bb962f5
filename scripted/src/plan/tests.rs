//! Plans hold every kind of annotation, mean what they say, and hide nothing that was recorded.

use std::collections::HashSet;

use super::*;

/// A session in which an agent reads, edits and reports, over and over.
fn recording(id: &str, turns: usize) -> Recording {
    let mut lines = vec![
        json!({"_meta": {"id": id}}),
        json!({"role": "user", "content": "go"}),
    ];
    for turn in 0..turns {
        let names: &[&str] = match turn % 9 {
            0..4 => &["Read", "Grep"],
            4..7 => &["Edit"],
            7 => &["TodoWrite", "bash"],
            _ => &[],
        };
        let call = |(place, name): (usize, &&str)| json!({"id": format!("v{turn}-{place}"), "type": "function", "function": {"name": name, "arguments": "{}"}});
        let calls: Vec<Value> = names.iter().enumerate().map(call).collect();
        let text = if turn % 2 == 0 {
            format!("turn {turn}")
        } else {
            String::new()
        };
        let mut message = json!({"role": "assistant", "content": text});
        if !calls.is_empty() {
            message["tool_calls"] = calls.clone().into();
        }
        lines.push(message);
        for call in calls {
            lines.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "ok"}));
        }
        if names.is_empty() {
            lines.push(json!({"role": "user", "content": format!("more {turn}")}));
        }
    }
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    Recording::parse(&text.join("\n")).unwrap()
}

#[test]
fn nothing_is_annotated_before_it_is_asked_for() {
    let session = recording("a", 90);
    let (plain, late) = (
        Plan::plain(&session),
        Plan::annotated_from(&session, 1, 40, 0),
    );
    assert_eq!(plain.turns[..40], late.turns[..40]);
    assert!(late.census().invalid > 0 && late.census().hidden_hops > 0);
    assert!(late.episodes.iter().all(|episode| episode.start.0 >= 40));
    let all = Plan::annotated(&session, 1);
    assert_eq!(all.turns, Plan::annotated_from(&session, 1, 0, 0).turns);
}

#[test]
fn a_model_that_forgets_dependencies_does_nothing_else_otherwise() {
    let session = recording("a", 400);
    let hidden = |plan: &Plan| -> Vec<String> {
        let calls = plan.turns.iter().flatten().flat_map(|hop| &hop.calls);
        let hidden = calls.filter(|call| call.hidden);
        hidden.map(|call| call.call.arguments.clone()).collect()
    };
    let obedient = |undeclared| {
        let habits = Habits {
            episode: 100,
            undeclared,
            ..Habits::default()
        };
        Plan::obedient(&session, 0, habits)
    };
    let scripted = |undeclared| Plan::annotated_from(&session, 1, 0, undeclared);
    for plans in [[0, 40].map(obedient), [0, 40].map(scripted)] {
        let [all, some] = plans.each_ref().map(hidden);
        assert_eq!(all.len(), some.len());
        let (mut acts, mut forgotten) = (0, 0);
        for (whole, sent) in all.iter().zip(&some) {
            let mut whole: serde_json::Value = serde_json::from_str(whole).unwrap();
            let sent: serde_json::Value = serde_json::from_str(sent).unwrap();
            acts += usize::from(whole.get("dependencies").is_some());
            if whole != sent {
                whole.as_object_mut().unwrap().remove("dependencies");
                assert_eq!(whole, sent);
                forgotten += 1;
            }
        }
        assert!((1..acts).contains(&forgotten), "{forgotten} of {acts}");
    }
}

#[test]
fn an_obedient_model_keeps_its_habits() {
    let session = recording("a", 400);
    for (alone, episode) in [(0, 200), (4, 200), (25, 50)] {
        let habits = Habits {
            alone,
            episode,
            ..Habits::default()
        };
        let plan = Plan::obedient(&session, 20, habits);
        let census = plan.census();
        assert_eq!((census.invalid, census.double_hops), (0, 0));
        assert!(census.hidden_hops * 100 <= alone * 380, "{census:?}");
        assert_eq!(alone == 0, census.hidden_hops == 0);
        assert!(plan.episodes.len() > 5 && plan.episodes[0].start.0 >= 20);
        let small = Plan::obedient(
            &session,
            20,
            Habits {
                alone,
                episode: episode * 4,
                ..Habits::default()
            },
        );
        assert!(small.episodes.len() < plan.episodes.len());
    }
}

#[test]
fn plans_are_deterministic_and_their_own() {
    let session = recording("a", 60);
    assert_eq!(
        Plan::annotated(&session, 1).turns,
        Plan::annotated(&session, 1).turns
    );
    assert_ne!(
        Plan::annotated(&session, 1).turns,
        Plan::annotated(&session, 2).turns
    );
    let ids = |id: &str| {
        let plan = Plan::annotated(&recording(id, 60), 1);
        let hops: Vec<Hop> = plan.turns.into_iter().flatten().collect();
        hops.iter()
            .flat_map(Hop::hidden_ids)
            .map(str::to_owned)
            .collect::<HashSet<_>>()
    };
    assert!(ids("a").is_disjoint(&ids("b")));
}

#[test]
fn every_kind_of_annotation_occurs() {
    let census = Plan::annotated(&recording("kinds", 1_200), 7).census();
    let counts = [
        census.invalid,
        census.hidden_hops,
        census.double_hops,
        census.mixed,
        census.plain,
    ];
    assert!(counts.iter().all(|count| *count >= 10), "{census:?}");
    assert!(census.annotations > 3 * census.invalid, "{census:?}");
}

#[test]
fn what_was_recorded_stays_and_ids_are_unique() {
    for seed in 0..20 {
        let session = recording("stays", 120);
        let plan = Plan::annotated(&session, seed);
        let plain = Plan::plain(&session);
        let mut ids = HashSet::new();
        for (turn, recorded) in session.turns.iter().enumerate() {
            assert_eq!(plan.visible(turn, false), recorded.answer);
            assert_eq!(plain.visible(turn, true), recorded.answer);
            let shown = plan.visible(turn, true);
            assert!(shown.text.ends_with(&recorded.answer.text));
            let hops = plan.hops(turn);
            let (last, before) = hops.split_last().unwrap();
            assert!(!last.visible().is_empty() || last.hidden_ids().is_empty());
            for hop in before {
                assert!(hop.visible().is_empty() && !hop.calls.is_empty());
            }
            for hop in hops {
                assert!(
                    hop.ids().iter().all(|id| ids.insert((*id).to_owned())),
                    "{seed}"
                );
            }
        }
    }
}

#[test]
fn episodes_follow_the_protocol() {
    let plan = Plan::annotated(&recording("protocol", 400), 3);
    let mut closed: Vec<&str> = Vec::new();
    let mut names = HashSet::new();
    let (mut acts, mut depending) = (0, 0);
    for (index, episode) in plan.episodes.iter().enumerate() {
        assert!(names.insert(&episode.name));
        let last = index + 1 == plan.episodes.len();
        assert!(last || episode.end.is_some(), "only the last may be open");
        assert!(
            episode
                .dependencies
                .iter()
                .all(|name| closed.contains(&name.as_str()))
        );
        match episode.kind {
            Kind::Expl if episode.end.is_some() => {
                assert!(episode.description.is_some());
                closed.push(&episode.name);
            }
            Kind::Expl => {}
            Kind::Act => {
                acts += 1;
                depending += usize::from(!episode.dependencies.is_empty());
                assert_eq!(episode.description, None);
            }
        }
    }
    assert!(acts > 20 && depending > acts / 2, "{acts} {depending}");
    let within: usize = plan
        .episodes
        .iter()
        .map(|episode| episode.calls.len())
        .sum();
    assert!(within > 200);
}

#[test]
fn descriptions_can_be_told_apart_by_their_beginning() {
    let plan = Plan::annotated(&recording("words", 400), 3);
    let mut heads = HashSet::new();
    for text in plan
        .episodes
        .iter()
        .filter_map(|episode| episode.description.as_ref())
    {
        assert!(text.is_ascii() && !text.contains(['"', '\\']));
        assert!(heads.insert(text.chars().take(80).collect::<String>()));
    }
    assert!(heads.len() > 20);
}

#[test]
fn a_model_refuses_what_the_protocol_refuses() {
    let table = [
        (vec![end(Some("x"))], 0, "nothing open"),
        (
            vec![start("a", Kind::Expl, &[]), end(None)],
            0,
            "an expl needs a description",
        ),
        (
            vec![start("a", Kind::Act, &[]), end(Some("x"))],
            0,
            "an act has none",
        ),
        (
            vec![start("a", Kind::Act, &["b".into()])],
            0,
            "unknown dependency",
        ),
        (
            vec![
                start("a", Kind::Expl, &[]),
                end(Some("x")),
                start("a", Kind::Act, &[]),
            ],
            1,
            "used name",
        ),
        (
            vec![
                start("a", Kind::Expl, &[]),
                start("b", Kind::Expl, &[]),
                end(Some("x")),
            ],
            1,
            "one at a time",
        ),
        (
            vec![
                start("a", Kind::Expl, &[]),
                end(Some("x")),
                start("b", Kind::Act, &["a".into()]),
                end(None),
            ],
            2,
            "fine",
        ),
        (
            vec![
                json!({}),
                json!({"action": "start"}),
                json!({"action": "start", "type": "expl"}),
            ],
            0,
            "fields are missing",
        ),
    ];
    for (values, want, why) in table {
        let mut model = model::Model::default();
        for value in &values {
            model.annotate(&value.to_string(), (0, 0));
        }
        let closed = model
            .episodes
            .iter()
            .filter(|episode| episode.end.is_some())
            .count();
        assert_eq!(closed, want, "{why}");
    }
}
