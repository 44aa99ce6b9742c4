// SPDX-License-Identifier: Apache-2.0
//! Checks that several sections share.

use quietwire_tester::OFFERED_RATE_PPS_MAX;

use super::method::Surroundings;
use super::search::Search;
use crate::file::Percent;
use crate::file::limits::{Checked, duration, fault};
use crate::file::locate::At::{self, Index, Key};
use crate::file::locate::Fault;

/// A duration, if there is one.
pub(super) fn optional_duration(seconds: Option<f64>, path: &[At]) -> Checked {
    seconds.map_or(Ok(()), |seconds| duration(seconds, path))
}

/// Loads of which each is given once, and one at least.
pub(super) fn distinct(loads: &[Percent], section: &'static str, key: &'static str) -> Checked {
    if loads.is_empty() {
        return fault(
            &[Key(section), Key(key)],
            "no load is given; write [10, 50, 100]",
        );
    }
    for (index, load) in loads.iter().enumerate() {
        if loads[..index].contains(load) {
            return fault(
                &[Key(section), Key(key), Index(index)],
                format!(
                    "{} is given twice; each load is tried by itself",
                    load.get()
                ),
            );
        }
    }
    Ok(())
}

/// A rate in frames per second.
pub(super) fn rate(rate_pps: f64, section: &'static str, key: &'static str) -> Checked {
    if rate_pps > 0.0 && rate_pps <= OFFERED_RATE_PPS_MAX {
        return Ok(());
    }
    fault(
        &[Key(section), Key(key)],
        format!("{rate_pps:e} has to be above 0 and at most {OFFERED_RATE_PPS_MAX:e}"),
    )
}

/// Returns the search that has the goal.
pub(super) fn known_goal<'a>(
    around: &Surroundings<'a>,
    goal: &str,
    path: &[At],
) -> Result<Option<&'a Search>, Fault> {
    let has_it = around
        .search
        .is_some_and(|search| search.goals.iter().any(|known| known.name == goal));
    if !has_it {
        fault(
            path,
            format!("there is no goal '{goal}' in [search]; name one of its goals"),
        )?;
    }
    Ok(around.search)
}

/// Rates are taken from one search, not from many.
pub(super) fn not_repeated(search: Option<&Search>, path: &[At]) -> Checked {
    if search.is_some_and(|search| search.repeats.is_some()) {
        return fault(
            path,
            "[search] has repeats, which give many rates for a goal; leave repeats out, or make a study of its own of this",
        );
    }
    Ok(())
}

/// What both methods that look for addresses require.
pub(super) fn addresses(
    around: &Surroundings<'_>,
    section: &'static str,
    ageing_s: Option<f64>,
) -> Checked {
    if !around.has_address_table {
        return fault(
            &[Key(section)],
            "only a bridge keeps addresses; write mode = \"bridge\" in [device]",
        );
    }
    if around.has_own_frames {
        return fault(
            &[Key(section)],
            "its frames are its own; leave [traffic.frames] out, and make another study of what needs it",
        );
    }
    optional_duration(ageing_s, &[Key(section), Key("ageing-s")])
}
