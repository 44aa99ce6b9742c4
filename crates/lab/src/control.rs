// SPDX-License-Identifier: Apache-2.0
//! Client of the control socket of quietwire's switch, as in any other program.

use std::path::Path;
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_switch::control::{Answer, Request};
use serde::de::DeserializeOwned;

use crate::guest::lines::{LineError, Lines};

/// Time that a switch has to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// Sends a request to a switch's control socket and returns the result, of the type that the request determines
/// ([`quietwire_switch::report`]).
pub(crate) fn ask<T: DeserializeOwned>(socket: &Path, request: &Request) -> Result<T, String> {
    ask_within(socket, request, ANSWER_DEADLINE)
}

/// Sends a request to a switch, with the caller's timeout for all steps together: connection, request and answer.
pub(crate) fn ask_within<T: DeserializeOwned>(
    socket: &Path,
    request: &Request,
    timeout: Duration,
) -> Result<T, String> {
    let ask = || -> Result<Answer<T>, LineError> {
        let deadline = Deadline::after(timeout);
        let mut lines = Lines::connect_within(socket, timeout)?;
        lines.send(request, deadline.remaining())?;
        lines.receive(deadline.remaining())
    };
    let answer = ask().map_err(|error| match error {
        // Not the part of it that was left for the answer.
        LineError::Silent(_) => LineError::Silent(timeout),
        error => error,
    });
    match answer.map_err(|error| format!("its control socket: {error}"))? {
        Answer::Ok { result, warning } => {
            if let Some(warning) = warning {
                tracing::warn!("the switch on {}: {warning}", socket.display());
            }
            Ok(result)
        }
        Answer::Error { message, .. } => Err(format!("request refused: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
    };
    use quietwire_base::connect_within;
    use quietwire_switch::control::Subject;
    use quietwire_switch::report::CyclesReport;

    use super::*;

    /// Returns the request that a switch receives, and the outcome of this answer.
    fn answered(answer: &str) -> (String, Result<CyclesReport, String>) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("switch.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::scope(|scope| {
            let switch = scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = String::new();
                BufReader::new(&stream).read_line(&mut request).unwrap();
                writeln!(stream, "{answer}").unwrap();
                request
            });
            let outcome = ask(&socket, &Request::Show(Subject::Cycles));
            (switch.join().unwrap(), outcome)
        })
    }

    #[test]
    fn a_switch_that_accepts_no_connection_is_an_error_within_the_timeout() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("switch.sock");
        let socket = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&socket, Backlog::new(1).unwrap()).unwrap();
        let timeout = Duration::from_millis(20);
        let mut waiting = Vec::new();
        while let Ok(stream) = connect_within(&path, timeout) {
            assert!(waiting.len() < 8, "the backlog is never full");
            waiting.push(stream);
        }
        // Other connections wait for 10 s.
        let deadline = Deadline::after(Duration::from_secs(8));
        let request = Request::Show(Subject::Cycles);
        let reason = ask_within::<CyclesReport>(&path, &request, timeout).unwrap_err();
        assert!(reason.contains("accepts no connection"), "{reason}");
        assert!(!deadline.has_passed());
    }

    #[test]
    fn an_answer_has_the_type_of_its_request_or_is_an_error_that_names_the_difference() {
        let cycles = r#"{"uptime_s":1.5,"hz":2,"threads":[],"queues":[]}"#;
        let (request, outcome) = answered(&format!("{{\"ok\":{cycles}}}"));
        assert_eq!(request, "{\"show\":\"cycles\"}\n");
        assert_eq!(outcome.unwrap().hz, 2);
        for (answer, part) in [
            (r#"{"error":"not today"}"#, "request refused: not today"),
            (
                r#"{"error":"not today","fault":"failed"}"#,
                "request refused: not today",
            ),
            (r#"{}"#, "either `ok` or `error`"),
            (r#"{"ok":{"hz":2}}"#, "missing field `uptime_s`"),
            (
                r#"{"ok":{"uptime_s":1,"hz":"2","threads":[],"queues":[]}}"#,
                "expected u64",
            ),
            (r#"{"done":1}"#, "unknown field `done`"),
            ("yes", "not JSON"),
        ] {
            let error = answered(answer).1.unwrap_err();
            assert!(
                error.contains(part)
                    && error.contains("control socket") != answer.contains("today"),
                "{answer}: {error}"
            );
        }
    }
}
