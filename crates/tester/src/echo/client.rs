// SPDX-License-Identifier: Apache-2.0
//! Echo client: sends requests on schedule and measures each round-trip time from when the request was due.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quietwire_base::unix_time_ns;

use super::{EchoError, EchoOptions, EchoResult, EchoTransport, PAYLOAD_MAX, PAYLOAD_MIN};
use crate::latency::Recorder;

/// Longest single wait, so that the client notices an abort soon.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Final part of a wait for the next request, spent polling the clock: a sleep overruns by about this much.
const SPIN: Duration = Duration::from_micros(60);

/// Outcome of a receive call.
enum Reply {
    /// A reply with this number.
    Of(u64),
    /// No reply yet.
    None,
}

/// Transmit side of a connection to the service.
enum Sender {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Sender {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(request).map(drop),
            Self::Tcp(stream) => stream.write_all(request),
        }
    }
}

/// Connection to the service.
enum Transport {
    Udp(UdpSocket),
    Tcp { stream: TcpStream, filled: usize },
}

/// Sends requests for the duration in the options, or until `abort` is set.
///
/// With an interval, requests are sent on schedule, regardless of outstanding replies, and each round-trip time starts when the request
/// was due. So a stalled path delays every request that was due during the stall. Without an interval, each request waits for the
/// previous reply.
///
/// # Errors
/// [`EchoError`]. A request without a reply is not an error but counts as lost.
pub fn run(options: &EchoOptions, abort: &AtomicBool) -> Result<EchoResult, EchoError> {
    check(options)?;
    let way = Transport::open(options)?;
    let run = first_number();
    let began = Instant::now();
    let tally = if options.interval.is_zero() {
        one_at_a_time(options, way, run, abort)
    } else {
        on_schedule(options, way, run, abort)
    }?;
    Ok(EchoResult {
        server: options.server,
        transport: options.transport,
        payload_octets: options.payload_octets,
        elapsed_s: began.elapsed().as_secs_f64(),
        requests: tally.requests,
        replies: tally.replies,
        late_replies: tally.late_replies,
        lost: tally.requests.saturating_sub(tally.replies),
        longest_send_delay_ns: tally.longest_send_delay_ns,
        round_trip: tally.times.summary().map_err(EchoError::Result)?,
    })
}

/// Counters and times of the requests.
#[derive(Default)]
struct Tally {
    requests: u64,
    replies: u64,
    late_replies: u64,
    longest_send_delay_ns: u64,
    times: Recorder,
}

