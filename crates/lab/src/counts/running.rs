// SPDX-License-Identifier: Apache-2.0
//! Counters of a running quietwire switch that the lab did not start, read from its control socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_dpdk::PortUri;
use quietwire_switch::control::{Request, Subject};
use quietwire_switch::report::{CyclesReport, PortReport};
use quietwire_tester::TrialResult;
use quietwire_tester::account::{DeviceCounts, DeviceLayout, PortAt};

use super::{TIMEOUT, of_switch, own_view_of_switch};
use crate::control::ask_within;
use crate::cycle_reader::CycleReader;
use crate::cycles::CycleCount;
use crate::own_view::OwnView;

/// Name of the switch in loss accounts.
const NAME: &str = "switch";
/// Timeout for listing its ports.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// A running switch.
#[derive(Clone, Debug)]
pub struct RunningSwitch {
    socket: PathBuf,
    layout: DeviceLayout,
}

/// Counters of a running switch at one instant.
#[derive(Clone, Debug)]
pub struct SwitchReading {
    counts: DeviceCounts,
    /// The cycles, or why they are unknown.
    cycles: Result<SwitchCycles, String>,
}

/// Cycles of a switch's forwarding threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchCycles {
    /// The cycles and the frames.
    pub count: CycleCount,
    /// Ticks of the time stamp counter per second.
    pub tsc_hz: u64,
}

impl RunningSwitch {
    /// Reads a switch's ports and finds the peers of the tester's ports: the same socket, the same memif ID.
    ///
    /// # Errors
    /// The reason why the switch does not answer, as a clause.
    pub fn find(socket: &Path, tester: &[PortUri]) -> Result<Self, String> {
        let request = Request::Show(Subject::Ports);
        let ports: Vec<PortReport> = ask_within(socket, &request, LIST_TIMEOUT)?;
        Ok(Self {
            socket: socket.to_owned(),
            layout: layout(&ports, tester)?,
        })
    }

    /// Reads its counters. The deadline of each of the two requests is 2 s.
    #[must_use]
    pub fn read(&self) -> SwitchReading {
        let counts = of_switch(&self.socket, Deadline::after(TIMEOUT));
        SwitchReading {
            counts: DeviceCounts {
                elements: [(NAME.to_owned(), counts)].into(),
            },
            cycles: self.cycles(),
        }
    }

    /// Records where the frames of a trial were lost, by the counters before the trial and now. Returns the cycles of the switch between
    /// both readings.
    ///
    /// # Errors
    /// The reason, as a clause, why the cycles are unknown.
    pub fn account_for(
        &self,
        result: &mut TrialResult,
        before: &SwitchReading,
    ) -> Result<SwitchCycles, String> {
        let after = self.read();
        result.account_for(&self.layout, &before.counts, &after.counts);
        let before = before.cycles.as_ref().map_err(String::clone)?;
        after.cycles?.since(before)
    }

    /// Returns a reader of its forwarding cycles, for a thread of its own.
    #[must_use]
    pub fn cycle_reader(&self) -> CycleReader {
        CycleReader::new(self.socket.clone())
    }

    /// Reads what it counts about its own work. One deadline of 2 s covers both requests.
    ///
    /// # Errors
    /// The reason, as a clause, why the switch does not report it.
    pub fn own_view(&self) -> Result<OwnView, String> {
        own_view_of_switch(&self.socket, Deadline::after(TIMEOUT))
    }

    fn cycles(&self) -> Result<SwitchCycles, String> {
        let request = Request::Show(Subject::Cycles);
        let report: CyclesReport = ask_within(&self.socket, &request, TIMEOUT)?;
        Ok(SwitchCycles {
            count: CycleCount::of_quietwire(&report),
            tsc_hz: report.hz,
        })
    }
}

impl SwitchCycles {
    /// Returns the increase since an earlier reading.
    fn since(&self, then: &Self) -> Result<Self, String> {
        let count = self.count.since(&then.count);
        Ok(Self {
            count: count.ok_or("its counters restarted during the trial")?,
            tsc_hz: self.tsc_hz,
        })
    }
}

