// SPDX-License-Identifier: Apache-2.0
//! Traffic generator backend for TRex in stateless mode, over its JSON-RPC (TRex, "The TRex RPC Server").
//!
//! Tested with sessions written from the sources of its server, version 3.08 (`src/stx/common/trex_rpc_cmds_common.cpp`,
//! `src/stx/stl/trex_stl_rpc_cmds.cpp`, `src/rpc-server`), never against a real TRex.

mod frame;
#[cfg(test)]
mod tests;
mod zmtp;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quietwire_base::{Deadline, unix_time_ns};
use serde_json::{Value, json};

use self::zmtp::Req;
use crate::error::TesterError;
use crate::generator::{GeneratorIdentity, TrafficGenerator};
use crate::judge::outside_width;
use crate::latency::LatencySummary;
use crate::trial::{Directions, FrameSizes, Trial, TrialResult};
use crate::validity::{InvalidCause, Validity};

/// TCP port of the server's synchronous channel.
pub const TREX_PORT: u16 = 4501;
/// Version of the stateless API that the client uses. The server refuses another major version.
const API: (u32, u32) = (5, 1);
/// Supported major versions of the server.
const VERSIONS: [&str; 2] = ["v2.", "v3."];
/// Timeout of a reply.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// Time by which traffic may outlast its trial.
const END_DEADLINE: Duration = Duration::from_secs(5);
/// Interval of the checks for the end of traffic and for an abort.
const LINK_POLL_EVERY: Duration = Duration::from_millis(20);
/// Largest share of the schedule that a valid trial may miss.
const PACING_MISS_MAX: f64 = 0.01;

/// Session with a TRex server. Dropping it releases its ports.
#[derive(Debug)]
pub struct Trex {
    socket: Req,
    address: String,
    api_handle: String,
    version: String,
    /// Number and handle of each acquired port.
    ports: Vec<(u64, String)>,
    next_id: u64,
    abort: Arc<AtomicBool>,
}

/// Counters of one port since the start of the server.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    sent: u64,
    received: u64,
}

impl Trex {
    /// Connects to `HOST:PORT`, checks the version and acquires the first two ports, or the only one.
    ///
    /// # Errors
    /// [`TesterError::Trex`] if there is no reply, if the version is not supported, or if another user owns a port.
    pub fn connect(address: &str) -> Result<Self, TesterError> {
        let socket = Req::connect(address, ANSWER_DEADLINE).map_err(|error| {
            server_error(format!(
                "no TRex server at {address}: {error} (check that it runs with -i)"
            ))
        })?;
        let mut trex = Self {
            socket,
            address: address.to_owned(),
            api_handle: String::new(),
            version: String::new(),
            ports: Vec::new(),
            next_id: 0,
            abort: Arc::default(),
        };
        let synced = trex.call(
            "api_sync_v2",
            json!({ "name": "STL", "major": API.0, "minor": API.1 }),
        )?;
        trex.api_handle = text(&synced, "api_h")?;
        let version = trex.call("get_version", json!({}))?;
        trex.version = text(&version, "version")?;
        if !VERSIONS.iter().any(|known| trex.version.starts_with(known)) {
            return Err(server_error(format!(
                "server version {} is not supported (supported: 2 and 3)",
                trex.version
            )));
        }
        let system = trex.call("get_system_info", json!({}))?;
        let count = number(&system, "port_count")?;
        if count == 0 {
            return Err(server_error("the server has no ports".to_owned()));
        }
        for port in 0..count.min(2) {
            let handle = trex.call(
                "acquire",
                // Two concurrent runs are two sessions, and a port belongs to one session.
                json!({
                    "port_id": port, "user": "quietwire", "session_id": std::process::id(), "force": false,
                }),
            )?;
            let Some(handle) = handle.as_str() else {
                return Err(server_error(format!(
                    "the reply to acquire for port {port} has no handle: {handle}"
                )));
            };
            trex.ports.push((port, handle.to_owned()));
        }
        Ok(trex)
    }

    fn call(&mut self, method: &str, mut params: Value) -> Result<Value, TesterError> {
        self.next_id = self.next_id.wrapping_add(1);
        if let (Some(object), false) = (params.as_object_mut(), self.api_handle.is_empty()) {
            object.insert("api_h".to_owned(), json!(self.api_handle));
        }
        let request = json!({
            "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params,
        });
        let answer = self
            .socket
            .ask(request.to_string().as_bytes())
            .map_err(|error| server_error(format!("no reply to {method}: {error}")))?;
        result_of(&answer, method, self.next_id)
    }