fn one_at_a_time(
    options: &EchoOptions,
    mut way: Transport,
    run: u64,
    abort: &AtomicBool,
) -> Result<Tally, EchoError> {
    let mut sender = way.sender().map_err(|error| failed(options, error, 0))?;
    let mut request = Request::new(options, run);
    let mut reply = vec![0; usize::from(options.payload_octets)];
    let mut tally = Tally::default();
    let began = Instant::now();
    while began.elapsed() < options.duration {
        let sent = Instant::now();
        sender
            .send(request.numbered(tally.requests))
            .map_err(|error| failed(options, error, tally.replies))?;
        let own = run.wrapping_add(tally.requests);
        tally.requests = tally.requests.saturating_add(1);
        let deadline = after(sent, options.timeout);
        loop {
            let received = way
                .receive(&mut reply, deadline)
                .map_err(|error| failed(options, error, tally.replies))?;
            let now = Instant::now();
            match received {
                Reply::Of(number) if number == own => {
                    tally.times.record(nanoseconds(now.duration_since(sent)), 1);
                    tally.replies = tally.replies.saturating_add(1);
                    break;
                }
                Reply::Of(number) => {
                    let late = u64::from(number >= run);
                    tally.late_replies = tally.late_replies.saturating_add(late);
                }
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
    Ok(tally)
}

/// Schedule of requests, shared by sender and receiver.
#[derive(Clone, Copy)]
struct Schedule {
    began: Instant,
    interval: Duration,
    duration: Duration,
}

impl Schedule {
    /// Returns when a request is due; `None` if that is after the end.
    fn due(&self, request: u64) -> Option<Instant> {
        let nanoseconds = self.interval.as_nanos().checked_mul(u128::from(request))?;
        let after = Duration::from_nanos(u64::try_from(nanoseconds).ok()?);
        self.began
            .checked_add(after)
            .filter(|_| after < self.duration)
    }
}

/// Progress of the sender.
#[derive(Default)]
struct Progress {
    sent: AtomicU64,
    longest_delay_ns: AtomicU64,
    has_ended: AtomicBool,
}

fn on_schedule(
    options: &EchoOptions,
    mut way: Transport,
    run: u64,
    abort: &AtomicBool,
) -> Result<Tally, EchoError> {
    let sender = way.sender().map_err(|error| failed(options, error, 0))?;
    let schedule = Schedule {
        began: Instant::now(),
        interval: options.interval,
        duration: options.duration,
    };
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let request = Request::new(options, run);
            let sent = send_on_schedule(sender, request, schedule, &progress, abort);
            progress.has_ended.store(true, Ordering::Release);
            sent
        });
        let tally = receive_all(options, &mut way, run, schedule, &progress, abort);
        if tally.is_err() {
            // The sender checks this flag before each request.
            progress.has_ended.store(true, Ordering::Release);
        }
        let sent = sending.join().unwrap_or(Ok(()));
        let replies = tally.as_ref().map_or(0, |tally| tally.replies);
        // The receiver's error takes precedence: it includes the number of replies.
        let tally = tally?;
        sent.map_err(|error| failed(options, error, replies))?;
        if abort.load(Ordering::Relaxed) {
            return Err(EchoError::Aborted);
        }
        Ok(tally)
    })
}

fn send_on_schedule(
    mut sender: Sender,
    mut request: Request,
    schedule: Schedule,
    progress: &Progress,
    abort: &AtomicBool,
) -> io::Result<()> {
    let ends = || abort.load(Ordering::Relaxed) || progress.has_ended.load(Ordering::Acquire);
    for number in 0.. {
        let Some(due) = schedule.due(number) else {
            return Ok(());
        };
        if !wait_until(due, &ends) {
            return Ok(());
        }
        let delay_ns = nanoseconds(due.elapsed());
        progress
            .longest_delay_ns
            .fetch_max(delay_ns, Ordering::Relaxed);
        // The count is updated before transmission, because the reply may be faster than this thread.
        progress
            .sent
            .store(number.saturating_add(1), Ordering::Release);
        sender.send(request.numbered(number))?;
    }
    Ok(())
}

/// Receives until every request has its reply, or until the last request times out.
fn receive_all(
    options: &EchoOptions,
    way: &mut Transport,
    run: u64,
    schedule: Schedule,
    progress: &Progress,
    abort: &AtomicBool,
) -> Result<Tally, EchoError> {
    let mut reply = vec![0; usize::from(options.payload_octets)];
    let mut tally = Tally::default();
    let mut answered = Answered::default();
    while !abort.load(Ordering::Relaxed) {
        // The order matters: the count then includes all requests sent before the end.
        let has_ended = progress.has_ended.load(Ordering::Acquire);
        let sent = progress.sent.load(Ordering::Acquire);
        let last_due = sent.checked_sub(1).and_then(|last| schedule.due(last));
        let last_deadline = last_due.map(|due| after(due, options.timeout));
        let is_over = last_deadline.is_none_or(|deadline| Instant::now() >= deadline);
        if has_ended && (tally.replies >= sent || is_over) {
            break;
        }
        let received = way
            .receive(&mut reply, after(Instant::now(), TIMEOUT))
            .map_err(|error| failed(options, error, tally.replies))?;
        let now = Instant::now();
        let Reply::Of(number) = received else {
            continue;
        };
        let sent = progress.sent.load(Ordering::Acquire);
        let Some(request) = number.checked_sub(run).filter(|request| *request < sent) else {
            continue;
        };
        let Some(due) = schedule.due(request) else {
            continue;
        };
        let time = now.saturating_duration_since(due);
        if time > options.timeout {
            tally.late_replies = tally.late_replies.saturating_add(1);
        } else if answered.insert(request) {
            tally.times.record(nanoseconds(time), 1);
            tally.replies = tally.replies.saturating_add(1);
        }
    }
    tally.requests = progress.sent.load(Ordering::Acquire);
    tally.longest_send_delay_ns = progress.longest_delay_ns.load(Ordering::Relaxed);
    Ok(tally)
}

