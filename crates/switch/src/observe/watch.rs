// SPDX-License-Identifier: Apache-2.0
//! Captures and traces as the control thread holds them: begun, read and ended by requests on the control socket.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use quietwire_dpdk::cycles;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::capture::{CaptureReader, Frame, capture};
use super::trace::{Common, Event, Handed, TraceReader, trace};
use super::{Filter, Sieve};
use crate::engine::Engine;
use crate::error::SwitchError;
use crate::forward::Order;

/// A watch that nobody has read for so long is ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Octets of frames in one answer, before they are written as text.
const ANSWER_OCTETS: usize = 1 << 20;
/// Events in one answer.
const ANSWER_EVENTS: usize = 4096;
/// Frames that are followed at most.
const TRACED_MAX: u32 = 10_000;
/// Octets of a frame that are kept at most.
const SNAP_LENGTH_MAX: u32 = 16 * 1024;

/// Which way the frames of a capture go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// Those that come in.
    In,
    /// Those that go out.
    Out,
    /// All.
    #[default]
    Both,
}

/// What a watcher asks. A capture or a trace that is not read for 10 seconds ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum WatchRequest {
    /// Begins to copy frames; there is one capture at a time. The answer is a [`CaptureStarted`].
    StartCapture {
        /// Which frames.
        #[serde(default)]
        filter: Filter,
        /// Which way.
        #[serde(default)]
        directions: Directions,
        /// Octets of each to keep at most.
        snap_length: u32,
    },
    /// Takes what was captured. The answer is a [`Captured`].
    ReadCapture {
        /// Which capture.
        id: u64,
    },
    /// Ends it.
    StopCapture {
        /// Which capture.
        id: u64,
    },
    /// Begins to follow frames; there is one trace at a time. The answer is a [`TraceStarted`].
    StartTrace {
        /// Which frames.
        #[serde(default)]
        filter: Filter,
        /// How many, 1 to 10000.
        count: u32,
    },
    /// Takes what has happened to them. The answer is a [`Traced`].
    ReadTrace {
        /// Which trace.
        id: u64,
    },
    /// Ends it.
    StopTrace {
        /// Which trace.
        id: u64,
    },
}

/// A capture has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureStarted {
    /// Its number.
    pub id: u64,
    /// Octets of a frame that are kept at most.
    pub snap_length: u32,
    /// Names of ports.
    pub ports: Vec<String>,
}

/// A frame that was captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedFrame {
    /// When: nanoseconds since 1970 (UTC).
    pub time_ns: u64,
    /// Name of the port.
    pub port: String,
    /// It went out; otherwise it came in.
    pub is_outward: bool,
    /// Octets that it had, without FCS.
    pub length: u32,
    /// Those that were kept, as base64 (RFC 4648, section 4).
    pub octets: String,
}

/// Frames that were captured since the last time, in the order of their times within each thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The frames.
    pub frames: Vec<CapturedFrame>,
    /// Frames that were to be captured since the start and could not, as they came faster than they were read.
    pub missed: u64,
    /// There is more to be read.
    pub more: bool,
}

/// A trace has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStarted {
    /// Its number.
    pub id: u64,
}

/// Something that happened to a frame that is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Which frame, from 1.
    pub packet: u32,
    /// When: nanoseconds since 1970 (UTC).
    pub time_ns: u64,
    /// Name of the thread.
    pub thread: String,
    /// Where it is: `receive`, `bridge`, `route`, `send`, `relay`, `service` or `drop`.
    pub step: String,
    /// What was done there.
    pub what: String,
    /// What the frame is then, where that was looked at.
    pub frame: Option<String>,
}

/// What happened to frames since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Events, in the order of their times.
    pub events: Vec<TraceEvent>,
    /// Frames that were chosen since the start.
    pub chosen: u32,
    /// Events that there was no room for.
    pub missed: u64,
}

/// What the control thread knows of a watch of either kind.
#[derive(Debug)]
struct Lease {
    id: u64,
    read: Instant,
    /// The same moment on both clocks.
    start_ns: u64,
    start_ticks: u64,
}

impl Lease {
    fn new(id: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id,
            read: Instant::now(),
            start_ns: now.map_or(0, |since| since.as_nanos() as u64),
            start_ticks: cycles::now(),
        }
    }

    fn time_ns(&self, ticks: u64) -> u64 {
        let since = u128::from(ticks.saturating_sub(self.start_ticks));
        let hz = u128::from(cycles::hz().max(1));
        self.start_ns + (since * 1_000_000_000 / hz) as u64
    }
}

#[derive(Debug)]
struct Capture {
    lease: Lease,
    sieve: Arc<Sieve>,
    directions: Directions,
    snap_length: usize,
    readers: Vec<CaptureReader>,
}

#[derive(Debug)]
struct Trace {
    lease: Lease,
    common: Common,
    /// By name of the thread.
    readers: Vec<(String, TraceReader)>,
}

