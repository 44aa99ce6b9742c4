// SPDX-License-Identifier: Apache-2.0
//! Test helpers: packets built by scapy, and our packets parsed by scapy.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Reads scripts with octets, one on each line, and prints for each whether it failed, and its output.
const SERVER: &str = r#"
import contextlib, io, sys, traceback

names = {}
for line in sys.stdin:
    script, octets = (bytes.fromhex(word) for word in line.split(","))
    output = io.StringIO()
    try:
        if not names:
            for layers in ("l2", "inet", "inet6"):
                exec(f"from scapy.layers.{layers} import *", names)
        with contextlib.redirect_stdout(output):
            exec(script.decode(), {**names, "octets": octets})
        word = "done"
    except Exception:
        word, output = "failed", io.StringIO(traceback.format_exc())
    print(word, output.getvalue().encode().hex(), flush=True)
"#;

/// A Python process for all scripts of the tests: to import scapy takes longer than most of them. It ends with this process.
struct Scapy {
    child: Child,
    replies: BufReader<ChildStdout>,
}

impl Scapy {
    fn start() -> Self {
        let python = std::env::var("QUIETWIRE_PYTHON")
            .expect("QUIETWIRE_PYTHON must name a Python with scapy; `make test` installs one");
        let mut child = Command::new(python)
            .args(["-c", SERVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let replies = BufReader::new(child.stdout.take().unwrap());
        Self { child, replies }
    }

    /// Returns whether the script failed, and its output.
    fn run(&mut self, script: &str, octets: &[u8]) -> (bool, String) {
        let line = format!("{},{}\n", hex(script.as_bytes()), hex(octets));
        let scripts = self.child.stdin.as_mut().unwrap();
        scripts.write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        self.replies.read_line(&mut reply).unwrap();
        let (word, output) = reply.split_once(' ').expect("Python ended");
        let output = String::from_utf8(octets_of(output.trim_end())).unwrap();
        (word == "failed", output)
    }
}

/// Returns the output of a Python script. `QUIETWIRE_PYTHON` names the interpreter that has scapy (`make test` sets it). The script sees
/// `octets` under that name, and no variable of another script.
pub(crate) fn printed(script: &str, octets: &[u8]) -> String {
    static SCAPY: LazyLock<Mutex<Scapy>> = LazyLock::new(|| Mutex::new(Scapy::start()));
    let (has_failed, output) = {
        let mut scapy = SCAPY.lock().unwrap_or_else(PoisonError::into_inner);
        scapy.run(script, octets)
    };
    assert!(!has_failed, "{output}");
    output.trim().to_owned()
}

/// Returns the octets of a packet in scapy notation.
pub(crate) fn built(packet: &str) -> Vec<u8> {
    octets_of(&printed(&format!("print(bytes({packet}).hex())"), &[]))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn octets_of(hex: &str) -> Vec<u8> {
    let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(octet).collect()
}