/// Returns the switch's port that is the peer of each of the tester's ports.
///
/// # Errors
/// A port of the switch whose URI is unknown here, as one of another version.
fn layout(ports: &[PortReport], tester: &[PortUri]) -> Result<DeviceLayout, String> {
    let known = |port: &PortReport| match port.uri.parse() {
        Ok(uri) => Ok((port.counts.name.clone(), uri)),
        Err(error) => Err(format!(
            "its port '{}' has the URI '{}', which is unknown here: {error}",
            port.counts.name, port.uri
        )),
    };
    let known: Vec<(String, PortUri)> = ports.iter().map(known).collect::<Result<_, _>>()?;
    let facing = |own: &PortUri| {
        let meets = |(_, other): &&(String, PortUri)| {
            place_of(own).is_some_and(|place| Some(place) == place_of(other))
        };
        let (name, _) = known.iter().find(meets)?;
        Some(PortAt::new(NAME, name))
    };
    Ok(DeviceLayout {
        at_tester: tester.iter().map(facing).collect(),
        ..DeviceLayout::default()
    })
}

/// Returns the meeting point of two ports: a socket and an interface number.
fn place_of(uri: &PortUri) -> Option<(PathBuf, u32)> {
    let (path, id) = match uri {
        PortUri::Memif { path, id, .. } => (path, *id),
        PortUri::VirtioUser { path, .. } | PortUri::Vhost { path, .. } => (path, 0),
        _ => return None,
    };
    // Each side may name the socket relative to its own working directory.
    let absolute = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    Some((absolute.unwrap_or_else(|_| path.clone()), id))
}

#[cfg(test)]
mod tests {
    use quietwire_switch::report::PortCounts;

    use super::*;

    fn port((name, uri): (&str, &str)) -> PortReport {
        PortReport {
            uri: uri.to_owned(),
            counts: PortCounts {
                name: name.to_owned(),
                ..PortCounts::default()
            },
            ..PortReport::default()
        }
    }

    #[test]
    fn ports_meet_at_sockets() {
        let ports = [
            ("left", "memif:/run/a.sock?role=server&id=1"),
            ("other", "memif:/run/a.sock?role=server&id=0"),
            ("guest", "vhost:/run/g.sock?role=server"),
            ("wire", "af-packet:eth0"),
        ]
        .map(port);
        let uris = [
            "memif:/run/./a.sock?role=client&id=1",
            "virtio-user:/run/g.sock?role=client",
            "af-packet:eth1",
            "memif:/run/b.sock?role=client",
        ];
        let tester: Vec<PortUri> = uris.iter().map(|uri| uri.parse().unwrap()).collect();
        let names: Vec<Option<String>> = layout(&ports, &tester)
            .unwrap()
            .at_tester
            .into_iter()
            .map(|at| at.map(|at| at.port))
            .collect();
        assert_eq!(
            names,
            [
                Some("left".to_owned()),
                Some("guest".to_owned()),
                None,
                None
            ]
        );
        assert!(layout(&[], &[]).unwrap().at_tester.is_empty());
        let error = layout(&[port(("new", "quantum:x"))], &tester).unwrap_err();
        assert!(
            error.contains("'new'") && error.contains("quantum"),
            "{error}"
        );
    }

    #[test]
    fn no_switch_is_no_panic() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("none.sock");
        assert!(
            RunningSwitch::find(&socket, &[])
                .unwrap_err()
                .contains("control socket")
        );
        let gone = RunningSwitch {
            socket,
            layout: DeviceLayout::default(),
        };
        let reading = gone.read();
        assert!(reading.counts.elements["switch"].is_err());
        let cycles = gone.cycle_reader().read(TIMEOUT).unwrap_err();
        let view = gone.own_view().unwrap_err();
        for reason in [reading.cycles.unwrap_err(), cycles, view] {
            assert!(reason.starts_with("its control socket: "), "{reason}");
        }
    }

    #[test]
    fn cycles_are_those_between_two_readings() {
        let cycles = |cycles| SwitchCycles {
            count: CycleCount {
                cycles,
                frames: cycles / 100,
                threads: vec![cycles],
                bursts: cycles / 1000,
                input_cycles: None,
            },
            tsc_hz: 2_000_000_000,
        };
        assert_eq!(cycles(5000).since(&cycles(3000)), Ok(cycles(2000)));
        let reason = cycles(3000).since(&cycles(5000)).unwrap_err();
        assert!(reason.contains("restarted during"), "{reason}");
    }
}
