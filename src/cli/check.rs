//! `plimsoll check FILE`, and `plimsoll check --schema`. Owns its arguments and what it prints. Never starts anything.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{logs, serve};
use crate::config::{Config, ConfigError, DEFAULT_FILE, Flags, Problem, schema, unread};

/// The arguments of the command.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The file [default: config/plimsoll.toml].
    file: Option<PathBuf>,
    /// The file, as `serve` takes it.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Print a JSON schema of the file, for editors that complete and check TOML. No file is read.
    #[arg(long, conflicts_with_all = ["file", "config"])]
    schema: bool,
}

/// Prints `ok`, or every problem on a line of its own: those of the file, and those that variables
/// of the environment would add.
///
/// # Errors
/// If the file can't be read, or the output can't be written.
pub fn run(args: &CheckArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    if args.schema {
        writeln!(out, "{:#}", schema())?;
        return Ok(ExitCode::SUCCESS);
    }
    let named = args.file.as_deref().or(args.config.as_deref());
    let file = named.unwrap_or(Path::new(DEFAULT_FILE));
    let flags = Flags {
        config: Some(file.to_owned()),
        ..Flags::default()
    };
    // The file is checked alone first, because a variable would hide what it overrides in the file.
    let mut problems = problems(Config::check(file))?;
    problems.extend(self::problems(Config::load(&flags, serve::variables()))?);
    problems.sort();
    problems.dedup();
    for note in unread(serve::variables()) {
        logs::say(&format!("plimsoll: {note}"));
    }
    for problem in &problems {
        writeln!(out, "{problem}")?;
    }
    if !problems.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    writeln!(out, "{}: ok", file.display())?;
    Ok(ExitCode::SUCCESS)
}

fn problems(read: Result<Config, ConfigError>) -> anyhow::Result<Vec<Problem>> {
    match read {
        Ok(_) => Ok(Vec::new()),
        Err(ConfigError::Invalid(problems)) => Ok(problems),
        Err(error @ ConfigError::Read { .. }) => Err(error.into()),
    }
}
