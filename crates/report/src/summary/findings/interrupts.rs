// SPDX-License-Identifier: Apache-2.0
//! A forwarding CPU served interrupts of devices.

use std::collections::BTreeMap;

use super::data::CaseData;
use super::finding::MachineFinding;
use crate::format;

/// Interrupts of devices per second that a forwarding CPU may serve.
const PER_SECOND_MIN: f64 = 10.0;

/// Reports the busiest interrupt of a device on a forwarding CPU.
pub(super) fn interrupts(data: &CaseData<'_>) -> Option<MachineFinding> {
    let cpus: Vec<u32> = data.forwarding().iter().map(|thread| thread.cpu).collect();
    let mut counts: BTreeMap<(u32, &str), (u64, &str)> = BTreeMap::new();
    let lines = data
        .activities
        .iter()
        .flat_map(|activity| &activity.interrupt_lines);
    for line in lines.filter(|line| line.is_of_device() && cpus.contains(&line.cpu)) {
        let (count, what) = counts.entry((line.cpu, line.name.as_str())).or_default();
        *count = count.saturating_add(line.count);
        *what = line.what.as_str();
    }
    let ((cpu, name), (count, what)) = counts.into_iter().max_by_key(|(_, (count, _))| *count)?;
    let elapsed_s = data.elapsed_s();
    let per_second = if elapsed_s > 0.0 {
        count as f64 / elapsed_s
    } else {
        0.0
    };
    if per_second < PER_SECOND_MIN {
        return None;
    }
    let text = format!(
        "Forwarding CPU {cpu} served interrupt {name} ({what}) {} times per second.",
        format::number(per_second)
    );
    let cure = format!(
        "move interrupt {name} to another CPU (`quietwire partition apply`, or /proc/irq/{name}/smp_affinity_list)"
    );
    Some(MachineFinding::new("interrupts", data.case, text, &cure))
}

#[cfg(test)]
mod tests {
    use quietwire_monitor::InterruptLine;

    use super::super::tests::{activity, data, forwarding};
    use super::*;

    #[test]
    fn interrupts_of_devices_on_forwarding_cpus_are_reported() {
        let line = |cpu, name: &str, count| InterruptLine {
            cpu,
            name: name.to_owned(),
            what: "PCI-MSI eth0".to_owned(),
            count,
        };
        for (line, is_found) in [
            (line(1, "24", 4_500), true),
            (line(2, "24", 4_500), false),
            (line(1, "LOC", 4_500), false),
            (line(1, "24", 20), false),
        ] {
            let mut found = activity(10.0, vec![forwarding("qw-fwd-1", 1)]);
            found.interrupt_lines = vec![line];
            let finding = interrupts(&data(&[&found]));
            assert_eq!(finding.is_some(), is_found, "{:?}", found.interrupt_lines);
            if let Some(finding) = finding {
                let wanted =
                    "Forwarding CPU 1 served interrupt 24 (PCI-MSI eth0) 450 times per second.";
                assert_eq!(finding.text, wanted);
            }
        }
    }
}
