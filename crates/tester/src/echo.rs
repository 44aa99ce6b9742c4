// SPDX-License-Identifier: Apache-2.0
//! Echo service over UDP or TCP, and its round-trip times: the latency that an application sees, including the kernel.

mod client;
mod server;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

pub use client::run;
pub use server::EchoServer;

use crate::latency::LatencySummary;

/// Smallest request, octets: its number and the run that it belongs to. The remaining octets of larger requests are zeros.
pub const PAYLOAD_MIN: u16 = 16;
/// Largest request, octets: the limit of UDP over IPv4.
pub const PAYLOAD_MAX: u16 = 65_507;

/// Transport protocol of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EchoTransport {
    /// One datagram per request and per reply.
    Udp,
    /// One connection, without Nagle's algorithm.
    Tcp,
}

/// Options of an echo client.
#[derive(Clone, Debug, PartialEq)]
pub struct EchoOptions {
    /// Address of the service.
    pub server: SocketAddr,
    /// Transport protocol.
    pub transport: EchoTransport,
    /// Request size in octets, [`PAYLOAD_MIN`] to [`PAYLOAD_MAX`].
    pub payload_octets: u16,
    /// Duration of the transmission.
    pub duration: Duration,
    /// Interval between requests, regardless of outstanding replies. If it is zero, each request waits for the previous reply.
    pub interval: Duration,
    /// Timeout of a reply, and of connecting.
    pub timeout: Duration,
}

/// Result of an echo client.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EchoResult {
    /// Address of the service.
    pub server: SocketAddr,
    /// Transport protocol.
    pub transport: EchoTransport,
    /// Request size, octets.
    pub payload_octets: u16,
    /// Duration of the run, seconds.
    pub elapsed_s: f64,
    /// Requests sent.
    pub requests: u64,
    /// Replies received in time.
    pub replies: u64,
    /// Replies received after the timeout. Their requests count as lost.
    pub late_replies: u64,
    /// Requests without a reply in time.
    pub lost: u64,
    /// Longest time from when a request was due to its transmission, nanoseconds: the client's own part of the round-trip time. 0 without
    /// a schedule.
    pub longest_send_delay_ns: u64,
    /// Round-trip times of the replies received in time, measured from when their requests were due.
    pub round_trip: LatencySummary,
}

