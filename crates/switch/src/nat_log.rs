// SPDX-License-Identifier: Apache-2.0
//! Log of NAT: which host had which external ports (RFC 6888, section 4), one JSON object per line. An IPFIX collector can get the events too.
//!
//! Forwarding threads put events into rings. The control thread writes them, so that a slow disk delays no packet.

mod budget;
mod ipfix;
mod line;
mod record;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use quietwire_base::unix_time;
use quietwire_dpdk::cycles;
use rtrb::Consumer;

use crate::error::SwitchError;
use crate::forward::{LogEvent, StampedEvent};
use budget::{Budget, shares};
use ipfix::SendError;
use record::{Record, Vrf};

pub(crate) use ipfix::Exporter;

/// The ring of an instance on one forwarding thread.
#[derive(Debug)]
struct Ring {
    /// Name of the instance.
    name: String,
    vrf: Vrf,
    events: Consumer<StampedEvent>,
    /// Events of which the log has no line yet, because it could not be written.
    unwritten: u64,
}

/// The log and the rings that lead to it.
#[derive(Debug, Default)]
pub(crate) struct NatLog {
    file: Option<File>,
    exporter: Option<Exporter>,
    rings: Vec<Ring>,
    budget: Budget,
    /// Events that could not be written or sent, by the name of the instance.
    lost: BTreeMap<String, u64>,
    /// Events that the collector did not get, as far as the log knows, by the name of the instance.
    not_sent: BTreeMap<String, u64>,
    has_failed: bool,
    has_failed_to_send: bool,
}

/// Events that a collector did not get.
#[derive(Debug, Default)]
struct Unsent {
    /// Their numbers, by the name of the instance.
    lost: BTreeMap<String, u64>,
    cause: Option<std::io::Error>,
}

impl Unsent {
    fn note(&mut self, sent: Result<(), SendError>) {
        if let Err(error) = sent {
            for (name, count) in error.lost {
                add_to(&mut self.lost, &name, u64::from(count));
            }
            self.cause = Some(error.cause);
        }
    }
}

/// Space of a FIFO, octets: the most that a process without privileges may set (fs.pipe-max-size), some 7,000 events.
const PIPE_OCTETS: i32 = 1 << 20;

/// Opens the file of the log for appending. Only its owner can read a new one, because it names hosts. If it is a FIFO, the switch does not
/// wait for its reader: events for which the FIFO has no space are lost.
///
/// # Errors
/// [`SwitchError::Config`] if the file cannot be opened; also for a FIFO without a reader.
pub(crate) fn open(path: &Path) -> Result<File, SwitchError> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options.custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).map_err(|cause| {
        let cure = match cause.raw_os_error() {
            Some(libc::ENXIO) => "start the program that reads the FIFO first",
            _ => "check that the directory exists and is writable",
        };
        SwitchError::Config {
            location: "nat-log".to_owned(),
            what: format!("cannot open {}: {cause} ({cure})", path.display()),
        }
    })?;
    if file.metadata().is_ok_and(|data| data.file_type().is_fifo()) {
        // A pipe has 64 KiB by default, less than the events of a turn. A smaller one works too.
        let _ = fcntl(&file, FcntlArg::F_SETPIPE_SZ(PIPE_OCTETS));
    }
    Ok(file)
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

/// Adds to the count of an instance. Returns the sum.
fn add_to(counts: &mut BTreeMap<String, u64>, name: &str, count: u64) -> u64 {
    let sum = counts.entry(name.to_owned()).or_default();
    *sum = sum.saturating_add(count);
    *sum
}

