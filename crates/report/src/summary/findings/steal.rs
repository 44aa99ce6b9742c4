// SPDX-License-Identifier: Apache-2.0
//! The hypervisor ran something else on a CPU of device or tester.

use std::collections::BTreeSet;

use quietwire_monitor::Owner;

use super::data::CaseData;
use super::finding::MachineFinding;
use crate::format;

/// Share of its time that the hypervisor may take from a CPU.
const STEAL_MAX: f64 = 0.01;
/// Threads of the tester that used less CPU time than this share are not in the path of frames.
const BUSY_MIN: f64 = 0.05;

/// Reports the CPU that lost the largest share of its time.
pub(super) fn steal(data: &CaseData<'_>) -> Option<MachineFinding> {
    let mut cpus: BTreeSet<u32> = data.forwarding().iter().map(|thread| thread.cpu).collect();
    for activity in &data.activities {
        let own = activity
            .threads
            .iter()
            .filter(|thread| thread.owner == Some(Owner::Tester));
        let busy = own.filter(|thread| thread.cpu_time_s >= BUSY_MIN * activity.elapsed_s);
        cpus.extend(busy.map(|thread| thread.cpu));
    }
    let shares = cpus
        .into_iter()
        .filter_map(|cpu| Some((cpu, data.share(cpu, |one| one.steal_s)?)));
    let (cpu, share) = shares.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    if share < STEAL_MAX {
        return None;
    }
    let text = format!(
        "The host took {} of the time of CPU {cpu} (steal), on which device or tester run.",
        format::percent(share * 100.0)
    );
    let cure = "give the virtual CPUs physical CPUs of their own on the host, or measure on a physical machine";
    Some(MachineFinding::new("steal", data.case, text, cure))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{activity, cpu, data, forwarding};
    use super::*;

    #[test]
    fn time_that_the_host_took_is_reported_for_cpus_in_the_path_of_frames() {
        for (number, steal_s, is_found) in [(1, 0.4, true), (1, 0.01, false), (2, 5.0, false)] {
            let mut found = activity(10.0, vec![forwarding("qw-fwd-1", 1)]);
            let mut stolen = cpu(number, 10.0 - steal_s, 10.0 - steal_s);
            stolen.steal_s = steal_s;
            found.cpus = vec![stolen];
            let finding = steal(&data(&[&found]));
            assert_eq!(finding.is_some(), is_found, "{number} {steal_s}");
            if let Some(finding) = finding {
                let text = finding.text.replace(format::THIN, " ");
                assert!(
                    text.starts_with("The host took 4.00 % of the time of CPU 1 (steal)"),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn the_tester_is_in_the_path_of_frames() {
        let mut thread = forwarding("tester", 2);
        thread.is_forwarding = false;
        thread.owner = Some(Owner::Tester);
        let mut found = activity(10.0, vec![thread]);
        let mut stolen = cpu(2, 5.0, 5.0);
        stolen.steal_s = 5.0;
        found.cpus = vec![stolen];
        assert!(steal(&data(&[&found])).is_some());
    }
}
