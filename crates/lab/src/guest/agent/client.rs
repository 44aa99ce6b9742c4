// SPDX-License-Identifier: Apache-2.0
//! The host's side of the agent. Every request has a deadline, whatever the peer does.

use std::path::Path;
use std::time::Duration;

use quietwire_base::{Deadline, unix_time_ns};
use quietwire_host::CpuList;
use quietwire_host::jitter::JitterReport;
use quietwire_switch::report::CyclesReport;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::protocol::{
    AgentCommand, AgentRequest, Answer, CpuStates, Hello, Outcome, PortCounters, Ran, Started,
    VERSION, Vnf,
};
use crate::error::LabError;
use crate::guest::lines::{LineError, Lines};
use crate::stop::Stop;

/// Timeout for requests that the agent answers at once.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout until a network function forwards; in software emulation the start takes seconds.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of stale answers, to requests of former connections, that are skipped.
const STALE_MAX: usize = 64;

/// A connection to an agent.
#[derive(Debug)]
pub struct Agent {
    guest: String,
    lines: Lines,
    next_id: u64,
    hello: Hello,
}

impl Agent {
    /// Connects to the agent of a guest at the guest's agent socket. The guest may still be booting.
    ///
    /// # Errors
    /// [`LabError::Agent`]: no listener, no answer, a malformed answer, another version.
    pub fn connect(guest: &str, socket: &Path, timeout: Duration) -> Result<Self, LabError> {
        Self::connect_unless(&Stop::default(), guest, socket, timeout)
    }

    /// As [`Self::connect`]. All waits end when `stop` is set.
    ///
    /// # Errors
    /// [`LabError::Agent`], also after `stop`.
    pub fn connect_unless(
        stop: &Stop,
        guest: &str,
        socket: &Path,
        timeout: Duration,
    ) -> Result<Self, LabError> {
        let agent_error = |what: String| LabError::Agent {
            name: guest.to_owned(),
            what,
        };
        let lines = Lines::connect(socket)
            .map_err(|error| agent_error(format!("{}: {error}", socket.display())))?
            .unless(stop);
        // Differs from the numbers of former connections, whose answers may still be in transit.
        let mut agent = Self {
            guest: guest.to_owned(),
            lines,
            next_id: unix_time_ns() / 1000,
            hello: Hello {
                version: 0,
                quietwire: String::new(),
                kernel: String::new(),
                cpus: CpuList::new(),
                ports: Vec::new(),
            },
        };
        agent.hello = agent.ask(&AgentCommand::Hello, timeout)?;
        if agent.hello.version != VERSION {
            return Err(agent.failed(format!(
                "it supports version {} of the protocol, but this program requires version {VERSION} (build the image again with this program)",
                agent.hello.version
            )));
        }
        Ok(agent)
    }

