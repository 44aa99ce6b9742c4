// SPDX-License-Identifier: Apache-2.0
//! TCP throughput by iperf3: a server and a client, each in its own location, and the results of both.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::supervised::{Command, Streams, Supervised, never_orphaned};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::netns::NetNs;
use crate::spawn::require;

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IperfDirection {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct IperfOptions {
    /// Location of the server.
    pub server: NetNs,
    /// Location of the client.
    pub client: NetNs,
    /// The server's address.
    pub address: IpAddr,
    /// Port of the server.
    pub port: u16,
    /// Duration of sending, whole seconds.
    pub duration: Duration,
    /// Parallel connections, 1 to 128.
    pub streams: u8,
}

/// Result of one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IperfResult {
    /// Direction of the data.
    pub direction: IperfDirection,
    /// Duration, seconds.
    pub elapsed_s: f64,
    /// Parallel connections.
    pub streams: u8,
    /// Octets of data sent.
    pub sent_octets: u64,
    /// Octets of data that arrived.
    pub received_octets: u64,
    /// Bits of data per second that arrived.
    pub received_bps: f64,
    /// Retransmitted segments; `None` if the sender's kernel does not report them.
    pub retransmits: Option<u64>,
    /// Round-trip time that the sender's kernel reports, mean over the connections, microseconds.
    pub mean_rtt_us: Option<f64>,
    /// CPU of the client's side, percent of one.
    pub client_cpu_percent: f64,
    /// CPU of the server's side, percent of one.
    pub server_cpu_percent: f64,
}

/// Time until the server listens.
const START: Duration = Duration::from_secs(10);
/// Time of a run beyond its duration.
const GRACE: Duration = Duration::from_secs(15);
/// Interval between two polls.
const POLL: Duration = Duration::from_millis(20);
/// Time that a process has to end after a request.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Largest output, octets: iperf3 reports every second of every connection.
const OUTPUT_MAX: usize = 256 << 20;
/// Maximum of parallel connections: iperf3's own limit.
const STREAMS_MAX: u8 = 128;
/// Longest run: iperf3's own limit, a day.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// Sends data in one direction for the requested time. Both processes end with the call, even if it fails.
///
/// # Errors
/// [`LabError`]: iperf3 is not installed, the server does not listen or cannot be reached, or it takes too long.
pub fn run(
    options: &IperfOptions,
    direction: IperfDirection,
    abort: &AtomicBool,
) -> Result<IperfResult, LabError> {
    check(options)?;
    require("iperf3", "iperf3")?;
    let words = [server_words(options), client_words(options, direction)];
    exchange(options, direction, &words, abort)
}

/// Runs a server and a client with these commands. The client is started again until the server listens.
fn exchange(
    options: &IperfOptions,
    direction: IperfDirection,
    [server, client]: &[Vec<String>; 2],
    abort: &AtomicBool,
) -> Result<IperfResult, LabError> {
    let deadline = Deadline::after(START);
    let mut server = Running::start(&options.server, server)?;
    loop {
        let mut client = Running::start(&options.client, client)?;
        let longest = options.duration.saturating_add(GRACE);
        let printed = client.finish(Deadline::after(longest), abort)?;
        let refused = printed.contains("Connection refused");
        if refused && !deadline.has_passed() && !server.child.has_ended() {
            std::thread::sleep(POLL);
            continue;
        }
        return match read(&printed, options, direction) {
            Ok(result) => Ok(result),
            Err(words) => {
                // A server that ended by itself printed the reason.
                let own = if server.child.has_ended() {
                    server.child.printed()
                } else {
                    String::new()
                };
                Err(failed(&client.command, &format!("{words}\n{own}")))
            }
        };
    }
}

fn check(options: &IperfOptions) -> Result<(), LabError> {
    let bad = |text: String| Err(LabError::BadIperf(text));
    if !(1..=STREAMS_MAX).contains(&options.streams) {
        return bad(format!(
            "{} parallel connections are out of range (iperf3 supports 1 to {STREAMS_MAX})",
            options.streams
        ));
    }
    if options.duration < Duration::from_secs(1) || options.duration > DURATION_MAX {
        return bad(format!(
            "a duration of {} s is out of range (iperf3 supports 1 s to a day)",
            options.duration.as_secs_f64()
        ));
    }
    if options.port == 0 {
        return bad("port 0 is out of range (use a port from 1 to 65535)".to_owned());
    }
    Ok(())
}

fn failed(command: &str, printed: &str) -> LabError {
    let printed = printed.trim();
    LabError::Iperf {
        printed: if printed.is_empty() {
            "(it said nothing)".to_owned()
        } else {
            printed.to_owned()
        },
        command: command.to_owned(),
    }
}

fn server_words(options: &IperfOptions) -> Vec<String> {
    let (address, port) = (options.address.to_string(), options.port.to_string());
    let words = ["iperf3", "-s", "-1", "-B", &address, "-p", &port];
    words.map(str::to_owned).to_vec()
}

