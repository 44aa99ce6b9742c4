// SPDX-License-Identifier: Apache-2.0
//! Log statements of filter rules: forwarding threads put the first octets of frames into bounded rings, and the service thread prints them.
//! A frame for which a ring has no space is counted and not logged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quietwire_tables::filter::{Action, RuleLog, describe_frame};
use rtrb::{Consumer, Producer, RingBuffer};

/// Maximum number of frames of one thread that wait for the service thread, which prints ten times a second.
const RECORDS: usize = 256;
/// Octets of a frame in a record: all headers of most frames.
const SHOWN: usize = 128;

/// A logged frame.
#[derive(Debug)]
pub(crate) struct LogRecord {
    log: Arc<RuleLog>,
    action: Action,
    /// Number of the ingress port.
    port: u16,
    /// Length of the frame, octets without FCS.
    length: u32,
    shown: usize,
    octets: [u8; SHOWN],
}

impl LogRecord {
    /// Creates the record of a frame, given the octets of its first buffer. Allocates nothing.
    pub(crate) fn new(
        log: &Arc<RuleLog>,
        action: Action,
        port: u16,
        (frame, length): (&[u8], u32),
    ) -> Self {
        let mut octets = [0; SHOWN];
        for (to, from) in octets.iter_mut().zip(frame) {
            *to = *from;
        }
        Self {
            log: Arc::clone(log),
            action,
            port,
            length,
            shown: frame.len().min(SHOWN),
            octets,
        }
    }

    /// Returns the line of the log.
    fn line(&self, ports: &[Option<String>]) -> String {
        let Self {
            log,
            action,
            port,
            length,
            ..
        } = self;
        let name = ports.get(usize::from(*port)).and_then(Option::as_deref);
        let name = name.map_or_else(|| format!("number {port}"), |name| format!("'{name}'"));
        let frame = describe_frame(self.octets.get(..self.shown).unwrap_or_default());
        let space = if log.prefix.is_empty() { "" } else { " " };
        format!(
            "{}{space}{} by rule '{}' on port {name}: {frame}, {length} octets",
            log.prefix,
            action.text(),
            log.rule
        )
    }
}

/// Rings of all forwarding threads. Forwarding threads never take the locks.
#[derive(Debug, Default)]
pub(crate) struct FilterLog {
    readers: Mutex<Vec<Consumer<LogRecord>>>,
    /// Names of ports by number.
    ports: Mutex<Vec<Option<String>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FilterLog {
    /// Creates the ring of a thread.
    pub(crate) fn writer(&self) -> Producer<LogRecord> {
        let (writer, reader) = RingBuffer::new(RECORDS);
        locked(&self.readers).push(reader);
        writer
    }

    /// Sets the names of ports, by number, and frees the rings of threads that have ended. The thread that prints may not free them: the C
    /// library opens a file of `/proc` when it returns much memory, and the thread's filter of system calls denies that.
    pub(crate) fn set_ports(&self, names: Vec<Option<String>>) {
        *locked(&self.ports) = names;
        let is_used = |reader: &Consumer<LogRecord>| !reader.is_abandoned() || !reader.is_empty();
        let mut readers = locked(&self.readers);
        let unused: Vec<_> = readers.extract_if(.., |reader| !is_used(reader)).collect();
        drop(readers);
        drop(unused);
    }

    /// Prints the records in the rings.
    pub(crate) fn print(&self) {
        for line in self.take_lines() {
            tracing::info!("{line}");
        }
    }

    fn take_lines(&self) -> Vec<String> {
        let mut readers = locked(&self.readers);
        let mut lines = Vec::new();
        for reader in readers.iter_mut() {
            // No more than one ring: the thread may add records meanwhile.
            for _ in 0..RECORDS {
                let Ok(record) = reader.pop() else { break };
                lines.push(record.line(&locked(&self.ports)));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_beyond_the_ring_are_refused_and_the_others_printed() {
        let log = FilterLog::default();
        let mut writer = log.writer();
        log.set_ports(vec![None, Some("vm".to_owned())]);
        let rule = Arc::new(RuleLog::new("web", "seen:", 1));
        let record = |port| LogRecord::new(&rule, Action::Reject, port, (&[2; 60], 60));
        for number in 0..RECORDS + 3 {
            assert_eq!(writer.push(record(1)).is_ok(), number < RECORDS);
        }
        let lines = log.take_lines();
        assert_eq!(lines.len(), RECORDS);
        assert_eq!(
            lines[0],
            "seen: rejected by rule 'web' on port 'vm': 02:02:02:02:02:02 > 02:02:02:02:02:02, 0x0202, 60 octets"
        );
        assert!(log.take_lines().is_empty());
        writer.push(record(0)).unwrap();
        drop(writer);
        // A thread that has ended has its last lines.
        assert!(log.take_lines()[0].contains("number 0"));
        assert_eq!(locked(&log.readers).len(), 1);
        log.set_ports(Vec::new());
        assert!(locked(&log.readers).is_empty());
    }
}
