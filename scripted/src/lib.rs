//! A scripted Chat Completions provider, for the demo and the tests.
//!
//! It refuses what a real provider refuses, answers what a script says, in whatever shape of
//! stream is asked for, fails where it is told to, and keeps every request that it received. It
//! knows nothing of the proxy that it judges and shares no code with it.

pub mod audit;
pub mod cache;
pub mod client;
pub mod heard;
pub mod plan;
pub mod player;
pub mod reads;
pub mod received;
pub mod rng;
pub mod rules;
pub mod script;
pub mod server;
pub mod size;
pub mod thoughts;
pub mod trace;
pub mod validate;
pub mod wire;

mod link;
mod send;
mod side;
mod violation;

pub use client::{Client, ClientOptions, ClientRequest, NoText, Outcome};
pub use heard::Heard;
pub use plan::Plan;
pub use player::{Place, Player, Session, TURN_HEADER};
pub use reads::Reads;
pub use received::{Received, Sent, Verdict};
pub use rules::{Difference, Edit, Form, Judged, Mismatch, Rule, Rules, Scope, Standing, Thought};
pub use script::{Call, Extra, Fault, IndexStyle, Reply, RequestView, Script, Style, UsagePlace};
pub use server::{Auth, Options, Provider};
pub use trace::Recording;
pub use violation::Violation;