fn client_words(options: &IperfOptions, direction: IperfDirection) -> Vec<String> {
    let (address, port) = (options.address.to_string(), options.port.to_string());
    let seconds = options.duration.as_secs().to_string();
    let streams = options.streams.to_string();
    let timeout = START.as_millis().to_string();
    let words = [
        "iperf3",
        "-c",
        &address,
        "-p",
        &port,
        "-t",
        &seconds,
        "-P",
        &streams,
        "--json",
        "--connect-timeout",
        &timeout,
    ];
    let reverse = (direction == IperfDirection::Down).then_some("-R");
    words
        .into_iter()
        .chain(reverse)
        .map(str::to_owned)
        .collect()
}

/// A process and its command; the process ends when the value is dropped.
struct Running {
    child: Supervised,
    command: String,
}

impl Running {
    fn start(place: &NetNs, words: &[String]) -> Result<Self, LabError> {
        let words = place.command(words)?;
        let command = words.join(" ");
        // Errors may be on either output.
        let started = Command::of(&never_orphaned(&words)).start(Streams::Captured(OUTPUT_MAX));
        let mut child = started.map_err(|error| failed(&command, &error.to_string()))?;
        child.set_timeout(TIMEOUT);
        Ok(Self { child, command })
    }

    /// Waits for the end of the process, and returns its output.
    fn finish(&mut self, deadline: Deadline, abort: &AtomicBool) -> Result<String, LabError> {
        let ended = deadline.poll(POLL, || {
            if abort.load(Ordering::Relaxed) {
                return Some(Err(LabError::Aborted));
            }
            match self.child.exit() {
                Ok(None) => None,
                Ok(Some(_)) => Some(Ok(())),
                Err(error) => Some(Err(failed(&self.command, &error.to_string()))),
            }
        });
        let late = || {
            Err(failed(
                &self.command,
                "it did not end in time and was killed",
            ))
        };
        ended.unwrap_or_else(late)?;
        Ok(self.child.printed())
    }
}

/// Used parts of iperf3's JSON (`--json`, iperf3(1)).
#[derive(Deserialize)]
struct IperfOutput {
    error: Option<String>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct End {
    #[serde(default)]
    streams: Vec<StreamEnd>,
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    cpu_utilization_percent: Option<Cpu>,
}

#[derive(Deserialize)]
struct StreamEnd {
    sender: Option<Sender>,
}

#[derive(Deserialize)]
struct Sender {
    mean_rtt: Option<f64>,
}

#[derive(Deserialize)]
struct Sum {
    seconds: f64,
    bytes: u64,
    bits_per_second: f64,
    retransmits: Option<u64>,
}

#[derive(Deserialize)]
struct Cpu {
    host_total: f64,
    remote_total: f64,
}

/// Returns the results, or iperf3's error.
fn read(
    text: &str,
    options: &IperfOptions,
    direction: IperfDirection,
) -> Result<IperfResult, String> {
    let printed: IperfOutput = serde_json::from_str(text).map_err(|_| text.to_owned())?;
    if let Some(error) = printed.error {
        return Err(error);
    }
    let incomplete = || "its JSON has no figures at its end".to_owned();
    let end = printed.end.ok_or_else(incomplete)?;
    let (Some(sent), Some(received), Some(cpu)) =
        (end.sum_sent, end.sum_received, end.cpu_utilization_percent)
    else {
        return Err(incomplete());
    };
    let rtts = end
        .streams
        .iter()
        .filter_map(|stream| stream.sender.as_ref()?.mean_rtt);
    // Only the sender knows round-trip times; iperf3 reports zero for the receiver.
    let rtts: Vec<f64> = rtts.filter(|rtt| *rtt > 0.0).collect();
    Ok(IperfResult {
        direction,
        elapsed_s: received.seconds,
        streams: options.streams,
        sent_octets: sent.bytes,
        received_octets: received.bytes,
        received_bps: received.bits_per_second,
        retransmits: sent.retransmits,
        mean_rtt_us: (!rtts.is_empty()).then(|| rtts.iter().sum::<f64>() / rtts.len() as f64),
        client_cpu_percent: cpu.host_total,
        server_cpu_percent: cpu.remote_total,
    })
}

#[cfg(test)]
mod tests {
    use quietwire_base::faults::{Random, SpawnFaults, When, run_seeds};
    use quietwire_base::fuzz::{check, planted};

    use super::*;

    fn options(port: u16) -> IperfOptions {
        IperfOptions {
            server: NetNs::Current,
            client: NetNs::Current,
            address: IpAddr::from([127, 0, 0, 1]),
            port,
            duration: Duration::from_secs(1),
            streams: 2,
        }
    }

    /// Returns two ports that were free a moment ago.
    fn free_ports() -> [u16; 2] {
        let listeners =
            [0; 2].map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
        listeners.map(|listener| listener.local_addr().unwrap().port())
    }

