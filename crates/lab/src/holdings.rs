//! Which of the needed strings, lines and passages a view holds, kept up by what comes and goes, and which
//! pass took away what is missed. Owns those counts; never reads a message.

use super::anchors::Counts;
use super::sent::Pool;

/// What one policy's newest view holds.
pub struct Holdings {
    strings: Vec<u32>,
    lines: Vec<u32>,
    passages: Vec<u32>,
    /// How often each message of the pool is shown.
    shown: Vec<u32>,
    /// The pass that took a string out of view, from 1; 0 while it is in view or was never.
    lost: Vec<u32>,
    /// For each pass whether something was missed that it took.
    hurt: Vec<bool>,
}

impl Holdings {
    /// Of so much as there is, nothing is held yet.
    #[must_use]
    pub fn new(of: Counts) -> Self {
        Self {
            strings: vec![0; of.strings],
            lines: vec![0; of.lines],
            passages: vec![0; of.passages],
            shown: Vec::new(),
            lost: vec![0; of.strings],
            hurt: Vec::new(),
        }
    }

    /// Whether a string is in view.
    #[must_use]
    pub fn holds(&self, string: u32) -> bool {
        self.strings
            .get(string as usize)
            .is_some_and(|count| *count > 0)
    }

    /// Whether a line is in view.
    #[must_use]
    pub fn holds_line(&self, line: u32) -> bool {
        self.lines
            .get(line as usize)
            .is_some_and(|count| *count > 0)
    }

    /// Whether a passage is in view.
    #[must_use]
    pub fn holds_passage(&self, passage: u32) -> bool {
        self.passages
            .get(passage as usize)
            .is_some_and(|count| *count > 0)
    }

    /// Whether a message is in view.
    #[must_use]
    pub fn shows(&self, message: u32) -> bool {
        self.shown
            .get(message as usize)
            .is_some_and(|count| *count > 0)
    }

    /// A pass is made before the next change.
    pub fn pass(&mut self) {
        self.hurt.push(false);
    }

    /// Passes that hurt nobody.
    #[must_use]
    pub fn harmless(&self) -> u64 {
        self.hurt.iter().filter(|hurt| !**hurt).count() as u64
    }

    /// A string was needed that is not in view: the pass that took it hurt. What was never in a
    /// view was taken by the pass of the request that brought it, the newest there was.
    pub fn missed(&mut self, string: u32) {
        let newest = self.hurt.len();
        let pass = match self.lost.get_mut(string as usize) {
            Some(0) | None => newest,
            Some(pass) => *pass as usize,
        };
        if let Some(hurt) = pass.checked_sub(1).and_then(|at| self.hurt.get_mut(at)) {
            *hurt = true;
        }
        if let Some(lost) = self.lost.get_mut(string as usize) {
            *lost = u32::try_from(pass).unwrap_or(u32::MAX);
        }
    }

    /// Messages left the view and others came into it.
    pub fn change(&mut self, pool: &Pool, gone: &[u32], come: &[u32]) {
        self.shown.resize(pool.len().max(self.shown.len()), 0);
        for id in come {
            self.each(pool, *id, |count| *count += 1);
        }
        for id in gone {
            self.each(pool, *id, |count| *count = count.saturating_sub(1));
        }
        let pass = u32::try_from(self.hurt.len()).unwrap_or(u32::MAX);
        let strings = |id: &u32| pool.get(*id).map_or(&[][..], |one| &one.strings);
        for string in gone.iter().flat_map(strings) {
            if !self.holds(*string)
                && let Some(lost @ 0) = self.lost.get_mut(*string as usize)
            {
                *lost = pass;
            }
        }
        for string in come.iter().flat_map(strings) {
            if let Some(lost) = self.lost.get_mut(*string as usize) {
                *lost = 0;
            }
        }
    }

    fn each(&mut self, pool: &Pool, id: u32, change: impl Fn(&mut u32)) {
        let Some(one) = pool.get(id) else {
            return;
        };
        for (counts, numbers) in [
            (&mut self.strings, &one.strings),
            (&mut self.lines, &one.lines),
            (&mut self.passages, &one.passages),
        ] {
            for number in numbers {
                counts
                    .get_mut(*number as usize)
                    .into_iter()
                    .for_each(&change);
            }
        }
        self.shown
            .get_mut(id as usize)
            .into_iter()
            .for_each(&change);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sent::Element;
    use super::*;

    fn of(strings: usize) -> Counts {
        Counts {
            strings,
            ..Counts::default()
        }
    }

    /// A pool of messages that hold the given strings.
    fn pool(messages: &[&[u32]]) -> Pool {
        let elements = messages.iter().map(|strings| Element {
            strings: (*strings).into(),
            ..Element::default()
        });
        Pool::of(elements.collect())
    }

    #[test]
    fn a_miss_belongs_to_the_pass_that_took_the_last_copy() {
        let pool = pool(&[&[0, 1], &[0], &[2]]);
        let mut holdings = Holdings::new(of(4));
        holdings.change(&pool, &[], &[0, 1, 2]);
        holdings.pass();
        holdings.change(&pool, &[0], &[]);
        assert!(holdings.holds(0) && !holdings.holds(1) && !holdings.shows(0));
        holdings.pass();
        holdings.change(&pool, &[1], &[]);
        holdings.pass();
        holdings.change(&pool, &[], &[]);
        assert_eq!(holdings.harmless(), 3);
        holdings.missed(1);
        assert_eq!(holdings.harmless(), 2, "the first pass");
        holdings.missed(0);
        assert_eq!(holdings.harmless(), 1, "the second pass");
        // What was never in view went with the newest pass.
        holdings.missed(3);
        assert_eq!(holdings.harmless(), 0);
    }

    #[test]
    fn what_comes_back_is_nobodys_loss() {
        let pool = pool(&[&[0]]);
        let mut holdings = Holdings::new(of(1));
        holdings.change(&pool, &[], &[0]);
        holdings.pass();
        holdings.change(&pool, &[0], &[]);
        holdings.change(&pool, &[], &[0]);
        holdings.pass();
        holdings.change(&pool, &[0], &[]);
        holdings.missed(0);
        assert_eq!(holdings.harmless(), 1);
    }
}
