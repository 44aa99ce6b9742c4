// SPDX-License-Identifier: Apache-2.0
//! The tester's own part of a latency, measured over a loop without a device.
//!
//! A frame gets its time stamp before its burst is written, and its reception is noticed when its port is polled. Both delays are part of
//! every latency.

use serde_json::Value;

use super::summary::LatencySummary;

/// If the tester's own part exceeds this share of a latency, the latency is withheld: only an upper bound of the device's is known.
const PART_MAX: f64 = 0.1;

impl LatencySummary {
    /// Returns the figures without the histogram.
    #[must_use]
    pub fn without_histogram(&self) -> Self {
        Self {
            histogram_v2_base64: String::new(),
            ..self.clone()
        }
    }

    /// Returns the latency at a percentile, nanoseconds; the largest latency if there are too few samples.
    #[must_use]
    pub fn at_or_max(&self, percentile: f64) -> u64 {
        let known = super::PERCENTILES.into_iter().zip(self.percentiles());
        let at = known
            .filter(|(known, _)| *known >= percentile)
            .find_map(|(_, value)| value);
        at.unwrap_or(self.max_ns)
    }

    /// Returns minimum, mean, the percentiles of [`PERCENTILES`](super::PERCENTILES) and maximum, nanoseconds, as the tester's own part
    /// of these figures. A percentile with too few samples is the maximum.
    #[must_use]
    pub fn own_parts(&self) -> [f64; 8] {
        let [p50, p90, p99, p99_9, p99_99] =
            super::PERCENTILES.map(|percentile| self.at_or_max(percentile) as f64);
        let (min, max) = (self.min_ns as f64, self.max_ns as f64);
        [min, self.mean_ns, p50, p90, p99, p99_9, p99_99, max]
    }
}

/// Returns true if a latency is withheld, because more than a tenth of it may be the tester's own. It is an upper bound of the device's.
/// Both values have the same unit.
#[must_use]
pub fn is_bound(latency: f64, own: f64) -> bool {
    own > latency * PART_MAX
}

/// Keys of the figures of a latency in JSON, in the order of [`LatencySummary::own_parts`].
const KEYS: [&str; 8] = [
    "min_ns",
    "mean_ns",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "p99_9_ns",
    "p99_99_ns",
    "max_ns",
];

/// Withholds the figures of a latency in JSON of which more than a tenth may be the tester's own ([`withhold`]). The object has some or
/// all keys of [`LatencySummary`].
pub fn withhold_bounds(latency: &mut Value, own: &LatencySummary) {
    if latency.get("samples").and_then(Value::as_u64) == Some(0) {
        return;
    }
    for (key, own_ns) in KEYS.into_iter().zip(own.own_parts()) {
        let figure = latency.get(key).and_then(Value::as_f64);
        if figure.is_some_and(|figure_ns| is_bound(figure_ns, own_ns)) {
            withhold(latency, key);
        }
    }
}

/// Withholds a figure in JSON: the value of `NAME_ns` becomes null, and `NAME_upper_bound_ns` has it instead.
pub fn withhold(figures: &mut Value, key: &str) {
    let Some(figures) = figures.as_object_mut() else {
        return;
    };
    if let Some(bound) = figures.get_mut(key).map(Value::take) {
        let name = key.trim_end_matches("_ns");
        figures.insert(format!("{name}_upper_bound_ns"), bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_the_limit() {
        assert!(!is_bound(10_000.0, 1_000.0));
        assert!(is_bound(10_000.0, 1_001.0));
        assert!(!is_bound(0.0, 0.0));
    }

    #[test]
    fn in_json_a_withheld_figure_is_null_and_has_an_upper_bound() {
        let own = LatencySummary {
            samples: 2_000,
            min_ns: 100,
            mean_ns: 200.0,
            p50_ns: Some(200),
            max_ns: 300,
            ..LatencySummary::default()
        };
        let latency = LatencySummary {
            samples: 2_000,
            min_ns: 999,
            mean_ns: 1_999.5,
            p50_ns: Some(2_000),
            p90_ns: None,
            p99_ns: Some(2_999),
            max_ns: 3_000,
            ..LatencySummary::default()
        };
        let mut document = serde_json::to_value(&latency).unwrap();
        withhold_bounds(&mut document, &own);
        for key in ["min_ns", "mean_ns", "p99_ns"] {
            assert!(document[key].is_null(), "{document}");
        }
        assert_eq!(document["min_upper_bound_ns"], 999);
        assert_eq!(document["mean_upper_bound_ns"], 1_999.5);
        assert_eq!(document["p99_upper_bound_ns"], 2_999);
        assert_eq!(document["p50_ns"], 2_000);
        assert_eq!(document["max_ns"], 3_000);
        for name in ["p50", "p90", "max"] {
            let bound = format!("{name}_upper_bound_ns");
            assert!(document.get(bound).is_none(), "{document}");
        }
        let mut none = serde_json::to_value(LatencySummary::default()).unwrap();
        withhold_bounds(&mut none, &own);
        assert_eq!(none["min_ns"], 0);
    }

    #[test]
    fn figures_are_kept_without_the_histogram() {
        let own = LatencySummary {
            samples: 2_000,
            max_ns: 90,
            histogram_v2_base64: "HISTFAAA".to_owned(),
            ..LatencySummary::default()
        };
        let figures = own.without_histogram();
        assert!(figures.histogram_v2_base64.is_empty());
        assert_eq!((figures.samples, figures.max_ns), (2_000, 90));
    }

    #[test]
    fn a_percentile_that_is_not_borne_counts_as_the_largest() {
        let own = LatencySummary {
            samples: 2_000,
            p50_ns: Some(5),
            p90_ns: Some(6),
            p99_ns: Some(7),
            max_ns: 90,
            ..LatencySummary::default()
        };
        let at = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999].map(|it| own.at_or_max(it));
        assert_eq!(at, [5, 6, 7, 90, 90, 90]);
    }
}
