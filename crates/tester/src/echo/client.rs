// SPDX-License-Identifier: Apache-2.0
//! Asks an echo service, one request at a time, and takes the time of each reply.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{EchoError, EchoOptions, EchoResult, EchoTransport, PAYLOAD_MAX, PAYLOAD_MIN};
use crate::latency::Recorder;

/// The longest wait in one go, so that an abort is seen soon.
const PATIENCE: Duration = Duration::from_millis(100);
/// The last of a wait for the next request is spent looking at the clock: a sleep is late by about as much.
const SPIN: Duration = Duration::from_micros(200);

/// What came back.
enum Reply {
    /// Of this number.
    Of(u64),
    /// Nothing yet.
    None,
}

/// A way to the service.
enum Way {
    Udp(UdpSocket),
    Tcp { stream: TcpStream, filled: usize },
}

/// Asks for as long as the options say, or until `abort` is set.
///
/// # Errors
/// [`EchoError`]. Requests that are not answered are no error but loss.
pub fn run(options: &EchoOptions, abort: &AtomicBool) -> Result<EchoResult, EchoError> {
    check(options)?;
    let mut way = Way::open(options)?;
    let mut octets = Buffers::new(options);
    let mut times = Recorder::default();
    let (mut requests, mut replies, mut late_replies) = (0, 0, 0);
    let began = Instant::now();
    while began.elapsed() < options.duration {
        let due = began + options.interval.saturating_mul(requests_as_u32(requests));
        if !wait_until(due.min(began + options.duration), abort) {
            return Err(EchoError::Aborted);
        }
        if began.elapsed() >= options.duration {
            break;
        }
        octets.number(requests);
        let sent = Instant::now();
        let failed = |error, replies| failed(options, error, replies);
        way.send(&octets.request)
            .map_err(|error| failed(error, replies))?;
        requests += 1;
        let deadline = sent + options.timeout;
        loop {
            let reply = way
                .receive(&mut octets.reply, deadline)
                .map_err(|error| failed(error, replies))?;
            let now = Instant::now();
            match reply {
                Reply::Of(number) if number == octets.run + requests - 1 => {
                    let time = now.duration_since(sent).as_nanos();
                    times.record(u64::try_from(time).unwrap_or(u64::MAX), 1);
                    replies += 1;
                    break;
                }
                Reply::Of(number) => late_replies += u64::from(number >= octets.run),
                Reply::None => {}
            }
            if abort.load(Ordering::Relaxed) {
                return Err(EchoError::Aborted);
            }
            if now >= deadline {
                break;
            }
        }
    }
    Ok(EchoResult {
        server: options.server,
        transport: options.transport,
        payload_octets: options.payload_octets,
        elapsed_s: began.elapsed().as_secs_f64(),
        requests,
        replies,
        late_replies,
        lost: requests - replies,
        round_trip: times.summary().map_err(EchoError::Result)?,
    })
}

fn requests_as_u32(requests: u64) -> u32 {
    u32::try_from(requests).unwrap_or(u32::MAX)
}

fn check(options: &EchoOptions) -> Result<(), EchoError> {
    let payload = options.payload_octets;
    if !(PAYLOAD_MIN..=PAYLOAD_MAX).contains(&payload) {
        return Err(EchoError::BadInput(format!(
            "a request of {payload} octets: {PAYLOAD_MIN} to {PAYLOAD_MAX} it may have"
        )));
    }
    for (name, time) in [("duration", options.duration), ("timeout", options.timeout)] {
        if time.is_zero() {
            return Err(EchoError::BadInput(format!(
                "the {name} is 0, and has to be longer"
            )));
        }
    }
    Ok(())
}

/// Before the first reply nothing was reached; after it, something was lost.
fn failed(options: &EchoOptions, error: io::Error, replies: u64) -> EchoError {
    let server = options.server;
    if replies == 0 && error.kind() == ErrorKind::ConnectionRefused {
        return EchoError::Unreachable { server, error };
    }
    EchoError::Lost {
        server,
        replies,
        error,
    }
}

/// A request and room for a reply.
struct Buffers {
    request: Vec<u8>,
    reply: Vec<u8>,
    /// Numbers of this run begin here, so that replies to another's requests are not taken for its own.
    run: u64,
}

impl Buffers {
    fn new(options: &EchoOptions) -> Self {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos() as u64);
        Self {
            request: vec![0; usize::from(options.payload_octets)],
            reply: vec![0; usize::from(options.payload_octets)],
            run: now & !0xffff_ffff,
        }
    }

    fn number(&mut self, request: u64) {
        let number = (self.run + request).to_be_bytes();
        for (octet, number) in self.request.iter_mut().zip(number) {
            *octet = number;
        }
    }
}

/// False when it is to end.
fn wait_until(due: Instant, abort: &AtomicBool) -> bool {
    loop {
        if abort.load(Ordering::Relaxed) {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        if left > SPIN {
            std::thread::sleep((left - SPIN).min(PATIENCE));
        } else {
            std::hint::spin_loop();
        }
    }
}

impl Way {
    fn open(options: &EchoOptions) -> Result<Self, EchoError> {
        let server = options.server;
        let unreachable = |error| EchoError::Unreachable { server, error };
        match options.transport {
            EchoTransport::Udp => {
                let any = if server.is_ipv4() {
                    SocketAddr::from(([0, 0, 0, 0], 0))
                } else {
                    SocketAddr::from(([0; 16], 0))
                };
                let socket = UdpSocket::bind(any).map_err(unreachable)?;
                socket.connect(server).map_err(unreachable)?;
                Ok(Self::Udp(socket))
            }
            EchoTransport::Tcp => {
                let stream =
                    TcpStream::connect_timeout(&server, options.timeout).map_err(unreachable)?;
                stream.set_nodelay(true).map_err(unreachable)?;
                stream
                    .set_write_timeout(Some(options.timeout))
                    .map_err(unreachable)?;
                Ok(Self::Tcp { stream, filled: 0 })
            }
        }
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(request).map(drop),
            Self::Tcp { stream, .. } => stream.write_all(request),
        }
    }

    /// One reply, or nothing for a while or until the deadline.
    fn receive(&mut self, reply: &mut [u8], deadline: Instant) -> io::Result<Reply> {
        let left = deadline.saturating_duration_since(Instant::now());
        let patience = left.clamp(Duration::from_micros(1), PATIENCE);
        let outcome = match self {
            Self::Udp(socket) => {
                socket.set_read_timeout(Some(patience))?;
                socket.recv(reply).map(|received| received == reply.len())
            }
            Self::Tcp { stream, filled } => {
                stream.set_read_timeout(Some(patience))?;
                let place = reply.get_mut(*filled..).unwrap_or_default();
                stream.read(place).and_then(|received| {
                    if received == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                    *filled += received;
                    let is_whole = *filled == reply.len();
                    if is_whole {
                        *filled = 0;
                    }
                    Ok(is_whole)
                })
            }
        };
        match outcome {
            Ok(true) => Ok(reply
                .first_chunk()
                .map_or(Reply::None, |number| Reply::Of(u64::from_be_bytes(*number)))),
            Ok(false) => Ok(Reply::None),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(Reply::None)
            }
            Err(error) => Err(error),
        }
    }
}
