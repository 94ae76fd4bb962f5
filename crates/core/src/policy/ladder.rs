//! The ladder: the policies of a request in the order in which they run, each with the moment at
//! which it is due (paper 004 §8: middleware runs by priority, here by place). Owns the words by
//! which people write one. Never proposes anything.

use std::fmt;
use std::str::FromStr;

use plimsoll_model::label_set;

use super::ask::Policy;

label_set!(
    /// When a rung is due.
    #[derive(Hash)]
    When {
        /// Once for each new result, before it is sent for the first time.
        Entry => "entry",
        /// In every pass.
        Pass => "pass",
        /// In passes that break no cached prefix, because the cache is cold.
        Cold => "cold",
        /// In passes that leave the view above its ceiling after the rungs before it.
        Unmet => "unmet",
        /// In passes while the model's window is yellow or red (paper 004 §4.2).
        Yellow => "yellow",
        /// In passes while the model's window is red.
        Red => "red",
        /// In a pass at a new user message, where the arithmetic says that it pays (paper 003).
        User => "user",
        /// In a pass at a new user message, where the work that follows is expected to reach the ceiling.
        Forecast => "forecast",
    }
);

/// One policy of a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// The policy.
    pub policy: Policy,
    /// When it is due.
    pub when: When,
}

/// The policies of a request in order. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder(Vec<Rung>);

/// Why a text is not a ladder.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum LadderError {
    /// No such policy.
    #[error("`{0}` is not one of {names}", names = names())]
    Unknown(String),
    /// No such moment, or not one at which the policy can run.
    #[error("`{rung}` can't run at `{when}`: {may}", rung = .rung.name(), may = moments(*.rung))]
    When {
        /// The policy.
        rung: Policy,
        /// The moment that was asked for.
        when: String,
    },
    /// A policy that stands twice at one moment.
    #[error("`{}` stands there twice", .0.name())]
    Twice(Policy),
    /// `keep` with nothing behind it.
    #[error("`keep` binds the policies behind it, so one has to follow")]
    Keep,
    /// A policy that needs a model.
    #[error("`{}` is for replays only: it would have to ask a model", .0.name())]
    Model(Policy),
}

fn names() -> String {
    let served = Policy::SERVED.iter();
    let names: Vec<String> = served
        .map(|policy| format!("\"{}\"", policy.name()))
        .collect();
    format!("{}, or several joined by `+`", names.join(", "))
}

fn moments(policy: Policy) -> &'static str {
    if policy.enters() {
        "it runs once for each new result"
    } else if policy == Policy::Keep {
        "it holds in every pass"
    } else {
        "it runs at `pass`, `cold`, `unmet`, `yellow`, `red`, `user` or `forecast`"
    }
}

impl Policy {
    /// Whether it edits new results as they come in.
    #[must_use]
    pub fn enters(self) -> bool {
        matches!(self, Self::Repeat | Self::Admit | Self::LoopGuard)
    }

    /// Whether it evicts in passes.
    #[must_use]
    pub fn evicts(self) -> bool {
        !self.enters() && self != Self::Keep
    }
}

impl Rung {
    /// A policy at the moment at which it runs unless somebody says otherwise.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        let when = if policy.enters() {
            When::Entry
        } else {
            When::Pass
        };
        Self { policy, when }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.policy.name())?;
        if *self == Self::new(self.policy) {
            return Ok(());
        }
        write!(f, "@{}", self.when.name())
    }
}

impl FromStr for Rung {
    type Err = LadderError;

    /// Reads a policy's name, and behind `@` the moment at which it runs: `cwl`, `keep-recent@cold`.
    fn from_str(text: &str) -> Result<Self, LadderError> {
        let text = text.trim();
        let (name, when) = match text.split_once('@') {
            Some((name, when)) => (name.trim_end(), Some(when.trim_start())),
            None => (text, None),
        };
        let policy = Policy::ALL.into_iter().find(|policy| policy.name() == name);
        let policy = policy.ok_or_else(|| LadderError::Unknown(name.to_owned()))?;
        let Some(when) = when else {
            return Ok(Self::new(policy));
        };
        let fits = |one: &When| {
            let entry = policy.enters() == (*one == When::Entry);
            one.name() == when && entry && policy != Policy::Keep
        };
        let when = When::ALL.into_iter().find(fits).ok_or(LadderError::When {
            rung: policy,
            when: when.to_owned(),
        })?;
        Ok(Self { policy, when })
    }
}