    #[test]
    fn data_go_both_ways() {
        let never = AtomicBool::new(false);
        let check = |direction, port| {
            let result = run(&options(port), direction, &never).unwrap();
            assert_eq!((result.direction, result.streams), (direction, 2));
            assert!(result.received_octets > 1_000_000, "{result:?}");
            assert!(result.sent_octets >= result.received_octets, "{result:?}");
            assert!(
                result.received_bps > 0.0 && result.elapsed_s > 0.5,
                "{result:?}"
            );
        };
        // At once: each takes a second.
        let [up, down] = free_ports();
        std::thread::scope(|scope| {
            scope.spawn(|| check(IperfDirection::Up, up));
            check(IperfDirection::Down, down);
        });
    }

    #[test]
    fn errors_of_iperf3_are_reported_and_missing_figures_are_not_invented() {
        let options = options(5201);
        let read = |text: &str| read(text, &options, IperfDirection::Up).unwrap_err();
        let refused = r#"{"start":{},"intervals":[],"end":{},"error":"unable to connect"}"#;
        assert_eq!(read(refused), "unable to connect");
        assert!(read(r#"{"start":{},"end":{}}"#).contains("no figures"));
        assert_eq!(read("iperf3: error - x"), "iperf3: error - x");
        assert!(
            read(r#"{"end":{"sum_sent":{"seconds":1,"bytes":1,"bits_per_second":1}}}"#)
                .contains("no figures")
        );
    }

    #[test]
    fn invalid_options_are_refused() {
        let never = AtomicBool::new(false);
        for (options, reported) in [
            (
                IperfOptions {
                    streams: 0,
                    ..options(1)
                },
                "1 to 128",
            ),
            (
                IperfOptions {
                    duration: Duration::from_millis(10),
                    ..options(1)
                },
                "1 s to a day",
            ),
            (options(0), "port 0"),
        ] {
            let error = run(&options, IperfDirection::Up, &never).unwrap_err();
            assert_eq!(error.fault(), quietwire_base::Fault::BadInput);
            assert!(error.to_string().contains(reported), "{error}");
        }
    }

    #[test]
    fn a_server_that_cannot_listen_is_reported_with_its_words() {
        require("iperf3", "iperf3").unwrap();
        let never = AtomicBool::new(false);
        // The port is in use, so the server cannot bind it, and the listener never answers as iperf3 does.
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        drop(std::thread::spawn(move || drop(taken.accept())));
        let error = run(&options(port), IperfDirection::Up, &never)
            .unwrap_err()
            .to_string();
        assert!(error.contains("iperf3 -c"), "{error}");
    }

    /// Programs that run in place of iperf3: a server without end, and a client that prints a result.
    fn stand_ins() -> [Vec<String>; 2] {
        const PRINTED: &str = r#"{"end":{"sum_sent":{"seconds":1,"bytes":8,"bits_per_second":64},
            "sum_received":{"seconds":1,"bytes":7,"bits_per_second":56},
            "cpu_utilization_percent":{"host_total":1,"remote_total":2}}}"#;
        [["sleep", "600"], ["echo", PRINTED]].map(|words| words.map(str::to_owned).to_vec())
    }

    /// Seeds of `make test`.
    const SEEDS: u64 = 30;

    #[test]
    fn there_is_a_result_or_a_reason_and_no_process_after_any_fault_of_spawning() {
        let never = AtomicBool::new(false);
        let (options, words) = (options(5201), stand_ins());
        let mut refused = 0;
        let seeds = run_seeds(SEEDS, "quietwire-lab", "iperf::tests::there_is", |seed| {
            let faults = SpawnFaults::new(When::OneIn(3), None, Random::new(seed));
            match faults.run(|| exchange(&options, IperfDirection::Up, &words, &never)) {
                Ok(result) => assert_eq!(result.received_octets, 7),
                Err(error) => {
                    assert!(!faults.happened().is_empty(), "{error}");
                    refused += 1;
                }
            }
            let left = faults.left();
            assert!(left.is_empty(), "{left:?}: {:#?}", faults.happened());
        });
        assert!(seeds < SEEDS || refused > seeds / 10, "{refused}");
    }

    /// Reads any text as iperf3's JSON. There is a result or a reason.
    fn fuzz_iperf(octets: &[u8]) -> bool {
        let text = String::from_utf8_lossy(octets);
        let Ok(result) = read(&text, &options(5201), IperfDirection::Down) else {
            return false;
        };
        assert!(result.mean_rtt_us.is_none_or(|rtt| rtt > 0.0));
        assert!(serde_json::to_string(&result).is_ok());
        planted("lab-iperf", || {
            result.retransmits > Some(1_000_000_000) && result.mean_rtt_us.is_some()
        });
        true
    }

    #[test]
    fn fuzz_results() {
        check(env!("CARGO_MANIFEST_DIR"), "lab-iperf", fuzz_iperf);
    }
}
