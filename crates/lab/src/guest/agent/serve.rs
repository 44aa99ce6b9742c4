// SPDX-License-Identifier: Apache-2.0
//! The guest's side of the agent: reads requests from the channel and answers each, until the guest shuts down.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use quietwire_base::proc::{kernel_release, read};
use quietwire_base::supervised::{Command, Streams};
use quietwire_base::{Deadline, wait_until};
use quietwire_host::CpuList;
use quietwire_host::jitter::JitterReport;
use quietwire_host::threads::online_cpus;
use serde_json::Value;

use super::function::{Function, Machine};
use super::ports::Bus;
use super::protocol::{
    AgentCommand, AgentRequest, AgentResult, Answer, Hello, Outcome, Ran, Started, VERSION,
};
use crate::error::{LabError, io_error};
use crate::guest::command::AGENT_CHANNEL;
use crate::guest::lines::{LINE_MAX, excerpt};

/// Timeout until the kernel creates the channel's device.
const CHANNEL_DEADLINE: Duration = Duration::from_secs(20);
/// Pause between reads while no host is connected: the channel's device supports no blocking wait then.
const REST: Duration = Duration::from_millis(20);
/// Longest measurement of gaps, milliseconds.
const JITTER_MAX_MS: u64 = 60_000;
/// Longest timeout of a command, milliseconds.
const RUN_MAX_MS: u64 = 600_000;
/// Maximum size of a command's output in an answer, octets.
const OUTPUT_MAX: usize = 256 << 10;

/// Serves the host until the guest shuts down.
///
/// # Errors
/// [`LabError::Io`] if this is not a guest of quietwire, or if its channel fails.
pub fn serve() -> Result<(), LabError> {
    let path = channel()?;
    let mut channel = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(io_error(&path, "opening the channel to the host"))?;
    let bus = Bus::below(Path::new("/"));
    let ports = bus
        .ports()
        .map_err(io_error(Path::new("/sys/bus/pci/devices"), "listing it"))?;
    let cpus = online_cpus(Path::new("/")).unwrap_or_default();
    let mut server = Server {
        machine: Machine { bus, ports, cpus },
        function: None,
        held: Vec::new(),
        is_too_long: false,
    };
    tracing::info!("the agent is up, with {} ports", server.machine.ports.len());
    loop {
        match server.pump(&mut channel) {
            Ok(true) => {}
            Ok(false) => std::thread::sleep(REST),
            Err(error) => return Err(io_error(&path, "talking to the host")(error)),
        }
    }
}

/// Returns the device of the channel. The kernel numbers the devices; sysfs has their names.
fn channel() -> Result<PathBuf, LabError> {
    let ports = Path::new("/sys/class/virtio-ports");
    let find = || {
        let entries = fs::read_dir(ports).ok()?.flatten();
        let mut named = entries.filter(|entry| {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            name.trim() == AGENT_CHANNEL
        });
        Some(Path::new("/dev").join(named.next()?.file_name()))
    };
    let mut found = None;
    wait_until(CHANNEL_DEADLINE, || {
        found = find();
        found.as_ref().is_some_and(|path| path.exists())
    });
    found.ok_or_else(|| {
        io_error(
            ports,
            "looking for the channel to the host (`quietwire guest-agent` runs in guests that quietwire starts)",
        )(ErrorKind::NotFound.into())
    })
}

struct Server {
    machine: Machine,
    function: Option<Box<dyn Function>>,
    held: Vec<u8>,
    /// Whether the current line is too long; it is skipped up to its end.
    is_too_long: bool,
}