impl Ladder {
    /// A ladder of these rungs.
    ///
    /// # Errors
    /// [`LadderError::Twice`] if one stands there twice.
    pub fn new(rungs: Vec<Rung>) -> Result<Self, LadderError> {
        for (at, rung) in rungs.iter().enumerate() {
            if rungs.iter().take(at).any(|before| before == rung) {
                return Err(LadderError::Twice(rung.policy));
            }
        }
        if rungs.last().is_some_and(|rung| rung.policy == Policy::Keep) {
            return Err(LadderError::Keep);
        }
        if rungs.is_empty() {
            return Ok(Self::from(Policy::None));
        }
        Ok(Self(rungs))
    }

    /// Its rungs in order.
    #[must_use]
    pub fn rungs(&self) -> &[Rung] {
        &self.0
    }

    /// Whether a policy stands on it.
    #[must_use]
    pub fn has(&self, policy: Policy) -> bool {
        self.0.iter().any(|rung| rung.policy == policy)
    }

    /// Whether a policy runs at this moment.
    #[must_use]
    pub fn runs_at(&self, when: When) -> bool {
        self.0.iter().any(|rung| rung.when == when)
    }

    /// The policy after which the whole is named where one word has to do: the first that evicts.
    #[must_use]
    pub fn main(&self) -> Policy {
        let mut evicting = self.0.iter().filter(|rung| rung.policy.evicts());
        evicting.next().map_or(Policy::None, |rung| rung.policy)
    }

    /// Reads a ladder that is to serve.
    ///
    /// # Errors
    /// Why the text is none, or [`LadderError::Model`] if a rung needs a model.
    pub fn served(text: &str) -> Result<Self, LadderError> {
        let ladder: Self = text.parse()?;
        let served = |rung: &&Rung| Policy::SERVED.contains(&rung.policy);
        match ladder.0.iter().find(|rung| !served(rung)) {
            Some(rung) => Err(LadderError::Model(rung.policy)),
            None => Ok(ladder),
        }
    }
}

impl Default for Ladder {
    /// What serves where nobody says otherwise.
    fn default() -> Self {
        Self(
            [Policy::Repeat, Policy::Keep, Policy::Cwl]
                .map(Rung::new)
                .to_vec(),
        )
    }
}

impl From<Policy> for Ladder {
    fn from(policy: Policy) -> Self {
        Self(vec![Rung::new(policy)])
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rung) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("+")?;
            }
            rung.fmt(f)?;
        }
        Ok(())
    }
}

impl FromStr for Ladder {
    type Err = LadderError;

    /// Reads rungs that `+` joins: `repeat+cwl`.
    fn from_str(text: &str) -> Result<Self, LadderError> {
        let rungs: Result<Vec<Rung>, LadderError> = text.split('+').map(str::parse).collect();
        Self::new(rungs?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ladders_are_read_as_they_are_written() {
        for text in [
            "cwl",
            "repeat+cwl",
            "repeat+cwl+keep-recent@unmet",
            "none",
            "recency@cold+cwl",
            "cwl@red",
            "cwl+cwl@user+cwl@forecast",
        ] {
            let ladder: Ladder = text.parse().unwrap();
            assert_eq!(ladder.to_string(), text);
        }
        let spaced: Ladder = " repeat + cwl @ pass ".parse().unwrap();
        assert_eq!(spaced.to_string(), "repeat+cwl");
        assert_eq!(spaced.main(), Policy::Cwl);
        assert!(spaced.has(Policy::Repeat) && !spaced.has(Policy::None));
    }

    #[test]
    fn what_is_no_ladder_is_refused_in_words() {
        for (text, says) in [
            ("clw", "`clw` is not one of \"repeat\""),
            ("", "`` is not one of"),
            ("cwl+", "`` is not one of"),
            ("cwl+keep", "one has to follow"),
            ("keep@cold+cwl", "it holds in every pass"),
            ("cwl+cwl", "`cwl` stands there twice"),
            ("repeat@pass+cwl", "it runs once for each new result"),
            (
                "cwl@entry",
                "it runs at `pass`, `cold`, `unmet`, `yellow`, `red`, `user` or `forecast`",
            ),
            ("cwl@noon", "`cwl` can't run at `noon`"),
        ] {
            let refused = text.parse::<Ladder>().unwrap_err().to_string();
            assert!(refused.contains(says), "{text}: {refused}");
        }
        let model = Ladder::served("compaction");
        assert_eq!(model, Err(LadderError::Model(Policy::Compaction)));
    }
}
