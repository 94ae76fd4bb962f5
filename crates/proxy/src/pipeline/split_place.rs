//! What a session that begins is served under while sessions are split. What records say of the session, or of its parent,
//! comes first, so that a session stays where it is for life and sub-agents follow their parents. Only a session of which
//! nothing is known is drawn. Never asks for a conversation that goes on: its path has the choice.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::session::chain::RecordKey;
use plimsoll_core::turn::{Joins, Mode, Split};
use plimsoll_model::{Choice, Digest, RecordId, SplitPlace};
use plimsoll_store::Take;

use super::app::App;
use super::record_place::RecordPlace;
use crate::history::{FindError, Patience, Reads, record};

/// How long a session that begins waits for the store. One that gets no answer is in no arm, whichever it would be in, so
/// both arms lose alike.
const PATIENCE: Duration = Duration::from_millis(250);

/// The session of a request that may begin one.
pub(super) struct Beginning {
    /// Where its record belongs.
    pub place: RecordPlace,
    /// How its request is served.
    pub mode: Mode,
    /// Whether it joins the split.
    pub joins: Joins,
    /// The profile without a split.
    pub chosen: Option<String>,
}

/// What is known of a session that begins.
pub(super) struct Known {
    /// What it is served under; none if that is as without a split.
    pub choice: Option<Choice>,
    /// Whether a turn of the session was recorded before.
    pub taken: bool,
}

impl Beginning {
    /// Looks it up off the async workers; none if the store does not answer soon.
    pub(super) async fn find_soon(
        self,
        app: &Arc<App>,
        credential: Digest,
        patience: &Patience,
    ) -> Option<Known> {
        let worker = Arc::clone(app);
        let find = move |patience: &Patience| self.find(&worker, patience);
        let found = app.readers.run(credential, patience, PATIENCE, find).await;
        if found.is_none() {
            tracing::warn!(limit = ?PATIENCE, "the store did not answer in time, and a session begins in no arm");
        }
        found.flatten()
    }

    /// Looks it up. May read the disk. A store that fails tells nothing.
    pub(super) fn find(&self, app: &App, patience: &Patience) -> Option<Known> {
        let split = app.settings.split.as_ref()?;
        let told = |op, time| app.metrics.observe_store(op, time);
        let reads = Reads::new(app.records(self.mode), &told).while_waited_for(patience);
        let known = self.read(&reads, split);
        known
            .inspect_err(|error| tracing::warn!(%error, "a session begins in no arm"))
            .ok()
    }

    fn read(&self, reads: &Reads<'_>, split: &Split) -> Result<Known, FindError> {
        let parent = self.place.parent.as_ref();
        let names = [Some(&self.place.session), parent];
        let tenant = self.place.tenant;
        let key = |name: &String| RecordKey::First(name).digest(tenant, &self.place.keys);
        let keys: Vec<Digest> = names.into_iter().flatten().map(key).collect();
        let mut found = reads.links(&keys, Take::First(1))?.into_iter();
        let mut id = || found.next()?.first().map(|(_, id)| RecordId(*id));
        let (own, of_parent) = (id(), id());
        let taken = own.is_some();
        let read = |id: Option<RecordId>| id.map_or(Ok(None), |id| record(reads, id));
        let choice = if let Some(own) = read(own)? {
            // The profile, too, is that with which the session began, in whatever arm.
            Some(own.choice()).filter(|choice| choice.split.is_some())
        } else if let Some(parent) = read(of_parent)? {
            parent.split.map(|place| self.under(place))
        } else {
            // The parent of a sub-agent may have no record yet. It is drawn by this name, too.
            let name = parent.unwrap_or(&self.place.session);
            let drawn = (self.joins == Joins::Drawn).then(|| split.draw(tenant, name));
            drawn.map(|place| self.under(place))
        };
        Ok(Known { choice, taken })
    }

    /// What it is served under in this place. A sub-agent that does not fit the profile that is tried counts in the arm of
    /// its parent, and is served as ever.
    fn under(&self, place: SplitPlace) -> Choice {
        let profile = match place.tried && self.joins == Joins::Drawn {
            true => Some(place.profile.clone()),
            false => self.chosen.clone(),
        };
        let split = Some(place);
        Choice { profile, split }
    }
}
