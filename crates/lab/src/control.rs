// SPDX-License-Identifier: Apache-2.0
//! Client of the control socket of quietwire's switch, as in any other program.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::guest::lines::{LineError, Lines};

/// Time that a switch has to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// Sends a request to a switch's control socket.
pub(crate) fn ask(socket: &Path, request: &Value) -> Result<Value, String> {
    ask_within(socket, request, ANSWER_DEADLINE)
}

/// Sends a request to a switch, with the caller's timeout.
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