impl Server {
    /// Reads from the channel and answers complete lines. Returns false if no host is connected.
    fn pump(&mut self, channel: &mut (impl Read + Write)) -> io::Result<bool> {
        let mut buffer = [0; 65536];
        match channel.read(&mut buffer) {
            Ok(0) => {
                // An incomplete line of a host that has disconnected.
                self.held.clear();
                self.is_too_long = false;
                return Ok(false);
            }
            Ok(count) => {
                let read = buffer.get(..count).unwrap_or_default();
                self.held.extend_from_slice(read);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        }
        while let Some(end) = self.held.iter().position(|octet| *octet == b'\n') {
            let line: Vec<u8> = self.held.drain(..=end).collect();
            let answer = if std::mem::take(&mut self.is_too_long) {
                refusal(0, format!("the request is longer than {LINE_MAX} octets"))
            } else {
                self.answer(&line)
            };
            reply(channel, &answer);
        }
        if self.held.len() > LINE_MAX {
            self.held.clear();
            self.is_too_long = true;
        }
        Ok(true)
    }

    fn answer(&mut self, line: &[u8]) -> Answer<AgentResult> {
        let request = match request_of(line) {
            Ok(request) => request,
            Err((id, reason)) => return refusal(id, reason),
        };
        let outcome = self.execute_command(request.ask);
        Answer {
            id: request.id,
            outcome: outcome.map_or_else(Outcome::Error, Outcome::Ok),
        }
    }

    fn execute_command(&mut self, ask: AgentCommand) -> Result<AgentResult, String> {
        Ok(match ask {
            AgentCommand::Hello => AgentResult::Hello(self.hello()),
            AgentCommand::Start(vnf) => {
                if self.function.is_some() {
                    return Err("a network function is already running (stop it first)".to_owned());
                }
                let function = self.machine.start(&vnf)?;
                let commands = function.commands();
                self.function = Some(function);
                AgentResult::Started(Started { commands })
            }
            AgentCommand::Counters => AgentResult::Counters(self.function()?.counters()?),
            AgentCommand::Cycles => AgentResult::Cycles(self.function()?.cycles()?),
            AgentCommand::Log => AgentResult::Log(self.function()?.log()),
            AgentCommand::Stop => {
                let function = self.function()?;
                let stopped = function.stop();
                // Without the record, no further request could stop what is left.
                if stopped.is_ok() || function.has_ended() {
                    self.function = None;
                }
                stopped?;
                AgentResult::Stopped
            }
            AgentCommand::CpuStates => {
                let stat = read(Path::new("/proc/stat")).map_err(|error| error.to_string())?;
                AgentResult::CpuStates(quietwire_monitor::cpu_times(&stat))
            }
            AgentCommand::Jitter { cpus, duration_ms } => {
                AgentResult::Jitter(jitter(&cpus, duration_ms)?)
            }
            AgentCommand::Run {
                command,
                deadline_ms,
            } => AgentResult::Ran(run(
                &command,
                Duration::from_millis(deadline_ms.min(RUN_MAX_MS)),
            )?),
        })
    }

    fn function(&mut self) -> Result<&mut Box<dyn Function>, String> {
        self.function.as_mut().ok_or_else(|| NOTHING.to_owned())
    }

    fn hello(&self) -> Hello {
        Hello {
            version: VERSION,
            quietwire: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: kernel_release(),
            cpus: self.machine.cpus.clone(),
            ports: self
                .machine
                .ports
                .iter()
                .map(|port| port.address.clone())
                .collect(),
        }
    }
}

/// Parses a request. The command `hello` is accepted in every version, since its answer contains the agent's.
///
/// # Errors
/// Number of the request, 0 if it has none, and the problem.
fn request_of(line: &[u8]) -> Result<AgentRequest, (u64, String)> {
    // The number is parsed first: a request of another version may have unknown parts.
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| (0, format!("'{}' is not a request: {error}", excerpt(line))))?;
    let id = value.get("id").and_then(Value::as_u64).unwrap_or(0);
    if value.get("ask").and_then(Value::as_str) == Some("hello") {
        return Ok(AgentRequest {
            version: VERSION,
            id,
            ask: AgentCommand::Hello,
        });
    }
    if value.get("version").and_then(Value::as_u64) != Some(u64::from(VERSION)) {
        let reason = format!("this agent speaks version {VERSION} of the protocol");
        return Err((id, reason));
    }
    serde_json::from_value(value).map_err(|error| (id, format!("invalid request: {error}")))
}

const NOTHING: &str = "no network function is running (start one first)";

fn refusal(id: u64, reason: String) -> Answer<AgentResult> {
    Answer {
        id,
        outcome: Outcome::Error(reason),
    }
}

