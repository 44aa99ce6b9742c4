// SPDX-License-Identifier: Apache-2.0
//! QEMU's monitor (QMP, docs/interop/qmp-spec.rst of QEMU 10): cables are pulled and cards unplugged with it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::DEADLINE;

/// A connection to the monitor.
pub(crate) struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects to a monitor that listens already.
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut monitor = Self {
            lines: BufReader::new(stream),
        };
        let greeting = monitor.line();
        assert!(greeting.get("QMP").is_some(), "{greeting}");
        monitor.execute("qmp_capabilities", &json!({}));
        monitor
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "QEMU ended");
        serde_json::from_str(&line).unwrap()
    }

    /// Executes a command, which succeeds.
    fn execute(&mut self, command: &str, arguments: &Value) {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.lines.get_mut(), "{request}").unwrap();
        loop {
            let answer = self.line();
            assert!(answer.get("error").is_none(), "{request}: {answer}");
            // Anything else is an event.
            if answer.get("return").is_some() {
                return;
            }
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
