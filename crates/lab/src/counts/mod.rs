// SPDX-License-Identifier: Apache-2.0
//! Frame counters of devices, one reader a file. Each has a deadline: what is not told by then is not waited for.

mod agent;
mod kernel;
mod openflow;
mod quietwire;
mod running;
mod telemetry;
mod vpp;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use quietwire_base::Deadline;

pub(crate) use agent::of_agent;
pub(crate) use kernel::of_links;
pub(crate) use openflow::of_dump;
pub(crate) use quietwire::of_switch;
pub use running::RunningSwitch;
pub(crate) use telemetry::of_program;
pub(crate) use vpp::of_interfaces;

/// How long the counters of a whole device may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Interval between checks whether a command has ended.
const LOOK: Duration = Duration::from_millis(1);

/// Runs a command that tells counters; it is killed at the deadline.
pub(crate) fn run_until(deadline: Deadline, words: &[&str]) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let of_io = |error: std::io::Error| format!("{program}: {error}");
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(of_io)?;
    // What it prints may be more than a pipe holds.
    let mut output = child.stdout.take().ok_or("it has no output")?;
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        output.read_to_string(&mut said).map(|_| said)
    });
    let Some(status) = deadline.poll(LOOK, || child.try_wait().transpose()) else {
        // It is not waited for without end: a killed process that does not go would be the kernel's fault.
        child.kill().and_then(|()| child.wait()).map_err(of_io)?;
        return Err(too_late());
    };
    let status = status.map_err(of_io)?;
    // A process that it started may still have the pipe.
    if deadline
        .poll(LOOK, || reader.is_finished().then_some(()))
        .is_none()
    {
        return Err(too_late());
    }
    let said = reader.join().map_err(|_| "its output was not read")?;
    if status.success() {
        return said.map_err(of_io);
    }
    let mut why = String::new();
    if let Some(errors) = &mut child.stderr {
        errors.read_to_string(&mut why).map_err(of_io)?;
    }
    Err(format!("{program}: {} ({status})", why.trim()))
}

/// Why nothing was told.
pub(crate) fn too_late() -> String {
    format!("it did not tell its counters in {} s", PATIENCE.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_command_that_tells_nothing_is_ended() {
        let told = run_until(Deadline::after(PATIENCE), &["echo", "counters"]);
        assert_eq!(told.as_deref(), Ok("counters\n"));
        let began = Instant::now();
        let short = Deadline::after(Duration::from_millis(50));
        let why = run_until(short, &["sleep", "600"]).unwrap_err();
        assert!(why.contains("did not tell"), "{why}");
        assert!(began.elapsed() < Duration::from_secs(60));
        let over = Deadline::after(Duration::ZERO);
        assert!(run_until(over, &["echo"]).is_err());
        let failed = run_until(Deadline::after(PATIENCE), &["false"]).unwrap_err();
        assert!(failed.contains("exit status"), "{failed}");
    }
}
