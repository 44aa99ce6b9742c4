// SPDX-License-Identifier: Apache-2.0
//! Client side of the control socket.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use quietwire_base::{Fault, connect_within};
use serde::de::DeserializeOwned;

use super::{Answer, Request};
use crate::error::SwitchError;

/// Timeout for a reply.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends a request to a running switch and returns the value of `ok`, of the type that the request determines ([`crate::report`]). Logs a
/// warning in the reply.
///
/// # Errors
/// [`SwitchError::ControlSocket`] if no switch listens on the socket the switch does not reply in time, or
/// the reply is of another type; [`SwitchError::Answer`].
pub fn ask<T: DeserializeOwned>(path: &Path, request: &Request) -> Result<T, SwitchError> {
    let failed = |what: String, fault| SwitchError::ControlSocket {
        path: path.to_owned(),
        what,
        fault,
    };
    let stream = connect_within(path, TIMEOUT).map_err(|cause| {
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
    let exchange = || -> std::io::Result<String> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
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
                "no reply within {} s (check that the switch is running and not stopped)",
                TIMEOUT.as_secs()
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
