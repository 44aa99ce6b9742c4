// SPDX-License-Identifier: Apache-2.0
//! Log of NAT: which host had which external ports (RFC 6888, section 4), one JSON object per line. An IPFIX collector can get the events too.
//!
//! Forwarding threads put events of port blocks into rings. The control thread writes them, so that a slow disk delays no packet.

mod ipfix;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use quietwire_base::unix_time;
use quietwire_dpdk::cycles;
use rtrb::Consumer;
use serde::Serialize;

use crate::error::SwitchError;
use crate::forward::StampedEvent;

pub(crate) use ipfix::Exporter;

/// Events that are written at once, of each ring.
const EVENTS_A_TURN: usize = 4096;

/// A line of the log.
#[derive(Serialize)]
struct Line<'a> {
    /// Unix time, seconds.
    time: f64,
    /// `assigned` or `returned`.
    event: &'static str,
    nat: &'a str,
    host: IpAddr,
    address: IpAddr,
    first_port: u16,
    last_port: u16,
}

impl<'a> Line<'a> {
    fn of(record: &ipfix::Record<'a>) -> Self {
        let (first_port, last_port) = record.ports;
        Self {
            time: record.time_ms as f64 / 1000.0,
            event: if record.is_assigned {
                "assigned"
            } else {
                "returned"
            },
            nat: record.nat,
            host: record.host,
            address: record.external,
            first_port,
            last_port,
        }
    }
}

/// The log and the rings that lead to it.
#[derive(Debug, Default)]
pub(crate) struct NatLog {
    file: Option<File>,
    exporter: Option<Exporter>,
    rings: Vec<(String, Consumer<StampedEvent>)>,
    /// Events that could not be written, by the name of the instance.
    lost: BTreeMap<String, u64>,
    has_failed: bool,
    has_failed_to_send: bool,
}

/// Events that a collector did not get.
#[derive(Debug, Default)]
struct Unsent {
    count: u32,
    cause: Option<std::io::Error>,
}

impl Unsent {
    fn note(&mut self, sent: Result<(), (u32, std::io::Error)>) {
        if let Err((count, cause)) = sent {
            self.count = self.count.saturating_add(count);
            self.cause = Some(cause);
        }
    }

    /// Returns the cause, and begins again.
    fn end(&mut self) -> Option<std::io::Error> {
        self.count = 0;
        self.cause.take()
    }
}

/// Opens the file of the log for appending. Only its owner can read a new one, because it names hosts.
///
/// # Errors
/// [`SwitchError::Config`] if the file cannot be opened.
pub(crate) fn open(path: &Path) -> Result<File, SwitchError> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options.open(path).map_err(|cause| SwitchError::Config {
        location: "nat-log".to_owned(),
        what: format!(
            "cannot open {}: {cause} (check that the directory exists and is writable)",
            path.display()
        ),
    })
}

/// Prepares the transmission of events to an IPFIX collector.
///
/// # Errors
/// [`SwitchError::Config`] if the address cannot be reached.
pub(crate) fn connect(collector: SocketAddr) -> Result<Exporter, SwitchError> {
    Exporter::connect(collector).map_err(|cause| SwitchError::Config {
        location: "nat-log-collector".to_owned(),
        what: format!("cannot send to {collector}: {cause} (check the address and the routes)"),
    })
}

/// Returns the present Unix time, milliseconds.
fn now_ms() -> u64 {
    u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX)
}

/// Returns the Unix time of a moment, milliseconds. `ticks` are of the time stamp counter.
fn time_of(ticks: u64) -> u64 {
    let ago = u128::from(cycles::now().saturating_sub(ticks));
    let hz = u128::from(cycles::hz().max(1));
    let ago_ms = ago.saturating_mul(1000).checked_div(hz).unwrap_or_default();
    now_ms().saturating_sub(u64::try_from(ago_ms).unwrap_or(u64::MAX))
}

/// Returns an event of the instance `nat` with its Unix time, and with IPv6 addresses instead of those that stand for them.
fn record_of((ticks, event, ends): StampedEvent, nat: &str) -> ipfix::Record<'_> {
    let external = ends.external;
    ipfix::Record {
        time_ms: time_of(ticks),
        is_assigned: event.is_assigned,
        host: ends.host.map_or(IpAddr::V4(event.host), IpAddr::V6),
        external: external.map_or(IpAddr::V4(event.external), IpAddr::V6),
        ports: (event.first_port, event.last_port),
        nat,
    }
}

impl NatLog {
    pub(crate) fn set_file(&mut self, file: Option<File>) {
        self.file = file;
    }

    pub(crate) fn set_exporter(&mut self, exporter: Option<Exporter>) {
        self.exporter = exporter;
    }

    /// Adds the ring of an instance.
    pub(crate) fn add(&mut self, name: &str, events: Consumer<StampedEvent>) {
        self.rings.push((name.to_owned(), events));
    }

    /// Returns the number of events of an instance that could not be written.
    pub(crate) fn lost(&self, name: &str) -> u64 {
        self.lost.get(name).copied().unwrap_or(0)
    }

