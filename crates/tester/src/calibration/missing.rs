// SPDX-License-Identifier: Apache-2.0
//! Missing calibration of a trial, and the command that measures it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Calibration, Calibrations, CalibrationsError, SizeCalibration, TesterKind};
use crate::tester::TesterIdle;
use crate::traffic::Traffic;
use crate::trial::{Directions, FrameSizes, IpVersion, Trial};

/// Calibration that a trial cannot cite because it is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingCalibration {
    /// The part that the calibration file lacks, as a clause.
    pub lacks: String,
    /// The command that creates the calibration.
    pub command: String,
}

impl fmt::Display for MissingCalibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; `{}` makes it", self.lacks, self.command)
    }
}

/// Calibrations with the file that holds them.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) all: Calibrations,
    path: PathBuf,
    /// True if the user named the file. The default file may be empty.
    is_named: bool,
}

impl Source {
    /// Reads a file. A file that does not exist yields no calibrations.
    ///
    /// # Errors
    /// Errors of [`Calibrations::read`].
    pub(crate) fn read(path: &Path, is_named: bool) -> Result<Self, CalibrationsError> {
        Ok(Self {
            all: Calibrations::read(path)?,
            path: path.to_owned(),
            is_named,
        })
    }

    /// Returns the missing calibration of a trial. Returns `None` if the trial can cite one, if its frames cannot be calibrated, or if
    /// the default file has no calibration at all.
    pub(crate) fn missing(&self, tester: &TesterKind, trial: &Trial) -> Option<MissingCalibration> {
        let is_timed = |traffic: &Traffic| traffic.replay.is_some() || traffic.has_rate();
        if trial.traffic.as_deref().is_some_and(is_timed)
            || (self.all.calibrations.is_empty() && !self.is_named)
        {
            return None;
        }
        let own: Vec<&Calibration> = self.all.of(tester).collect();
        if own
            .iter()
            .any(|calibration| calibration.size(trial).is_some())
        {
            return None;
        }
        let path = self.path.display();
        let lacks = if own.is_empty() {
            let has = self.nearest(tester);
            format!(
                "{path} has no calibration of this tester ({}){}",
                described(tester),
                has.map_or_else(String::new, |has| format!(", only one with {has}"))
            )
        } else {
            let sizes = own.iter().flat_map(|calibration| &calibration.sizes);
            let has: Vec<String> = sizes.map(frames_of_size).collect();
            format!(
                "{path} has a calibration of this tester with {}, but none with {}",
                has.join(", "),
                frames(
                    trial.frame_sizes,
                    trial.traffic.as_deref(),
                    trial.ip,
                    trial.directions
                )
            )
        };
        Some(MissingCalibration {
            lacks,
            command: self.command(tester, trial),
        })
    }

    /// Returns how the most similar calibrated tester differs; `None` if there are no calibrations.
    fn nearest(&self, tester: &TesterKind) -> Option<String> {
        let all = self.all.calibrations.iter();
        let differing = all.map(|calibration| differences(&calibration.tester, tester));
        let least = differing.min_by_key(Vec::len)?;
        Some(least.join(" and "))
    }

    fn command(&self, tester: &TesterKind, trial: &Trial) -> String {
        let mut words = vec!["quietwire tester calibrate".to_owned()];
        let ports = match &*tester.ports {
            [first, second] if first == "memif" && second == "memif" => ["server", "client"]
                .map(|role| format!("--port 'memif:/run/quietwire/loop.sock?role={role}'"))
                .to_vec(),
            // Only the user knows which two ports are connected to each other.
            kinds => kinds
                .iter()
                .map(|kind| format!("--port {kind}:…"))
                .collect(),
        };
        words.extend(ports);
        match trial.traffic.as_deref() {
            Some(traffic) => {
                words.push("--traffic FILE".to_owned());
                if traffic.sizes.is_none() {
                    words.push(format!("--frame-size {}", size_word(trial.frame_sizes)));
                }
            }
            None => {
                words.push(format!("--frame-size {}", size_word(trial.frame_sizes)));
                if trial.ip == IpVersion::V6 {
                    words.push("--ip 6".to_owned());
                }
            }
        }
        let says_directions = |traffic: &Traffic| traffic.directions.is_some();
        if trial.directions == Directions::Both
            && !trial.traffic.as_deref().is_some_and(says_directions)
        {
            words.push("--both".to_owned());
        }
        words.push(format!("--cpus {}", list(&tester.cpus)));
        words.push(format!("--ring-size {}", tester.ring_size));
        if let Some(size) = tester.receive_ring_size {
            words.push(format!("--receive-ring-size {size}"));
        }
        words.push(format!(
            "--realtime-priority {}",
            tester.realtime_priority.unwrap_or(0)
        ));
        if tester.idle == TesterIdle::Sleep {
            words.push("--idle sleep".to_owned());
        }
        if self.is_named {
            words.push(format!("--file {}", self.path.display()));
        }
        words.join(" ")
    }
}

