// SPDX-License-Identifier: Apache-2.0
//! Checks of several sections.

use quietwire_tester::OFFERED_RATE_PPS_MAX;

use super::method::StudyContext;
use super::search::Search;
use crate::file::Percent;
use crate::file::limits::{Checked, duration, fault};
use crate::file::locate::At::{self, Index, Key};
use crate::file::locate::LocatedFault;

/// Checks a duration, if it is given.
pub(super) fn optional_duration(seconds: Option<f64>, path: &[At]) -> Checked {
    seconds.map_or(Ok(()), |seconds| duration(seconds, path))
}

/// Checks that there is at least one load and that no load is repeated.
pub(super) fn distinct(loads: &[Percent], section: &'static str, key: &'static str) -> Checked {
    if loads.is_empty() {
        return fault(
            &[Key(section), Key(key)],
            "no load is given (write [10, 50, 100], for example)",
        );
    }
    for (index, load) in loads.iter().enumerate() {
        if loads.iter().take(index).any(|before| before == load) {
            return fault(
                &[Key(section), Key(key), Index(index)],
                format!("{} is given twice (remove one)", load.get()),
            );
        }
    }
    Ok(())
}

/// Checks a rate in frames per second.
pub(super) fn rate(rate_pps: f64, section: &'static str, key: &'static str) -> Checked {
    if rate_pps > 0.0 && rate_pps <= OFFERED_RATE_PPS_MAX {
        return Ok(());
    }
    fault(
        &[Key(section), Key(key)],
        format!("{rate_pps:e} must be above 0 and at most {OFFERED_RATE_PPS_MAX:e}"),
    )
}

/// Returns the search with this goal.
pub(super) fn known_goal<'a>(
    around: &StudyContext<'a>,
    goal: &str,
    path: &[At],
) -> Result<Option<&'a Search>, LocatedFault> {
    let has_it = around
        .search
        .is_some_and(|search| search.goals.iter().any(|known| known.name == goal));
    if !has_it {
        fault(
            path,
            format!("unknown goal '{goal}' (name one of the goals of [search])"),
        )?;
    }
    Ok(around.search)
}

/// Checks that `[search]` is not repeated, because methods take their rates from a single search.
pub(super) fn not_repeated(search: Option<&Search>, path: &[At]) -> Checked {
    if search.is_some_and(|search| search.repeats.is_some()) {
        return fault(
            path,
            "[search] has repeats, which give several rates for a goal (remove repeats, or use a separate study)",
        );
    }
    Ok(())
}

/// Checks the requirements of both methods for addresses.
pub(super) fn addresses(
    around: &StudyContext<'_>,
    section: &'static str,
    ageing_s: Option<f64>,
) -> Checked {
    if !around.has_address_table {
        return fault(
            &[Key(section)],
            "only a bridge learns addresses (set mode = \"bridge\" in [device])",
        );
    }
    if around.has_own_frames {
        return fault(
            &[Key(section)],
            "this method has fixed frames and does not support [traffic.frames] (remove it, or use a separate study)",
        );
    }
    optional_duration(ageing_s, &[Key(section), Key("ageing-s")])
}