    /// Writes the events that have arrived. Rings of removed instances end once they are empty.
    pub(crate) fn turn(&mut self) {
        let Some(file) = &mut self.file else {
            return;
        };
        let now_s = u32::try_from(now_ms() / 1000).unwrap_or(u32::MAX);
        let mut unsent = Unsent::default();
        for (name, events) in &mut self.rings {
            let (mut text, mut count) = (Vec::new(), 0_u64);
            if self.has_failed {
                // The last line may have been cut short, by a full disk.
                text.push(b'\n');
            }
            for _ in 0..EVENTS_A_TURN {
                let Ok(event) = events.pop() else {
                    break;
                };
                let record = record_of(event, name);
                if let Some(exporter) = &mut self.exporter {
                    unsent.note(exporter.add(&record, now_s));
                }
                count = count.saturating_add(1);
                // Writing to memory cannot fail.
                if serde_json::to_writer(&mut text, &Line::of(&record)).is_ok() {
                    text.push(b'\n');
                }
            }
            if count == 0 {
                continue;
            }
            if let Some(exporter) = &mut self.exporter {
                unsent.note(exporter.flush(now_s));
            }
            if unsent.count > 0 {
                let lost = self.lost.entry(name.clone()).or_default();
                *lost = lost.saturating_add(u64::from(unsent.count));
            }
            if let Some(cause) = unsent.end()
                && !std::mem::replace(&mut self.has_failed_to_send, true)
            {
                tracing::error!(
                    "cannot send events of NAT to the collector: {cause} (further losses are only counted)"
                );
            }
            match file.write_all(&text) {
                Ok(()) => self.has_failed = false,
                Err(cause) => {
                    let lost = self.lost.entry(name.clone()).or_default();
                    *lost = lost.saturating_add(count);
                    if !std::mem::replace(&mut self.has_failed, true) {
                        tracing::error!(
                            "cannot write the log of NAT: {cause} (events are lost until it can be written again)"
                        );
                    }
                }
            }
        }
        self.rings
            .retain(|(_, events)| !events.is_abandoned() || !events.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use quietwire_tables::nat::BlockEvent;

    use super::*;
    use crate::forward::Ipv6Ends;

    fn event(is_assigned: bool) -> StampedEvent {
        let event = BlockEvent {
            is_assigned,
            host: [10, 0, 0, 5].into(),
            external: [198, 51, 100, 1].into(),
            first_port: 1024,
            last_port: 1535,
        };
        (cycles::now(), event, Ipv6Ends::default())
    }

    #[test]
    fn events_become_lines_and_rings_of_removed_instances_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nat.jsonl");
        let mut log = NatLog::default();
        let (mut sender, receiver) = rtrb::RingBuffer::new(4);
        log.add("internet", receiver);
        sender.push(event(true)).unwrap();
        // Without a file, events wait.
        log.turn();
        log.set_file(Some(open(&path).unwrap()));
        log.turn();
        let (ticks, returned, _) = event(false);
        let client = Ipv6Ends {
            host: Some("2001:db8:1::5".parse().unwrap()),
            external: None,
        };
        sender.push((ticks, returned, client)).unwrap();
        let of_ipv6 = Ipv6Ends {
            external: Some("2001:db8::1".parse().unwrap()),
            ..client
        };
        sender.push((ticks, returned, of_ipv6)).unwrap();
        drop(sender);
        log.turn();
        assert!(log.rings.is_empty());
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            (&lines[0]["event"], &lines[1]["event"]),
            (&"assigned".into(), &"returned".into())
        );
        assert_eq!(
            (&lines[0]["nat"], &lines[0]["host"]),
            (&"internet".into(), &"10.0.0.5".into())
        );
        // The number of an IPv6 client is not of interest.
        assert_eq!(lines[1]["host"], "2001:db8:1::5");
        assert_eq!(lines[1]["address"], "198.51.100.1");
        assert_eq!(lines[2]["host"], "2001:db8:1::5");
        assert_eq!(lines[2]["address"], "2001:db8::1");
        assert_eq!(
            (&lines[0]["first_port"], &lines[0]["last_port"]),
            (&1024.into(), &1535.into())
        );
        assert!(lines[0]["time"].as_f64().unwrap() > 1.7e9);
    }

    /// A write that fails may have written a part.
    #[test]
    fn the_first_line_after_a_failure_is_a_line_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nat.jsonl");
        std::fs::write(&path, "{\"time\":1").unwrap();
        let mut log = NatLog {
            has_failed: true,
            ..NatLog::default()
        };
        log.set_file(Some(open(&path).unwrap()));
        let (mut sender, receiver) = rtrb::RingBuffer::new(4);
        log.add("internet", receiver);
        for _ in 0..2 {
            sender.push(event(true)).unwrap();
            log.turn();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let (cut, lines) = text.split_once('\n').unwrap();
        assert_eq!(cut, "{\"time\":1");
        assert_eq!(lines.lines().count(), 2);
        for line in lines.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["nat"], "internet");
        }
    }

    #[test]
    fn events_that_cannot_be_written_are_counted() {
        let mut log = NatLog::default();
        log.set_file(Some(File::options().write(true).open("/dev/full").unwrap()));
        let (mut sender, receiver) = rtrb::RingBuffer::new(4);
        log.add("internet", receiver);
        for _ in 0..3 {
            sender.push(event(true)).unwrap();
        }
        log.turn();
        assert_eq!((log.lost("internet"), log.lost("other")), (3, 0));
        let error = open(Path::new("/nonexistent/nat")).unwrap_err().to_string();
        assert!(error.contains("check that the directory exists"), "{error}");
    }
}
