// SPDX-License-Identifier: Apache-2.0
//! What host and agent say to each other: one JSON object a line, a question and its answer, told apart by number.

use std::collections::BTreeMap;

use ipnet::IpNet;
use quietwire_host::CpuList;
use quietwire_monitor::CpuActivity;
use quietwire_packet::MacAddress;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;

/// Version of the protocol. An agent answers its own only.
pub const VERSION: u32 = 3;

/// A question with what belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRequest {
    /// Version of the protocol that the host speaks.
    pub version: u32,
    /// Number of the question, which its answer has too.
    pub id: u64,
    /// What is asked.
    pub ask: AgentCommand,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCommand {
    /// Who it is: [`Hello`].
    Hello,
    /// To start a network function on the guest's ports; [`Started`] when it forwards.
    Start(Vnf),
    /// What the network function's ports have counted: a [`PortCounters`] for each.
    Counters,
    /// The last lines that the network function said.
    Log,
    /// To stop the network function.
    Stop,
    /// Time of each CPU in each state since the guest booted: a [`CpuActivity`] for each.
    CpuStates,
    /// Gaps that a thread alone on its CPU would see: a report as that of `quietwire host jitter --json`.
    Jitter {
        /// On which CPUs of the guest.
        cpus: CpuList,
        /// For how long, milliseconds, at most a minute.
        duration_ms: u64,
    },
    /// To run a command: [`Ran`].
    Run {
        /// The program and its arguments.
        command: Vec<String>,
        /// How long it may take, milliseconds, at most ten minutes.
        deadline_ms: u64,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Number of the question; 0 when it could not be read.
    pub id: u64,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The answer.
    Ok(Value),
    /// Why there is none.
    Error(String),
}

/// What an agent says of itself and of its guest.
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

/// A network function, on all ports of the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Vnf {
    /// Which.
    pub kind: VnfKind,
    /// CPUs of the guest that forward. All but the first when not said, and the first when there is no other.
    #[serde(default)]
    pub forwarding_cpus: Option<CpuList>,
    /// Whether the CPUs of the host that they run on are others', too: a program that can then sleeps when nothing comes.
    #[serde(default)]
    pub shares_cpus: bool,
    /// Pairs of queues of each port, where a program drives it; at most as many as the port has.
    pub queues: u16,
    /// Largest frame, octets with FCS.
    pub frame_size_max: u16,
}

/// Kinds of network functions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VnfKind {
    /// DPDK's testpmd: what comes in on the first port of a pair goes out on the second, and the other way round.
    Testpmd(TestpmdMode),
    /// quietwire's switch with the ports of each pair joined: frames go on as they are.
    CrossConnect,
    /// quietwire's switch with all ports in one learning bridge.
    Bridge,
    /// quietwire's switch as a firewall: the ports of each pair joined, with rules (TOML, `[[rule]]`) about what they let in.
    Firewall(String),
    /// quietwire's switch as a router.
    Router(Routing),
    /// quietwire's switch as its configuration file says (TOML), in which the ports are there already, named `p0`, `p1` and so
    /// on.
    Switch(String),
    /// The guest's kernel as a router.
    LinuxRouter(Routing),
    /// The guest's kernel, with all ports in one bridge.
    LinuxBridge,
}

/// What testpmd does with a frame (its option `--forward-mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestpmdMode {
    /// Forwards frames as they are.
    Io,
    /// Sets both addresses: its own as the source, a made one as the destination.
    Mac,
    /// Exchanges both addresses.
    Macswap,
}

/// How a router is set up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Routing {
    /// Addresses of each port, with the length of their link's prefix, by the port's number.
    pub addresses: BTreeMap<usize, Vec<IpNet>>,
    /// Static routes: a prefix and its gateway.
    #[serde(default)]
    pub routes: Vec<(IpNet, IpAddr)>,
    /// Neighbours that are not asked for: on which port, the IP address, the MAC address.
    #[serde(default)]
    pub neighbours: Vec<(usize, IpAddr, MacAddress)>,
}

/// A network function that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Every command, in order, for the record.
    pub commands: Vec<String>,
}

/// What a port of a network function has counted since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Frames that came in and were dropped, as far as it says.
    pub rx_dropped: u64,
    /// Frames that were to go out and were dropped, as far as it says.
    pub tx_dropped: u64,
}

/// A command that was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Its exit code; none when a signal or the deadline ended it.
    pub code: Option<i32>,
    /// What it printed; both streams, the end of it when it was long.
    pub output: String,
}

/// Time of each CPU in each state.
pub type CpuStates = Vec<CpuActivity>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_can_be_read_by_people() {
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
}
