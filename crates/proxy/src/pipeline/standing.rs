//! Decides what may be put into a caller's request before the upstream has looked at it. A token
//! that names its owner proves nothing here: until the upstream has accepted it once, nothing is
//! looked up for it. Owns how far each caller is trusted. Which credentials were accepted is kept
//! by `proven`.

use http::StatusCode;
use plimsoll_model::Digest;
use plimsoll_store::Take;
use plimsoll_wire::Purpose;

use super::app::App;
use super::opening::{Opening, Trust, look_up};
use super::proven::Fact;
use super::request::{Identity, Standing};
use crate::history::{Patience, Reads};

/// How far the caller of a request is trusted. Asks the store if memory does not know.
pub(super) async fn trust(app: &std::sync::Arc<App>, opening: &mut Opening) -> Trust {
    let identity = opening.request.identity;
    let alone = match identity.standing {
        Standing::Own => return Trust::Whole,
        Standing::Anonymous => return Trust::Unnamed,
        Standing::Claimed(alone) => alone,
    };
    let key = app.proven.key(Fact::Credential(identity.credential));
    // A credential that can't be read counts as not accepted.
    match is_proven(app, opening, key).await {
        true => Trust::Whole,
        false => Trust::Nothing(alone),
    }
}

/// Whether the upstream has shown the fact with this key, as far as the store can tell.
pub(super) async fn is_proven(
    app: &std::sync::Arc<App>,
    opening: &mut Opening,
    key: Digest,
) -> bool {
    if app.proven.knows(&key) {
        return true;
    }
    let find = move |app: &App, patience: &Patience| {
        let told = |op, time| app.metrics.observe_store(op, time);
        let reads = Reads::new(&app.store, &told).while_waited_for(patience);
        let found = reads.links(&[key], Take::First(1));
        Ok(found.is_ok_and(|sets| sets.iter().any(|set| !set.is_empty())))
    };
    let found = look_up(app, opening, find).await.unwrap_or(false);
    if found {
        app.proven.learn(key);
    }
    found
}

/// Notes what the upstream's answer says about the credential. Only a request that asks for an
/// answer counts, because many upstreams list their models to anyone.
pub(super) fn answered(app: &App, identity: &Identity, purpose: Purpose, status: StatusCode) {
    let claimed = matches!(identity.standing, Standing::Claimed(_));
    if claimed && purpose == Purpose::Answer && status.is_success() {
        let fact = Fact::Credential(identity.credential);
        app.proven.note(&app.store, fact);
    }
}
