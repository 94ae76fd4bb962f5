//! Hands the arguments to `cli` and its exit code to the system: 0 for success, 1 for a failure, 2
//! for wrong usage. Owns the allocator. Never does any work itself.

use std::process::ExitCode;

use clap::Parser as _;

/// The proxy allocates for every request. With this allocator it was measured to take 11 % less CPU
/// time than with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match plimsoll::cli::run(plimsoll::cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            plimsoll::cli::say(&format!("plimsoll: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
