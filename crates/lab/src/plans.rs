//! What the model of a session says, turn by turn, for each place from which on it may be asked to
//! mark its work. Owns those plans; never decides when it is asked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use plimsoll_scripted::Recording;
use plimsoll_scripted::plan::{Habits, Plan};

use super::contender::Annotate;

/// Chooses where the scripted model annotates. Any value does; a fixed one makes every run equal.
const SEED: u64 = 1;

/// The plans of a session.
pub struct Plans<'a> {
    recording: &'a Recording,
    habits: Habits,
    plain: Rc<Plan>,
    /// By who annotates and from which answer on.
    annotated: RefCell<BTreeMap<(&'static str, usize), Rc<Plan>>>,
}

impl<'a> Plans<'a> {
    /// The plans of a recording, whose obedient model has these habits.
    #[must_use]
    pub fn new(recording: &'a Recording, habits: Habits) -> Self {
        Self {
            recording,
            habits,
            plain: Rc::new(Plan::plain(recording)),
            annotated: RefCell::default(),
        }
    }

    /// The answers of a model that is asked to annotate from one on; `None` while it is not.
    pub fn of(&self, annotate: Annotate, first: Option<usize>) -> Rc<Plan> {
        let Some(first) = first else {
            return Rc::clone(&self.plain);
        };
        let (recording, habits) = (self.recording, self.habits);
        let plan = || match annotate {
            Annotate::None => Plan::plain(recording),
            Annotate::Inferred => Plan::inferred(recording),
            Annotate::Obedient => Plan::obedient(recording, first, habits),
            Annotate::Scripted => {
                let mut plan = Plan::annotated_from(recording, SEED, first, habits.undeclared);
                // A hop of annotations alone says nothing to the client, so that all policies are
                // sent the same history.
                let turns = plan
                    .turns
                    .iter_mut()
                    .filter_map(|hops| hops.split_last_mut());
                for hop in turns.flat_map(|(_, before)| before.iter_mut()) {
                    hop.text.clear();
                }
                plan
            }
        };
        let key = (annotate.name(), first);
        let mut annotated = self.annotated.borrow_mut();
        Rc::clone(annotated.entry(key).or_insert_with(|| Rc::new(plan())))
    }
}
