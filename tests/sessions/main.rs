//! Recorded sessions through the live proxy, annotated by the scripted provider: the three that come with this
//! repository, and of those beside it every one of at least 80k tokens, at 40k and 80k, streamed and not,
//! with the process killed and started again, requests sent twice, a result blanked half-way, and several
//! sessions under one key; and the same sessions through the lab as a client would send them that brings no
//! tools. A dozen sessions also with a thought before each answer, and a provider that binds it to its prefix.
//!
//! `PLIMSOLL_SESSIONS=all cargo test --release --test sessions -- --nocapture` plays all of them, and a part of
//! a name those of that name; without the variable the three are played. `PLIMSOLL_FLOOR=budget` plays them at
//! another floor, and `PLIMSOLL_POLICIES=repeat+admit+loop-guard+keep+cwl` with other policies.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a play that meets what it does not expect has failed, and its figures are printed"
)]

mod bound;
mod play;
mod proxy;
mod replicas;

use std::path::{Path, PathBuf};

use plimsoll_core::policy::Policy;
use plimsoll_lab::{Annotate, Lab, Options, trace};
use plimsoll_model::Role;
use plimsoll_scripted::Recording;
use serde_json::Value;

use play::{Figures, Play};
use proxy::Guide;

/// Sessions that share a proxy, a key and a store.
const TOGETHER: usize = 3;
/// About so many bytes of what users write make a token.
const BYTES_A_TOKEN: usize = 4;

/// The files of the recorded sessions that are played.
fn files() -> Vec<PathBuf> {
    files_of(80_000, &[])
}

/// The files of the recorded sessions that are played: those that come with the repository, and of those beside it these
/// `few`, or what else is wanted of those of so many tokens.
fn files_of(tokens: u64, few: &[&str]) -> Vec<PathBuf> {
    let wanted = std::env::var("PLIMSOLL_SESSIONS").unwrap_or_default();
    let own = own().into_iter().filter(|file| match wanted.as_str() {
        "" | "all" => true,
        part => name(file).contains(part),
    });
    let own: Vec<PathBuf> = own.collect();
    let mut beside = Vec::new();
    if let Some(index) = beside_index() {
        let sessions = index["sessions"].as_array().unwrap().iter();
        let sessions = sessions.filter(|session| {
            let id = session["id"].as_str().unwrap();
            let large = session["tokens"].as_u64() >= Some(tokens);
            let plays = match wanted.as_str() {
                "all" => true,
                "" => few.contains(&id),
                part => id.contains(part),
            };
            large && plays && !own.iter().any(|file| name(file) == id)
        });
        beside.extend(sessions.map(|session| root().join(session["file"].as_str().unwrap())));
    } else if !few.is_empty() || !wanted.is_empty() {
        println!(
            "skipped: all recorded sessions but {}, because there are none in {}",
            own.len(),
            root().display()
        );
    }
    let files: Vec<PathBuf> = own.into_iter().chain(beside).collect();
    assert!(
        !files.is_empty(),
        "no recorded session of {tokens} tokens is named {wanted}: look into tests/fixtures/sessions and {}",
        root().display()
    );
    files
}

/// The sessions that come with the repository.
fn own() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sessions");
    let entries = std::fs::read_dir(here).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|file| file.extension() == Some("zst".as_ref()))
        .collect();
    files.sort();
    files
}

fn name(file: &Path) -> &str {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap();
    name.strip_suffix(".jsonl.zst").unwrap()
}

/// Where more recorded sessions may be, which are too many to come with the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces")
}

/// What there is of them, if they are there.
fn beside_index() -> Option<Value> {
    let index = std::fs::read_to_string(root().join("index.json")).ok()?;
    Some(serde_json::from_str(&index).unwrap())
}

fn read(file: &PathBuf) -> Recording {
    let bytes = zstd::decode_all(std::fs::File::open(file).unwrap()).unwrap();
    Recording::parse(&String::from_utf8(bytes).unwrap()).unwrap()
}

