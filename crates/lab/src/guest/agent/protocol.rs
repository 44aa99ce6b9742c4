// SPDX-License-Identifier: Apache-2.0
//! Protocol between host and agent: one JSON object per line, a request and its answer, matched by number.

use std::collections::BTreeMap;

use ipnet::IpNet;
use quietwire_host::CpuList;
use quietwire_host::jitter::JitterReport;
use quietwire_monitor::CpuActivity;
use quietwire_packet::MacAddress;
use quietwire_switch::report::CyclesReport;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;

/// Version of the protocol. An agent accepts only its own version.
pub const VERSION: u32 = 3;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRequest {
    /// Version of the protocol that the host speaks.
    pub version: u32,
    /// Number of the request, repeated in its answer.
    pub id: u64,
    /// The command.
    pub ask: AgentCommand,
}

/// Commands to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCommand {
    /// Describes the agent and its guest: [`Hello`].
    Hello,
    /// Starts a network function on the guest's ports. Answers [`Started`] when it forwards.
    Start(Vnf),
    /// Reads the counters of the network function's ports: a [`PortCounters`] for each.
    Counters,
    /// Reads what quietwire's switch counts about its own work: a [`CyclesReport`].
    Cycles,
    /// Reads the last lines of the network function's output.
    Log,
    /// Stops the network function.
    Stop,
    /// Reads the time of each CPU in each state since the guest booted: a [`CpuActivity`] for each.
    CpuStates,
    /// Measures gaps on CPUs with one thread per CPU: a report as that of `quietwire host jitter --json`.
    Jitter {
        /// CPUs of the guest.
        cpus: CpuList,
        /// Duration, milliseconds, at most a minute.
        duration_ms: u64,
    },
    /// Runs a command: [`Ran`].
    Run {
        /// The program and its arguments.
        command: Vec<String>,
        /// Timeout, milliseconds, at most ten minutes.
        deadline_ms: u64,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer<T = Value> {
    /// Number of the request; 0 if it could not be parsed.
    pub id: u64,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome<T>,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome<T = Value> {
    /// The result, which has the type of the command's [`AgentResult`].
    Ok(T),
    /// The reason of a failure.
    Error(String),
}

/// Result of a command. The command determines its type; the host parses that type.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum AgentResult {
    /// Of [`AgentCommand::Hello`].
    Hello(Hello),
    /// Of [`AgentCommand::Start`].
    Started(Started),
    /// Of [`AgentCommand::Counters`].
    Counters(Vec<PortCounters>),
    /// Of [`AgentCommand::Cycles`].
    Cycles(CyclesReport),
    /// Of [`AgentCommand::Log`].
    Log(String),
    /// Of [`AgentCommand::Stop`]; `null`.
    Stopped,
    /// Of [`AgentCommand::CpuStates`].
    CpuStates(CpuStates),
    /// Of [`AgentCommand::Jitter`].
    Jitter(JitterReport),
    /// Of [`AgentCommand::Run`].
    Ran(Ran),
}

/// Description of an agent and its guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the protocol that it speaks.
    pub version: u32,
    /// Version of the quietwire program.
    pub quietwire: String,
    /// Release of the guest's kernel.
    pub kernel: String,
    /// The guest's CPUs.
    pub cpus: CpuList,
    /// PCI addresses of its ports, in order.
    pub ports: Vec<String>,
}

/// Request for a network function on all ports of the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Vnf {
    /// Its kind.
    pub kind: VnfKind,
    /// CPUs of the guest that forward. Default: all but the first, or the first if there is no other.
    #[serde(default)]
    pub forwarding_cpus: Option<CpuList>,
    /// Whether other threads use the underlying CPUs of the host, too. A program that supports it then sleeps when idle.
    #[serde(default)]
    pub shares_cpus: bool,
    /// Pairs of queues of each port, if a program drives it; at most as many as the port has.
    pub queues: u16,
    /// Largest frame, octets with FCS.
    pub frame_size_max: u16,
}

/// Kinds of network functions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VnfKind {
    /// DPDK's testpmd: forwards frames between the two ports of each pair.
    Testpmd(TestpmdMode),
    /// quietwire's switch with the ports of each pair connected; frames stay unchanged.
    CrossConnect,
    /// quietwire's switch with all ports in one learning bridge.
    Bridge,
    /// quietwire's switch as a firewall: the ports of each pair connected, with filter rules (TOML, `[[rule]]`) for received frames.
    Firewall(String),
    /// quietwire's switch as a router.
    Router(Routing),
    /// quietwire's switch with this configuration file (TOML). The agent adds the ports, named `p0`, `p1` and so
    /// on.
    Switch(String),
    /// The guest's kernel as a router.
    LinuxRouter(Routing),
    /// The guest's kernel, with all ports in one bridge.
    LinuxBridge,
}