/// Sends an answer. A host that has disconnected does not get it.
fn reply(channel: &mut impl Write, answer: &Answer<AgentResult>) {
    let sent = serde_json::to_vec(answer)
        .map_err(io::Error::from)
        .and_then(|mut line| {
            line.push(b'\n');
            channel.write_all(&line)
        });
    if let Err(error) = sent {
        tracing::warn!("cannot send an answer: {error}");
    }
}

fn jitter(cpus: &CpuList, duration_ms: u64) -> Result<JitterReport, String> {
    if duration_ms > JITTER_MAX_MS {
        return Err(format!(
            "a measurement of {duration_ms} ms is too long (maximum: {JITTER_MAX_MS} ms)"
        ));
    }
    let duration = Duration::from_millis(duration_ms);
    quietwire_host::jitter::measure(cpus, duration, &AtomicBool::new(false))
        .map_err(|error| error.to_string())
}

/// Runs a command, and kills it and everything that it forked at the deadline. Its children may outlive it otherwise.
fn run(command: &[String], deadline: Duration) -> Result<Ran, String> {
    let failed = |error: io::Error| format!("`{}`: {error}", command.join(" "));
    let mut child = Command::of(command)
        .start(Streams::Captured(OUTPUT_MAX))
        .map_err(failed)?;
    let status = child.wait(Deadline::after(deadline)).map_err(failed)?;
    if status.is_none() {
        child.kill().map_err(failed)?;
    }
    let mut output = child.printed();
    if status.is_none() {
        output.push_str(&format!("\n(ended after {} s)", deadline.as_secs_f64()));
    }
    Ok(Ran {
        code: status.and_then(|status| status.code()),
        output,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use quietwire_base::fuzz::{check, planted};

    use super::*;
    use crate::guest::agent::protocol::{PortCounters, VnfKind};

    fn server() -> Server {
        let nowhere = tempfile::tempdir().unwrap();
        Server {
            machine: Machine {
                bus: Bus::below(nowhere.path()),
                ports: Vec::new(),
                cpus: "0".parse().unwrap(),
            },
            function: None,
            held: Vec::new(),
            is_too_long: false,
        }
    }

    fn answered(line: &str) -> Outcome<AgentResult> {
        server().answer(line.as_bytes()).outcome
    }

    fn refused(line: &str) -> String {
        match answered(line) {
            Outcome::Error(reason) => reason,
            Outcome::Ok(result) => panic!("{line}: {result:?}"),
        }
    }

    fn ask(what: &str) -> String {
        format!(r#"{{"version":{VERSION},"id":3,"ask":{what}}}"#)
    }

    #[test]
    fn invalid_requests_are_refused_and_the_agent_continues() {
        assert!(refused("\u{1}nonsense").contains("nonsense"));
        let version = format!("version {VERSION}");
        assert!(refused("7").contains(&version));
        assert!(refused(r#"{"version":8,"id":1,"ask":"counters"}"#).contains(&version));
        assert!(refused(&ask("\"frobnicate\"")).contains("invalid request"));
        assert!(refused(&ask("\"counters\"")).contains("start one first"));
        assert!(refused(&ask("\"cycles\"")).contains("start one first"));
        assert!(refused(&ask("\"stop\"")).contains("start one first"));
        let start = r#"{"start":{"kind":"cross-connect","queues":1,"frame-size-max":1518}}"#;
        assert!(refused(&ask(start)).contains("requires ports in pairs"));
        let jitter = r#"{"jitter":{"cpus":"0","duration_ms":999999}}"#;
        assert!(refused(&ask(jitter)).contains("too long"));
        let run = r#"{"run":{"command":["/no/such"],"deadline_ms":5}}"#;
        assert!(refused(&ask(run)).contains("/no/such"));
        // The refusal of another version names this one.
        let hello = answered(r#"{"version":8,"id":1,"ask":"hello"}"#);
        assert!(
            matches!(hello, Outcome::Ok(AgentResult::Hello(hello)) if hello.version == VERSION)
        );
        assert!(
            matches!(answered(&ask("\"cpu_states\"")), Outcome::Ok(AgentResult::CpuStates(cpus)) if !cpus.is_empty())
        );
    }

    /// A function whose first stop fails.
    #[derive(Debug)]
    struct Stubborn {
        stops: u32,
        ends: bool,
    }

    impl Function for Stubborn {
        fn commands(&self) -> Vec<String> {
            Vec::new()
        }

        fn counters(&mut self) -> Result<Vec<PortCounters>, String> {
            Ok(Vec::new())
        }

        fn log(&self) -> String {
            String::new()
        }

        fn stop(&mut self) -> Result<(), String> {
            self.stops += 1;
            match self.stops {
                1 => Err("busy".to_owned()),
                _ => Ok(()),
            }
        }

        fn has_ended(&mut self) -> bool {
            self.ends
        }
    }

    #[test]
    fn a_function_that_did_not_stop_can_be_stopped_again() {
        for (ends, second) in [(false, None), (true, Some("start one first"))] {
            let mut server = server();
            server.function = Some(Box::new(Stubborn { stops: 0, ends }));
            let mut stop = || match server.answer(ask("\"stop\"").as_bytes()).outcome {
                Outcome::Error(reason) => Some(reason),
                Outcome::Ok(_) => None,
            };
            assert_eq!(stop().as_deref(), Some("busy"));
            let reason = stop();
            assert_eq!(reason.is_none(), second.is_none(), "{reason:?}");
            assert!(reason.unwrap_or_default().contains(second.unwrap_or("")));
            assert!(server.function.is_none());
        }
    }

    #[test]
    fn a_command_is_run_with_a_deadline() {
        let words = |script: &str| ["sh", "-c", script].map(str::to_owned);
        let ran = run(
            &words("echo out; echo error >&2; exit 4"),
            Duration::from_secs(20),
        )
        .unwrap();
        assert_eq!((ran.code, ran.output.as_str()), (Some(4), "out\nerror\n"));
        let ran = run(
            &words("echo begun; sleep 60 & sleep 60"),
            Duration::from_millis(300),
        )
        .unwrap();
        assert!(
            ran.code.is_none() && ran.output.contains("ended after 0.3 s"),
            "{ran:?}"
        );
        run(&[], Duration::from_secs(1)).unwrap_err();
    }

    #[test]
    fn half_lines_and_endless_ones_are_survived() {
        let (mut host, mut guest) = UnixStream::pair().unwrap();
        let mut server = server();
        let endless = vec![b'x'; LINE_MAX + 70000];
        std::thread::scope(|scope| {
            let printed = scope.spawn(|| {
                host.write_all(&endless).unwrap();
                host.write_all(b"\n").unwrap();
                let half = ask("\"hello\"");
                host.write_all(&half.as_bytes()[..9]).unwrap();
                host.write_all(&half.as_bytes()[9..]).unwrap();
                host.write_all(b"\n").unwrap();
                let mut lines = String::new();
                host.shutdown(std::net::Shutdown::Write).unwrap();
                host.read_to_string(&mut lines).unwrap();
                lines
            });
            while server.pump(&mut guest).unwrap() {}
            drop(guest);
            let lines = printed.join().unwrap();
            let answers: Vec<Answer> = lines
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            assert_eq!(answers.len(), 2, "{lines}");
            assert!(
                matches!(&answers[0].outcome, Outcome::Error(reason) if reason.contains("longer than"))
            );
            assert!(matches!(&answers[1].outcome, Outcome::Ok(_)));
        });
    }

    /// Parses any octets as a request. What is accepted is the same after it was written; everything else has a reason to send.
    fn fuzz_request(octets: &[u8]) -> bool {
        match request_of(octets) {
            Ok(request) => {
                let line = serde_json::to_vec(&request).unwrap();
                assert_eq!(request_of(&line).as_ref(), Ok(&request));
                planted("lab-agent-request", || match &request.ask {
                    AgentCommand::Start(vnf) => vnf.queues > 1000 && vnf.kind == VnfKind::Bridge,
                    _ => false,
                });
                true
            }
            Err((_, reason)) => {
                assert!(!reason.is_empty());
                false
            }
        }
    }

    #[test]
    fn fuzz_requests() {
        check(
            env!("CARGO_MANIFEST_DIR"),
            "lab-agent-request",
            fuzz_request,
        );
    }
}