/// How the sessions are played at a ceiling: all ways where all of them are, else some.
fn plays(ceiling: u32, all: bool) -> Vec<(bool, Guide)> {
    let guides = [Guide::Default, Guide::Published, Guide::Line];
    if all {
        return guides
            .iter()
            .flat_map(|guide| [(true, *guide), (false, *guide)])
            .collect();
    }
    let mut plays = vec![(true, Guide::Default), (false, Guide::Default)];
    if ceiling == 40_000 {
        plays.extend([(true, Guide::Published), (false, Guide::Line)]);
    }
    plays
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_sessions_stay_under_their_ceiling() {
    let recordings: Vec<Recording> = files().iter().map(read).collect();
    let mut found = Vec::new();
    // What the automatic floor must cache of all sessions in the ideal exact-prefix model.
    let automatic = std::env::var("PLIMSOLL_FLOOR").is_err();
    let all_of_them = std::env::var("PLIMSOLL_SESSIONS").is_ok_and(|wanted| wanted == "all");
    for (ceiling, share) in [(40_000, 0.94), (80_000, 0.965)] {
        let mut all = Figures::default();
        for (streamed, guide) in plays(ceiling, all_of_them) {
            let mut figures = Figures::default();
            for group in recordings.chunks(TOGETHER) {
                let play = Play::new(group, ceiling, streamed, guide);
                let before = found.len();
                figures.add(play.run(&mut found).await);
                // Printed at once, so that they are known even if a later play stops the test.
                found[before..]
                    .iter()
                    .take(4)
                    .for_each(|one| println!("{one:?}"));
            }
            println!(
                "budget {ceiling} {} {guide:?}: {figures}",
                if streamed { "streamed" } else { "whole" }
            );
            all.add(figures);
        }
        println!("budget {ceiling} in all: {all}");
        if automatic && all_of_them && beside_index().is_some() {
            assert!(
                all.share() >= share,
                "budget {ceiling}: {} of {share}",
                all.share()
            );
        }
    }
    assert!(
        found.is_empty(),
        "{} rules broken, the first of each play above",
        found.len()
    );
}

/// Calls and results stand in the history all the same, so that there is as much to evict.
#[test]
fn recorded_sessions_without_tools_stay_under_their_ceiling_too() {
    let ceiling = 40_000;
    let lab = Lab::new(Options {
        policies: vec![Policy::Cwl.into()],
        ceilings: vec![ceiling],
        threads: 1,
        ..Options::default()
    });
    let lab = lab.unwrap();
    for file in files() {
        let mut session = trace::read(&file).unwrap();
        (session.tools, session.tools_from) = (None, trace::Tools::None);
        let held = lab.session(&session).unwrap().policies[0].outcome();
        let (requests, over) = (held.requests, held.over);
        println!(
            "{} without tools: {requests} requests, peak {}, {} passes, {over} over",
            session.name, held.peak, held.passes
        );
        assert!(held.passes > 1 && held.extra == 0, "{}", session.name);
        assert_eq!(held.breaks, held.passes, "{}", session.name);
        // What the user wrote is pinned: only where that alone is too much may anything be over.
        let said = session.messages.iter().filter(|one| one.role == Role::User);
        let said: usize = said.map(|one| one.raw.len()).sum();
        let pinned = said / BYTES_A_TOKEN > ceiling as usize;
        assert!(
            over == 0 || pinned,
            "{}: {said} bytes of the user's",
            session.name
        );
    }
}

/// Passes that stop above the floor come one by one, however long open work is held, unless what may
/// never go leaves a request above the ceiling.
#[test]
fn recorded_sessions_see_no_run_of_passes_above_the_floor() {
    for annotate in [Annotate::Scripted, Annotate::Obedient] {
        let lab = Lab::new(Options {
            policies: vec![Policy::Cwl.into()],
            ceilings: vec![40_000],
            annotate,
            threads: 1,
            ..Options::default()
        });
        let lab = lab.unwrap();
        for file in files() {
            let session = trace::read(&file).unwrap();
            let held = lab.session(&session).unwrap().policies[0].outcome();
            println!(
                "{} {}: {} passes, {} above the floor, {} of them in runs, {} requests over",
                session.name,
                annotate.name(),
                held.passes,
                held.shallow,
                held.runs,
                held.over
            );
            assert!(held.passes > 1, "{}", session.name);
            assert!(held.runs == 0 || held.over > 0, "{}", session.name);
        }
    }
}
