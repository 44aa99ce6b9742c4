// SPDX-License-Identifier: Apache-2.0
//! Requests on the control socket to start, read and stop captures and traces.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde_json::Value;

use super::capture::{CaptureReader, Directions, Frame, capture};
use super::filter::{Filter, FrameMatcher};
use super::request::{
    CaptureStarted, Captured, CapturedFrame, TraceEvent, TraceStarted, Traced, WatchRequest,
};
use super::session::{Capture, Lease, Trace};
use super::trace::{Event, InFlight, SharedTrace, trace};
use crate::engine::{Engine, Forwarder};
use crate::error::SwitchError;
use crate::forward::WorkerCommand;

/// Idle timeout of a watch that is not read.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum octets of frames in one reply, before encoding.
const ANSWER_OCTETS: usize = 1 << 20;
/// Maximum number of events in one reply.
const ANSWER_EVENTS: usize = 4096;
/// Maximum number of traced frames.
const TRACED_MAX: u32 = 10_000;
/// Maximum number of captured octets per frame.
const SNAP_LENGTH_MAX: u32 = 16 * 1024;

fn wrong(what: impl Into<String>) -> SwitchError {
    SwitchError::Config {
        location: "watch".to_owned(),
        what: what.into(),
    }
}

fn busy(kind: &str) -> SwitchError {
    wrong(format!("another {kind} is running (stop it first)"))
}

fn ended(kind: &str) -> SwitchError {
    wrong(format!(
        "no such {kind} (a {kind} ends if it is not read for {} s)",
        TIMEOUT.as_secs()
    ))
}

fn to_value(answer: &impl Serialize) -> Result<Value, SwitchError> {
    serde_json::to_value(answer).map_err(|error| wrong(error.to_string()))
}

