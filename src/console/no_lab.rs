//! What a build without the lab says in its place. Never plays anything.

use serde::Deserialize;
use serde_json::Value;

use super::error::ConsoleError;
use super::known::Known;
use super::needed::NeededLater;
use crate::pipeline::App;

/// What would be tried.
#[derive(Debug, Deserialize)]
pub struct WhatIfAsk {}

/// Nothing is known without the lab.
pub fn needed(_app: &App, _known: &Known) -> Result<Option<NeededLater>, ConsoleError> {
    Ok(None)
}

/// Refuses.
pub fn what_if(
    _app: &App,
    _known: &Known,
    _ask: &WhatIfAsk,
    _each: &mut dyn FnMut(&Value) -> bool,
) -> Result<(), ConsoleError> {
    let message = "this build has no lab: build it with the feature `lab`";
    Err(ConsoleError::new(409, "no_lab", message))
}
