// SPDX-License-Identifier: Apache-2.0
//! Calibration file: JSON with the calibrations of each kind of tester.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::{Fault, durable, read_text};
use serde::{Deserialize, Serialize};

use super::{Calibration, SizeCalibration, TesterKind};

/// Format version of the file that this program reads and writes.
const FORM: u32 = 1;

/// All calibrations of a file, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrations {
    form: u32,
    pub(super) calibrations: Vec<Calibration>,
}

/// Error of reading or writing a calibration file.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationsError {
    /// A system call failed.
    #[error("{path}: {error}")]
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not a calibration file.
    #[error(
        "{path} is not a calibration file of this version: {reason} (use another file, or remove it and calibrate again)"
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
}

impl CalibrationsError {
    /// Returns the kind of fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::System { error, .. } => Fault::of_path(error),
            Self::Form { .. } => Fault::BadInput,
        }
    }
}

impl Default for Calibrations {
    fn default() -> Self {
        Self {
            form: FORM,
            calibrations: Vec::new(),
        }
    }
}

impl Calibrations {
    /// Returns the default path of the calibration file: `quietwire/calibration.json` below `$XDG_STATE_HOME`, or below `~/.local/state`
    /// (XDG Base Directory Specification). Returns `None` if neither variable is an absolute path.
    #[must_use]
    pub fn default_path() -> Option<PathBuf> {
        let absolute = |name: &str| {
            let path = PathBuf::from(std::env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
        Some(state.join("quietwire/calibration.json"))
    }

    /// Reads a file. A file that does not exist yields no calibrations.
    ///
    /// # Errors
    /// [`CalibrationsError`] if the file cannot be read or is not a calibration file.
    pub fn read(path: &Path) -> Result<Self, CalibrationsError> {
        let text = match read_text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(of_system(path, error)),
        };
        Self::parse(&text, path)
    }

    /// Parses the text of a file. `path` appears in errors.
    fn parse(text: &str, path: &Path) -> Result<Self, CalibrationsError> {
        let form = |reason: String| CalibrationsError::Form {
            path: path.to_owned(),
            reason,
        };
        let read: Self = serde_json::from_str(text).map_err(|error| form(error.to_string()))?;
        if read.form == FORM {
            Ok(read)
        } else {
            Err(form(format!(
                "format version {} is not supported (supported: {FORM})",
                read.form
            )))
        }
    }

    /// Writes the file atomically, readable only by its owner. Creates the directory if it does not exist.
    ///
    /// # Errors
    /// [`CalibrationsError::System`].
    pub fn write(&self, path: &Path) -> Result<(), CalibrationsError> {
        let text = serde_json::to_string_pretty(self).map_err(|error| CalibrationsError::Form {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(|error| of_system(directory, error))?;
        }
        // The file describes the machine, so only its owner may read it.
        durable::replace(path, (text + "\n").as_bytes(), 0o600)
            .map_err(|error| of_system(path, error))
    }

    /// Adds a calibration. It replaces older calibrations of the same tester with the same frames; those with other frames stay.
    pub fn add(&mut self, calibration: Calibration) {
        for old in &mut self.calibrations {
            if old.tester == calibration.tester {
                let is_old = |size: &SizeCalibration| {
                    calibration
                        .sizes
                        .iter()
                        .all(|new| !new.is_of_same_frames(size))
                };
                old.sizes.retain(is_old);
            }
        }
        self.calibrations.retain(|old| !old.sizes.is_empty());
        self.calibrations.push(calibration);
    }

    /// Returns all calibrations of a tester, each with different frames.
    pub fn of(&self, tester: &TesterKind) -> impl Iterator<Item = &Calibration> {
        self.calibrations
            .iter()
            .filter(move |calibration| calibration.tester == *tester)
    }
}

fn of_system(path: &Path, error: io::Error) -> CalibrationsError {
    CalibrationsError::System {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use quietwire_base::fuzz::{check, planted};

    use super::*;
    use crate::calibration::PacingCalibration;
    use crate::latency::LatencySummary;
    use crate::tester::TesterIdle;
    use crate::traffic::Traffic;
    use crate::trial::{Directions, FrameSizes, IpVersion, Trial};

    fn kind(cpus: &[u32]) -> TesterKind {
        TesterKind {
            ports: vec!["memif".to_owned(); 2],
            cpu_model: "some".to_owned(),
            cpus: cpus.to_vec(),
            ring_size: 1024,
            receive_ring_size: Some(4096),
            realtime_priority: None,
            idle: TesterIdle::Poll,
        }
    }

    fn calibration(cpus: &[u32], clean_rate_pps: f64) -> Calibration {
        Calibration {
            tester: kind(cpus),
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
                clean_rate_pps,
                trials: 3,
                pacing: Vec::new(),
                latency_floor: LatencySummary::default(),
                generate_cycles: 1.0,
                check_cycles: 2.0,
            }],
        }
    }

    fn trial() -> Trial {
        Trial {
            directions: Directions::OneWay,
            ..crate::frame::tests::trial(FrameSizes::Fixed(64), 1, 1)
        }
    }

    #[test]
    fn written_calibrations_are_read_and_the_newest_of_a_tester_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/calibration.json");
        let mut all = Calibrations::read(&path).unwrap();
        assert_eq!(all, Calibrations::default());
        all.add(calibration(&[0], 1e6));
        all.add(calibration(&[1], 2e6));
        all.add(calibration(&[0], 3e6));
        // Calibrations of the same tester with other frames are kept.
        let mut other = calibration(&[0], 4e6);
        other.sizes[0].ip = IpVersion::V6;
        all.add(other);
        all.write(&path).unwrap();
        all.write(&path).unwrap();
        assert_eq!(Calibrations::read(&path).unwrap(), all);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let rates = |cpus: &[u32]| -> Vec<f64> {
            let kind = kind(cpus);
            let sizes = all.of(&kind).flat_map(|one| one.sizes.clone());
            sizes.map(|size| size.clean_rate_pps).collect()
        };
        assert_eq!(rates(&[0]), [3e6, 4e6]);
        assert_eq!(rates(&[1]), [2e6]);
        assert_eq!(rates(&[2]), [0.0; 0]);
    }

