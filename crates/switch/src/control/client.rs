// SPDX-License-Identifier: Apache-2.0
//! Client side of the control socket.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use quietwire_base::{BoundedStream, Deadline, Fault, connect_within};
use serde::de::DeserializeOwned;

use super::{Answer, Request, Subject};
use crate::error::SwitchError;

/// Limits of an exchange with a switch: the client may have rights that the switch has dropped.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Timeout for a switch that sends and reads nothing.
    silence: Duration,
    /// Timeout for the exchange.
    exchange: Duration,
    /// Maximum length of a reply, octets.
    reply_octets: u64,
}

/// Maximum length of most replies, octets. A page of connections has at most 16,384 entries, and less than 16 MiB.
const REPLY_MAX: u64 = 64 << 20;
/// Maximum length of a configuration, of rules and of tables without pages, octets: an address in a filtering database has about 110.
const TABLE_REPLY_MAX: u64 = 256 << 20;

/// Limits of [`ask`]. The switch gives a client 60 s for reading a reply.
const LIMITS: Limits = Limits {
    silence: Duration::from_secs(30),
    exchange: Duration::from_secs(90),
    reply_octets: REPLY_MAX,
};

/// Returns the maximum length of a reply, octets.
fn reply_max(request: &Request) -> u64 {
    match request {
        Request::Show(
            Subject::Config | Subject::Fdb | Subject::Neighbours | Subject::Vlans | Subject::Rules,
        )
        | Request::ShowRules { .. } => TABLE_REPLY_MAX,
        _ => REPLY_MAX,
    }
}

/// Sends a request to a running switch and returns the value of `ok`, of the type that the request determines ([`crate::report`]). Logs a
/// warning in the reply.
///
/// # Errors
/// [`SwitchError::ControlSocket`] if no switch listens on the socket, the switch does not reply completely within 90 s, or the reply is longer
/// than 64 MiB (a configuration, rules, VLANs, a filtering database or a table of neighbours: 256 MiB) or of another type; [`SwitchError::Answer`].
pub fn ask<T: DeserializeOwned>(path: &Path, request: &Request) -> Result<T, SwitchError> {
    ask_up_to(path, request, reply_max(request))
}

/// Sends a request like [`ask`], and reads a reply of at most `reply_octets` octets: for a client with little memory.
///
/// # Errors
/// As [`ask`].
pub fn ask_up_to<T: DeserializeOwned>(
    path: &Path,
    request: &Request,
    reply_octets: u64,
) -> Result<T, SwitchError> {
    let limits = Limits {
        reply_octets,
        ..LIMITS
    };
    ask_within(path, request, &limits)
}

/// Sends a request like [`ask`], within limits.
fn ask_within<T: DeserializeOwned>(
    path: &Path,
    request: &Request,
    limits: &Limits,
) -> Result<T, SwitchError> {
    let failed = |what: String, fault| SwitchError::ControlSocket {
        path: path.to_owned(),
        what,
        fault,
    };
    let stream = connect_within(path, limits.silence).map_err(|cause| {
        let (what, fault) = match cause.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => (
                "no switch is listening (start one with `quietwire switch run`, or use --control-socket)".to_owned(),
                Fault::BadInput,
            ),
            ErrorKind::PermissionDenied => (
                "permission denied (run as root)".to_owned(),
                Fault::MissingPrerequisite,
            ),
            _ => (cause.to_string(), Fault::of_path(&cause)),
        };
        failed(what, fault)
    })?;
    let line = exchange(&stream, request, limits).map_err(|cause| {
        let what = match cause.kind() {
            ErrorKind::WouldBlock => format!(
                "no reply within {} s (check that the switch is running and not stopped)",
                limits.silence.as_secs()
            ),
            ErrorKind::TimedOut => format!(
                "no complete reply within {} s (check the load of the machine)",
                limits.exchange.as_secs()
            ),
            _ => cause.to_string(),
        };
        failed(what, Fault::Failed)
    })?;
    match serde_json::from_str(&line) {
        Ok(Answer::Ok { result, warning }) => {
            if let Some(warning) = warning {
                tracing::warn!("the switch on {}: {warning}", path.display());
            }
            Ok(result)
        }
        Ok(Answer::Error { message, fault }) => Err(SwitchError::Answer {
            path: path.to_owned(),
            what: message,
            fault,
        }),
        Err(cause) => Err(failed(
            format!("invalid reply: {cause} (use the quietwire of the same version as the switch)"),
            Fault::Failed,
        )),
    }
}

/// Sends a request and returns the line of the reply.
fn exchange(stream: &UnixStream, request: &Request, limits: &Limits) -> io::Result<String> {
    let deadline = Deadline::after(limits.exchange);
    let mut bounded = BoundedStream::new(stream, limits.silence, deadline);
    let mut request = serde_json::to_vec(request)?;
    request.push(b'\n');
    bounded.write_all(&request)?;
    let mut line = String::new();
    let reply = bounded.take(limits.reply_octets);
    BufReader::new(reply).read_line(&mut line)?;
    if line.len() as u64 >= limits.reply_octets && !line.ends_with('\n') {
        let what = format!("the reply is longer than {} octets", limits.reply_octets);
        return Err(io::Error::other(what));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use serde_json::Value;

    use super::*;

    /// Long after all deadlines of a test.
    const LONG: Duration = Duration::from_secs(60);

    /// Returns the error of a request to a switch that sends `piece` again and again, with `pause` between.
    fn error_of(limits: &Limits, piece: &[u8], pause: Duration) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("switch.sock");
        let listener = UnixListener::bind(&path).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                // Until the client has closed the connection.
                Deadline::after(LONG).poll(pause, || stream.write_all(piece).err())
            });
            let asked = ask_within::<Value>(&path, &Request::Show(Subject::Ports), limits);
            asked.unwrap_err().to_string()
        })
    }

    #[test]
    fn a_reply_has_a_deadline_and_a_maximum_length() {
        let hasty = Limits {
            exchange: Duration::from_millis(50),
            ..LIMITS
        };
        let error = error_of(&hasty, b"x", Duration::from_millis(1));
        assert!(error.contains("no complete reply within 0 s"), "{error}");
        let short = Limits {
            reply_octets: 1 << 20,
            ..LIMITS
        };
        let error = error_of(&short, &[b'x'; 4096], Duration::ZERO);
        assert!(error.contains("longer than 1048576 octets"), "{error}");
        // Other replies are short.
        for (subject, mib) in [(Subject::Fdb, 256), (Subject::Stats, 64)] {
            assert_eq!(reply_max(&Request::Show(subject)), mib << 20);
        }
    }
}