/// The watches that there are.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    last_id: u64,
    capture: Option<Capture>,
    trace: Option<Trace>,
}

fn wrong(what: impl Into<String>) -> SwitchError {
    SwitchError::Config {
        place: "watch".to_owned(),
        what: what.into(),
    }
}

fn busy(kind: &str) -> SwitchError {
    wrong(format!(
        "somebody has a {kind} running already; there is one at a time"
    ))
}

fn ended(kind: &str) -> SwitchError {
    wrong(format!(
        "there is no such {kind}; one that is not read for {} s is ended",
        PATIENCE.as_secs()
    ))
}

fn to_value(answer: &impl Serialize) -> Result<Value, SwitchError> {
    serde_json::to_value(answer).map_err(|error| wrong(error.to_string()))
}

impl Engine {
    /// Does what a watcher asks.
    ///
    /// # Errors
    /// What is wrong with the request; [`SwitchError::Thread`] when a thread does not answer.
    pub(crate) fn watch(&mut self, request: WatchRequest) -> Result<Value, SwitchError> {
        match request {
            WatchRequest::StartCapture {
                filter,
                directions,
                snap_length,
            } => to_value(&self.start_capture(filter, directions, snap_length)?),
            WatchRequest::ReadCapture { id } => to_value(&self.read_capture(id)?),
            WatchRequest::StopCapture { id } => {
                let is_it = |one: &Capture| one.lease.id == id;
                if !self.watches.capture.as_ref().is_some_and(is_it) {
                    return Err(ended("capture"));
                }
                self.end_capture()?;
                Ok(Value::Null)
            }
            WatchRequest::StartTrace { filter, count } => {
                to_value(&self.start_trace(filter, count)?)
            }
            WatchRequest::ReadTrace { id } => to_value(&self.read_trace(id)?),
            WatchRequest::StopTrace { id } => {
                let is_it = |one: &Trace| one.lease.id == id;
                if !self.watches.trace.as_ref().is_some_and(is_it) {
                    return Err(ended("trace"));
                }
                self.end_trace()?;
                Ok(Value::Null)
            }
        }
    }

    /// Ends watches that nobody reads.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] when a thread does not answer.
    pub(crate) fn end_idle_watches(&mut self) -> Result<(), SwitchError> {
        let is_idle = |lease: &Lease| lease.read.elapsed() > PATIENCE;
        if self
            .watches
            .capture
            .as_ref()
            .is_some_and(|one| is_idle(&one.lease))
        {
            tracing::info!("nobody reads the capture any more: it ends");
            self.end_capture()?;
        }
        if self
            .watches
            .trace
            .as_ref()
            .is_some_and(|one| is_idle(&one.lease))
        {
            tracing::info!("nobody reads the trace any more: it ends");
            self.end_trace()?;
        }
        Ok(())
    }

    /// A new thread takes part in the watches that there are.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] when it does not answer.
    pub(crate) fn watch_on(&mut self, cpu: u32) -> Result<(), SwitchError> {
        if let Some(capture) = &mut self.watches.capture {
            let (tap, reader) =
                self::capture(&capture.sieve, capture.directions, capture.snap_length);
            capture.readers.push(reader);
            self.tell(cpu, Order::Capture(Some(Box::new(tap))))?;
        }
        if let Some(trace) = &mut self.watches.trace {
            let (tracer, reader) = self::trace(&trace.common);
            let name = crate::threads::forwarding_name(cpu);
            trace.readers.push((name, reader));
            self.tell(cpu, Order::Trace(Some(Box::new(tracer))))?;
        }
        Ok(())
    }

    fn sieve(&self, filter: Filter) -> Result<Arc<Sieve>, SwitchError> {
        let port = match &filter.port {
            Some(name) => {
                let number = self.number(name);
                Some(number.ok_or_else(|| wrong(format!("there is no port '{name}'")))?)
            }
            None => None,
        };
        Ok(Arc::new(Sieve::new(filter, port)))
    }

    fn lease(&mut self) -> Lease {
        self.watches.last_id += 1;
        Lease::new(self.watches.last_id)
    }

    fn cpus(&self) -> Vec<u32> {
        self.forwarders.iter().map(|one| one.cpu).collect()
    }

    fn start_capture(
        &mut self,
        filter: Filter,
        directions: Directions,
        snap_length: u32,
    ) -> Result<CaptureStarted, SwitchError> {
        if !(1..=SNAP_LENGTH_MAX).contains(&snap_length) {
            return Err(wrong(format!(
                "of each frame 1 to {SNAP_LENGTH_MAX} octets can be kept, not {snap_length}"
            )));
        }
        let sieve = self.sieve(filter)?;
        if self.watches.capture.is_some() {
            return Err(busy("capture"));
        }
        let lease = self.lease();
        let id = lease.id;
        let mut readers = Vec::new();
        for cpu in self.cpus() {
            let (tap, reader) = capture(&sieve, directions, snap_length as usize);
            readers.push(reader);
            self.tell(cpu, Order::Capture(Some(Box::new(tap))))?;
        }
        self.watches.capture = Some(Capture {
            lease,
            sieve,
            directions,
            snap_length: snap_length as usize,
            readers,
        });
        Ok(CaptureStarted {
            id,
            snap_length,
            ports: self
                .ports()
                .map(|(_, slot)| slot.plan.name.clone())
                .collect(),
        })
    }

