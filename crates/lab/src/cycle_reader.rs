// SPDX-License-Identifier: Apache-2.0
//! Reader of a running switch's cycles, for a thread of its own.

use std::path::PathBuf;
use std::time::Duration;

use quietwire_switch::control::{Request, Subject};
use quietwire_switch::report::CyclesReport;

use crate::control::ask_within;
use crate::cycles::CycleCount;

/// Reader of the cycles of quietwire's switch, which answers from its control thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleReader {
    socket: PathBuf,
}

impl CycleReader {
    /// Creates a reader for a control socket.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Reads the cost of forwarding since the start of the switch.
    ///
    /// # Errors
    /// The reason, as a clause, why the switch does not report it within `timeout`.
    pub fn read(&self, timeout: Duration) -> Result<CycleCount, String> {
        let request = Request::Show(Subject::Cycles);
        let reported: CyclesReport = ask_within(&self.socket, &request, timeout)?;
        Ok(CycleCount::of_quietwire(&reported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_switch_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let reader = CycleReader::new(directory.path().join("switch.sock"));
        let reason = reader.read(Duration::from_secs(1)).unwrap_err();
        assert!(reason.starts_with("its control socket: "), "{reason}");
    }
}