fn list(cpus: &[u32]) -> String {
    let words: Vec<String> = cpus.iter().map(u32::to_string).collect();
    words.join(",")
}

/// Returns the receive ring size. Earlier versions did not record it and used the transmit ring size.
fn receive_ring_size(tester: &TesterKind) -> u16 {
    tester.receive_ring_size.unwrap_or(tester.ring_size)
}

fn priority(tester: &TesterKind) -> String {
    match tester.realtime_priority {
        Some(priority) => format!("real-time priority {priority}"),
        None => "ordinary priority".to_owned(),
    }
}

fn idle(tester: &TesterKind) -> &'static str {
    match tester.idle {
        TesterIdle::Poll => "`--idle poll`",
        TesterIdle::Sleep => "`--idle sleep`",
    }
}

fn described(tester: &TesterKind) -> String {
    format!(
        "ports {}, CPU {}, ring sizes {} and {}, {}, {}",
        tester.ports.join(" and "),
        list(&tester.cpus),
        tester.ring_size,
        receive_ring_size(tester),
        priority(tester),
        idle(tester)
    )
}

/// Returns the properties of `one` that differ from those of `other`.
fn differences(one: &TesterKind, other: &TesterKind) -> Vec<String> {
    let mut found = Vec::new();
    if one.ports != other.ports {
        found.push(format!("ports {}", one.ports.join(" and ")));
    }
    if one.cpu_model != other.cpu_model {
        found.push(format!("processor '{}'", one.cpu_model));
    }
    if one.cpus != other.cpus {
        found.push(format!("CPU {}", list(&one.cpus)));
    }
    if one.ring_size != other.ring_size {
        found.push(format!("ring size {}", one.ring_size));
    }
    if receive_ring_size(one) != receive_ring_size(other) {
        found.push(format!("receive ring size {}", receive_ring_size(one)));
    }
    if one.realtime_priority != other.realtime_priority {
        found.push(priority(one));
    }
    if one.idle != other.idle {
        found.push(idle(one).to_owned());
    }
    found
}

fn size_word(sizes: FrameSizes) -> String {
    match sizes {
        FrameSizes::Fixed(octets) => octets.to_string(),
        FrameSizes::Imix => "imix".to_owned(),
    }
}

fn frames(
    sizes: FrameSizes,
    traffic: Option<&Traffic>,
    ip: IpVersion,
    directions: Directions,
) -> String {
    let size = match sizes {
        FrameSizes::Fixed(octets) => format!("frames of {octets} octets"),
        FrameSizes::Imix => "frames of imix".to_owned(),
    };
    let kind = match (traffic, ip) {
        (Some(_), _) => " of a traffic file",
        (None, IpVersion::V6) => " over IPv6",
        (None, IpVersion::V4) => "",
    };
    let way = match directions {
        Directions::OneWay | Directions::Reverse => "one way",
        Directions::Both => "both ways",
    };
    format!("{size}{kind} {way}")
}

