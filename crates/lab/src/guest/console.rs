// SPDX-License-Identifier: Apache-2.0
//! A guest's serial ports: the log of the first, the shell on the second.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quietwire_base::connect_within;

use crate::error::{LabError, io_error};

/// Lines of a console's log shown in an error.
const LINES: usize = 20;
/// Character that closes a connection to a shell: Ctrl-], as in telnet(1).
pub const ESCAPE: u8 = 0x1d;
/// Time for QEMU to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Interval between checks of the stop flag, milliseconds.
const POLL_INTERVAL_MS: u8 = 200;

/// Returns the last lines of a console's log, without control characters.
#[must_use]
pub fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| {
            let plain = line.trim_end().chars().filter(|c| !c.is_control());
            plain.collect::<String>()
        })
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        return "(the console said nothing)".to_owned();
    }
    let first = lines.len().saturating_sub(LINES);
    lines.get(first..).unwrap_or_default().join("\n")
}

/// Connects `input` and `output` to the shell on a guest's second serial port, until the input ends or contains [`ESCAPE`], the
/// guest shuts down, or `stop` is set. A terminal must be in raw mode already.
///
/// # Errors
/// [`LabError::Io`] if no process listens on the socket, or the connection fails.
pub fn attach(
    socket: &Path,
    input: &mut (impl Read + AsFd),
    output: &mut impl Write,
    stop: &AtomicBool,
) -> Result<(), LabError> {
    let mut port = connect_within(socket, CONNECT).map_err(io_error(
        socket,
        "connecting to the guest's shell (another user may be connected, or the guest has stopped)",
    ))?;
    // An empty line makes the shell print its prompt.
    port.write_all(b"\n")
        .and_then(|()| join(&mut port, input, output, stop))
        .map_err(io_error(socket, "talking to the guest's shell"))
}

fn join(
    port: &mut UnixStream,
    input: &mut (impl Read + AsFd),
    output: &mut impl Write,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        let (from_guest, from_here) = ready(port, input)?;
        if from_guest {
            match port.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    output.write_all(buffer.get(..count).unwrap_or_default())?;
                    output.flush()?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if from_here {
            let count = match input.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let printed = buffer.get(..count).unwrap_or_default();
            let end = printed.iter().position(|octet| *octet == ESCAPE);
            let before = end.and_then(|end| printed.get(..end));
            port.write_all(before.unwrap_or(printed))?;
            if count == 0 || end.is_some() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Waits for at most [`POLL_INTERVAL_MS`] until one of the two is readable, and returns which.
fn ready(port: &UnixStream, input: &impl AsFd) -> io::Result<(bool, bool)> {
    let mut both = [
        PollFd::new(port.as_fd(), PollFlags::POLLIN),
        PollFd::new(input.as_fd(), PollFlags::POLLIN),
    ];
    match poll(&mut both, PollTimeout::from(POLL_INTERVAL_MS)) {
        Ok(0) | Err(Errno::EINTR) => return Ok((false, false)),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let [port, input] = both.map(|end| end.any().unwrap_or(true));
    Ok((port, input))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_log_is_shown_from_its_end_and_in_plain_text() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("console.log");
        assert!(last_lines(&log).contains("nothing"));
        let lines: Vec<String> = (0..50)
            .map(|n| format!("line {n}\r\n\u{1b}[0m\n"))
            .collect();
        fs::write(&log, lines.concat()).unwrap();
        let shown = last_lines(&log);
        assert!(
            shown.ends_with("line 49\n[0m") && !shown.contains("line 9\n"),
            "{shown}"
        );
    }

    #[test]
    fn a_shell_is_joined_until_the_escape_comes() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("shell.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (mut keys, mut input) = UnixStream::pair().unwrap();
        let (mut output, mut screen) = UnixStream::pair().unwrap();
        keys.write_all(b"ls\n").unwrap();
        let shell = thread::spawn(move || {
            let (mut shell, _) = listener.accept().unwrap();
            let mut typed = [0; 4];
            shell.read_exact(&mut typed).unwrap();
            shell.write_all(b"files").unwrap();
            let mut shown = [0; 5];
            screen.read_exact(&mut shown).unwrap();
            keys.write_all(&[b'x', ESCAPE, b'y']).unwrap();
            let mut rest = Vec::new();
            shell.read_to_end(&mut rest).unwrap();
            (typed, shown, rest)
        });
        let go_on = AtomicBool::new(false);
        attach(&socket, &mut input, &mut output, &go_on).unwrap();
        assert_eq!(
            shell.join().unwrap(),
            (*b"\nls\n", *b"files", b"x".to_vec())
        );
        let error = attach(&socket, &mut input, &mut output, &go_on).unwrap_err();
        assert!(error.to_string().contains("shell.sock"), "{error}");
    }
}
