// SPDX-License-Identifier: Apache-2.0
//! Latency and CPU use at each load of the sweep.

use maud::{Markup, html};

use crate::chart::{LoadView, legend, load as load_chart};
use crate::summary::SizeSummary;

/// Renders the charts. Returns nothing without a sweep.
pub(super) fn load(size: &SizeSummary) -> Markup {
    let has = |view: LoadView| {
        let mut points = size.cases.iter().flat_map(|case| &case.sweep);
        points.any(|point| view.value(point).is_some())
    };
    let (latency, cpus) = (has(LoadView::Latency), has(LoadView::Cpus));
    html! {
        @if latency || cpus {
            section {
                h2 { "Latency and CPU use against offered load" }
                p.lead {
                    "Medians over the rounds at each load of the sweep, of valid trials. A load without the figure is a gap, marked ×. "
                    "A device that polls uses its CPUs at every load."
                }
                (legend(size.cases.iter().map(|case| case.name.as_str())))
                div.pair {
                    @if latency { figure { (load_chart(&size.cases, LoadView::Latency)) } }
                    @if cpus { figure { (load_chart(&size.cases, LoadView::Cpus)) } }
                }
            }
        }
    }
}