    #[test]
    fn a_trial_cites_the_own_part_of_the_nearest_rate_above() {
        let mut calibration = calibration(&[0], 1e6);
        let at = |share: f64, mean_ns: f64| PacingCalibration {
            share,
            requested_pps: 1e6 * share,
            error_ratio: 0.0,
            error_without_stalls_ratio: None,
            burst_time_ns: 1.0,
            burst_gaps: LatencySummary::default(),
            stalled_gaps: LatencySummary::default(),
            host_stalls: 0,
            host_stall_time_ns: 0,
            latency: LatencySummary {
                samples: 1000,
                mean_ns,
                ..LatencySummary::default()
            },
        };
        calibration.sizes[0].pacing = vec![at(0.1, 10.0), at(0.5, 50.0), at(0.9, 90.0)];
        let own = |calibration: &Calibration, rate_pps: f64| {
            let size = &calibration.sizes[0];
            size.own(rate_pps).map(|own| own.mean_ns)
        };
        let rates = [1.0, 1e5, 1.01e5, 5e5, 8e5, 2e6];
        assert_eq!(
            rates.map(|rate_pps| own(&calibration, rate_pps)),
            [10.0, 10.0, 50.0, 50.0, 90.0, 90.0].map(Some)
        );
        // Earlier versions stored no latency with the pacing.
        for pacing in &mut calibration.sizes[0].pacing {
            pacing.latency = LatencySummary::default();
        }
        assert_eq!(own(&calibration, 1e5), None);
        calibration.sizes[0].pacing.clear();
        assert_eq!(own(&calibration, 1e5), None);
    }

