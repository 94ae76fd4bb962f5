//! Decides what may be put into a caller's request before the upstream has looked at it. A token
//! that names its owner proves nothing here: until the upstream has accepted it once, nothing is
//! looked up for it. Owns how far each caller is trusted. Which credentials were accepted is kept
//! by `accepted_credentials`.

use http::StatusCode;

use super::app::App;
use super::opening::{Opening, Trust, look_up};
use super::request::{Identity, Standing};
use crate::dialect::Purpose;
use crate::history::{Patience, Reads};

/// How far the caller of a request is trusted. Asks the store if memory does not know.
pub(super) async fn trust(app: &std::sync::Arc<App>, opening: &mut Opening) -> Trust {
    let identity = opening.request.identity;
    let alone = match identity.standing {
        Standing::Own => return Trust::Whole,
        Standing::Anonymous => return Trust::Unnamed,
        Standing::Claimed(alone) => alone,
    };
    let key = app.accepted.key(identity.credential);
    if app.accepted.knows(&key) {
        return Trust::Whole;
    }
    let find = move |app: &App, patience: &Patience| {
        let told = |op, time| app.metrics.observe_store(op, time);
        let reads = Reads::new(&app.store, &told).while_waited_for(patience);
        let found = reads.links(&[key]);
        // A credential that can't be read counts as not accepted.
        Ok(found.is_ok_and(|sets| sets.iter().any(|set| !set.is_empty())))
    };
    if look_up(app, opening, find).await.unwrap_or(false) {
        app.accepted.learn(key);
        return Trust::Whole;
    }
    Trust::Nothing(alone)
}

/// Notes what the upstream's answer says about the credential. Only a request that asks for an
/// answer counts, because many upstreams list their models to anyone.
pub(super) fn answered(app: &App, identity: &Identity, purpose: Purpose, status: StatusCode) {
    let claimed = matches!(identity.standing, Standing::Claimed(_));
    if claimed && purpose == Purpose::Answer && status.is_success() {
        app.accepted.note(&app.store, identity.credential);
    }
}
