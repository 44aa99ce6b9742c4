// SPDX-License-Identifier: Apache-2.0
//! Progress of the dumps of a kernel table: which are still to be requested, and whether a completed one may be believed.

use std::io;
use std::time::{Duration, Instant};

/// Pause after a first failed or interrupted dump. It doubles with each further one.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Maximum time without a message of the running dump.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A dump that the kernel is sending.
#[derive(Debug)]
struct Running<Q> {
    question: Q,
    latest: Instant,
    /// It began before the latest request, so it may lack entries.
    is_stale: bool,
    /// The table changed meanwhile (NLM_F_DUMP_INTR): the kernel may have skipped entries.
    is_interrupted: bool,
}

/// A message about a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DumpEvent {
    /// A message of the dump has arrived. True: the table has changed meanwhile (NLM_F_DUMP_INTR), and entries may be missing.
    Progress(bool),
    /// End of the dump.
    Done,
    /// Error code of a refused request or of a dump that failed.
    Refused(i32),
}

/// Dumps of a table, one for each question (an address family, for example). Only one runs at a time.
#[derive(Debug)]
pub(super) struct Dumps<Q> {
    /// For the log: "routes", for example.
    table: &'static str,
    pending: Vec<Q>,
    running: Option<Running<Q>>,
    /// Failed and interrupted dumps in a row.
    failures: u32,
    pause_end: Option<Instant>,
    /// Time of the latest turn.
    now: Instant,
}

/// Effect of the end of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DumpEnd<Q> {
    /// Entries that the dump did not name are gone.
    Complete(Q),
    /// Entries that the dump did not name stay unknown. The dump is requested again.
    Unusable,
}

impl<Q: Copy + PartialEq> Dumps<Q> {
    /// Creates the state with these dumps to request.
    pub(super) fn of(table: &'static str, questions: &[Q]) -> Self {
        Self {
            table,
            pending: questions.to_vec(),
            running: None,
            failures: 0,
            pause_end: None,
            now: Instant::now(),
        }
    }

    /// Sets the time of a turn. Call it before the messages of the turn are handled.
    pub(super) fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Requests these dumps again. A running dump does not count.
    pub(super) fn restart(&mut self, questions: &[Q]) {
        self.pending = questions.to_vec();
        if let Some(running) = &mut self.running {
            running.is_stale = true;
        }
    }

    /// Returns true while the kernel is sending a dump.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Marks the dump for this question, if it is running, as interrupted: the table changed, and the kernel may have skipped entries
    /// without saying so.
    pub(super) fn interrupt(&mut self, question: Q) {
        if let Some(running) = &mut self.running
            && running.question == question
        {
            running.is_interrupted = true;
        }
    }

    /// Sends the next question, unless a dump is in progress or paused. Call it after pending messages were handled, so that a dump
    /// whose messages wait in the socket is not taken for silent.
    ///
    /// # Errors
    /// That of `send`; the question is asked again after a pause.
    pub(super) fn ask(&mut self, send: impl FnOnce(Q) -> io::Result<()>) -> io::Result<()> {
        let now = self.now;
        let Some(question) = self.next(now) else {
            return Ok(());
        };
        send(question).inspect_err(|_| self.fail(now))
    }

    /// Handles a message about the running dump. Returns the question of a complete dump: entries that it did not name are gone.
    pub(super) fn handle(&mut self, event: DumpEvent) -> Option<Q> {
        let (now, table) = (self.now, self.table);
        match event {
            DumpEvent::Progress(is_interrupted) => self.progress(now, is_interrupted),
            DumpEvent::Refused(code) => {
                tracing::debug!("dump of the kernel's {table} failed: error {code}");
                self.fail(now);
            }
            DumpEvent::Done => match self.end(now) {
                DumpEnd::Complete(question) => return Some(question),
                DumpEnd::Unusable => {
                    tracing::debug!("a dump of the kernel's {table} was overtaken by changes");
                }
            },
        }
        None
    }

