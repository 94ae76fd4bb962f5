//! Hands the arguments to `cli` and its exit code to the system: 0 for success, 1 for a failure, 2
//! for wrong usage. Owns the allocator. Never does any work itself.

use std::process::ExitCode;

use clap::Parser as _;

/// The proxy allocates for every request, and many come at once. This allocator gives the system back what
/// they took, which others keep in part; `.cargo/config.toml` says after what time.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match plimsoll::cli::run(plimsoll::cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            plimsoll::cli::say(&format!("plimsoll: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
