//! What the system knows of the process: memory, time, descriptors and threads, under the names
//! that all programs use. Reads `/proc` when the metrics are rendered; without it these metrics are
//! absent. Never reads anything about another process.

use std::fs;
use std::path::Path;

use parking_lot::Mutex;
use prometheus::{Counter, Error, Gauge};

use super::register::Registrar;

/// How many ticks a second Linux reports times in, on every machine that Plimsoll runs on.
const TICKS: f64 = 100.0;

/// The handles of these metrics.
#[derive(Debug)]
pub(in crate::record) struct Process {
    resident: Gauge,
    virtual_memory: Gauge,
    threads: Gauge,
    open_fds: Gauge,
    max_fds: Gauge,
    start_time: Gauge,
    /// Locked so that two readers at once do not both add the same time.
    cpu: Mutex<Counter>,
}

/// One look at a process.
#[derive(Debug, Default, PartialEq)]
struct ProcessFacts {
    resident_bytes: f64,
    virtual_bytes: f64,
    threads: f64,
    open_fds: f64,
    max_fds: f64,
    /// In seconds since 1970.
    started: f64,
    cpu_seconds: f64,
}

impl Process {
    /// Registers these metrics. Returns `None` if the system has no `/proc`.
    pub fn register(r: &Registrar) -> Result<Option<Self>, Error> {
        if ProcessFacts::read(Path::new("/proc")).is_none() {
            return Ok(None);
        }
        let gauge = |name: &str, help: &str| r.system_gauge(name, help);
        let process = Self {
            resident: gauge("process_resident_memory_bytes", "Resident memory")?,
            virtual_memory: gauge("process_virtual_memory_bytes", "Virtual memory")?,
            threads: gauge("process_threads", "Threads")?,
            open_fds: gauge("process_open_fds", "Open file descriptors")?,
            max_fds: gauge("process_max_fds", "File descriptors that may be open")?,
            start_time: gauge(
                "process_start_time_seconds",
                "When the process began, in seconds since 1970",
            )?,
            cpu: Mutex::new(r.system_sum(
                "process_cpu_seconds_total",
                "Time on processors, including the system's on its behalf",
            )?),
        };
        process.refresh();
        Ok(Some(process))
    }

    /// Reads all values again.
    pub fn refresh(&self) {
        let cpu = self.cpu.lock();
        let Some(facts) = ProcessFacts::read(Path::new("/proc")) else {
            return;
        };
        self.resident.set(facts.resident_bytes);
        self.virtual_memory.set(facts.virtual_bytes);
        self.threads.set(facts.threads);
        self.open_fds.set(facts.open_fds);
        self.max_fds.set(facts.max_fds);
        self.start_time.set(facts.started);
        cpu.inc_by((facts.cpu_seconds - cpu.get()).max(0.0));
    }
}

impl ProcessFacts {
    /// Reads the values. Returns `None` if any of them is missing.
    fn read(proc: &Path) -> Option<Self> {
        let own = proc.join("self");
        let text = |path: &Path| fs::read_to_string(path).ok();
        let status = text(&own.join("status"))?;
        let kilobytes = |name| Some(field(&status, name)? * 1024.0);
        let stat = text(&own.join("stat"))?;
        // The second field is the program's name in brackets, and it may hold anything.
        let (_, behind) = stat.rsplit_once(')')?;
        let ticks = |field: usize| {
            let word = behind.split_whitespace().nth(field - 3)?;
            Some(word.parse::<f64>().ok()? / TICKS)
        };
        Some(Self {
            resident_bytes: kilobytes("VmRSS:")?,
            virtual_bytes: kilobytes("VmSize:")?,
            threads: field(&status, "Threads:")?,
            open_fds: f64::from(u32::try_from(fs::read_dir(own.join("fd")).ok()?.count()).ok()?),
            max_fds: field(&text(&own.join("limits"))?, "Max open files")?,
            started: field(&text(&proc.join("stat"))?, "btime")? + ticks(22)?,
            cpu_seconds: ticks(14)? + ticks(15)?,
        })
    }
}

/// The first number on the line that begins with `name`. `unlimited` is infinite.
fn field(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    match rest.split_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    /// A `/proc` that has these files.
    fn proc(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("self/fd")).unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    const FILES: [(&str, &str); 6] = [
        (
            "self/status",
            "Name:\tVmRSS: 1\nVmSize:\t  3000 kB\nVmRSS:\t  2000 kB\nThreads:\t7\n",
        ),
        (
            "self/stat",
            "42 (a) b) S 1 1 1 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 7 0 12345 1 1",
        ),
        (
            "self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024    4096    files\n",
        ),
        ("stat", "cpu 1 2 3\nbtime 1700000000\n"),
        ("self/fd/0", ""),
        ("self/fd/1", ""),
    ];

    #[test]
    fn a_process_is_read_as_the_system_writes_it() {
        let directory = proc(&FILES);
        let expect = ProcessFacts {
            resident_bytes: 2_048_000.0,
            virtual_bytes: 3_072_000.0,
            threads: 7.0,
            open_fds: 2.0,
            max_fds: 1024.0,
            started: 1_700_000_123.45,
            cpu_seconds: 3.0,
        };
        assert_eq!(ProcessFacts::read(directory.path()), Some(expect));
    }

    #[test]
    fn what_is_not_all_there_is_not_told() {
        for absent in 0..4 {
            let mut files = FILES.to_vec();
            files.remove(absent);
            assert_eq!(ProcessFacts::read(proc(&files).path()), None, "{absent}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_what_it_says() {
        let facts = ProcessFacts::read(Path::new("/proc")).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - facts.started;
        assert!((-5.0..86_400.0).contains(&age), "{facts:?}");
        assert!(facts.resident_bytes > 1e6 && facts.virtual_bytes >= facts.resident_bytes);
        assert!(facts.threads >= 1.0 && facts.open_fds >= 3.0 && facts.max_fds > facts.open_fds);
    }
}
