// SPDX-License-Identifier: Apache-2.0
//! The control socket of quietwire's switch, asked as any program would.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::guest::lines::{LineError, Lines};

/// How long a switch may take to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// Asks a switch something at its control socket.
pub(crate) fn ask(socket: &Path, request: &Value) -> Result<Value, String> {
    ask_within(socket, request, ANSWER_DEADLINE)
}

/// Asks a switch something, with a timeout of the caller's.
pub(crate) fn ask_within(
    socket: &Path,
    request: &Value,
    timeout: Duration,
) -> Result<Value, String> {
    let ask = || -> Result<Value, LineError> {
        let mut lines = Lines::connect(socket)?;
        lines.send(request, timeout)?;
        lines.receive(timeout)
    };
    let mut answer = ask().map_err(|error| format!("its control socket: {error}"))?;
    match answer.get_mut("ok") {
        Some(ok) => Ok(ok.take()),
        None => Err(format!("it answered {answer}")),
    }
}
