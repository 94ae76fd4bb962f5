//! Records of a time when nothing bounded what was kept of hidden calls, or when arguments that are no
//! object were kept as they came. Such a session is served as if its calls had been refused then.
//! Every other view keeps its bytes.

use std::sync::Arc;

use super::say::{call, end, expl, hop, text};
use super::sim::Sim;
use crate::dialect::edit::{AssistantEdit, CallEdit};
use crate::model::{Dialect, Effect, TurnRecord};
use crate::session::path::Path;
use crate::turn::bounded;

/// A session of one hop that only marks, one that marks and calls, and one that closes.
fn session(dialect: Dialect) -> Sim {
    let mut sim = Sim::new();
    sim.dialect = dialect;
    sim.turn([expl("poison"), hop(), call("bash", 5)]);
    sim.turn([end("poison too"), call("bash", 5)]);
    sim.turn([text(3)]);
    sim.user(3);
    sim
}

/// The session's records as an older version would have them, had the model written so much.
fn poisoned(sim: &mut Sim) {
    let long = "x".repeat(20_000);
    let more = |text: &mut String| *text = text.replace("poison", &format!("poison{long}"));
    let mut path = Path::clone(&sim.path);
    for entry in &mut path.entries {
        let mut record = TurnRecord::clone(&entry.record);
        for hop in &mut record.hops {
            hop.message.iter_mut().for_each(more);
            for call in &mut hop.calls {
                more(&mut call.bytes);
                more(&mut call.arguments);
                if let Effect::Ended { description, .. } = &mut call.effect {
                    description.iter_mut().for_each(more);
                }
            }
        }
        entry.record = Arc::new(record);
    }
    sim.path = Arc::new(path);
}

#[test]
fn a_session_with_endless_arguments_is_served_without_them() {
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
        let mut sim = session(dialect);
        assert!(
            bounded::path(dialect, &sim.reader(), &sim.path).is_none(),
            "{dialect:?}"
        );
        let (_, before) = sim.changed();
        poisoned(&mut sim);
        let (state, after) = sim.changed();
        let (before, after) = (before.body.to_bytes(), after.body.to_bytes());
        assert!(after.len() < before.len(), "{dialect:?} {}", after.len());
        let text = String::from_utf8_lossy(&after);
        // What the calls were answered stays: a name in it is as short as it was.
        assert!(!text.contains("xxxx"), "{dialect:?} {text}");
        assert_eq!(text.matches("delimiter").count(), {
            let before = String::from_utf8_lossy(&before);
            before.matches("delimiter").count()
        });
        assert!(
            bounded::path(dialect, &sim.reader(), &state.path).is_none(),
            "{dialect:?}"
        );
    }
}

#[test]
fn records_of_arguments_that_are_no_object_are_mended_where_they_are_shown() {
    const BROKEN: &str = "{\"action\": broken";
    for dialect in [Dialect::Chat, Dialect::Responses] {
        let mut sim = session(dialect);
        let mut path = Path::clone(&sim.path);
        for entry in &mut path.entries {
            let mut record = TurnRecord::clone(&entry.record);
            for hop in &mut record.hops {
                let mut edit = AssistantEdit::default();
                for call in &mut hop.calls {
                    let new = CallEdit {
                        arguments: Some(BROKEN),
                        ..CallEdit::default()
                    };
                    let bytes = dialect.edit_call(call.bytes.as_bytes(), &new).unwrap();
                    call.bytes = String::from_utf8(bytes.to_vec()).unwrap();
                    call.arguments = BROKEN.to_owned();
                    edit.arguments.push((call.place as usize, BROKEN));
                }
                if let Some(message) = &mut hop.message {
                    let bytes = dialect.assistant(message.as_bytes(), &edit).unwrap();
                    *message = String::from_utf8(bytes.to_vec()).unwrap();
                }
            }
            entry.record = Arc::new(record);
        }
        sim.path = Arc::new(path);
        let (state, after) = sim.changed();
        let after = after.body.to_bytes();
        let text = String::from_utf8_lossy(&after);
        assert!(!text.contains("broken"), "{dialect:?} {text}");
        assert!(text.contains(r#""arguments":"{}""#), "{dialect:?} {text}");
        assert!(
            bounded::path(dialect, &sim.reader(), &state.path).is_none(),
            "{dialect:?}"
        );
    }
}