    /// Returns the agent's description of itself and its guest.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    fn failed(&self, what: String) -> LabError {
        LabError::Agent {
            name: self.guest.clone(),
            what,
        }
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        ask: &AgentCommand,
        timeout: Duration,
    ) -> Result<T, LabError> {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let outcome = self
            .exchange(id, ask, timeout)
            .map_err(|error| self.failed(error))?;
        match outcome {
            Outcome::Ok(value) => serde_json::from_value(value)
                .map_err(|error| self.failed(format!("unexpected answer: {error}"))),
            Outcome::Error(reason) => Err(self.failed(reason)),
        }
    }

    fn exchange(
        &mut self,
        id: u64,
        ask: &AgentCommand,
        timeout: Duration,
    ) -> Result<Outcome, String> {
        let deadline = Deadline::after(timeout);
        let question = AgentRequest {
            version: VERSION,
            id,
            ask: ask.clone(),
        };
        self.lines
            .send(&question, timeout)
            .map_err(|error| error.to_string())?;
        for _ in 0..STALE_MAX {
            let left = deadline.remaining();
            let line: Value = self.lines.receive(left).map_err(|error| match error {
                LineError::Silent(_) => {
                    format!("no answer within {} s", timeout.as_secs_f64())
                }
                error => error.to_string(),
            })?;
            let answer: Answer = serde_json::from_value(line.clone())
                .map_err(|error| format!("it answered '{}': {error}", shortened(&line)))?;
            match answer.outcome {
                outcome if answer.id == id => return Ok(outcome),
                // The agent could not parse the request: it is one of this connection.
                Outcome::Error(reason) if answer.id == 0 => return Err(reason),
                _ => {}
            }
        }
        Err(format!("it sent {STALE_MAX} answers to other requests"))
    }

    /// Starts a network function on all ports of the guest, and returns when it forwards.
    ///
    /// # Errors
    /// [`LabError::Agent`] with the last output of a program that did not start.
    pub fn start(&mut self, vnf: &Vnf) -> Result<Started, LabError> {
        self.ask(&AgentCommand::Start(vnf.clone()), START_TIMEOUT)
    }

    /// Returns the counters of the network function's ports since it was started.
    ///
    /// # Errors
    /// [`LabError::Agent`].
    pub fn counters(&mut self) -> Result<Vec<PortCounters>, LabError> {
        self.counters_within(TIMEOUT)
    }

    /// As [`Self::counters`], with a timeout.
    ///
    /// # Errors
    /// [`LabError::Agent`].
    pub fn counters_within(&mut self, timeout: Duration) -> Result<Vec<PortCounters>, LabError> {
        self.ask(&AgentCommand::Counters, timeout)
    }

    /// Returns what quietwire's switch counts about its own work since it was started, with a timeout.
    ///
    /// # Errors
    /// [`LabError::Agent`], also from other network functions.
    pub fn cycles_within(&mut self, timeout: Duration) -> Result<CyclesReport, LabError> {
        self.ask(&AgentCommand::Cycles, timeout)
    }

    /// Returns the last lines of the network function's output.
    ///
    /// # Errors
    /// [`LabError::Agent`].
    pub fn log(&mut self) -> Result<String, LabError> {
        self.ask(&AgentCommand::Log, TIMEOUT)
    }

    /// Stops the network function and releases the ports.
    ///
    /// # Errors
    /// [`LabError::Agent`] if it had to be killed, or if something of it is left. A further call stops what is left.
    pub fn stop(&mut self) -> Result<(), LabError> {
        self.ask(&AgentCommand::Stop, TIMEOUT)
    }

    /// Returns the time of each CPU of the guest in each state since boot.
    ///
    /// # Errors
    /// [`LabError::Agent`].
    pub fn cpu_states(&mut self) -> Result<CpuStates, LabError> {
        self.ask(&AgentCommand::CpuStates, TIMEOUT)
    }

    /// Measures gaps on the guest's CPUs with one thread per CPU. The report is that of `quietwire host jitter --json`.
    ///
    /// # Errors
    /// [`LabError::Agent`].
    pub fn jitter(&mut self, cpus: &CpuList, duration: Duration) -> Result<JitterReport, LabError> {
        let ask = AgentCommand::Jitter {
            cpus: cpus.clone(),
            duration_ms: milliseconds(duration),
        };
        self.ask(&ask, duration.saturating_add(TIMEOUT))
    }

    /// Runs a command in the guest.
    ///
    /// # Errors
    /// [`LabError::Agent`] if it cannot be started.
    pub fn run(&mut self, command: &[&str], deadline: Duration) -> Result<Ran, LabError> {
        let ask = AgentCommand::Run {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            deadline_ms: milliseconds(deadline),
        };
        self.ask(&ask, deadline.saturating_add(TIMEOUT))
    }
}

