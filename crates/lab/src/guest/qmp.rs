// SPDX-License-Identifier: Apache-2.0
//! QEMU's monitor, with its machine protocol (QMP: docs/interop/qmp-spec.txt of QEMU 7.2).

use std::path::Path;
use std::time::Duration;

use quietwire_base::Deadline;
use serde_json::{Value, json};

use super::lines::{LineError, Lines};
use crate::stop::Stop;

/// Timeout for the monitor's answers.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// A connection to the monitor.
#[derive(Debug)]
pub(crate) struct Monitor {
    lines: Lines,
    /// QEMU's version, as printed by QEMU.
    pub(crate) version: String,
}

fn number(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|number| number.try_into().ok())
}

fn qmp_error(error: LineError) -> String {
    format!("QEMU's monitor: {error}")
}

/// Returns QEMU's version from the greeting.
fn version_of(greeting: &Value) -> Result<String, String> {
    let version = greeting.pointer("/QMP/version");
    let part = |name: &str| number(version?.get("qemu")?.get(name)?);
    let (Some(major), Some(minor), Some(micro)) = (part("major"), part("minor"), part("micro"))
    else {
        return Err(format!(
            "QEMU's monitor greets with '{greeting}', which no QMP does"
        ));
    };
    let package = version.and_then(|version| version.get("package")?.as_str());
    let package = package.unwrap_or_default();
    let version = format!("{major}.{minor}.{micro} {package}");
    Ok(version.trim().to_owned())
}

/// Returns the result of a command; `None` for an event.
fn result_of(mut answer: Value, command: &str) -> Option<Result<Value, String>> {
    if let Some(result) = answer.get_mut("return") {
        return Some(Ok(result.take()));
    }
    let error = answer.get("error")?;
    let reason = error.get("desc").and_then(Value::as_str);
    let reason = reason.unwrap_or("no reason given");
    Some(Err(format!("QEMU's monitor refused {command}: {reason}")))
}

/// Returns the thread IDs in the answer to `query-cpus-fast`, in the order of the vCPUs.
fn threads_of(answer: &Value) -> Result<Vec<i32>, String> {
    let mut threads: Vec<(i32, i32)> = answer
        .as_array()
        .into_iter()
        .flatten()
        .map(|cpu| {
            Some((
                number(cpu.get("cpu-index")?)?,
                number(cpu.get("thread-id")?)?,
            ))
        })
        .collect::<Option<_>>()
        .ok_or_else(|| format!("QEMU's monitor lists its vCPUs as '{answer}'"))?;
    threads.sort_unstable();
    Ok(threads.into_iter().map(|(_, thread)| thread).collect())
}

impl Monitor {
    pub(crate) fn connect(socket: &Path, timeout: Duration, stop: &Stop) -> Result<Self, String> {
        let mut lines = Lines::connect(socket).map_err(qmp_error)?.unless(stop);
        let greeting: Value = lines.receive(timeout).map_err(qmp_error)?;
        let version = version_of(&greeting)?;
        let mut monitor = Self { lines, version };
        monitor.execute("qmp_capabilities")?;
        Ok(monitor)
    }

    /// Executes a command without arguments and returns its result.
    pub(crate) fn execute(&mut self, command: &str) -> Result<Value, String> {
        let deadline = Deadline::after(ANSWER_DEADLINE);
        self.lines
            .send(&json!({ "execute": command }), ANSWER_DEADLINE)
            .map_err(qmp_error)?;
        loop {
            let answer: Value = self
                .lines
                .receive(deadline.remaining())
                .map_err(qmp_error)?;
            if let Some(result) = result_of(answer, command) {
                return result;
            }
        }
    }

    /// Returns the thread IDs of the vCPUs, in the order of the vCPUs.
    pub(crate) fn vcpu_threads(&mut self) -> Result<Vec<i32>, String> {
        threads_of(&self.execute("query-cpus-fast")?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use quietwire_base::fuzz::{check, planted};

    use super::*;

    const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian 1:7.2"}, "capabilities": []}}"#;

    /// Runs a monitor that sends this greeting, and answers each command with the next of these.
    fn with_monitor<T>(
        greeting: &str,
        answers: &[&str],
        ask: impl FnOnce(Result<Monitor, String>) -> T,
    ) -> T {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("qmp");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                let mut out = stream.try_clone().unwrap();
                writeln!(out, "{greeting}").unwrap();
                let mut questions = BufReader::new(stream).lines();
                for answer in answers {
                    let Some(Ok(_)) = questions.next() else {
                        return;
                    };
                    writeln!(out, "{answer}").unwrap();
                }
            });
            ask(Monitor::connect(
                &socket,
                Duration::from_secs(20),
                &Stop::default(),
            ))
        })
    }

    #[test]
    fn vcpus_come_in_their_order_whatever_happens_meanwhile() {
        let answers = [
            r#"{"return": {}}"#,
            "{\"event\": \"RESUME\"}\n{\"return\": [{\"cpu-index\": 1, \"thread-id\": 12}, {\"cpu-index\": 0, \"thread-id\": 34}]}",
            r#"{"error": {"class": "GenericError", "desc": "no such thing"}}"#,
        ];
        with_monitor(GREETING, &answers, |monitor| {
            let mut monitor = monitor.unwrap();
            assert_eq!(monitor.version, "7.2.22 Debian 1:7.2");
            assert_eq!(monitor.vcpu_threads().unwrap(), [34, 12]);
            let error = monitor.execute("frobnicate").unwrap_err();
            assert!(
                error.contains("frobnicate") && error.contains("no such thing"),
                "{error}"
            );
            // QEMU has exited.
            monitor.execute("quit").unwrap_err();
        });
    }

    #[test]
    fn a_peer_that_is_no_qmp_monitor_is_reported() {
        with_monitor("{\"hello\": 1}", &[], |monitor| {
            assert!(monitor.unwrap_err().contains("no QMP"));
        });
        let answers = [r#"{"return": {}}"#, r#"{"return": [{"cpu-index": "x"}]}"#];
        with_monitor(GREETING, &answers, |monitor| {
            let error = monitor.unwrap().vcpu_threads().unwrap_err();
            assert!(error.contains("lists its vCPUs"), "{error}");
        });
    }

    /// Parses any lines as what a monitor sends: a greeting, events, answers.
    fn fuzz_qmp(octets: &[u8]) -> bool {
        let mut is_accepted = false;
        for line in octets.split(|octet| *octet == b'\n').take(16) {
            let Ok(value) = serde_json::from_slice::<Value>(line) else {
                continue;
            };
            is_accepted |= version_of(&value).is_ok();
            if let Some(Ok(result)) = result_of(value, "query-cpus-fast") {
                let threads = threads_of(&result);
                is_accepted |= threads.is_ok();
                planted("lab-qmp", || {
                    threads.is_ok_and(|threads| {
                        threads.len() > 1 && threads.iter().any(|thread| *thread > 1_000_000)
                    })
                });
            }
        }
        is_accepted
    }

    #[test]
    fn fuzz_monitors() {
        check(env!("CARGO_MANIFEST_DIR"), "lab-qmp", fuzz_qmp);
    }
}
