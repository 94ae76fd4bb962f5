//! Where `serve` and `run` keep their records if nothing names a place: in data directories below the
//! user's state directory, one for the server and a few for runs, one for each run at a time. Owns these
//! places and their order. Never opens a store.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::agents::Environment;

/// How many runs can keep records at once.
const MAX_RUNS: usize = 16;
/// The directory in a data directory that has a file for each working directory from which it was
/// used.
const USED_DIRECTORY: &str = "used";

/// The data directories of all runs of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPool(PathBuf);

impl DataPool {
    /// The pool according to the environment: `$XDG_STATE_HOME/plimsoll/run`, or
    /// `~/.local/state/plimsoll/run`. `None` if neither is known.
    pub fn of(environment: &Environment) -> Option<Self> {
        Some(Self(environment.state()?.join("run")))
    }

    /// The directory of the pool.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Its data directories, the best one for this working directory first. Those that were used
    /// from here come first, with the latest at the front, because an agent resumes a session where
    /// it had it. The others follow by number.
    pub fn places(&self, from: &Path) -> Vec<PathBuf> {
        let mut places: Vec<_> = self
            .numbered()
            .map(|place| (Reverse(last_used(&place, from)), place))
            .collect();
        // The sort is stable, and a directory that was never used from here counts as the oldest.
        places.sort_by_key(|(used, _)| *used);
        places.into_iter().map(|(_, place)| place).collect()
    }

    fn numbered(&self) -> impl Iterator<Item = PathBuf> {
        (1..=MAX_RUNS).map(|number| self.0.join(number.to_string()))
    }
}

/// The data directory of a server for which nothing names one: `./data` if a store lies there, as servers
/// once kept it there, else `serve` beside the pool of runs. Where nothing says where state is kept, it is
/// `./data` as well.
pub fn of_server(environment: &Environment) -> PathBuf {
    let state = || Some(environment.state()?.join("serve"));
    beside().or_else(state).unwrap_or_else(|| "./data".into())
}

/// `./data`, written out, if a store lies there.
pub fn beside() -> Option<PathBuf> {
    let place = std::path::absolute("data").ok()?;
    holds_a_store(&place).then_some(place)
}

/// The data directories of this user and of the working directory in which a store lies.
pub fn known(environment: &Environment) -> Vec<PathBuf> {
    let state = environment.state().map(|state| state.join("serve"));
    let pool = DataPool::of(environment);
    let runs = pool.iter().flat_map(DataPool::numbered);
    let places = beside().into_iter().chain(state).chain(runs);
    places.filter(|place| holds_a_store(place)).collect()
}

/// Whether a server or a run has stored something in a directory.
pub fn holds_a_store(place: &Path) -> bool {
    // A snapshot has the archive alone until it is opened.
    place.join("sled").is_dir() || place.join("archive").is_file()
}

/// Notes that a data directory is used from a working directory.
///
/// # Errors
/// The system's error.
pub fn note(place: &Path, from: &Path) -> io::Result<()> {
    let mark = mark(place, from);
    if let Some(directory) = mark.parent() {
        fs::create_dir_all(directory)?;
    }
    File::create(mark)?.set_modified(SystemTime::now())
}

fn last_used(place: &Path, from: &Path) -> Option<SystemTime> {
    fs::metadata(mark(place, from)).ok()?.modified().ok()
}

fn mark(place: &Path, from: &Path) -> PathBuf {
    let name = blake3::hash(from.as_os_str().as_encoded_bytes()).to_hex();
    place
        .join(USED_DIRECTORY)
        .join(name.get(..16).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pool(pairs: &[(&str, &str)]) -> Option<DataPool> {
        DataPool::of(&pairs.iter().copied().collect())
    }

    #[test]
    fn the_environment_says_where_state_is_kept() {
        let at = |path: &str| Some(DataPool(PathBuf::from(path)));
        let home = ("HOME", "/h");
        for (pairs, wanted) in [
            (&[home][..], at("/h/.local/state/plimsoll/run")),
            (&[home, ("XDG_STATE_HOME", "/s")], at("/s/plimsoll/run")),
            (
                &[home, ("XDG_STATE_HOME", "")],
                at("/h/.local/state/plimsoll/run"),
            ),
            (
                &[home, ("XDG_STATE_HOME", "here")],
                at("/h/.local/state/plimsoll/run"),
            ),
            (&[("HOME", "")], None),
            (&[], None),
        ] {
            assert_eq!(pool(pairs), wanted, "{pairs:?}");
        }
    }

    #[test]
    fn a_run_goes_back_to_where_its_sessions_are() {
        let directory = tempfile::tempdir().unwrap();
        let pool = DataPool(directory.path().join("run"));
        let numbers = |from: &str| -> Vec<String> {
            let places = pool.places(Path::new(from));
            let names = places.iter().map(|place| place.file_name().unwrap());
            names
                .map(|name| name.to_string_lossy().into_owned())
                .collect()
        };
        assert_eq!(numbers("/a")[..3], ["1", "2", "3"]);
        for (number, from, age) in [("1", "/a", 9), ("3", "/a", 5), ("2", "/b", 1)] {
            let place = pool.path().join(number);
            note(&place, Path::new(from)).unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            let mark = File::options()
                .write(true)
                .open(mark(&place, Path::new(from)));
            mark.unwrap().set_modified(time).unwrap();
        }
        assert_eq!(numbers("/a")[..3], ["3", "1", "2"]);
        assert_eq!(numbers("/b")[..3], ["2", "1", "3"]);
        assert_eq!(numbers("/c")[..3], ["1", "2", "3"]);
        assert_eq!(numbers("/a").len(), MAX_RUNS);
    }
}
