// SPDX-License-Identifier: Apache-2.0
//! The other thread of a forwarding core was busy.

use super::data::{CaseData, busy_s};
use super::finding::MachineFinding;
use crate::format;

/// Share of its time that a sibling may be busy.
const BUSY_MAX: f64 = 0.2;

/// Reports the busiest sibling of a forwarding CPU.
pub(super) fn sibling_busy(data: &CaseData<'_>) -> Option<MachineFinding> {
    let mut worst: Option<(u32, u32, f64)> = None;
    for thread in data.forwarding() {
        let place = data.place(thread.cpu);
        let siblings = place.and_then(|place| place.siblings.as_ref());
        let siblings = siblings.into_iter().flat_map(|cpus| cpus.iter());
        for sibling in siblings.filter(|sibling| sibling.0 != thread.cpu) {
            let share = data.share(sibling.0, busy_s).unwrap_or(0.0);
            if share > BUSY_MAX && worst.is_none_or(|(_, _, most)| share > most) {
                worst = Some((thread.cpu, sibling.0, share));
            }
        }
    }
    let (cpu, sibling, share) = worst?;
    let text = format!(
        "CPU {sibling}, the sibling of forwarding CPU {cpu}, was {} busy. The two share the execution units and caches of a core.",
        format::percent(share * 100.0)
    );
    let cure = format!("leave CPU {sibling} idle (`quietwire partition apply`), or switch SMT off");
    Some(MachineFinding::new("sibling-busy", data.case, text, &cure))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{activity, cpu, data, forwarding, machine};
    use super::*;

    #[test]
    fn a_busy_sibling_is_reported_and_an_idle_one_is_not() {
        let machine = machine(&[(4, "4,5", 0), (5, "4,5", 0)]);
        for (busy_s, is_found) in [(9.7, true), (0.5, false)] {
            let mut found = activity(10.0, vec![forwarding("qw-fwd-4", 4)]);
            found.cpus = vec![cpu(4, 10.0, 10.0), cpu(5, busy_s, 10.0)];
            let mut data = data(&[&found]);
            // Without a topology, siblings are unknown.
            assert_eq!(sibling_busy(&data), None);
            data.machine = Some(&machine);
            let finding = sibling_busy(&data);
            assert_eq!(finding.is_some(), is_found);
            if let Some(finding) = finding {
                let text = finding.text.replace(format::THIN, " ");
                assert!(
                    text.starts_with("CPU 5, the sibling of forwarding CPU 4, was 97 % busy."),
                    "{text}"
                );
            }
        }
    }
}