    /// Returns true if no dump is running or to be requested.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.pending.is_empty()
    }

    /// Returns the question to ask now, if any; the caller sends it.
    pub(super) fn next(&mut self, now: Instant) -> Option<Q> {
        let is_silent = |running: &Running<Q>| now.duration_since(running.latest) > SILENCE_MAX;
        if self.running.as_ref().is_some_and(is_silent) {
            self.fail(now);
        }
        if self.running.is_some() || self.pause_end.is_some_and(|end| now < end) {
            return None;
        }
        let question = self.pending.pop()?;
        self.running = Some(Running {
            question,
            latest: now,
            is_stale: false,
            is_interrupted: false,
        });
        Some(question)
    }

    /// Takes note of a message of the running dump.
    fn progress(&mut self, now: Instant, is_interrupted: bool) {
        if let Some(running) = &mut self.running {
            running.latest = now;
            running.is_interrupted |= is_interrupted;
        }
    }

    /// Takes note that the running dump failed. It is requested again after a pause.
    fn fail(&mut self, now: Instant) {
        let Some(running) = self.running.take() else {
            return;
        };
        // A stale one has been requested again already.
        if !running.is_stale {
            self.pending.push(running.question);
        }
        let pause = PAUSE
            .saturating_mul(1 << self.failures.min(16))
            .min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        self.pause_end = now.checked_add(pause);
    }

    /// Takes note of the end of the running dump.
    fn end(&mut self, now: Instant) -> DumpEnd<Q> {
        match &self.running {
            Some(running) if running.is_interrupted => {
                self.fail(now);
                DumpEnd::Unusable
            }
            Some(running) => {
                let (question, is_stale) = (running.question, running.is_stale);
                self.running = None;
                self.failures = 0;
                if is_stale {
                    DumpEnd::Unusable
                } else {
                    DumpEnd::Complete(question)
                }
            }
            None => DumpEnd::Unusable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_sent_one_after_the_other() {
        let now = Instant::now();
        let mut dumps = Dumps::of("routes", &[6, 4]);
        assert_eq!(dumps.next(now), Some(4));
        assert_eq!(dumps.next(now), None, "one at a time");
        assert_eq!(dumps.end(now), DumpEnd::Complete(4));
        assert_eq!(dumps.next(now), Some(6));
        assert_eq!(dumps.end(now), DumpEnd::Complete(6));
        assert_eq!(dumps.next(now), None);
        assert_eq!(dumps.end(now), DumpEnd::Unusable, "nothing was asked");
    }

    #[test]
    fn an_interrupted_dump_is_requested_again_after_a_pause() {
        let now = Instant::now();
        let mut dumps = Dumps::of("routes", &[4]);
        assert_eq!(dumps.next(now), Some(4));
        dumps.progress(now, false);
        dumps.progress(now, true);
        dumps.progress(now, false);
        assert_eq!(dumps.end(now), DumpEnd::Unusable);
        assert_eq!(dumps.next(now), None, "the table is still changing");
        assert_eq!(dumps.next(now + PAUSE), Some(4));
        assert_eq!(dumps.end(now + PAUSE), DumpEnd::Complete(4));
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_a_complete_dump_ends_them() {
        let mut now = Instant::now();
        let mut dumps = Dumps::of("routes", &[4]);
        let mut pause = PAUSE;
        for _ in 0..40 {
            assert_eq!(dumps.next(now), Some(4));
            dumps.fail(now);
            now += pause - Duration::from_millis(1);
            assert_eq!(dumps.next(now), None, "{pause:?}");
            now += Duration::from_millis(1);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        assert_eq!(dumps.next(now), Some(4));
        assert_eq!(dumps.end(now), DumpEnd::Complete(4));
        dumps.restart(&[4]);
        assert_eq!(dumps.next(now), Some(4));
        dumps.fail(now);
        assert_eq!(dumps.next(now + PAUSE), Some(4), "the first pause again");
    }

    #[test]
    fn a_dump_that_began_before_the_latest_request_does_not_count() {
        let now = Instant::now();
        let mut dumps = Dumps::of("routes", &[6, 4]);
        assert_eq!(dumps.next(now), Some(4));
        dumps.restart(&[6, 4]);
        assert_eq!(dumps.end(now), DumpEnd::Unusable);
        assert_eq!(dumps.next(now), Some(4), "at once");
        dumps.restart(&[6, 4]);
        dumps.fail(now);
        let later = now + PAUSE;
        let asked: Vec<i32> = std::iter::from_fn(|| {
            let question = dumps.next(later)?;
            dumps.end(later);
            Some(question)
        })
        .collect();
        assert_eq!(asked, [4, 6], "each once");
    }

    #[test]
    fn a_dump_that_falls_silent_has_failed() {
        let now = Instant::now();
        let mut dumps = Dumps::of("routes", &[4]);
        assert_eq!(dumps.next(now), Some(4));
        dumps.progress(now + SILENCE_MAX, false);
        let silent = now + SILENCE_MAX * 2 + Duration::from_millis(1);
        assert_eq!(dumps.next(silent), None);
        assert_eq!(dumps.next(silent + PAUSE), Some(4));
    }
}
