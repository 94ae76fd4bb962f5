//! How the commands are presented: in groups and with examples in `--help`, with files and exit codes in the pages
//! for `man`. Owns these words. Never runs a command.

use clap::{Command, CommandFactory as _, FromArgMatches as _};
use clap_mangen::roff::{Roff, bold, roman};

use super::Cli;

/// The commands, in the order in which somebody meets them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("See whether it pays", &["demo", "replay", "tune"]),
    ("Serve agents", &["run", "serve", "setup", "init", "check"]),
    (
        "Look at what is served and kept",
        &["sessions", "health", "split", "export", "store"],
    ),
    ("Shell", &["completions", "man"]),
];

/// A command line, and what it is for.
type Example = (&'static str, &'static str);

/// Examples of the program and of its commands.
const EXAMPLES: [(&str, &[Example]); 10] = [
    (
        "plimsoll",
        &[
            ("plimsoll demo", "a recorded session, in half a minute"),
            ("plimsoll replay", "what it saves on your own sessions"),
            (
                "plimsoll run -- claude",
                "work through it, and see the bill",
            ),
        ],
    ),
    (
        "demo",
        &[("plimsoll demo --budget 20k", "with half the budget")],
    ),
    (
        "replay",
        &[
            ("plimsoll replay", "the sessions that agents keep here"),
            ("plimsoll replay session.jsonl", "one recorded session"),
        ],
    ),
    (
        "run",
        &[
            ("plimsoll run -- claude", "Claude Code, with what it saved"),
            ("plimsoll run --budget 60k -- codex", "with another budget"),
        ],
    ),
    (
        "serve",
        &[
            ("plimsoll serve", "for agents that use the OpenAI API"),
            (
                "plimsoll serve --upstream https://api.anthropic.com/v1",
                "for Claude Code",
            ),
            (
                "plimsoll serve --data ./second --listen :8788 --admin :9188",
                "a second one beside it",
            ),
        ],
    ),
    (
        "setup",
        &[
            ("plimsoll setup claude", "lead Claude Code to the proxy"),
            ("plimsoll setup claude --undo", "and back"),
        ],
    ),
    (
        "check",
        &[
            ("plimsoll check", "config/plimsoll.toml and the variables"),
            ("plimsoll check --schema", "for an editor"),
        ],
    ),
    (
        "sessions",
        &[
            ("plimsoll sessions", "the newest sessions"),
            ("plimsoll sessions --follow", "and a line for each turn"),
        ],
    ),
    (
        "export",
        &[
            ("plimsoll export --list", "what was recorded"),
            (
                "plimsoll export 0123abcd --out session.jsonl",
                "one session of it",
            ),
        ],
    ),
    (
        "store",
        &[
            ("plimsoll store stats", "how large it is"),
            (
                "plimsoll store snapshot /backup/monday",
                "a copy of it, while no server uses it",
            ),
        ],
    ),
];

/// Where the program reads and keeps what outlives it.
const FILES: [(&str, &str); 4] = [
    (
        "config/plimsoll.toml",
        "Settings, read if they are there and --config names no other file.",
    ),
    (
        "~/.local/state/plimsoll/serve",
        "The data directory of a server for which nothing names one, below $XDG_STATE_HOME if that is set. \
         A store in ./data comes before it.",
    ),
    (
        "~/.local/state/plimsoll/run/N",
        "The data directories of runs.",
    ),
    (
        "~/.local/state/plimsoll/setup",
        "What setup needs to take its changes back.",
    ),
];

/// The exit codes.
const CODES: [(&str, &str); 6] = [
    ("0", "Success."),
    (
        "1",
        "A failure. Of check a mistake that it found, and of health a server that is not ready.",
    ),
    ("2", "Wrong usage."),
    (
        "126, 127",
        "Of run: the agent can't be started, or there is none of that name. Otherwise run ends as its agent does, with \
         128 and the signal's number if a signal ended that.",
    ),
    (
        "130, 143",
        "An interrupt or SIGTERM ended the command at once.",
    ),
    ("141", "Nobody reads what the command prints."),
];

/// What was typed.
#[must_use]
pub fn typed() -> Cli {
    let matches = command().get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The description of all commands, as `--help` shows it.
#[must_use]
pub fn command() -> Command {
    let command = Cli::command().mut_subcommands(|below| {
        let shown = shown(&below);
        match shown.is_empty() {
            true => below,
            false => below.after_help(shown),
        }
    });
    let (template, shown) = (template(&command), shown(&command));
    command.help_template(template).after_help(shown)
}

fn examples(command: &Command) -> &'static [Example] {
    let mut all = EXAMPLES.iter();
    let own = all.find(|(name, _)| *name == command.get_name());
    own.map_or(&[], |(_, examples)| *examples)
}

/// The examples of a command as they follow its help. Empty if it has none.
fn shown(command: &Command) -> String {
    let (examples, header) = (examples(command), command.get_styles().get_header());
    if examples.is_empty() {
        return String::new();
    }
    let width = examples.iter().map(|(line, _)| line.len()).max();
    let lines = examples.iter().map(|(line, what)| {
        let width = width.unwrap_or_default();
        format!("\n  {line:width$}  {what}")
    });
    format!("{header}Examples:{header:#}{}", lines.collect::<String>())
}

/// The help of the program, with its commands in groups.
fn template(command: &Command) -> String {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (group, names) in GROUPS {
        text += &format!("{header}{group}:{header:#}\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text += &format!("  {literal}{name:11}{literal:#}  {about}\n");
        }
        text.push('\n');
    }
    text + &format!("{header}Options:{header:#}\n{{options}}{{after-help}}")
}

/// The sections that a page for `man` has of its own.
#[must_use]
pub fn sections(command: &Command) -> Roff {
    let mut page = Roff::new();
    let mut section = |title: &str, entries: &[(&str, &str)]| {
        if !entries.is_empty() {
            page.control("SH", [title]);
        }
        for (name, what) in entries {
            page.control("TP", []);
            page.text([bold(*name)]);
            page.text([roman(*what)]);
        }
    };
    section("EXAMPLES", examples(command));
    section("FILES", &FILES);
    section("EXIT STATUS", &CODES);
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_every_example_of_one_can_be_read() {
        let command = Cli::command();
        let all = command.get_subcommands().map(Command::get_name);
        let all: Vec<_> = all.collect::<BTreeSet<_>>().into_iter().collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).collect();
        grouped.sort();
        assert_eq!(grouped, all.iter().collect::<Vec<_>>());
        for (name, examples) in EXAMPLES {
            let of = name == "plimsoll" || all.contains(&name);
            assert!(of, "{name}");
            for (line, _) in examples {
                let read = self::command().try_get_matches_from(line.split(' '));
                assert!(read.is_ok(), "{line}");
            }
        }
    }
}
