//! A request whose messages were counted, before its first hop: what is asked of memory and of the store about its place.
//! Owns those questions. Never decides what becomes of the answers.

use std::sync::Arc;
use std::time::Instant;

use plimsoll_core::session::path::Path;
use plimsoll_core::turn::{Joins, Terms};
use plimsoll_model::{Choice, Head, Shape};
use plimsoll_tokens::Family;
use plimsoll_wire::request::Request;
use plimsoll_wire::{Dialect, Purpose};

use super::app::App;
use super::find::{self, locate};
use super::opening::{Opening, Stop, Trust, unfound};
use super::record_place::RecordPlace;
use super::split_place::Beginning;
use super::{branch, dropped};
use crate::history::{Patience, Reads};
use crate::record::Phase;

/// A request whose messages were counted, before its place is known.
pub(super) struct CountedRequest {
    pub request: Request,
    pub shapes: Vec<Arc<Shape>>,
    pub heads: Vec<Head>,
    pub terms: Terms,
    pub place: RecordPlace,
    pub family: Family,
    /// Whether its session joins the split if it begins here.
    pub joins: Joins,
    /// What a session that begins here is served under, if that is not as without a split.
    pub begins: Option<Choice>,
}

impl CountedRequest {
    /// Calls `ask` with what the request is looked up by.
    pub(super) fn ask<T>(&self, ask: impl FnOnce(&find::PathQuery<'_>) -> T) -> T {
        let text = |at| {
            self.request
                .dialect
                .assistant_text(self.request.message(at))
        };
        ask(&find::PathQuery {
            tenant: self.place.tenant,
            scope: &self.place.keys,
            shapes: &self.shapes,
            heads: &self.heads,
            text: &text,
        })
    }

    /// Whether the turn is not recorded: a conversation that begins without tools comes once.
    pub(super) fn forgets(&self, path: &Path) -> bool {
        path.entries.is_empty() && !self.request.takes_tools()
    }

    /// Finds what its session is served under, if that may begin here and join the split. Returns whether a turn of the
    /// session was recorded before, if that is known then. A store that makes nobody wait was asked before.
    pub(super) async fn find_choice(
        &mut self,
        app: &Arc<App>,
        opening: &mut Opening,
        path: &Path,
    ) -> Option<bool> {
        let waits = app.records(self.terms.mode).reads_wait();
        let beginning = self.beginning(path).filter(|_| waits)?;
        let begun = Instant::now();
        let credential = opening.request.identity.credential;
        let known = beginning
            .find_soon(app, credential, &opening.patience)
            .await;
        opening.reporter.took(Phase::Store, begun.elapsed());
        let known = known?;
        self.begins = known.choice;
        Some(known.taken)
    }

    /// Whether it begins in a session whose client may have dropped what it sent before, and may recall that. The session
    /// has to be the client's own name for it: a `prompt_cache_key` may be one for many conversations.
    pub(super) fn begins_anew(&self, opening: &Opening, path: &Path) -> bool {
        let asked = &opening.request;
        let named = asked.session.explicit.is_some() || asked.dialect == Dialect::Messages;
        let named = named && !self.place.scope.0.is_empty() && opening.trust == Trust::Whole;
        let recalls = self.terms.recalls_dropped() && self.request.takes_tools();
        named && recalls && asked.purpose == Purpose::Answer && !path.has_begun()
    }

    /// The path of a request that may begin behind a history that its client has dropped.
    pub(super) async fn behind(
        &self,
        app: &Arc<App>,
        opening: &mut Opening,
        path: Arc<Path>,
    ) -> Arc<Path> {
        if !self.begins_anew(opening, &path) {
            return path;
        }
        let begun = Instant::now();
        let credential = opening.request.identity.credential;
        let behind = dropped::behind(
            app,
            (&self.place, &self.heads),
            credential,
            &opening.patience,
        )
        .await;
        opening.reporter.took(Phase::Store, begun.elapsed());
        behind.map_or(path, Arc::new)
    }

    /// Its session, if that may begin here and join the split.
    pub(super) fn beginning(&self, path: &Path) -> Option<Beginning> {
        (self.joins != Joins::Not && !path.has_begun()).then(|| Beginning {
            place: self.place.clone(),
            mode: self.terms.mode,
            joins: self.joins,
            chosen: self.terms.choice.profile.clone(),
        })
    }

    /// Whether the store knows of a turn that has gone on from this path. If it does not answer, it does not.
    pub(super) fn is_taken(&self, app: &App, patience: &Patience, path: &Path) -> bool {
        let origin = branch::origin(&self.place, path);
        branch::is_taken(app, self.terms.mode, patience, origin)
    }

    /// Finds the path behind the request. Looks in the store if memory does not have it.
    pub(super) fn locate(&self, app: &App, patience: &Patience) -> Result<Arc<Path>, Stop> {
        let told = |op, time| app.metrics.observe_store(op, time);
        let store = app.records(self.terms.mode);
        let reads = Reads::new(store, &told).while_waited_for(patience);
        let path = self.ask(|request| locate(&reads, &app.paths, request));
        path.map_err(unfound)
    }
}
