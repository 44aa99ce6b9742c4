// SPDX-License-Identifier: Apache-2.0
//! The tester was the limit of a rate, not the device.

use super::super::limit::Limiter;
use super::data::CaseData;
use super::finding::MachineFinding;
use crate::format;

/// Share of the trials in which a tester may miss its rate.
const MISSED_MAX: f64 = 0.1;

/// Cure of a rate that the tester limits.
pub(super) const CURE: &str = "give the tester more CPUs or real-time priority ([tester]), or raise max-rate-pps if the study limits the rate";

/// Reports goals whose highest rate is the highest that was offered, or else many trials in which the tester missed its rate.
pub(super) fn tester_limit(data: &CaseData<'_>) -> Option<MachineFinding> {
    let text = at_goals(data).or_else(|| missed(data))?;
    Some(MachineFinding::new("tester-limit", data.case, text, CURE))
}

fn at_goals(data: &CaseData<'_>) -> Option<String> {
    let mut limited = data
        .limits
        .iter()
        .filter(|(_, limit)| limit.by == Limiter::Tester);
    let (first, limit) = limited.next()?;
    let mut goals = vec![*first];
    goals.extend(limited.map(|(goal, _)| *goal));
    goals.dedup();
    let idle = limit
        .tester_idle_ratio
        .as_ref()
        .map_or_else(String::new, |idle| {
            format!(
                " The tester was {} idle.",
                format::percent(idle.median * 100.0)
            )
        });
    Some(format!(
        "The tester was the limit of {}: the highest rate that it offered held.{idle}",
        goals.join(" and ")
    ))
}

fn missed(data: &CaseData<'_>) -> Option<String> {
    let share = data.rate_missed as f64 / data.trials.max(1) as f64;
    (share > MISSED_MAX).then(|| {
        format!(
            "The tester missed its rate in {} of {} trials.",
            data.rate_missed, data.trials
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{data, limit};
    use super::*;

    #[test]
    fn a_limit_by_the_tester_is_reported_with_its_idle_time() {
        let (tester, device) = (
            limit(Limiter::Tester, None, Some(0.02)),
            limit(Limiter::DeviceCpu, Some(0.0), None),
        );
        let mut data = data(&[]);
        data.limits = vec![("NDR", &tester), ("PDR", &device)];
        let text = tester_limit(&data).unwrap().text.replace(format::THIN, " ");
        assert_eq!(
            text,
            "The tester was the limit of NDR: the highest rate that it offered held. The tester was 2.00 % idle."
        );
        data.limits = vec![("NDR", &device)];
        assert_eq!(tester_limit(&data), None);
    }

    #[test]
    fn many_missed_rates_are_reported_and_a_few_are_not() {
        let mut data = data(&[]);
        data.trials = 100;
        for (rate_missed, is_found) in [(20, true), (10, false)] {
            data.rate_missed = rate_missed;
            let finding = tester_limit(&data);
            assert_eq!(finding.is_some(), is_found);
            if let Some(finding) = finding {
                assert_eq!(
                    finding.text,
                    "The tester missed its rate in 20 of 100 trials."
                );
            }
        }
        data.trials = 0;
        data.rate_missed = 0;
        assert_eq!(tester_limit(&data), None);
    }
}