/// Error of an echo client or an echo service.
#[derive(Debug, thiserror::Error)]
pub enum EchoError {
    /// The options are invalid.
    #[error("{0}")]
    BadInput(String),
    /// The service cannot be started.
    #[error("no echo service at {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The service cannot be reached.
    #[error(
        "cannot reach the echo service at {server}: {error} (check that it runs and that there is a route to it)"
    )]
    Unreachable {
        /// The address of the service.
        server: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The connection ended.
    #[error(
        "the connection to the echo service at {server} was lost after {replies} replies: {error}"
    )]
    Lost {
        /// The address of the service.
        server: SocketAddr,
        /// Replies received before.
        replies: u64,
        /// The system's error.
        error: io::Error,
    },
    /// The abort flag was set.
    #[error("the measurement was aborted")]
    Aborted,
    /// The round-trip times cannot be summarised.
    #[error("cannot summarise the round-trip times: {0}")]
    Result(String),
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::scope;

    use super::*;

    fn options(server: SocketAddr, transport: EchoTransport) -> EchoOptions {
        EchoOptions {
            server,
            transport,
            payload_octets: 100,
            duration: Duration::from_millis(200),
            interval: Duration::from_micros(200),
            timeout: Duration::from_secs(5),
        }
    }

    /// Stops the service when dropped, so that a failing test does not hang.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn requests_over_both_protocols_are_answered() {
        const RUNS_MAX: usize = 8;
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let server = EchoServer::bind(local.parse().unwrap()).unwrap();
            let address = server.address();
            let stop = AtomicBool::new(false);
            scope(|scope| {
                scope.spawn(|| server.serve(&stop));
                let _stop = Stop(&stop);
                for transport in [EchoTransport::Udp, EchoTransport::Tcp] {
                    for payload_octets in [PAYLOAD_MIN, 1400, 60_000] {
                        let options = EchoOptions {
                            payload_octets,
                            duration: Duration::from_millis(100),
                            // The requests in flight must fit the sockets' buffers.
                            interval: Duration::from_micros(100 + u64::from(payload_octets) / 10),
                            ..options(address, transport)
                        };
                        let never = AtomicBool::new(false);
                        let mut runs = (0..RUNS_MAX).map(|_| {
                            let result = run(&options, &never).unwrap();
                            assert!(result.requests > 0);
                            assert_eq!(result.replies + result.lost, result.requests);
                            result
                        });
                        // If another program has the CPUs for some milliseconds, the buffers of UDP sockets overflow.
                        let result = runs.find(|result| result.lost == 0).unwrap();
                        let times = &result.round_trip;
                        assert_eq!(times.samples, result.replies);
                        assert!(times.min_ns > 0 && times.min_ns as f64 <= times.mean_ns);
                        assert!(times.mean_ns <= times.max_ns as f64);
                    }
                }
            });
        }
    }

    /// Peers that connect and send nothing take no place from a client.
    #[test]
    fn connections_that_send_nothing_do_not_block_others() {
        let server = EchoServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address();
        let stop = AtomicBool::new(false);
        scope(|scope| {
            scope.spawn(|| server.serve(&stop));
            let _stop = Stop(&stop);
            // More than the service has places, and no more than wait for accept(2).
            let silent: Vec<_> = (0..100)
                .map(|_| TcpStream::connect(address).unwrap())
                .collect();
            let never = AtomicBool::new(false);
            let result = run(&options(address, EchoTransport::Tcp), &never).unwrap();
            assert!(result.replies > 0, "{result:?}");
            drop(silent);
        });
    }

    /// A service that stalls delays every request that was due during the stall, not only one.
    #[test]
    fn a_stall_is_observed_by_every_request_that_was_due() {
        let service = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = service.local_addr().unwrap();
        let (never, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let stall = Duration::from_millis(100);
        let result = scope(|scope| {
            scope.spawn(|| {
                service
                    .set_read_timeout(Some(Duration::from_millis(10)))
                    .unwrap();
                let mut octets = [0; 2000];
                let mut has_stalled = false;
                while !stop.load(Ordering::Relaxed) {
                    let Ok((length, from)) = service.recv_from(&mut octets) else {
                        continue;
                    };
                    if !std::mem::replace(&mut has_stalled, true) {
                        std::thread::sleep(stall);
                    }
                    service.send_to(&octets[..length], from).unwrap();
                }
            });
            let _stop = Stop(&stop);
            let options = EchoOptions {
                interval: Duration::from_millis(1),
                duration: Duration::from_millis(200),
                ..options(address, EchoTransport::Udp)
            };
            run(&options, &never).unwrap()
        });
        assert_eq!((result.requests, result.lost), (200, 0), "{result:?}");
        // The first waits for 100 ms, the second for 99 ms, and so on. Half of them wait for 50 ms on average.
        assert!(result.round_trip.mean_ns > 20e6, "{result:?}");
        assert!(result.round_trip.p50_ns.is_some(), "{result:?}");
    }

    /// A reply after the timeout is counted as late, and its request as lost.
    #[test]
    fn a_late_reply_is_counted_and_its_request_is_lost() {
        let service = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = service.local_addr().unwrap();
        let (never, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let timeout = Duration::from_millis(50);
        let result = scope(|scope| {
            scope.spawn(|| {
                service
                    .set_read_timeout(Some(Duration::from_millis(10)))
                    .unwrap();
                let mut octets = [0; 2000];
                let mut has_stalled = false;
                while !stop.load(Ordering::Relaxed) {
                    let Ok((length, from)) = service.recv_from(&mut octets) else {
                        continue;
                    };
                    if !std::mem::replace(&mut has_stalled, true) {
                        std::thread::sleep(2 * timeout);
                    }
                    service.send_to(&octets[..length], from).unwrap();
                }
            });
            let _stop = Stop(&stop);
            let options = EchoOptions {
                interval: Duration::from_millis(10),
                duration: Duration::from_millis(400),
                timeout,
                ..options(address, EchoTransport::Udp)
            };
            run(&options, &never).unwrap()
        });
        // At least the first request: its reply leaves after twice the timeout.
        assert!(result.late_replies > 0, "{result:?}");
        assert!(result.lost >= result.late_replies, "{result:?}");
        assert_eq!(result.requests, result.replies + result.lost, "{result:?}");
    }

    #[test]
    fn a_service_that_does_not_answer_is_loss_or_an_error_and_never_a_hang() {
        let never = AtomicBool::new(false);
        // A bound socket that never replies.
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut asked = options(silent.local_addr().unwrap(), EchoTransport::Udp);
        asked.timeout = Duration::from_millis(20);
        let result = run(&asked, &never).unwrap();
        assert!(result.requests > 0 && result.lost == result.requests);
        assert_eq!(
            (result.round_trip.samples, result.round_trip.p50_ns),
            (0, None)
        );
        let soon = |server, transport| EchoOptions {
            timeout: Duration::from_millis(200),
            ..options(server, transport)
        };
        // An address without a listener.
        let gone = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let error = run(&soon(gone, EchoTransport::Tcp), &never).unwrap_err();
        assert!(matches!(error, EchoError::Unreachable { .. }), "{error}");
        let error = run(&soon(gone, EchoTransport::Udp), &never).unwrap_err();
        assert!(matches!(error, EchoError::Unreachable { .. }), "{error}");
        // A service that accepts and closes.
        let closing = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = closing.local_addr().unwrap();
        let accepted = std::thread::spawn(move || drop(closing.accept()));
        let error = run(&soon(address, EchoTransport::Tcp), &never).unwrap_err();
        assert!(matches!(error, EchoError::Lost { .. }), "{error}");
        accepted.join().unwrap();
        // A client that is aborted from the start.
        let at_once = AtomicBool::new(true);
        let error = run(&asked, &at_once).unwrap_err();
        assert!(matches!(error, EchoError::Aborted), "{error}");
    }

    #[test]
    fn invalid_options_are_refused() {
        let never = AtomicBool::new(false);
        let good = options("127.0.0.1:9".parse().unwrap(), EchoTransport::Udp);
        for (options, reported) in [
            (
                EchoOptions {
                    payload_octets: 15,
                    ..good.clone()
                },
                "16 to 65507",
            ),
            (
                EchoOptions {
                    duration: Duration::ZERO,
                    ..good.clone()
                },
                "duration",
            ),
            (
                EchoOptions {
                    timeout: Duration::ZERO,
                    ..good.clone()
                },
                "timeout",
            ),
        ] {
            let error = run(&options, &never).unwrap_err().to_string();
            assert!(error.contains(reported), "{error}");
        }
    }
}
