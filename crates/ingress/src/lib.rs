//! The edge towards agents: listeners, limits, credentials, headers, and errors in the caller's
//! shape. Owns everything up to the pipeline's door. Never decides what the upstream is sent.
//!
//! | request | what happens |
//! |---|---|
//! | `POST …/chat/completions`, `…/responses`, `…/v1/messages` | read whole, then [`plimsoll_proxy::pipeline::turn`] |
//! | `POST …/v1/messages/count_tokens` | the same, but only counted |
//! | a host or a page that is not allowed | 403 |
//! | a WebSocket upgrade | 426 |
//! | anything else | [`plimsoll_proxy::pipeline::forward`], streamed in both directions |

mod access;
mod admin;
mod admin_port;
mod auth;
mod body;
mod connections;
mod console;
pub mod descriptors;
mod detach;
mod edge;
mod errors;
mod headers;
mod inflate;
mod leftover;
mod limit;
mod origin;
mod pace;
mod pieces;
mod seldom;
mod server;
mod settings;
mod socket;
mod store_work;
mod waiting;

pub use access::AdminToken;
pub use admin::{Probes, Readiness};
pub use auth::{Credential, Sources, identity};
pub use body::Coding;
pub use edge::Edge;
pub use errors::respond;
pub use headers::{overrides, session};
pub use limit::{RequestLimit, RequestPlace};
pub use origin::{Host, Hosts, OriginGuard, Origins};
pub use pace::Pace;
pub use server::{Aside, BindError, Drained, Server};
pub use settings::ServerSettings;
pub use store_work::{
    CountStore, EraseFromStore, ErasedCounts, SnapshotStore, SweepStore, erased, shown,
};