    fn read_capture(&mut self, id: u64) -> Result<Captured, SwitchError> {
        let Some(mut capture) = self.watches.capture.take_if(|one| one.lease.id == id) else {
            return Err(ended("capture"));
        };
        capture.lease.read = Instant::now();
        let mut frames = Vec::new();
        let mut more = false;
        for reader in &mut capture.readers {
            let share = ANSWER_OCTETS / self.forwarders.len().max(1);
            let mut mine = Vec::new();
            let mut octets = 0;
            while reader.next(&mut mine) {
                octets += mine.last().map_or(0, |frame: &Frame| frame.octets.len());
                if octets >= share {
                    more = true;
                    break;
                }
            }
            frames.append(&mut mine);
        }
        frames.sort_by_key(|frame| frame.ticks);
        let missed = capture.readers.iter().map(CaptureReader::missed).sum();
        let named = |frame: Frame| CapturedFrame {
            time_ns: capture.lease.time_ns(frame.ticks),
            port: self.port_name(frame.port),
            is_outward: frame.is_outward,
            length: frame.length,
            octets: BASE64.encode(&frame.octets),
        };
        let frames = frames.into_iter().map(named).collect();
        self.watches.capture = Some(capture);
        Ok(Captured {
            frames,
            missed,
            more,
        })
    }

    fn end_capture(&mut self) -> Result<(), SwitchError> {
        for cpu in self.cpus() {
            self.tell(cpu, Order::Capture(None))?;
        }
        self.watches.capture = None;
        Ok(())
    }

    fn start_trace(&mut self, filter: Filter, count: u32) -> Result<TraceStarted, SwitchError> {
        if !(1..=TRACED_MAX).contains(&count) {
            return Err(wrong(format!(
                "1 to {TRACED_MAX} frames can be followed, not {count}"
            )));
        }
        let sieve = self.sieve(filter)?;
        if self.watches.trace.is_some() {
            return Err(busy("trace"));
        }
        let lease = self.lease();
        let id = lease.id;
        let common = Common {
            sieve,
            chosen: Arc::default(),
            wanted: count,
            handed: Arc::new(Handed::new()),
        };
        // The service thread first: what is handed to it is expected.
        let (tracer, reader) = trace(&common);
        let mut readers = vec![(crate::threads::SERVICE.to_owned(), reader)];
        self.layer3.lock().set_tracer(Some(tracer));
        for cpu in self.cpus() {
            let (tracer, reader) = trace(&common);
            readers.push((crate::threads::forwarding_name(cpu), reader));
            self.tell(cpu, Order::Trace(Some(Box::new(tracer))))?;
        }
        self.watches.trace = Some(Trace {
            lease,
            common,
            readers,
        });
        Ok(TraceStarted { id })
    }

    fn read_trace(&mut self, id: u64) -> Result<Traced, SwitchError> {
        let Some(mut trace) = self.watches.trace.take_if(|one| one.lease.id == id) else {
            return Err(ended("trace"));
        };
        trace.lease.read = Instant::now();
        // Before the events: a frame that is counted has its first event already.
        let chosen = trace
            .common
            .chosen
            .load(Ordering::Relaxed)
            .min(trace.common.wanted);
        let mut events: Vec<(String, Event)> = Vec::new();
        for (thread, reader) in &mut trace.readers {
            while events.len() < ANSWER_EVENTS
                && let Ok(event) = reader.events.pop()
            {
                events.push((thread.clone(), event));
            }
        }
        events.sort_by_key(|(_, event)| event.ticks);
        let missed = trace.readers.iter().map(|(_, one)| one.missed()).sum();
        let names = self.names();
        let told = |(thread, event): (String, Event)| {
            let (step, what) = names.tell(event.what);
            TraceEvent {
                packet: event.packet + 1,
                time_ns: trace.lease.time_ns(event.ticks),
                thread,
                step: step.to_owned(),
                what,
                frame: (!event.octets().is_empty())
                    .then(|| super::words::describe(event.octets(), event.length)),
            }
        };
        let events = events.into_iter().map(told).collect();
        self.watches.trace = Some(trace);
        Ok(Traced {
            events,
            chosen,
            missed,
        })
    }

    fn end_trace(&mut self) -> Result<(), SwitchError> {
        for cpu in self.cpus() {
            self.tell(cpu, Order::Trace(None))?;
        }
        self.layer3.lock().set_tracer(None);
        self.watches.trace = None;
        Ok(())
    }
}