/// Returns the record of an event of an instance, of which `total` events were lost.
fn record_of<'a>(
    (ticks, event): StampedEvent,
    instance: (&'a str, &'a Vrf),
    total: u64,
) -> Record<'a> {
    Record::new(time_of(ticks), event, instance, total)
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
        self.rings.push(Ring {
            name: name.to_owned(),
            vrf: Vrf::default(),
            events,
            unwritten: 0,
        });
    }

    /// Sets the VRF of an instance, by number and name.
    pub(crate) fn set_vrf(&mut self, name: &str, number: u16, vrf: &str) {
        for ring in self.rings.iter_mut().filter(|one| one.name == name) {
            ring.vrf = Vrf {
                number,
                name: vrf.to_owned(),
            };
        }
    }

    /// Returns the number of events of an instance that could not be written.
    pub(crate) fn lost(&self, name: &str) -> u64 {
        self.lost.get(name).copied().unwrap_or(0)
    }

    /// Writes events that have arrived, up to the rate of the log. Rings of removed instances end once they are empty.
    pub(crate) fn turn(&mut self) {
        let available = self.budget.raise(Instant::now());
        let written = self.write(available);
        self.budget.spend(written);
    }

    /// Writes all events that have arrived, at the end of the switch.
    pub(crate) fn end(&mut self) {
        self.write(usize::MAX);
    }

    /// Writes up to this number of events. Returns their number.
    fn write(&mut self, available: usize) -> usize {
        if self.file.is_none() {
            return 0;
        }
        let now_s = u32::try_from(now_ms() / 1000).unwrap_or(u32::MAX);
        let mut rings = std::mem::take(&mut self.rings);
        let waiting: Vec<usize> = rings.iter().map(|one| one.events.slots()).collect();
        let mut sum = 0_usize;
        for (ring, share) in rings.iter_mut().zip(shares(available, &waiting)) {
            if share > 0 {
                sum = sum.saturating_add(self.write_ring(ring, share, now_s));
            }
        }
        rings.retain(|one| !one.events.is_abandoned() || !one.events.is_empty());
        self.rings = rings;
        sum
    }

    /// Writes up to this number of events of a ring. Returns their number.
    fn write_ring(&mut self, ring: &mut Ring, share: usize, now_s: u32) -> usize {
        let mut text = Vec::new();
        if self.has_failed {
            // The last line may have been cut short, by a full disk.
            text.push(b'\n');
        }
        let instance = (ring.name.as_str(), &ring.vrf);
        if ring.unwritten > 0 {
            let loss = (cycles::now(), LogEvent::Lost(ring.unwritten));
            line::push(&mut text, &record_of(loss, instance, 0));
        }
        let mut unsent = Unsent::default();
        // Taken records, events among them, and events that the log does not have without these records.
        let (mut taken, mut count, mut weight) = (0_usize, 0_u64, 0_u64);
        while taken < share {
            let Ok(event) = ring.events.pop() else {
                break;
            };
            taken = taken.saturating_add(1);
            let mut total = 0;
            if let LogEvent::Lost(lost) = event.1 {
                total = add_to(&mut self.not_sent, &ring.name, lost);
            } else {
                count = count.saturating_add(1);
            }
            let record = record_of(event, instance, total);
            weight = weight.saturating_add(record.weight());
            if let Some(exporter) = &mut self.exporter {
                unsent.note(exporter.add(&record, now_s));
            }
            line::push(&mut text, &record);
        }
        if let Some(exporter) = &mut self.exporter {
            unsent.note(exporter.flush(now_s));
        }
        self.note_unsent(unsent);
        if self.write_text(&text) {
            ring.unwritten = 0;
        } else {
            ring.unwritten = ring.unwritten.saturating_add(weight);
            add_to(&mut self.lost, &ring.name, count);
        }
        taken
    }

    /// Counts and reports events that a collector did not get.
    fn note_unsent(&mut self, unsent: Unsent) {
        let Some(cause) = unsent.cause else {
            return;
        };
        for (name, count) in &unsent.lost {
            add_to(&mut self.lost, name, *count);
            add_to(&mut self.not_sent, name, *count);
        }
        if !std::mem::replace(&mut self.has_failed_to_send, true) {
            tracing::error!(
                "cannot send events of NAT to the collector: {cause} (further losses are only counted)"
            );
        }
    }

    /// Appends lines to the file. Returns false if that fails.
    fn write_text(&mut self, text: &[u8]) -> bool {
        let Some(file) = &mut self.file else {
            return false;
        };
        let written = file.write_all(text);
        match &written {
            Ok(()) => self.has_failed = false,
            Err(cause) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::error!(
                        "cannot write the log of NAT: {cause} (events are lost until it can be written again)"
                    );
                }
            }
        }
        written.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use quietwire_base::run_within;
    use quietwire_tables::connections::{Endpoint, SessionEvent};
    use quietwire_tables::nat::{
        BlockEvent, LimitEvent, MappingEvent, NatEvent, NatLimit, NatProtocol,
    };

    use super::budget::EVENTS_A_TURN;
    use super::*;
    use crate::forward::Ipv6Ends;

    fn block(is_assigned: bool) -> NatEvent {
        NatEvent::Block(BlockEvent {
            is_assigned,
            is_first_or_last: true,
            host: [10, 0, 0, 5].into(),
            external: [198, 51, 100, 1].into(),
            first_port: 1024,
            last_port: 1535,
        })
    }

    fn mapping(is_created: bool) -> NatEvent {
        NatEvent::Mapping(MappingEvent {
            is_created,
            protocol: NatProtocol::Udp,
            internal: "10.0.0.5:4000".parse().unwrap(),
            external: "198.51.100.1:1030".parse().unwrap(),
        })
    }

    fn stamped(event: NatEvent, ends: Ipv6Ends) -> StampedEvent {
        (cycles::now(), LogEvent::Nat(event, ends))
    }

    fn event(is_assigned: bool) -> StampedEvent {
        stamped(block(is_assigned), Ipv6Ends::default())
    }

    fn lines_of(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
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
        let returned = block(false);
        let client = Ipv6Ends {
            host: Some("2001:db8:1::5".parse().unwrap()),
            external: None,
        };
        sender.push(stamped(returned, client)).unwrap();
        let of_ipv6 = Ipv6Ends {
            external: Some("2001:db8::1".parse().unwrap()),
            ..client
        };
        sender.push(stamped(returned, of_ipv6)).unwrap();
        drop(sender);
        log.turn();
        assert!(log.rings.is_empty());
        let lines = lines_of(&path);
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

    #[test]
    fn mappings_limits_and_losses_have_lines_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nat.jsonl");
        let mut log = NatLog::default();
        log.set_file(Some(open(&path).unwrap()));
        let (mut sender, receiver) = rtrb::RingBuffer::new(16);
        log.add("internet", receiver);
        log.set_vrf("internet", 3, "tenant");
        let client = Ipv6Ends {
            host: Some("2001:db8:1::5".parse().unwrap()),
            external: None,
        };
        let limit = NatEvent::Limit(LimitEvent {
            limit: NatLimit::HostBlocks,
            protocol: None,
            host: Some([10, 0, 0, 5].into()),
            external: None,
            maximum: Some(4096),
        });
        let none = Ipv6Ends::default();
        let sent = [
            (mapping(true), none),
            (mapping(false), client),
            (limit, none),
        ];
        for (event, ends) in sent {
            sender.push(stamped(event, ends)).unwrap();
        }
        let NatEvent::Block(block) = block(false) else {
            unreachable!("a block");
        };
        let end = |address: &str, port| Endpoint {
            address: address.parse().unwrap(),
            port,
        };
        let session = SessionEvent {
            is_created: false,
            protocol: 1,
            source: end("192.0.2.9", 7),
            destination: end("10.0.0.5", 7),
            external: [None, Some(end("198.51.100.1", 1030))],
        };
        for event in [
            LogEvent::Binding(block, client),
            LogEvent::Session(session),
            LogEvent::Lost(7),
        ] {
            sender.push((cycles::now(), event)).unwrap();
        }
        log.turn();
        let mut lines = lines_of(&path);
        for line in &mut lines {
            let line = line.as_object_mut().unwrap();
            assert!(line.remove("time").unwrap().as_f64().unwrap() > 1.7e9);
            assert_eq!(line.remove("nat").unwrap(), "internet");
        }
        let expected = [
            serde_json::json!({"event": "created", "vrf": "tenant", "protocol": "udp",
                "inside": "10.0.0.5:4000", "outside": "198.51.100.1:1030"}),
            serde_json::json!({"event": "deleted", "vrf": "tenant", "protocol": "udp",
                "inside": "[2001:db8:1::5]:4000", "outside": "198.51.100.1:1030"}),
            serde_json::json!({"event": "limit", "limit": "host-blocks", "host": "10.0.0.5", "maximum": 4096}),
            serde_json::json!({"event": "unbound", "host": "2001:db8:1::5", "address": "198.51.100.1"}),
            serde_json::json!({"event": "session-deleted", "vrf": "tenant", "protocol": "icmp",
                "inside": "10.0.0.5:7", "outside": "198.51.100.1:1030", "remote": "192.0.2.9:0",
                "direction": "inbound"}),
            serde_json::json!({"event": "lost", "count": 7}),
        ];
        assert_eq!(lines, expected);
        // The forwarding thread has counted them.
        assert_eq!(log.lost("internet"), 0);
    }

    #[test]
    fn a_turn_has_the_rate_of_the_log_and_the_end_has_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nat.jsonl");
        let mut log = NatLog::default();
        log.set_file(Some(open(&path).unwrap()));
        let count = EVENTS_A_TURN * 2;
        let (mut sender, receiver) = rtrb::RingBuffer::new(count);
        log.add("internet", receiver);
        for _ in 0..count {
            sender.push(event(true)).unwrap();
        }
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        log.turn();
        assert_eq!(lines(), EVENTS_A_TURN);
        log.end();
        assert_eq!(lines(), count);
        assert_eq!(log.lost("internet"), 0);
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
    fn a_fifo_that_nothing_reads_blocks_neither_start_nor_log() {
        const EVENTS: usize = 20_000;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let opened = |path: &Path| {
            let path = path.to_owned();
            let opened = run_within(Duration::from_secs(60), move || {
                Ok(open(&path).map_err(|error| error.to_string()))
            });
            opened.unwrap()
        };
        let error = opened(&path).unwrap_err();
        assert!(error.contains("cannot open"), "{error}");
        assert!(error.contains("start the program"), "{error}");
        let mut reader = File::options();
        let reader = reader.read(true).custom_flags(libc::O_NONBLOCK);
        let reader = reader.open(&path).unwrap();
        let mut log = NatLog::default();
        log.set_file(Some(opened(&path).unwrap()));
        let (mut sender, receiver) = rtrb::RingBuffer::new(EVENTS);
        log.add("internet", receiver);
        for _ in 0..EVENTS {
            sender.push(event(true)).unwrap();
        }
        // More than a pipe holds.
        log.end();
        assert_eq!(log.lost("internet"), EVENTS as u64);
        drop(reader);
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
        // Once the file can be written again, a line has their number.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nat.jsonl");
        log.set_file(Some(open(&path).unwrap()));
        sender.push(event(true)).unwrap();
        log.turn();
        let lines = lines_of(&path);
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (&lines[0]["event"], &lines[0]["count"]),
            (&"lost".into(), &3.into())
        );
        assert_eq!(lines[1]["event"], "assigned");
        assert_eq!(log.lost("internet"), 3);
        let error = open(Path::new("/nonexistent/nat")).unwrap_err().to_string();
        assert!(error.contains("check that the directory exists"), "{error}");
    }
}
