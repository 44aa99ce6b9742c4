// SPDX-License-Identifier: Apache-2.0
//! A forwarding CPU ran below its base frequency, or was throttled because of its temperature.

use super::data::CaseData;
use super::finding::MachineFinding;
use crate::format;

/// Part of the base frequency that a busy CPU keeps.
const BASE_MIN: f64 = 0.95;

/// Reports throttling, or else the forwarding CPU with the lowest frequency.
pub(super) fn throttled(data: &CaseData<'_>) -> Option<MachineFinding> {
    let cpus: Vec<u32> = data.forwarding().iter().map(|thread| thread.cpu).collect();
    let text = by_temperature(data, &cpus).or_else(|| by_frequency(data, &cpus))?;
    let cure = "set the governor to performance, check the cooling and the power limit, and disable power-saving in the firmware";
    Some(MachineFinding::new("throttled", data.case, text, cure))
}

fn by_temperature(data: &CaseData<'_>, cpus: &[u32]) -> Option<String> {
    let events = |cpu: u32| {
        let all = data
            .activities
            .iter()
            .flat_map(|activity| &activity.throttling);
        let own = all.filter(|one| one.cpu == cpu);
        own.map(|one| one.core_events.saturating_add(one.package_events))
            .sum::<u64>()
    };
    let counted = cpus.iter().map(|cpu| (*cpu, events(*cpu)));
    let (cpu, count) = counted.max_by_key(|(_, count)| *count)?;
    (count > 0).then(|| {
        format!(
            "Forwarding CPU {cpu} was throttled {} times because of its temperature.",
            format::grouped(count)
        )
    })
}

fn by_frequency(data: &CaseData<'_>, cpus: &[u32]) -> Option<String> {
    let base_khz = |cpu: u32| {
        let own = data
            .place(cpu)
            .and_then(|place| place.frequency.as_ref()?.base_khz);
        own.or_else(|| data.machine?.nominal_khz())
    };
    let readings = data
        .activities
        .iter()
        .flat_map(|activity| &activity.frequencies);
    let slow = readings
        .filter(|one| cpus.contains(&one.cpu))
        .filter_map(|one| Some((one.cpu, one.khz, base_khz(one.cpu)?)))
        .filter(|(_, khz, base_khz)| (*khz as f64) < BASE_MIN * *base_khz as f64);
    let (cpu, khz, base_khz) = slow.min_by_key(|(_, khz, _)| *khz)?;
    let mhz = |khz: u64| format::grouped(khz / 1_000);
    Some(format!(
        "Forwarding CPU {cpu} ran at {} MHz at the end of a trial, below its base frequency of {} MHz.",
        mhz(khz),
        mhz(base_khz)
    ))
}

#[cfg(test)]
mod tests {
    use quietwire_host::inventory::Inventory;
    use quietwire_monitor::{CpuFrequency, CpuThrottling};

    use super::super::tests::{activity, data, forwarding};
    use super::*;

    #[test]
    fn throttling_of_a_forwarding_cpu_is_reported_and_that_of_others_is_not() {
        for (cpu, is_found) in [(1, true), (2, false)] {
            let mut found = activity(10.0, vec![forwarding("qw-fwd-1", 1)]);
            found.throttling = vec![CpuThrottling {
                cpu,
                core_events: 3,
                package_events: 1,
            }];
            let finding = throttled(&data(&[&found]));
            assert_eq!(finding.is_some(), is_found);
            if let Some(finding) = finding {
                assert!(
                    finding.text.contains("throttled 4 times"),
                    "{}",
                    finding.text
                );
            }
        }
    }

    #[test]
    fn a_frequency_below_the_base_is_reported() {
        let machine = Inventory {
            cpu_model: Some("Intel(R) Xeon(R) @ 2.00GHz".to_owned()),
            ..Inventory::default()
        };
        for (khz, is_found) in [(1_200_000, true), (1_990_000, false), (3_000_000, false)] {
            let mut found = activity(10.0, vec![forwarding("qw-fwd-1", 1)]);
            found.frequencies = vec![CpuFrequency { cpu: 1, khz }];
            let mut data = data(&[&found]);
            assert_eq!(throttled(&data), None, "the base frequency is unknown");
            data.machine = Some(&machine);
            let finding = throttled(&data);
            assert_eq!(finding.is_some(), is_found, "{khz}");
            if let Some(finding) = finding {
                let text = finding.text.replace(format::THIN, " ");
                assert!(
                    text.contains("at 1 200 MHz") && text.contains("of 2 000 MHz"),
                    "{text}"
                );
            }
        }
    }
}