    fn of_port(&mut self, method: &str, index: usize, more: &Value) -> Result<Value, TesterError> {
        let Some((port, handle)) = self.ports.get(index) else {
            return Err(server_error(format!("port {index} does not exist")));
        };
        let mut params = json!({ "port_id": port, "handler": handle });
        if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
            params.extend(more.clone());
        }
        self.call(method, params)
    }

    fn counters(&mut self) -> Result<Vec<Counters>, TesterError> {
        (0..self.ports.len())
            .map(|index| counters_of(&self.of_port("get_port_stats", index, &json!({}))?))
            .collect()
    }

    /// Sends for `seconds` from each of the first `senders` ports, and waits for the end of the transmission.
    fn send(&mut self, senders: usize, seconds: f64) -> Result<(), TesterError> {
        for index in 0..senders {
            let start = json!({
                "duration": seconds,
                "mul": { "type": "raw", "op": "abs", "value": 1.0 },
                // The server refuses a rate above the line rate and a port without a link.
                "force": false,
                "core_mask": u64::MAX,
            });
            self.of_port("start_traffic", index, &start)?;
        }
        let length = Duration::from_secs_f64(seconds);
        self.wait(length)?;
        let deadline = Deadline::after(END_DEADLINE);
        for index in 0..senders {
            let ended = deadline.poll(LINK_POLL_EVERY, || match self.is_sending(index) {
                Ok(true) => None,
                Ok(false) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            });
            let Some(outcome) = ended else {
                self.of_port("stop_traffic", index, &json!({}))?;
                return Err(server_error(format!("port {index} did not stop sending")));
            };
            outcome?;
        }
        Ok(())
    }

    fn is_sending(&mut self, index: usize) -> Result<bool, TesterError> {
        let status = self.of_port("get_port_status", index, &json!({}))?;
        Ok(text(&status, "state")? == "TX")
    }

    /// Waits for `length`, or until an abort, which stops the ports.
    fn wait(&mut self, length: Duration) -> Result<(), TesterError> {
        let began = Instant::now();
        while let Some(left) = length.checked_sub(began.elapsed()) {
            if self.abort.load(Ordering::Relaxed) {
                for index in 0..self.ports.len() {
                    self.of_port("stop_traffic", index, &json!({}))?;
                }
                return Err(TesterError::Aborted);
            }
            std::thread::sleep(left.min(LINK_POLL_EVERY));
        }
        Ok(())
    }

    /// Adds one continuous stream to each sending port.
    fn prepare(&mut self, trial: &Trial, senders: usize) -> Result<(), TesterError> {
        let FrameSizes::Fixed(size) = trial.frame_sizes else {
            return Err(TesterError::BadTrial(
                "the TRex backend supports one frame size only (use a fixed size)".to_owned(),
            ));
        };
        for (index, port) in (0..senders).zip(0u8..) {
            self.of_port("remove_all_streams", index, &json!({}))?;
            let frame = frame::udp(size, port);
            let stream = json!({
                "enabled": true,
                "self_start": true,
                "action_count": 0,
                // The server writes the MAC addresses of its ports.
                "flags": 0,
                "isg": 0.0,
                "next_stream_id": -1,
                "mode": {
                    "type": "continuous",
                    "rate": { "type": "pps", "value": trial.offered_rate_pps / senders as f64 },
                },
                "packet": { "binary": STANDARD.encode(frame), "meta": "" },
                "flow_stats": { "enabled": false },
                "vm": { "instructions": [] },
            });
            self.of_port(
                "add_stream",
                index,
                &json!({ "stream_id": 1, "stream": stream }),
            )?;
        }
        Ok(())
    }
}

impl Drop for Trex {
    fn drop(&mut self) {
        for index in 0..self.ports.len() {
            if let Err(error) = self.of_port("release", index, &json!({})) {
                tracing::warn!("cannot release a TRex port: {error}");
            }
        }
    }
}

fn server_error(what: String) -> TesterError {
    TesterError::Trex(what)
}

/// Returns the result in a reply to a request with this id.
fn result_of(answer: &[u8], method: &str, id: u64) -> Result<Value, TesterError> {
    let mut answer: Value = serde_json::from_slice(answer)
        .map_err(|error| server_error(format!("malformed reply to {method}: {error}")))?;
    if let Some(error) = answer.get("error") {
        let field = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        let what = format!("{}: {}", field("message"), field("specific_err"));
        // Some messages of the server have several lines.
        let words: Vec<&str> = what.split_whitespace().collect();
        return Err(server_error(format!(
            "{method} was refused: {}",
            words.join(" ")
        )));
    }
    if answer.get("id") != Some(&json!(id)) {
        return Err(server_error(format!(
            "the reply to {method} has the id of another request"
        )));
    }
    answer
        .get_mut("result")
        .map(Value::take)
        .ok_or_else(|| server_error(format!("the reply to {method} has no result")))
}