/// Requests with a reply, one bit each.
#[derive(Default)]
struct Answered(Vec<u64>);

impl Answered {
    /// Marks a request as answered. Returns false if it was marked before.
    fn insert(&mut self, request: u64) -> bool {
        let Ok(word) = usize::try_from(request / 64) else {
            return false;
        };
        let bit = 1 << (request % 64);
        if self.0.len() <= word {
            self.0.resize(word.saturating_add(1), 0);
        }
        self.0.get_mut(word).is_some_and(|word| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
    }
}

/// Returns the moment after a wait. The clock has space for all waits that the command line accepts.
fn after(moment: Instant, wait: Duration) -> Instant {
    moment.checked_add(wait).unwrap_or(moment)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn check(options: &EchoOptions) -> Result<(), EchoError> {
    let payload = options.payload_octets;
    if !(PAYLOAD_MIN..=PAYLOAD_MAX).contains(&payload) {
        return Err(EchoError::BadInput(format!(
            "request size {payload} is out of range ({PAYLOAD_MIN} to {PAYLOAD_MAX} octets)"
        )));
    }
    for (name, time) in [("duration", options.duration), ("timeout", options.timeout)] {
        if time.is_zero() {
            return Err(EchoError::BadInput(format!(
                "{name} is 0 (use a positive time)"
            )));
        }
    }
    Ok(())
}

/// Returns the error of a failed call: unreachable before the first reply, lost afterwards.
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

/// Returns the number of the first request of a run. It differs from run to run, so that replies to earlier runs are not accepted.
fn first_number() -> u64 {
    unix_time_ns() & !0xffff_ffff
}

/// A request with a changing number.
struct Request {
    octets: Vec<u8>,
    run: u64,
}

impl Request {
    fn new(options: &EchoOptions, run: u64) -> Self {
        Self {
            octets: vec![0; usize::from(options.payload_octets)],
            run,
        }
    }

    fn numbered(&mut self, request: u64) -> &[u8] {
        let number = self.run.wrapping_add(request).to_be_bytes();
        for (octet, number) in self.octets.iter_mut().zip(number) {
            *octet = number;
        }
        &self.octets
    }
}

/// Waits until `due`. Returns false if the sender must end.
fn wait_until(due: Instant, ends: &impl Fn() -> bool) -> bool {
    loop {
        if ends() {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        if left > SPIN {
            std::thread::sleep(left.saturating_sub(SPIN).min(TIMEOUT));
        } else {
            std::hint::spin_loop();
        }
    }
}

impl Transport {
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

    /// Returns the transmit side.
    fn sender(&self) -> io::Result<Sender> {
        Ok(match self {
            Self::Udp(socket) => Sender::Udp(socket.try_clone()?),
            Self::Tcp { stream, .. } => Sender::Tcp(stream.try_clone()?),
        })
    }

    /// Receives one reply. Returns [`Reply::None`] after a short wait, or at the deadline.
    fn receive(&mut self, reply: &mut [u8], deadline: Instant) -> io::Result<Reply> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = left.clamp(Duration::from_micros(1), TIMEOUT);
        let outcome = match self {
            Self::Udp(socket) => {
                socket.set_read_timeout(Some(timeout))?;
                socket.recv(reply).map(|received| received == reply.len())
            }
            Self::Tcp { stream, filled } => {
                stream.set_read_timeout(Some(timeout))?;
                let place = reply.get_mut(*filled..).unwrap_or_default();
                stream.read(place).and_then(|received| {
                    if received == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                    *filled = filled.saturating_add(received);
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
