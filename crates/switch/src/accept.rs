// SPDX-License-Identifier: Apache-2.0
//! Accepting clients while file descriptors or other resources are missing: with pauses, and with few lines in the log.

use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

use quietwire_base::RateLimit;

/// Pause after an error. Meanwhile clients wait in the queue of the kernel.
const PAUSE: Duration = Duration::from_secs(1);
/// Interval between two lines in the log about errors.
const LOG: Duration = Duration::from_secs(60);

/// State of a listener whose errors must not keep the control thread busy.
#[derive(Debug)]
pub(crate) struct AcceptErrors {
    /// Name of the listener, for the log.
    name: &'static str,
    paused_until: Option<Instant>,
    log: RateLimit,
    /// Errors since the last line in the log.
    unlogged: u64,
}

impl AcceptErrors {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            paused_until: None,
            log: RateLimit::new(LOG, 1, Instant::now()),
            unlogged: 0,
        }
    }

    /// Returns true while no client may be accepted.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused_until
            .is_some_and(|until| Instant::now() < until)
    }

    /// Notes an error of accept(2). Returns false if it concerns this client only, or no client waits: then nothing is wrong.
    pub(crate) fn note(&mut self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {
                return false;
            }
            _ => {}
        }
        let now = Instant::now();
        self.paused_until = now.checked_add(PAUSE);
        self.unlogged = self.unlogged.saturating_add(1);
        if self.log.take(now).is_ok() {
            tracing::warn!(
                "{}: cannot accept clients: {error} ({} errors since the last such message; check the limit of open files)",
                self.name,
                self.unlogged
            );
            self.unlogged = 0;
        }
        true
    }

    /// Ends the pause, because a resource is free again.
    pub(crate) fn resume(&mut self) {
        self.paused_until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_machine_pause_and_those_of_one_client_do_not() {
        let mut errors = AcceptErrors::new("listener");
        assert!(!errors.note(&Error::from(ErrorKind::WouldBlock)) && !errors.is_paused());
        assert!(!errors.note(&Error::from(ErrorKind::ConnectionAborted)));
        let no_files = Error::from_raw_os_error(nix::libc::EMFILE);
        assert!(errors.note(&no_files) && errors.is_paused());
        assert_eq!(errors.unlogged, 0, "the first error is logged");
        for _ in 0..5 {
            assert!(errors.note(&no_files));
        }
        assert_eq!(errors.unlogged, 5, "further errors are counted only");
        errors.resume();
        assert!(!errors.is_paused());
    }
}
