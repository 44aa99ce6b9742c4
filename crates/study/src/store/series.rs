// SPDX-License-Identifier: Apache-2.0
//! Stored form of a trial's course: rows of numbers, because names would be most of the text.

use quietwire_tester::{DevicePoint, FramePoint, SERIES_POINTS_MAX, TrialSeries};
use serde::{Deserialize, Serialize};

/// End of the interval, offered and received frames, mean and largest latency.
type FrameRow = (f64, u64, u64, Option<f64>, Option<u64>);
/// End of the interval, cycles, frames.
type DeviceRow = (f64, u64, u64);

/// Stored series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredSeries {
    frames: Vec<FrameRow>,
    device: Vec<DeviceRow>,
}

impl From<&TrialSeries> for StoredSeries {
    fn from(series: &TrialSeries) -> Self {
        let frames = series.frames.iter().take(SERIES_POINTS_MAX);
        let device = series.device.iter().take(SERIES_POINTS_MAX);
        Self {
            frames: frames
                .map(|point| {
                    (
                        point.end_s,
                        point.offered_frames,
                        point.received_frames,
                        point.latency_mean_ns,
                        point.latency_max_ns,
                    )
                })
                .collect(),
            device: device
                .map(|point| (point.end_s, point.cycles, point.frames))
                .collect(),
        }
    }
}

impl From<StoredSeries> for TrialSeries {
    /// Returns the series. A damaged store may have more points than a trial; they are left out.
    fn from(stored: StoredSeries) -> Self {
        let frames = stored.frames.into_iter().take(SERIES_POINTS_MAX);
        let device = stored.device.into_iter().take(SERIES_POINTS_MAX);
        Self {
            frames: frames
                .map(|(end_s, offered, received, mean_ns, max_ns)| FramePoint {
                    end_s,
                    offered_frames: offered,
                    received_frames: received,
                    latency_mean_ns: mean_ns,
                    latency_max_ns: max_ns,
                })
                .collect(),
            device: device
                .map(|(end_s, cycles, frames)| DevicePoint {
                    end_s,
                    cycles,
                    frames,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame_point() -> impl Strategy<Value = FramePoint> {
        let latency = (0.0f64..1e12, any::<u64>());
        let frames = (0.0f64..4000.0, any::<u64>(), any::<u64>());
        (frames, prop::option::of(latency)).prop_map(|((end_s, offered, received), latency)| {
            FramePoint {
                end_s,
                offered_frames: offered,
                received_frames: received,
                latency_mean_ns: latency.map(|(mean_ns, _)| mean_ns),
                latency_max_ns: latency.map(|(_, max_ns)| max_ns),
            }
        })
    }

    fn device_point() -> impl Strategy<Value = DevicePoint> {
        (0.0f64..4000.0, any::<u64>(), any::<u64>()).prop_map(|(end_s, cycles, frames)| {
            DevicePoint {
                end_s,
                cycles,
                frames,
            }
        })
    }

    proptest! {
        #[test]
        fn a_series_comes_back(
            frames in prop::collection::vec(frame_point(), 0..=SERIES_POINTS_MAX),
            device in prop::collection::vec(device_point(), 0..=SERIES_POINTS_MAX),
        ) {
            let series = TrialSeries { frames, device };
            let text = serde_json::to_string(&StoredSeries::from(&series)).unwrap();
            let stored: StoredSeries = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(TrialSeries::from(stored), series);
        }
    }

    #[test]
    fn a_damaged_series_is_bounded() {
        let stored = StoredSeries {
            frames: vec![(0.5, 1, 1, None, None); 2 * SERIES_POINTS_MAX],
            device: vec![(0.5, 1, 1); 2 * SERIES_POINTS_MAX],
        };
        let series = TrialSeries::from(stored);
        let counts = (series.frames.len(), series.device.len());
        assert_eq!(counts, (SERIES_POINTS_MAX, SERIES_POINTS_MAX));
    }
}