/// Forwarding mode of testpmd (its option `--forward-mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestpmdMode {
    /// Forwards frames unchanged.
    Io,
    /// Sets both addresses: its own as the source, a generated one as the destination.
    Mac,
    /// Swaps both addresses.
    Macswap,
}

/// Configuration of a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Routing {
    /// Addresses of each port, with the length of their link's prefix, by the port's number.
    pub addresses: BTreeMap<usize, Vec<IpNet>>,
    /// Static routes: a prefix and its gateway.
    #[serde(default)]
    pub routes: Vec<(IpNet, IpAddr)>,
    /// Permanent neighbours: port, IP address, MAC address.
    #[serde(default)]
    pub neighbours: Vec<(usize, IpAddr, MacAddress)>,
}

/// A started network function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Every command, in order, for the result.
    pub commands: Vec<String>,
}

/// Counters of a network function's port since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Received frames that were dropped, as far as the program counts them.
    pub rx_dropped: u64,
    /// Frames that were dropped before transmission, as far as the program counts them.
    pub tx_dropped: u64,
}

/// Outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Its exit code; `None` if a signal or the deadline ended it.
    pub code: Option<i32>,
    /// Its output, both streams; only the end if it is long.
    pub output: String,
}

/// Time of each CPU in each state.
pub type CpuStates = Vec<CpuActivity>;

#[cfg(test)]
mod tests {
    use quietwire_base::fuzz::{check, planted};

    use super::*;

    #[test]
    fn messages_of_the_agent_are_readable_json() {
        let vnf = Vnf {
            kind: VnfKind::LinuxRouter(Routing {
                addresses: [(0, vec!["10.0.0.1/24".parse().unwrap()])].into(),
                routes: vec![("10.2.0.0/16".parse().unwrap(), "10.0.0.9".parse().unwrap())],
                neighbours: Vec::new(),
            }),
            forwarding_cpus: None,
            shares_cpus: true,
            queues: 1,
            frame_size_max: 1518,
        };
        let question = AgentRequest {
            version: VERSION,
            id: 7,
            ask: AgentCommand::Start(vnf),
        };
        let text = serde_json::to_string(&question).unwrap();
        assert_eq!(
            text,
            r#"{"version":3,"id":7,"ask":{"start":{"kind":{"linux-router":{"addresses":{"0":["10.0.0.1/24"]},"routes":[["10.2.0.0/16","10.0.0.9"]],"neighbours":[]}},"forwarding-cpus":null,"shares-cpus":true,"queues":1,"frame-size-max":1518}}}"#
        );
        assert_eq!(
            serde_json::from_str::<AgentRequest>(&text).unwrap(),
            question
        );
        let answer: Answer = serde_json::from_str(r#"{"id": 7, "error": "no"}"#).unwrap();
        assert_eq!(answer.outcome, Outcome::Error("no".to_owned()));
        serde_json::from_str::<Answer>(r#"{"id": 7}"#).unwrap_err();
    }

    /// Parses any octets as an answer, with each result that a host expects. What is accepted is the same after it was written.
    fn fuzz_answer(octets: &[u8]) -> bool {
        let Ok(answer) = serde_json::from_slice::<Answer>(octets) else {
            return false;
        };
        let line = serde_json::to_vec(&answer).unwrap();
        assert_eq!(serde_json::from_slice::<Answer>(&line).unwrap(), answer);
        let Outcome::Ok(value) = answer.outcome else {
            return true;
        };
        fn parsed<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
            serde_json::from_value(value.clone()).ok()
        }
        let known = [
            parsed::<Hello>(&value).is_some(),
            parsed::<Started>(&value).is_some(),
            parsed::<CyclesReport>(&value).is_some(),
            parsed::<CpuStates>(&value).is_some(),
            parsed::<JitterReport>(&value).is_some(),
            parsed::<Ran>(&value).is_some(),
        ];
        let counters: Option<Vec<PortCounters>> = parsed(&value);
        planted("lab-agent-answer", || {
            let is_large = |port: &PortCounters| port.rx_dropped == u64::MAX && port.tx_frames > 0;
            counters
                .as_ref()
                .is_some_and(|ports| ports.len() > 1 && ports.iter().any(is_large))
        });
        counters.is_some() || known.contains(&true)
    }

    #[test]
    fn fuzz_answers() {
        check(env!("CARGO_MANIFEST_DIR"), "lab-agent-answer", fuzz_answer);
    }
}
