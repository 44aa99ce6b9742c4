// SPDX-License-Identifier: Apache-2.0
//! QEMU's monitor (QMP, docs/interop/qmp-spec.rst of QEMU 10): cables are pulled and cards unplugged with it.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::DEADLINE;

/// Timeout for an event that QEMU may have sent, after a failure.
const LATE: Duration = Duration::from_millis(500);
/// Maximum number of events that are read after a failure.
const LATE_EVENTS: usize = 100;

/// A connection to the monitor.
pub(crate) struct Monitor {
    lines: BufReader<UnixStream>,
    /// Events that QEMU has sent before its answers to commands.
    events: Vec<Value>,
}

impl Monitor {
    /// Connects to a monitor that listens already.
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut monitor = Self {
            lines: BufReader::new(stream),
            events: Vec::new(),
        };
        let greeting = monitor.message().unwrap();
        assert!(greeting.get("QMP").is_some(), "{greeting}");
        monitor.execute("qmp_capabilities", &json!({}));
        monitor
    }

    /// Receives an answer or an event.
    fn message(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        match self.lines.read_line(&mut line)? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "QEMU has ended")),
            _ => Ok(serde_json::from_str(&line)?),
        }
    }

    /// Returns all events as lines of JSON, for failures. No command follows: the last message may have been read in part.
    pub(crate) fn all_events(&mut self) -> String {
        if self.lines.get_ref().set_read_timeout(Some(LATE)).is_ok() {
            for _ in 0..LATE_EVENTS {
                let Ok(event) = self.message() else { break };
                self.events.push(event);
            }
        }
        let events: Vec<String> = self.events.iter().map(Value::to_string).collect();
        events.join("\n")
    }

    /// Executes a command, which succeeds.
    fn execute(&mut self, command: &str, arguments: &Value) {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.lines.get_mut(), "{request}")
            .unwrap_or_else(|error| panic!("{request}: {error}"));
        loop {
            let message = self
                .message()
                .unwrap_or_else(|error| panic!("{request}: {error}"));
            assert!(message.get("error").is_none(), "{request}: {message}");
            if message.get("return").is_some() {
                return;
            }
            self.events.push(message);
        }
    }

    /// Plugs the cable of a card in, or pulls it out.
    pub(crate) fn set_link(&mut self, card: usize, is_up: bool) {
        let arguments = json!({ "name": format!("c{card}"), "up": is_up });
        self.execute("set_link", &arguments);
    }

    /// Asks the guest to give up a card.
    pub(crate) fn unplug(&mut self, card: usize) {
        self.execute("device_del", &json!({ "id": format!("c{card}") }));
    }
}
