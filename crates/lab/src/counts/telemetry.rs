// SPDX-License-Identifier: Apache-2.0
//! Counters of DPDK's own programs, over their telemetry sockets (DPDK's programmer's guide, "Telemetry Library"): a
//! SOCK_SEQPACKET connection on which the program first describes itself, and then answers each command with a JSON object.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use quietwire_base::Deadline;
use quietwire_tester::account::{DropStage, ElementCounts, PortCounts};
use serde_json::Value;

use super::too_late;
use crate::statistics::Statistics;

/// DPDK's directory of runtime files, one subdirectory per instance (`--file-prefix`).
const RUNTIME: &str = "/var/run/dpdk";
const SOCKET: &str = "dpdk_telemetry.v2";
const STATISTICS: &str = "/ethdev/stats";
const EXTENDED: &str = "/ethdev/xstats";
/// Largest answer that is read, octets. Programs report a limit of 16 KiB.
const ANSWER_MAX: usize = 64 << 10;

/// Counters of `struct rte_eth_stats` that count drops. Frames without a buffer (`rx_nombuf`) stay in the ring of a shared-memory
/// link and are not lost.
const DROPS: [(&str, DropStage); 3] = [
    ("imissed", DropStage::BeforeReceipt),
    ("ierrors", DropStage::BeforeReceipt),
    ("oerrors", DropStage::ToSend),
];

/// Reads the counters of the first `ports` ports of the program with this file prefix.
pub(crate) fn of_program(
    prefix: &str,
    ports: usize,
    deadline: Deadline,
) -> Result<ElementCounts, String> {
    let path = PathBuf::from(RUNTIME).join(prefix).join(SOCKET);
    of_socket(&path, ports, deadline)
        .map_err(|reason| format!("its telemetry at {}: {reason}", path.display()))
}

/// Reads the extended statistics of the first `ports` ports of the program with this file prefix.
pub(crate) fn statistics_of_program(
    prefix: &str,
    ports: usize,
    deadline: Deadline,
) -> Result<Statistics, String> {
    let path = PathBuf::from(RUNTIME).join(prefix).join(SOCKET);
    statistics_of_socket(&path, ports, deadline)
        .map_err(|reason| format!("its telemetry at {}: {reason}", path.display()))
}

fn statistics_of_socket(
    path: &Path,
    ports: usize,
    deadline: Deadline,
) -> Result<Statistics, String> {
    let mut program = Program::connect(path, deadline)?;
    let mut statistics = Statistics::default();
    for port in 0..ports {
        let request = format!("{EXTENDED},{port}");
        let answer = program.ask(&request)?;
        if !statistics.of_telemetry(&format!("p{port}"), &answer) {
            statistics.lacks(&request, "the driver has no statistics");
        }
    }
    Ok(statistics)
}

fn of_socket(path: &Path, ports: usize, deadline: Deadline) -> Result<ElementCounts, String> {
    let mut program = Program::connect(path, deadline)?;
    let mut counts = ElementCounts::default();
    for port in 0..ports {
        let answer = program.ask(&format!("{STATISTICS},{port}"))?;
        counts.ports.insert(format!("p{port}"), counts_of(&answer)?);
    }
    Ok(counts)
}

fn counts_of(answer: &Value) -> Result<PortCounts, String> {
    let stats = answer.get(STATISTICS);
    let count = |key: &str| {
        let number = stats.and_then(|stats| stats.get(key)?.as_u64());
        number.ok_or_else(|| format!("no {key} in {answer}"))
    };
    let mut port = PortCounts {
        received: count("ipackets")?,
        sent: count("opackets")?,
        ..PortCounts::default()
    };
    for (key, stage) in DROPS {
        port = port.with_drops(stage, key, count(key)?);
    }
    Ok(port)
}

/// A connection to a program.
struct Program {
    socket: OwnedFd,
    deadline: Deadline,
}

impl Program {
    fn connect(path: &Path, deadline: Deadline) -> Result<Self, String> {
        let of_errno = |errno: nix::Error| errno.to_string();
        let socket = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map_err(of_errno)?;
        let address = UnixAddr::new(path).map_err(of_errno)?;
        let mut program = Self { socket, deadline };
        program.limit()?;
        connect(program.socket.as_raw_fd(), &address).map_err(of_errno)?;
        // The program's version, which no answer here depends on.
        program.receive()?;
        Ok(program)
    }

    /// Sets the socket's timeouts so that no call exceeds the deadline.
    fn limit(&self) -> Result<(), String> {
        let left = self.deadline.remaining();
        if left.is_zero() {
            return Err(too_late());
        }
        let left = i64::try_from(left.as_micros().max(1)).unwrap_or(i64::MAX);
        let left = TimeVal::microseconds(left);
        setsockopt(&self.socket, sockopt::ReceiveTimeout, &left)
            .and_then(|()| setsockopt(&self.socket, sockopt::SendTimeout, &left))
            .map_err(|errno| errno.to_string())
    }

    fn ask(&mut self, command: &str) -> Result<Value, String> {
        self.limit()?;
        send(
            self.socket.as_raw_fd(),
            command.as_bytes(),
            MsgFlags::MSG_NOSIGNAL,
        )
        .map_err(|errno| errno.to_string())?;
        self.receive()
    }

