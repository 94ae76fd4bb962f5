//! A split of sessions: a share of them is served under a profile that is tried, so that they can be compared with the
//! others. Owns the draw. Never remembers one: the first record of a session does.

use plimsoll_model::{Digest, SplitPlace, TenantId};

/// A profile that is tried with a share of the sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The profile.
    pub profile: String,
    /// The share, in (0, 1).
    pub share: f64,
}

/// Whether the session of a request joins the split if it begins here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// It does not: nothing is tried, or the request is only watched.
    Not,
    /// It has a place if it, or its parent, had one before: the request names a profile, or does not fit the one that is
    /// tried.
    Known,
    /// It is drawn if nothing is known of it.
    Drawn,
}

impl Split {
    /// Draws for a session by its name. The draw depends on the key of the tenant hash, so all proxies that share the key
    /// draw the same, and no client can know it beforehand. Each profile has draws of its own.
    #[must_use]
    pub fn draw(&self, tenant: TenantId, session: &str) -> SplitPlace {
        let parts = [
            b"split".as_slice(),
            tenant.0.as_bytes(),
            session.as_bytes(),
            self.profile.as_bytes(),
        ];
        let Digest([a, b, c, d, ..]) = Digest::of(&parts);
        let lot = f64::from(u32::from_be_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0);
        SplitPlace {
            profile: self.profile.clone(),
            tried: lot < self.share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(profile: &str, share: f64) -> Split {
        Split {
            profile: profile.to_owned(),
            share,
        }
    }

    fn tenant(no: u8) -> TenantId {
        TenantId(Digest([no; 32]))
    }

    /// How many of 10,000 sessions are drawn by both.
    fn both(one: (&Split, u8), other: (&Split, u8)) -> usize {
        let draws =
            |(split, no): (&Split, u8), session: &str| split.draw(tenant(no), session).tried;
        let sessions = (0..10_000).map(|no| format!("session {no}"));
        let both = sessions.filter(|session| draws(one, session) && draws(other, session));
        both.count()
    }

    #[test]
    fn about_the_share_is_drawn_and_always_the_same_sessions() {
        for share in [0.01, 0.1, 0.5, 0.9] {
            let split = split("b", share);
            let drawn = both((&split, 1), (&split, 1));
            let (drawn, most) = (f64::from(u32::try_from(drawn).unwrap()), 10_000.0);
            // Four standard deviations.
            let off = 4.0 * (most * share * (1.0 - share)).sqrt();
            assert!((drawn - most * share).abs() < off, "{share}: {drawn}");
        }
    }

    #[test]
    fn a_larger_share_keeps_those_that_were_drawn() {
        let (less, more) = (split("b", 0.2), split("b", 0.6));
        assert_eq!(both((&less, 1), (&more, 1)), both((&less, 1), (&less, 1)));
    }

    #[test]
    fn profiles_and_tenants_have_draws_of_their_own() {
        let (b, c) = (split("b", 0.5), split("c", 0.5));
        for drawn in [both((&b, 1), (&c, 1)), both((&b, 1), (&b, 2))] {
            assert!((2_300..2_700).contains(&drawn), "{drawn}");
        }
    }
}
