//! The signals that `run` hands on: which of them, and whether a process sent one or the terminal's
//! keyboard did. Never decides what follows.

use std::process;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use tokio::sync::mpsc::{Receiver, channel};

/// All that are handed on. Those by which a shell stops and continues its jobs are left to it.
const HANDED_ON: [i32; 7] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH];
/// Signals that may wait to be handed on; more at once are one too many for anybody.
const ROOM: usize = 64;

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    signal: i32,
    /// Whether a process sent it to this one. What the terminal sends reaches its agent, too.
    sent: bool,
}

impl Heard {
    /// Whether the agent has not heard it by itself.
    pub fn is_to_hand_on(self) -> bool {
        self.sent
    }

    /// Whether it asks for an end. From the keyboard an interrupt often means less than that, and is
    /// the agent's own to act on.
    pub fn ends(self) -> bool {
        match self.signal {
            SIGTERM | SIGHUP => true,
            SIGINT | SIGQUIT => self.sent,
            _ => false,
        }
    }

    /// Sends it on. An agent that is gone already needs it no more.
    pub fn hand_on(self, to: Option<u32>) {
        let to = to.and_then(|to| Pid::from_raw(i32::try_from(to).ok()?));
        if let (Some(to), Some(signal)) = (to, Signal::from_named_raw(self.signal)) {
            let _gone = kill_process(to, signal);
        }
    }
}

/// Hears signals from now on. One that was ignored when the process began stays so, here and for the
/// agent: that is how `nohup` and shells without job control keep it from their children.
///
/// # Errors
/// If the system does not let them be watched.
pub fn hear() -> anyhow::Result<Receiver<Heard>> {
    let ignored = ignored();
    let watched = HANDED_ON.iter().filter(|signal| !ignored.contains(signal));
    let mut signals = SignalsInfo::<WithOrigin>::new(watched).context("can't watch for signals")?;
    let (told, heard) = channel(ROOM);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for origin in signals.forever() {
                let _full = told.try_send(Heard {
                    signal: origin.signal,
                    sent: matches!(origin.cause, Cause::Sent(_)),
                });
            }
        })
        .context("can't watch for signals")?;
    Ok(heard)
}

/// Signals that this process ignores, where the system tells.
fn ignored() -> Vec<i32> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process::id()));
    mask(&status.unwrap_or_default())
}

/// Reads the mask of ignored signals from a process' status.
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
        let heard = |signal, sent| Heard { signal, sent };
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
