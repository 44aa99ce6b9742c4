// SPDX-License-Identifier: Apache-2.0
//! Prometheus' text format, version 0.0.4.

use std::fmt::Write as _;

use super::metric::Metric;

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Names and values of the labels of a sample, in the order of [`Metric::labels`].
pub type Labels = Vec<(&'static str, String)>;

/// A histogram of whole numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Largest value of each bucket with the number of values in it, in ascending order.
    pub buckets: Vec<(u64, u64)>,
    /// Sum of all values.
    pub sum: u64,
}

/// Metrics as text.
#[derive(Clone, Debug, Default)]
pub struct MetricsText(String);

impl MetricsText {
    /// Adds a metric with a value for each set of labels.
    pub fn add(&mut self, metric: Metric, samples: impl IntoIterator<Item = (Labels, f64)>) {
        self.head(metric);
        for (labels, value) in samples {
            self.line(metric, "", &labels, &value.to_string());
        }
    }

    /// Adds a metric whose values are whole numbers.
    pub fn add_counts(&mut self, metric: Metric, samples: impl IntoIterator<Item = (Labels, u64)>) {
        let samples = samples.into_iter();
        self.add(
            metric,
            samples.map(|(labels, count)| (labels, count as f64)),
        );
    }

    /// Adds a histogram for each set of labels.
    pub fn add_histograms(
        &mut self,
        metric: Metric,
        samples: impl IntoIterator<Item = (Labels, Histogram)>,
    ) {
        self.head(metric);
        for (labels, histogram) in samples {
            let mut count = 0_u64;
            let with_bound = |bound: String| {
                let mut labels = labels.clone();
                labels.push(("le", bound));
                labels
            };
            for (bound, values) in &histogram.buckets {
                count = count.saturating_add(*values);
                let labels = with_bound(bound.to_string());
                self.line(metric, "_bucket", &labels, &count.to_string());
            }
            let all = with_bound("+Inf".to_owned());
            self.line(metric, "_bucket", &all, &count.to_string());
            self.line(metric, "_sum", &labels, &histogram.sum.to_string());
            self.line(metric, "_count", &labels, &count.to_string());
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }

    fn head(&mut self, metric: Metric) {
        let name = metric.name();
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {}", metric.help());
        let _ = writeln!(self.0, "# TYPE {name} {}", metric.kind().name());
    }

    fn line(&mut self, metric: Metric, suffix: &str, labels: &[(&str, String)], value: &str) {
        let names = labels.iter().map(|(name, _)| *name);
        debug_assert!(
            names
                .filter(|name| *name != "le")
                .eq(metric.labels().iter().copied()),
            "{}: {labels:?}",
            metric.name()
        );
        let _ = write!(self.0, "{}{suffix}", metric.name());
        let mut separator = '{';
        for (label, value) in labels {
            let _ = write!(self.0, "{separator}{label}=\"{}\"", escaped(value));
            separator = ',';
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }
}

/// Escapes the value of a label: backslash, quote and line feed.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
