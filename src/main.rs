//! Hands the arguments to `cli` and its exit code to the system: 0 for success, 1 for a failure, 2
//! for wrong usage, 141 if nobody reads what is printed. Owns the allocator. Never does any work itself.

use std::io;
use std::process::ExitCode;

/// The proxy allocates for every request, and many come at once. This allocator gives the system back what
/// they took, which others keep in part; `.cargo/config.toml` says after what time.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What a shell reports of a command that SIGPIPE ended, as it ends others whose reader has gone.
const UNREAD: u8 = 141;

fn main() -> ExitCode {
    match plimsoll::cli::run(plimsoll::cli::typed()) {
        Ok(code) => code,
        // A reader such as `head` has seen enough, which is no failure to tell of.
        Err(error) if is_unread(&error) => ExitCode::from(UNREAD),
        Err(error) => {
            plimsoll::cli::say(&format!("plimsoll: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Whether what was printed had no reader. An error of a connection has words of its own around it.
fn is_unread(error: &anyhow::Error) -> bool {
    let cause = error.chain().next();
    let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
