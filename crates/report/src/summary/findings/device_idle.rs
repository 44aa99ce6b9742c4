// SPDX-License-Identifier: Apache-2.0
//! The CPUs of the device had idle time at the limit of a rate.

use super::super::limit::Limiter;
use super::data::CaseData;
use super::finding::MachineFinding;
use super::tester_limit::CURE;
use crate::format;

/// Idle share of a device that is not the limit.
const IDLE_MIN: f64 = 0.2;
/// Cure of losses that the CPUs of the device do not explain.
const LOSS_CURE: &str = "look for the loss between tester and device: larger rings, fewer interruptions of the forwarding CPU, or a faster link";

/// Reports the goal at whose limit the device had most idle time.
pub(super) fn device_idle(data: &CaseData<'_>) -> Option<MachineFinding> {
    let idle = data.limits.iter().filter_map(|(goal, limit)| {
        let ratio = limit.device_idle_ratio.as_ref()?.median;
        matches!(limit.by, Limiter::Tester | Limiter::NotDeviceCpu)
            .then_some((*goal, *limit, ratio))
    });
    let (goal, limit, ratio) = idle.max_by(|(.., one), (.., other)| one.total_cmp(other))?;
    if ratio < IDLE_MIN {
        return None;
    }
    let bursts = data.frames_per_burst.map_or_else(String::new, |frames| {
        format!(" and {} frames a burst", format::number(frames))
    });
    // The tester is a limit of its own: see the rule about it.
    let (at, cure) = match limit.by {
        Limiter::Tester => ("At the highest rate that was offered for", CURE),
        _ => ("At the limit of", LOSS_CURE),
    };
    let text = format!(
        "{at} {goal}, the device had {} idle time{bursts}: its CPUs were not the limit.",
        format::percent(ratio * 100.0)
    );
    Some(MachineFinding::new("device-idle", data.case, text, cure))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{data, limit};
    use super::*;

    #[test]
    fn a_device_with_idle_time_is_reported_with_its_bursts() {
        for (by, idle, is_found) in [
            (Limiter::NotDeviceCpu, 0.6, true),
            (Limiter::Tester, 0.6, true),
            (Limiter::NotDeviceCpu, 0.1, false),
            (Limiter::DeviceCpu, 0.6, false),
        ] {
            let limit = limit(by, Some(idle), None);
            let mut data = data(&[]);
            data.limits = vec![("NDR", &limit)];
            data.frames_per_burst = Some(32.0);
            let finding = device_idle(&data);
            assert_eq!(finding.is_some(), is_found, "{by:?} {idle}");
            if let Some(finding) = finding {
                let text = finding.text.replace(format::THIN, " ");
                let (at, cure) = match by {
                    Limiter::Tester => ("At the highest rate that was offered for", CURE),
                    _ => ("At the limit of", LOSS_CURE),
                };
                let wanted = format!(
                    "{at} NDR, the device had 60 % idle time and 32.0 frames a burst: its CPUs were not the limit."
                );
                assert_eq!((text, finding.cure.as_str()), (wanted, cure));
            }
        }
    }
}