impl Engine {
    /// Handles a watcher's request.
    ///
    /// # Errors
    /// An invalid request; [`SwitchError::Thread`] if a thread does not reply.
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
                self.end_capture();
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
                self.end_trace();
                Ok(Value::Null)
            }
        }
    }

    /// Ends watches that are not read.
    pub(crate) fn end_idle_watches(&mut self) {
        let is_idle = |lease: &Lease| lease.read.elapsed() > TIMEOUT;
        if self
            .watches
            .capture
            .as_ref()
            .is_some_and(|one| is_idle(&one.lease))
        {
            tracing::info!("stopped the capture because it is not read");
            self.end_capture();
        }
        if self
            .watches
            .trace
            .as_ref()
            .is_some_and(|one| is_idle(&one.lease))
        {
            tracing::info!("stopped the trace because it is not read");
            self.end_trace();
        }
    }

    /// Adds a thread to the active watches, or removes it from watches that have ended.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if it does not reply.
    pub(crate) fn watch_on(&mut self, cpu: u32) -> Result<(), SwitchError> {
        let mut forwarders = self.forwarders.iter();
        let Some(thread) = forwarders.find(|one| one.cpu == cpu) else {
            return Ok(());
        };
        let (has_capture, has_trace) = (thread.has_capture, thread.has_trace);
        if has_capture != self.watches.capture.is_some() {
            let tap = self.watches.capture.as_mut().map(|capture| {
                let Capture {
                    matcher,
                    directions,
                    snap_length,
                    ..
                } = &*capture;
                let (tap, reader) = self::capture(matcher, *directions, *snap_length);
                capture.readers.push(reader);
                Box::new(tap)
            });
            let watches = tap.is_some();
            let record = |one: &mut Forwarder| one.has_capture = watches;
            self.send_and_record(cpu, WorkerCommand::Capture(tap), record)?;
        }
        if has_trace != self.watches.trace.is_some() {
            let tracer = self.watches.trace.as_mut().map(|trace| {
                let (tracer, reader) = self::trace(&trace.common);
                let name = crate::threads::forwarding_name(cpu);
                trace.readers.push((name, reader));
                Box::new(tracer)
            });
            let watches = tracer.is_some();
            let record = |one: &mut Forwarder| one.has_trace = watches;
            self.send_and_record(cpu, WorkerCommand::Trace(tracer), record)?;
        }
        Ok(())
    }

    /// Adds all threads to the active watches, and removes them from watches that have ended.
    fn watch_on_all(&mut self) -> Result<(), SwitchError> {
        let mut outcome = Ok(());
        for cpu in self.cpus() {
            outcome = outcome.and(self.watch_on(cpu));
        }
        outcome
    }

    fn matcher(&self, filter: Filter) -> Result<Arc<FrameMatcher>, SwitchError> {
        let port = match &filter.port {
            Some(name) => {
                let number = self.number(name);
                Some(number.ok_or_else(|| wrong(format!("no such port: '{name}'")))?)
            }
            None => None,
        };
        Ok(Arc::new(FrameMatcher::new(filter, port)))
    }

    fn lease(&mut self) -> Lease {
        self.watches.last_id = self.watches.last_id.wrapping_add(1);
        Lease::new(self.watches.last_id)
    }

    fn start_capture(
        &mut self,
        filter: Filter,
        directions: Directions,
        snap_length: u32,
    ) -> Result<CaptureStarted, SwitchError> {
        if !(1..=SNAP_LENGTH_MAX).contains(&snap_length) {
            return Err(wrong(format!(
                "snap length is {snap_length} (allowed: 1 to {SNAP_LENGTH_MAX} octets)"
            )));
        }
        let matcher = self.matcher(filter)?;
        if self.watches.capture.is_some() {
            return Err(busy("capture"));
        }
        let lease = self.lease();
        let id = lease.id;
        self.watches.capture = Some(Capture {
            lease,
            matcher,
            directions,
            snap_length: snap_length as usize,
            readers: Vec::new(),
        });
        // The kernel's frames go through the threads first.
        self.settle_kernel_forwarding();
        if let Err(error) = self.watch_on_all() {
            self.end_capture();
            return Err(error);
        }
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
            let share = ANSWER_OCTETS.checked_div(self.forwarders.len());
            let share = share.unwrap_or(ANSWER_OCTETS);
            let mut mine = Vec::new();
            let mut octets = 0_usize;
            while reader.next(&mut mine) {
                let more_octets = mine.last().map_or(0, |frame: &Frame| frame.octets.len());
                octets = octets.saturating_add(more_octets);
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

    /// Ends the capture. A late thread is removed from it once it replies.
    fn end_capture(&mut self) {
        self.watches.capture = None;
        if let Err(error) = self.watch_on_all() {
            tracing::warn!("the capture ends later: {error}");
        }
    }

    fn start_trace(&mut self, filter: Filter, count: u32) -> Result<TraceStarted, SwitchError> {
        if !(1..=TRACED_MAX).contains(&count) {
            return Err(wrong(format!(
                "count is {count} (allowed: 1 to {TRACED_MAX} frames)"
            )));
        }
        let matcher = self.matcher(filter)?;
        if self.watches.trace.is_some() {
            return Err(busy("trace"));
        }
        let lease = self.lease();
        let id = lease.id;
        let common = SharedTrace {
            matcher,
            chosen: Arc::default(),
            wanted: count,
            in_flight: Arc::new(InFlight::new()),
        };
        // The service thread first, so that it expects traced frames.
        let (tracer, reader) = trace(&common);
        let readers = vec![(crate::threads::SERVICE.to_owned(), reader)];
        self.layer3.lock().set_tracer(Some(tracer));
        self.watches.trace = Some(Trace {
            lease,
            common,
            readers,
        });
        self.settle_kernel_forwarding();
        if let Err(error) = self.watch_on_all() {
            self.end_trace();
            return Err(error);
        }
        Ok(TraceStarted { id })
    }

    fn read_trace(&mut self, id: u64) -> Result<Traced, SwitchError> {
        let Some(mut trace) = self.watches.trace.take_if(|one| one.lease.id == id) else {
            return Err(ended("trace"));
        };
        trace.lease.read = Instant::now();
        // Read before the events: a counted frame has its first event already.
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
        let to_event = |(thread, event): (String, Event)| {
            let (step, what) = names.describe_event(event.what);
            TraceEvent {
                packet: event.packet.saturating_add(1),
                time_ns: trace.lease.time_ns(event.ticks),
                thread,
                step: step.to_owned(),
                what,
                frame: (!event.octets().is_empty())
                    .then(|| super::describe::describe(event.octets(), event.length)),
            }
        };
        let events = events.into_iter().map(to_event).collect();
        self.watches.trace = Some(trace);
        Ok(Traced {
            events,
            chosen,
            missed,
        })
    }

    /// Ends the trace. A late thread is removed from it once it replies.
    fn end_trace(&mut self) {
        self.watches.trace = None;
        self.layer3.lock().set_tracer(None);
        if let Err(error) = self.watch_on_all() {
            tracing::warn!("the trace ends later: {error}");
        }
    }
}
