// SPDX-License-Identifier: Apache-2.0
//! Prometheus metrics of the switch, the partition and studies: one list of all of them, and their text format.

mod metric;
#[cfg(test)]
mod tests;
mod text;

pub use metric::{Metric, MetricKind};
pub use text::{CONTENT_TYPE, Histogram, Labels, MetricsText};
