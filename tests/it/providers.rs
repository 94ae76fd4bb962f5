//! Sessions of more than thirty turns under each provider's rule, with passes, in each wire format
//! that the rule is of, streamed and not, by a proxy that is restarted on the way or is not. Each has
//! to end as it does without a proxy. Asserts only in `session`.

mod agent;
mod bound;
mod bound_lives;
mod chat;
mod edits;
mod guided;
mod host;
mod killed;
mod messages;
mod responses;
mod script;
mod session;
mod switch;
mod thinkers;

/// Tests of one rule: streamed, with a restart on the way, and whole.
macro_rules! rule {
    ($name:ident, $case:expr) => {
        mod $name {
            use super::*;

            #[tokio::test]
            async fn streamed() {
                let case: Case = $case;
                case.streamed(true).restarted(true).play().await;
            }

            #[tokio::test]
            async fn whole() {
                let case: Case = $case;
                case.streamed(false).play().await;
            }
        }
    };
}
use rule;
