// SPDX-License-Identifier: Apache-2.0
//! Frame counters of devices, one reader per file. Each reader has a deadline and returns an error when it expires.

mod agent;
mod kernel;
mod openflow;
mod quietwire;
mod running;
mod telemetry;
mod vpp;

use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::supervised::Command;

pub(crate) use agent::of_agent;
pub(crate) use kernel::of_links;
pub(crate) use openflow::of_dump;
pub(crate) use quietwire::{of_switch, own_view_of_switch};
pub use running::{RunningSwitch, SwitchCycles, SwitchReading};
pub(crate) use telemetry::{of_program, statistics_of_program};
pub(crate) use vpp::{errors, of_interfaces};

/// Timeout for reading the counters of a whole device.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a command that prints counters. The command is killed at the deadline.
pub(crate) fn run_until(deadline: Deadline, words: &[&str]) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let of_io = |error: std::io::Error| format!("{program}: {error}");
    let command = Command::new(program).args(arguments);
    let finished = command.run(deadline).map_err(of_io)?;
    let Some(status) = finished.status.filter(|_| !deadline.has_passed()) else {
        return Err(too_late());
    };
    if !status.success() {
        let reason = String::from_utf8_lossy(&finished.stderr);
        return Err(format!("{program}: {} ({status})", reason.trim()));
    }
    String::from_utf8(finished.stdout).map_err(|error| format!("{program}: {error}"))
}

/// Returns the error for a missed deadline.
pub(crate) fn too_late() -> String {
    format!("no counters within {} s", TIMEOUT.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_command_that_reports_nothing_is_ended() {
        let reported = run_until(Deadline::after(TIMEOUT), &["echo", "counters"]);
        assert_eq!(reported.as_deref(), Ok("counters\n"));
        let began = Instant::now();
        let short = Deadline::after(Duration::from_millis(50));
        let reason = run_until(short, &["sleep", "600"]).unwrap_err();
        assert!(reason.contains("no counters within"), "{reason}");
        assert!(began.elapsed() < Duration::from_secs(60));
        let over = Deadline::after(Duration::ZERO);
        assert!(run_until(over, &["echo"]).is_err());
        let failed = run_until(Deadline::after(TIMEOUT), &["false"]).unwrap_err();
        assert!(failed.contains("exit status"), "{failed}");
    }
}
