//! A request once it is decoded, and the terms under which it is served. Never reads a message of it.

use plimsoll_core::session::path::Path;
use plimsoll_core::turn::{Mode, SetBreakpoints, Terms};
use plimsoll_model::{Scope, TenantId};
use plimsoll_tokens::{CacheModel, Family};
use plimsoll_wire::Dialect;
use plimsoll_wire::Purpose;
use plimsoll_wire::request::{Request, RequestError};

use super::app::App;
use super::opening::{Stop, unfound};
use super::refer::{self, LookedUp};
use super::reporter::Reporter;
use super::request::TurnRequest;
use crate::history::{Patience, Reads};
use crate::record::{FailedStage, Phase};

/// A request that was decoded.
pub(super) struct DecodedRequest {
    pub request: Request,
    /// The path to the response that the request goes on from, if it names one.
    pub known: Option<Path>,
    pub terms: Terms,
    pub family: Family,
}

impl DecodedRequest {
    /// Decodes a request, and sets its terms.
    pub(super) fn of(
        app: &App,
        asked: &TurnRequest,
        reporter: &mut Reporter,
    ) -> Result<Self, Stop> {
        let wanted = app.settings.mode(&asked.overrides, asked.envelope());
        if wanted == Mode::Off {
            return Err(Stop::Forward);
        }
        let request = reporter.timed(Phase::Parse, || asked.dialect.decode(asked.body.clone()));
        let request = match (request, wanted) {
            (Ok(request), _) => request,
            // A watched request is never refused.
            (Err(_), Mode::Observe | Mode::Off) => return Err(Stop::Forward),
            (Err(error), Mode::Manage) => return Err(unreadable(&error)),
        };
        // The window decides the ceiling, so the model must be known before the terms.
        let family = app.models.family(&request.model).clone();
        let family = app
            .windows
            .told(family, asked.identity.tenant, &request.model);
        let (overrides, model) = (&asked.overrides, Some(request.model.as_str()));
        let profile = app.settings.chosen(overrides, asked.envelope(), model);
        let terms = terms(app, asked, &request, &family, profile)?;
        reporter.asked(&request, terms.mode);
        Ok(Self {
            request,
            known: None,
            terms,
            family,
        })
    }

    /// Looks up what the request refers to in the records.
    pub(super) fn look_up(
        &self,
        app: &App,
        tenant: TenantId,
        scope: &Scope,
        patience: &Patience,
    ) -> Result<LookedUp, Stop> {
        let told = |op, time| app.metrics.observe_store(op, time);
        let reads = Reads::new(&app.store, &told).while_waited_for(patience);
        let known = refer::look_up(&reads, (tenant, scope), &self.request, app.serving.body_cap);
        known.map_err(unfound)
    }
}

/// The terms of a request under a profile.
pub(super) fn terms(
    app: &App,
    asked: &TurnRequest,
    request: &Request,
    family: &Family,
    profile: Option<&str>,
) -> Result<Terms, Stop> {
    let (settings, overrides) = (&app.settings, &asked.overrides);
    let window = family.prompt(request.limit.map(|limit| limit.tokens));
    let terms = settings.terms(profile, overrides, window, &request.model);
    let mut terms = terms.map_err(|error| Stop::Error(error.into()))?;
    // Whatever the conversation began with, the mode was decided before its body was read.
    terms.mode = settings.mode(overrides, asked.envelope());
    terms.vendor = is_vendor(app, request.dialect);
    terms.cut = family.cut;
    let told =
        request.dialect.is_diagnosed() && matches!(family.cache, CacheModel::Breakpoints { .. });
    terms.diagnoses &= terms.mode == Mode::Manage && terms.vendor && told;
    // A request that is only counted is not cached, so it gets no breakpoints and asks nothing of its cache.
    if asked.purpose == Purpose::Count {
        terms.breakpoints = SetBreakpoints::Off;
        terms.diagnoses = false;
    }
    Ok(terms)
}

/// Whether the upstream is the vendor whose format a request has.
fn is_vendor(app: &App, dialect: Dialect) -> bool {
    let vendor = match dialect {
        Dialect::Chat | Dialect::Responses => "openai",
        Dialect::Messages => "anthropic",
    };
    app.provider == vendor
}

/// What an unreadable request means: it is forwarded as it came. Servers take more than is valid JSON (a byte order mark,
/// UTF-16, NaN), and say best what is wrong with the rest.
fn unreadable(error: &RequestError) -> Stop {
    tracing::info!(%error, "a request can't be read here, and goes up as it came");
    Stop::Fail(FailedStage::Dialect)
}