    fn receive(&mut self) -> Result<Value, String> {
        self.limit()?;
        let mut octets = vec![0; ANSWER_MAX];
        let length =
            recv(self.socket.as_raw_fd(), &mut octets, MsgFlags::empty()).map_err(|errno| {
                match errno {
                    nix::Error::EAGAIN => too_late(),
                    errno => errno.to_string(),
                }
            })?;
        if length == 0 {
            return Err("it closed the connection".to_owned());
        }
        serde_json::from_slice(octets.get(..length).unwrap_or_default())
            .map_err(|error| format!("its answer is not JSON: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::socket::{Backlog, accept, bind, listen};

    use quietwire_base::fuzz::{check, planted};

    use super::*;

    const INFO: &str = r#"{"version":"DPDK 22.11.11","pid":7,"max_output_len":16384}"#;

    /// A program that sends these packets, the first on connection then one per command, and
    /// then closes the connection. Returns the commands that it received.
    fn program(path: &Path, says: Vec<String>) -> std::thread::JoinHandle<Vec<String>> {
        let server = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::empty(),
            None,
        )
        .unwrap();
        bind(server.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        listen(&server, Backlog::new(1).unwrap()).unwrap();
        std::thread::spawn(move || {
            let client = accept(server.as_raw_fd()).unwrap();
            let mut asked = Vec::new();
            for (index, text) in says.iter().enumerate() {
                if index > 0 {
                    let mut command = [0; 100];
                    let length = recv(client, &mut command, MsgFlags::empty()).unwrap();
                    asked.push(String::from_utf8_lossy(&command[..length]).into_owned());
                }
                send(client, text.as_bytes(), MsgFlags::empty()).unwrap();
            }
            nix::unistd::close(client).unwrap();
            asked
        })
    }

    fn stats(received: u64, sent: u64) -> String {
        format!(
            r#"{{"/ethdev/stats":{{"ipackets":{received},"opackets":{sent},"ibytes":1,"obytes":2,"imissed":3,"ierrors":4,"oerrors":5,"rx_nombuf":6,"q_ipackets":[7,8]}}}}"#
        )
    }

    #[test]
    fn each_port_is_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let running = program(&path, vec![INFO.to_owned(), stats(100, 50), stats(60, 70)]);
        let counts = of_socket(&path, 2, Deadline::after(Duration::from_secs(20))).unwrap();
        assert_eq!(
            running.join().unwrap(),
            ["/ethdev/stats,0", "/ethdev/stats,1"]
        );
        let expected = PortCounts {
            received: 100,
            sent: 50,
            ..PortCounts::default()
        }
        .with_drops(DropStage::BeforeReceipt, "imissed", 3)
        .with_drops(DropStage::BeforeReceipt, "ierrors", 4)
        .with_drops(DropStage::ToSend, "oerrors", 5);
        assert_eq!(counts.ports["p0"], expected);
        assert_eq!(counts.ports["p1"].sent, 70);
    }

    #[test]
    fn each_port_is_asked_for_its_extended_statistics() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let known = r#"{"/ethdev/xstats":{"rx_good_packets":100,"rx_q0_errors":2}}"#;
        let none = r#"{"/ethdev/xstats":null}"#;
        let says = [INFO, known, none].map(str::to_owned);
        let running = program(&path, says.to_vec());
        let deadline = Deadline::after(Duration::from_secs(20));
        let found = statistics_of_socket(&path, 2, deadline).unwrap();
        assert_eq!(
            running.join().unwrap(),
            ["/ethdev/xstats,0", "/ethdev/xstats,1"]
        );
        assert_eq!(found.ports["p0"]["rx_q0_errors"], 2);
        assert_eq!((found.ports.len(), found.unavailable.len()), (1, 1));
        assert!(found.unavailable.contains_key("/ethdev/xstats,1"));
    }

    #[test]
    fn silence_nonsense_and_absence_have_their_words() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let long = || Deadline::after(Duration::from_secs(20));
        let reason = of_socket(&path("none"), 1, long()).unwrap_err();
        assert!(reason.contains("ENOENT"), "{reason}");
        for (name, says, part) in [
            ("gone", vec![INFO.to_owned()], "closed the connection"),
            ("no JSON", vec!["hello".to_owned()], "not JSON"),
            (
                "no port",
                vec![INFO.to_owned(), r#"{"/ethdev/stats":null}"#.to_owned()],
                "no ipackets",
            ),
        ] {
            let running = program(&path(name), says);
            let reason = of_socket(&path(name), 1, long()).unwrap_err();
            // A program that closes the connection may be gone before the command, or with the command unread.
            let is_gone = ["EPIPE", "ECONNRESET"].map(|errno| reason.contains(errno));
            assert!(
                reason.contains(part) || is_gone.contains(&true),
                "{name}: {reason}"
            );
            drop(running.join());
        }
        // A program that accepts no connection and sends nothing.
        let server = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::empty(),
            None,
        )
        .unwrap();
        bind(server.as_raw_fd(), &UnixAddr::new(&path("silent")).unwrap()).unwrap();
        listen(&server, Backlog::new(1).unwrap()).unwrap();
        let reason = of_socket(
            &path("silent"),
            1,
            Deadline::after(Duration::from_millis(50)),
        );
        assert!(reason.unwrap_err().contains("no counters within"));
    }

    /// Parses any octets as a reply of DPDK's telemetry.
    fn fuzz_telemetry(octets: &[u8]) -> bool {
        let Ok(value) = serde_json::from_slice::<Value>(octets) else {
            return false;
        };
        let counts = counts_of(&value);
        planted("lab-telemetry", || {
            counts
                .as_ref()
                .is_ok_and(|counts| counts.received == u64::MAX)
        });
        counts.is_ok()
    }

    #[test]
    fn fuzz_replies() {
        check(env!("CARGO_MANIFEST_DIR"), "lab-telemetry", fuzz_telemetry);
    }
}
