// SPDX-License-Identifier: Apache-2.0
//! The asking side.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use quietwire_base::Fault;
use serde_json::Value;

use super::{Answer, Request};
use crate::error::SwitchError;

/// How long the switch may be silent.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks a running switch; returns what is after `ok`.
///
/// # Errors
/// [`SwitchError::ControlSocket`] when no switch listens there or it stays silent, [`SwitchError::Answer`].
pub fn ask(path: &Path, request: &Request) -> Result<Value, SwitchError> {
    let failed = |what: String, fault| SwitchError::ControlSocket {
        path: path.to_owned(),
        what,
        fault,
    };
    let stream = UnixStream::connect(path).map_err(|cause| {
        let (what, fault) = match cause.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => (
                "no switch listens there; start one with `quietwire switch run`, or say which with --control-socket".to_owned(),
                Fault::BadInput,
            ),
            ErrorKind::PermissionDenied => (
                "only its owner may ask; run as root".to_owned(),
                Fault::Lacks,
            ),
            _ => (cause.to_string(), Fault::Failed),
        };
        failed(what, fault)
    })?;
    let exchange = || -> std::io::Result<String> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut request = serde_json::to_vec(request)?;
        request.push(b'\n');
        (&stream).write_all(&request)?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        Ok(line)
    };
    let line = exchange().map_err(|cause| {
        let what = match cause.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                "the switch did not answer within {} s; is it still running, and not stopped?",
                PATIENCE.as_secs()
            ),
            _ => cause.to_string(),
        };
        failed(what, Fault::Failed)
    })?;
    match serde_json::from_str(&line) {
        Ok(Answer::Ok(value)) => Ok(value),
        Ok(Answer::Error(what)) => Err(SwitchError::Answer {
            path: path.to_owned(),
            what,
        }),
        Err(cause) => Err(failed(
            format!("what came back is no answer: {cause}"),
            Fault::Failed,
        )),
    }
}
