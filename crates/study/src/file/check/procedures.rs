// SPDX-License-Identifier: Apache-2.0
//! What the sections of methods that take more than trials may get wrong.

use quietwire_search::procedure::RestartKind;
use quietwire_tester::{MAC_ADDRESSES_MAX, OFFERED_RATE_PPS_MAX};

use super::super::locate::At::Key;
use super::super::procedures::Throughput;
use super::super::study_file::StudyFile;
use super::super::{Mode, Percent, Switch};
use super::limits::{Checked, REPEATS_MAX, between, duration, fault, pause};
use super::methods::{known_goal, not_repeated};

/// All of them.
pub(super) fn procedures(file: &StudyFile) -> Checked {
    if let Some(plan) = &file.back_to_back {
        let at = |key| [Key("back-to-back"), Key(key)];
        starting_from(
            file,
            "back-to-back",
            plan.goal.is_some(),
            plan.rate_percent,
            plan.throughput(),
        )?;
        duration(plan.longest_burst_s, &at("longest-burst-s"))?;
        between(
            plan.resolution_frames,
            1,
            u32::MAX,
            &at("resolution-frames"),
        )?;
        between(plan.repeats, 1, REPEATS_MAX, &at("repeats"))?;
        plan.pause_s
            .map_or(Ok(()), |it| duration(it, &at("pause-s")))?;
    }
    if let Some(plan) = &file.system_recovery {
        let at = |key| [Key("system-recovery"), Key(key)];
        starting_from(
            file,
            "system-recovery",
            plan.goal.is_some(),
            plan.rate_percent,
            plan.throughput(),
        )?;
        duration(plan.overload_s, &at("overload-s"))?;
        duration(plan.reduced_s, &at("reduced-s"))?;
        between(plan.repeats, 1, REPEATS_MAX, &at("repeats"))?;
    }
    if let Some(plan) = &file.reset {
        let at = |key| [Key("reset"), Key(key)];
        starting_from(
            file,
            "reset",
            plan.goal.is_some(),
            plan.rate_percent,
            plan.throughput(),
        )?;
        if plan.kind != RestartKind::Software {
            return fault(
                &at("kind"),
                "only \"software\" can be done: hardware and power need a lab with a switchable socket",
            );
        }
        duration(plan.limit_s, &at("limit-s"))?;
        between(plan.repeats, 1, REPEATS_MAX, &at("repeats"))?;
    }
    if let Some(plan) = &file.address_caching {
        let at = |key| [Key("address-caching"), Key(key)];
        addresses(file, "address-caching", plan.ageing_s)?;
        between(
            plan.max_addresses,
            1,
            MAC_ADDRESSES_MAX,
            &at("max-addresses"),
        )?;
        between(
            plan.resolution_addresses,
            1,
            plan.max_addresses,
            &at("resolution-addresses"),
        )?;
        rate(
            plan.learning_rate_pps,
            "address-caching",
            "learning-rate-pps",
        )?;
        rate(plan.probe_rate_pps, "address-caching", "probe-rate-pps")?;
    }
    if let Some(plan) = &file.address_learning_rate {
        let at = |key| [Key("address-learning-rate"), Key(key)];
        addresses(file, "address-learning-rate", plan.ageing_s)?;
        between(plan.addresses, 1, MAC_ADDRESSES_MAX, &at("addresses"))?;
        between(plan.max_rate_pps, 1, u32::MAX, &at("max-rate-pps"))?;
        between(
            plan.resolution_pps,
            1,
            plan.max_rate_pps,
            &at("resolution-pps"),
        )?;
        rate(
            plan.probe_rate_pps,
            "address-learning-rate",
            "probe-rate-pps",
        )?;
    }
    pause(file.trials.drain_s, &[Key("trials"), Key("drain-s")])
}

/// A goal or a rate, and a goal that there is.
fn starting_from(
    file: &StudyFile,
    section: &'static str,
    has_goal: bool,
    rate: Option<Percent>,
    throughput: Throughput<'_>,
) -> Checked {
    if has_goal && rate.is_some() {
        return fault(&[Key(section)], "give at most one of goal and rate-percent");
    }
    let Throughput::OfGoal(goal) = throughput else {
        return Ok(());
    };
    let path: &[_] = if has_goal {
        &[Key(section), Key("goal")]
    } else {
        &[Key(section)]
    };
    let search = known_goal(file, goal, path)?;
    not_repeated(search, path)
}

/// What both methods that look for addresses need.
fn addresses(file: &StudyFile, section: &'static str, ageing_s: Option<f64>) -> Checked {
    if file.device.switch != Switch::Other && file.device.mode != Mode::Bridge {
        return fault(
            &[Key(section)],
            "only a bridge keeps addresses; write mode = \"bridge\" in [device]",
        );
    }
    if file.traffic.frames.is_some() {
        return fault(
            &[Key(section)],
            "its frames are its own; leave [traffic.frames] out, and make another study of what needs it",
        );
    }
    ageing_s.map_or(Ok(()), |it| duration(it, &[Key(section), Key("ageing-s")]))
}

fn rate(rate_pps: f64, section: &'static str, key: &'static str) -> Checked {
    if rate_pps > 0.0 && rate_pps <= OFFERED_RATE_PPS_MAX {
        return Ok(());
    }
    fault(
        &[Key(section), Key(key)],
        format!("{rate_pps:e} has to be above 0 and at most {OFFERED_RATE_PPS_MAX:e}"),
    )
}
