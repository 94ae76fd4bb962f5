//! The signals that `run` passes on. Owns which these are, and whether a process or the terminal's
//! keyboard sent one. Never decides what follows.

use std::process;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use tokio::sync::mpsc::{Receiver, channel};

/// The signals that are passed on. Those by which a shell stops and continues its jobs are left to
/// the shell.
const HANDED_ON: [i32; 7] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH];
/// How many signals may wait to be passed on. Nobody needs more at once.
const ROOM: usize = 64;

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    signal: i32,
    /// Whether a process sent it to this one. The agent gets what the terminal sends by itself.
    sent: bool,
}

impl ReceivedSignal {
    /// Whether the agent has not received it by itself.
    pub fn is_to_hand_on(self) -> bool {
        self.sent
    }

    /// Whether it asks for an end. An interrupt from the keyboard often means less, and the agent
    /// handles it.
    pub fn ends(self) -> bool {
        match self.signal {
            SIGTERM | SIGHUP => true,
            SIGINT | SIGQUIT => self.sent,
            _ => false,
        }
    }

    /// Sends it to the agent. An agent that is gone does not need it.
    pub fn hand_on(self, to: Option<u32>) {
        let to = to.and_then(|to| Pid::from_raw(i32::try_from(to).ok()?));
        if let (Some(to), Some(signal)) = (to, Signal::from_named_raw(self.signal)) {
            let _gone = kill_process(to, signal);
        }
    }
}

/// Catches signals from now on. A signal that was ignored when the process began stays ignored,
/// here and for the agent: `nohup` and shells without job control keep it from their children in
/// this way.
///
/// # Errors
/// If the system does not allow watching them.
pub fn hear() -> anyhow::Result<Receiver<ReceivedSignal>> {
    let ignored = ignored();
    let watched = HANDED_ON.iter().filter(|signal| !ignored.contains(signal));
    let mut signals = SignalsInfo::<WithOrigin>::new(watched).context("can't watch for signals")?;
    let (told, heard) = channel(ROOM);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for origin in signals.forever() {
                let _full = told.try_send(ReceivedSignal {
                    signal: origin.signal,
                    sent: matches!(origin.cause, Cause::Sent(_)),
                });
            }
        })
        .context("can't watch for signals")?;
    Ok(heard)
}

/// The signals that this process ignores, if the system tells.
fn ignored() -> Vec<i32> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process::id()));
    mask(&status.unwrap_or_default())
}

/// Reads the mask of ignored signals from the status of a process.
fn mask(status: &str) -> Vec<i32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let has = |signal: &i32| mask.unwrap_or(0) >> (signal - 1) & 1 == 1;
    HANDED_ON.iter().copied().filter(has).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        assert_eq!(mask("Name:\tx\nSigIgn:\t0000000000001001\n"), [SIGHUP]);
        assert_eq!(mask("SigIgn:\t0000000000000006"), [SIGINT, SIGQUIT]);
        assert_eq!(mask("SigIgn:\tzz"), [0; 0]);
        assert_eq!(mask(""), [0; 0]);
    }

    #[test]
    fn what_the_keyboard_sends_ends_nothing() {
        let heard = |signal, sent| ReceivedSignal { signal, sent };
        for (signal, sent, ends) in [
            (SIGTERM, true, true),
            (SIGHUP, true, true),
            (SIGHUP, false, true),
            (SIGINT, true, true),
            (SIGINT, false, false),
            (SIGQUIT, false, false),
            (SIGUSR1, true, false),
            (SIGWINCH, false, false),
        ] {
            assert_eq!(heard(signal, sent).ends(), ends, "{signal} {sent}");
            assert_eq!(heard(signal, sent).is_to_hand_on(), sent);
        }
    }
}