    #[test]
    fn other_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration.json");
        for text in [
            "",
            "[]",
            r#"{"form":2,"calibrations":[]}"#,
            r#"{"form":1,"calibrations":[],"more":1}"#,
        ] {
            fs::write(&path, text).unwrap();
            let error = Calibrations::read(&path).unwrap_err();
            assert!(matches!(error, CalibrationsError::Form { .. }), "{error}");
        }
        assert!(Calibrations::read(directory.path()).is_err());
        assert!(Calibrations::default().write(directory.path()).is_err());
    }

    #[test]
    fn a_trial_over_the_calibrated_rate_is_reported() {
        let calibration = calibration(&[0], 1e6);
        let trial = trial();
        let is_exceeded = |rate_pps| calibration.cited(&trial, rate_pps).unwrap().is_exceeded;
        assert!(!is_exceeded(1e6) && is_exceeded(1.001e6));
        let other = Trial {
            directions: Directions::Both,
            ..trial.clone()
        };
        assert_eq!(calibration.cited(&other, 1.0), None);
        let ipv6 = Trial {
            ip: IpVersion::V6,
            frame_sizes: FrameSizes::Fixed(84),
            ..trial
        };
        assert_eq!(calibration.cited(&ipv6, 1.0), None);
    }

    #[test]
    fn described_frames_cite_what_was_measured_with_the_same_description() {
        let described = |text: &str| {
            let traffic = Traffic::parse(text, Path::new("t.toml")).unwrap();
            Some(Box::new(traffic))
        };
        let tagged = "[traffic]\nvlan = [{ id = 7 }]\n";
        let mut calibration = calibration(&[0], 1e6);
        calibration.sizes[0].traffic = described(tagged);
        calibration.sizes[0].frame_sizes = FrameSizes::Fixed(68);
        let trial = Trial {
            directions: Directions::OneWay,
            traffic: described(tagged),
            ..Trial::new(1.0, 1.0, FrameSizes::Fixed(68))
        };
        let clean = |trial: &Trial| Some(calibration.cited(trial, 1.0)?.clean_rate_pps);
        assert_eq!(clean(&trial), Some(1e6));
        for other in [
            Trial {
                traffic: None,
                ..trial.clone()
            },
            Trial {
                traffic: described("[traffic]\nvlan = [{ id = 8 }]\n"),
                ..trial.clone()
            },
            Trial {
                frame_sizes: FrameSizes::Fixed(128),
                ..trial.clone()
            },
        ] {
            assert_eq!(clean(&other), None, "{other:?}");
        }
        // Sizes of the description replace those of the trial, and the file preserves the whole description.
        let sized = "[traffic]\nsizes = 128\nvlan = [{ id = 7 }]\n";
        calibration.sizes[0].traffic = described(sized);
        let trial = Trial {
            traffic: described(sized),
            ..trial
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration.json");
        let mut all = Calibrations::default();
        all.add(calibration);
        all.write(&path).unwrap();
        let read = Calibrations::read(&path).unwrap();
        let cited = read.of(&kind(&[0])).find_map(|one| one.cited(&trial, 2e6));
        assert!(cited.unwrap().is_exceeded);
    }

    /// Parses any text as a calibration file, and cites each calibration in it.
    fn fuzz_calibration(octets: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(octets) else {
            return false;
        };
        let Ok(mut read) = Calibrations::parse(text, Path::new("fuzz.json")) else {
            return false;
        };
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(
            Calibrations::parse(&written, Path::new("written")).unwrap(),
            read
        );
        for calibration in read.calibrations.clone() {
            for rate_pps in [0.0, 1e6, calibration.timestamp_ns] {
                std::hint::black_box(calibration.cited(&trial(), rate_pps));
            }
            read.add(calibration);
        }
        planted("tester-calibration", || {
            let is_deep = |size: &SizeCalibration| {
                size.directions == Directions::Both && size.pacing.len() > 1 && size.trials > 9999
            };
            let mut all = read.calibrations.iter();
            all.any(|calibration| calibration.sizes.iter().any(is_deep))
        });
        true
    }

    #[test]
    fn fuzz_calibrations() {
        check(
            env!("CARGO_MANIFEST_DIR"),
            "tester-calibration",
            fuzz_calibration,
        );
    }
}
