//! Tells the binary from which commit it is built. Owns where that is read: the variable
//! `PLIMSOLL_COMMIT`, or git's own word about this tree. Never fails: a tree without either, such as
//! an unpacked archive, is built without a commit.

use std::path::Path;
use std::process::Command;

/// As many digits as a person copies.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=PLIMSOLL_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let named = std::env::var("PLIMSOLL_COMMIT").ok();
    let commit = named
        .filter(|commit| !commit.is_empty())
        .or_else(of_this_tree);
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let shown = match commit.as_deref().and_then(|commit| commit.get(..DIGITS)) {
        Some(commit) if commit.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            format!("{version} ({commit})")
        }
        Some(_) | None => version,
    };
    println!("cargo::rustc-env=PLIMSOLL_VERSION={shown}");
}

/// The commit of the working tree that this package is the root of. A release is one; what is built
/// while it is worked on would have to be compiled anew with each commit.
fn of_this_tree() -> Option<String> {
    if std::env::var("PROFILE").ok()? != "release" {
        return None;
    }
    // An archive that was unpacked inside another repository is not of that repository's commit.
    let root = git(&["rev-parse", "--show-toplevel"])?;
    let here = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    if Path::new(&root).canonicalize().ok()? != Path::new(&here).canonicalize().ok()? {
        return None;
    }
    // The log of the head grows with each commit and each change of branch.
    for changed in ["HEAD", "logs/HEAD"] {
        let file = git(&["rev-parse", "--git-path", changed])?;
        if Path::new(&file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    git(&["rev-parse", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let done = Command::new("git").args(arguments).output().ok()?;
    let said = String::from_utf8(done.stdout).ok()?;
    done.status.success().then(|| said.trim().to_owned())
}
