//! What a shell and `man` know about the commands. Owns nothing else: all of it is made from the
//! description of the arguments. Never runs a command.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Cli, help};

/// Prints the completions of a shell.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Writes the pages for `man`: one for the program, and one for each command.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where they are written. The directory is made if it is not there.
    directory: PathBuf,
}

/// Prints the completions.
///
/// # Errors
/// If nobody reads them.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut command = help::command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    std::io::stdout().lock().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages.
///
/// # Errors
/// If one can't be written.
pub fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    let written = fs::create_dir_all(directory).and_then(|()| pages(&all, directory));
    written.with_context(|| format!("can't write pages to {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command, and those of the commands below it.
fn pages(command: &Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands() {
        pages(below, directory)?;
    }
    let page = Man::new(command.clone());
    let mut file = File::create(directory.join(page.get_filename()))?;
    page.render(&mut file)?;
    help::sections(command).to_writer(&mut file)
}
