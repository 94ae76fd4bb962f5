//! `plimsoll check FILE`. Owns what it prints; never starts anything.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::config::{Config, Error};

/// Prints `ok`, or every problem on a line of its own.
///
/// # Errors
/// If the file can't be read, or the output can't be written.
pub fn run(file: &Path, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    match Config::check(file) {
        Ok(_) => {
            writeln!(out, "{}: ok", file.display())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(Error::Invalid(problems)) => {
            for problem in problems {
                writeln!(out, "{problem}")?;
            }
            Ok(ExitCode::FAILURE)
        }
        Err(error @ Error::Read { .. }) => Err(error.into()),
    }
}