/// Returns the counters in the result of `get_port_stats`.
fn counters_of(stats: &Value) -> Result<Counters, TesterError> {
    // The server's name is opackets (main_dpdk.cpp, port_stats_to_json); its documentation has total_tx_pkts.
    let either = |one, other| number(stats, one).or_else(|_| number(stats, other));
    Ok(Counters {
        sent: either("opackets", "total_tx_pkts")?,
        received: either("ipackets", "total_rx_pkts")?,
    })
}

fn text(object: &Value, key: &str) -> Result<String, TesterError> {
    let found = object.get(key).and_then(Value::as_str);
    found
        .map(str::to_owned)
        .ok_or_else(|| server_error(format!("a reply has no {key}: {object}")))
}

fn number(object: &Value, key: &str) -> Result<u64, TesterError> {
    let found = object.get(key).and_then(Value::as_u64);
    found.ok_or_else(|| server_error(format!("a reply has no {key}: {object}")))
}

impl TrafficGenerator for Trex {
    fn identity(&mut self) -> Result<GeneratorIdentity, TesterError> {
        Ok(GeneratorIdentity {
            name: "trex".to_owned(),
            version: self.version.clone(),
            details: format!("{}, {} ports", self.address, self.ports.len()),
            is_simulated: false,
        })
    }

    fn abort_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.abort)
    }

    /// Loss is computed from port counters: foreign frames count as received, too.
    fn run(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        trial.validate().map_err(TesterError::BadTrial)?;
        let senders = match (trial.directions, self.ports.len()) {
            (Directions::OneWay, _) => 1,
            (Directions::Reverse, _) => {
                return Err(TesterError::BadTrial(
                    "the TRex backend sends from the first port or from both (exchange the ports)"
                        .to_owned(),
                ));
            }
            (Directions::Both, 2) => 2,
            (Directions::Both, _) => {
                return Err(TesterError::BadTrial(
                    "traffic in both directions requires two ports, and the server has one"
                        .to_owned(),
                ));
            }
        };
        self.prepare(trial, senders)?;
        if trial.warm_up_s > 0.0 {
            self.send(senders, trial.warm_up_s)?;
            self.wait(Duration::from_secs_f64(trial.drain_s))?;
        }
        let before = self.counters()?;
        let started_unix_ns = unix_time_ns();
        self.send(senders, trial.duration_s)?;
        self.wait(Duration::from_secs_f64(trial.drain_s))?;
        let after = self.counters()?;
        let grown = |of: fn(&Counters) -> u64| -> u64 {
            let pairs = before.iter().zip(&after);
            pairs
                .map(|(before, after)| of(after).saturating_sub(of(before)))
                .sum()
        };
        let (offered, received) = (grown(|it| it.sent), grown(|it| it.received));
        let none = LatencySummary::default();
        let mut result = TrialResult::of_counts(trial, trial.duration_s, offered, received, none);
        result.started_unix_ns = started_unix_ns;
        result.scheduled_frames = scheduled_frames(trial);
        result.health.unsent_frames = result.scheduled_frames.saturating_sub(offered);
        result.health.pacing_miss_ratio =
            result.health.unsent_frames as f64 / result.scheduled_frames.max(1) as f64;
        result.validity = judged(&result);
        Ok(result)
    }

    fn run_unpaced(&mut self, _trial: &Trial) -> Result<TrialResult, TesterError> {
        Err(TesterError::CannotDo {
            what: "find its own highest rate; set max-rate-pps",
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a validated trial has a rate and a duration, and larger numbers saturate"
)]
fn scheduled_frames(trial: &Trial) -> u64 {
    (trial.offered_rate_pps * trial.duration_s).round() as u64
}

fn judged(result: &TrialResult) -> Validity {
    let mut reasons = Vec::new();
    if result.offered_frames == 0 {
        reasons.push(InvalidCause::RateMissed.because("no frame was offered"));
    }
    if result.health.pacing_miss_ratio > PACING_MISS_MAX {
        reasons.push(InvalidCause::RateMissed.because(format!(
            "TRex offered {} of {} frames of its schedule",
            result.offered_frames, result.scheduled_frames
        )));
    }
    if result.received_frames > result.offered_frames {
        reasons.push(InvalidCause::Excess.because(format!(
            "{} frames came back, but only {} were offered",
            result.received_frames, result.offered_frames
        )));
    }
    reasons.extend(outside_width(result));
    Validity::of(reasons)
}