fn frames_of_size(size: &SizeCalibration) -> String {
    frames(
        size.frame_sizes,
        size.traffic.as_deref(),
        size.ip,
        size.directions,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::LatencySummary;

    fn kind(priority: Option<u8>) -> TesterKind {
        TesterKind {
            ports: vec!["memif".to_owned(); 2],
            cpu_model: "some".to_owned(),
            cpus: vec![0, 2],
            ring_size: 1024,
            receive_ring_size: Some(4096),
            realtime_priority: priority,
            idle: TesterIdle::Poll,
        }
    }

    fn source(tester: Option<TesterKind>) -> Source {
        let mut all = Calibrations::default();
        if let Some(tester) = tester {
            all.add(Calibration {
                tester,
                measured_unix_ns: 1,
                version: "1".to_owned(),
                timestamp_ns: 8.5,
                ticks_per_second: 2_600_000_000,
                clock_error_ppm: -0.3,
                clock_span_s: 10.0,
                sizes: vec![SizeCalibration {
                    frame_sizes: FrameSizes::Fixed(64),
                    directions: Directions::OneWay,
                    ip: IpVersion::V4,
                    traffic: None,
                    unpaced_pps: 2e6,
                    clean_rate_pps: 1e6,
                    trials: 3,
                    pacing: Vec::new(),
                    latency_floor: LatencySummary::default(),
                    generate_cycles: 1.0,
                    check_cycles: 2.0,
                }],
            });
        }
        Source {
            all,
            path: "c.json".into(),
            is_named: false,
        }
    }

    fn trial(directions: Directions) -> Trial {
        Trial {
            directions,
            ..Trial::new(1.0, 1.0, FrameSizes::Fixed(64))
        }
    }

    #[test]
    fn calibrations_that_exist_or_are_not_requested_are_not_missing() {
        let one_way = trial(Directions::OneWay);
        let known = source(Some(kind(Some(50))));
        assert_eq!(known.missing(&kind(Some(50)), &one_way), None);
        let reverse = trial(Directions::Reverse);
        assert_eq!(known.missing(&kind(Some(50)), &reverse), None);
        assert_eq!(source(None).missing(&kind(None), &one_way), None);
        let replayed = Traffic::parse(
            "[traffic]\nburst = { frames = 4, gap-us = 1.0 }\n",
            Path::new("t.toml"),
        );
        let timed = Trial {
            traffic: Some(Box::new(replayed.unwrap())),
            ..one_way
        };
        assert_eq!(known.missing(&kind(None), &timed), None);
    }

    #[test]
    fn another_tester_is_named_with_what_is_different_and_the_command() {
        let known = source(Some(kind(None)));
        let missing = known.missing(&kind(Some(50)), &trial(Directions::Both));
        let missing = missing.unwrap();
        assert_eq!(
            missing.lacks,
            "c.json has no calibration of this tester (ports memif and memif, CPU 0,2, ring sizes 1024 and 4096, real-time priority 50, `--idle poll`), only one with ordinary priority"
        );
        assert_eq!(
            missing.command,
            "quietwire tester calibrate --port 'memif:/run/quietwire/loop.sock?role=server' --port 'memif:/run/quietwire/loop.sock?role=client' \
             --frame-size 64 --both --cpus 0,2 --ring-size 1024 --receive-ring-size 4096 --realtime-priority 50"
        );
        let sleeping = TesterKind {
            idle: TesterIdle::Sleep,
            ..kind(None)
        };
        let missing = known.missing(&sleeping, &trial(Directions::Both)).unwrap();
        assert!(
            missing.lacks.ends_with("only one with `--idle poll`"),
            "{missing}"
        );
        assert!(
            missing
                .command
                .ends_with("--realtime-priority 0 --idle sleep"),
            "{missing}"
        );
        let named = Source {
            is_named: true,
            ..source(None)
        };
        let missing = named.missing(&kind(None), &trial(Directions::OneWay));
        let text = missing.unwrap().to_string();
        assert!(
            text.starts_with("c.json has no calibration of this tester"),
            "{text}"
        );
        assert!(
            text.ends_with("--realtime-priority 0 --file c.json` makes it"),
            "{text}"
        );
    }

    #[test]
    fn other_frames_and_directions_are_named() {
        let known = source(Some(kind(None)));
        let lacks = |trial: &Trial| known.missing(&kind(None), trial).unwrap();
        let both = lacks(&trial(Directions::Both));
        assert_eq!(
            both.lacks,
            "c.json has a calibration of this tester with frames of 64 octets one way, but none with frames of 64 octets both ways"
        );
        let ipv6 = Trial {
            ip: IpVersion::V6,
            frame_sizes: FrameSizes::Fixed(84),
            ..trial(Directions::OneWay)
        };
        let missing = lacks(&ipv6);
        assert!(
            missing
                .lacks
                .ends_with("none with frames of 84 octets over IPv6 one way")
        );
        assert!(missing.command.contains("--frame-size 84 --ip 6 --cpus"));
        let traffic = Traffic::parse("[traffic]\nsizes = 128\n", Path::new("t.toml"));
        let described = Trial {
            traffic: Some(Box::new(traffic.unwrap())),
            ..trial(Directions::OneWay)
        };
        let missing = lacks(&described);
        assert!(
            missing.command.contains("--traffic FILE --cpus"),
            "{missing}"
        );
    }
}