/// Returns a time in milliseconds, at most what 64 bits hold.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn shortened(line: &Value) -> String {
    crate::guest::lines::excerpt(line.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::super::protocol::PortCounters;
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    const HELLO: &str = r#"{"id":ID,"ok":{"version":3,"quietwire":"0.1.0","kernel":"6.1","cpus":"0-1","ports":[]}}"#;

    /// Runs an agent that answers each request with the next of these texts, with the request's number for `ID`.
    fn with_agent<T>(
        answers: &[&str],
        timeout: Duration,
        ask: impl FnOnce(Result<Agent, LabError>) -> T,
    ) -> T {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("agent");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                let mut out = stream.try_clone().unwrap();
                let mut questions = BufReader::new(stream).lines();
                for answer in answers {
                    let Some(Ok(line)) = questions.next() else {
                        return;
                    };
                    let question: AgentRequest = serde_json::from_str(&line).unwrap();
                    let answer = answer.replace("ID", &question.id.to_string());
                    // The host may have closed the connection.
                    let _ = writeln!(out, "{answer}");
                }
                // Silent from here on, until the host closes the connection.
                while questions.next().is_some_and(|line| line.is_ok()) {}
            });
            ask(Agent::connect("vnf-0", &socket, timeout))
        })
    }

    fn refused(answer: &str, timeout: Duration) -> String {
        with_agent(&[answer], timeout, |agent| {
            agent.map(drop).unwrap_err().to_string()
        })
    }

    #[test]
    fn requests_to_an_agent_are_answered() {
        let counters =
            r#"{"id":ID,"ok":[{"rx_frames":3,"tx_frames":2,"rx_dropped":1,"tx_dropped":0}]}"#;
        let refusal = r#"{"id":ID,"error":"nothing runs"}"#;
        let stale = format!("{{\"id\":5,\"ok\":1}}\n{counters}");
        let cycles = r#"{"id":ID,"ok":{"uptime_s":1.5,"hz":7,"threads":[{"cpu":1,"steps":[]}],"queues":[]}}"#;
        with_agent(&[HELLO, counters, refusal, &stale, cycles], LONG, |agent| {
            let mut agent = agent.unwrap();
            assert_eq!(agent.hello().cpus.to_string(), "0-1");
            let expected = PortCounters {
                rx_frames: 3,
                tx_frames: 2,
                rx_dropped: 1,
                tx_dropped: 0,
            };
            assert_eq!(agent.counters().unwrap(), [expected]);
            let error = agent.stop().unwrap_err().to_string();
            assert!(
                error.contains("'vnf-0'") && error.contains("nothing runs"),
                "{error}"
            );
            assert_eq!(agent.counters().unwrap(), [expected]);
            let cycles = agent.cycles_within(LONG).unwrap();
            assert_eq!((cycles.hz, cycles.threads[0].cpu), (7, 1));
        });
    }

    #[test]
    fn a_broken_agent_is_an_error_and_never_a_wait_without_end() {
        let directory = tempfile::tempdir().unwrap();
        let nobody = Agent::connect("vnf-0", &directory.path().join("none"), LONG);
        assert!(matches!(nobody, Err(LabError::Agent { .. })));
        let silence = with_agent(&[], SHORT, |agent| agent.map(drop).unwrap_err().to_string());
        assert!(silence.contains("no answer within 0.05 s"), "{silence}");
        let cases = [
            ("\u{1b}[31mKernel panic", "not JSON"),
            ("[1, 2]", "it answered '[1,2]'"),
            (r#"{"id":ID}"#, "it answered"),
            (r#"{"id":ID,"ok":{"version":"x"}}"#, "unexpected answer"),
            (r#"{"id":0,"error":"no such question"}"#, "no such question"),
            (
                r#"{"id":ID,"ok":{"version":9,"quietwire":"9","kernel":"6","cpus":"0","ports":[]}}"#,
                "version 9",
            ),
        ];
        for (answer, what) in cases {
            let error = refused(answer, LONG);
            assert!(error.contains(what), "{answer}: {error}");
        }
        let endless = "x".repeat(crate::guest::lines::LINE_MAX + 1);
        assert!(refused(&endless, LONG).contains("more than"), "endless");
        let others = "{\"id\":1,\"ok\":1}\n".repeat(STALE_MAX);
        assert!(refused(&others, LONG).contains("answers to other requests"));
    }
}
