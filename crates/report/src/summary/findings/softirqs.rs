// SPDX-License-Identifier: Apache-2.0
//! A forwarding CPU worked for the kernel: interrupts and softirqs.

use std::collections::BTreeMap;

use super::data::CaseData;
use super::finding::MachineFinding;
use crate::format;

/// Share of its time that a forwarding CPU may spend in interrupts and softirqs.
const SHARE_MAX: f64 = 0.02;

/// Reports the forwarding CPU with the largest share of softirqs, with their most frequent kind.
pub(super) fn softirqs(data: &CaseData<'_>) -> Option<MachineFinding> {
    let threads = data.forwarding().into_iter();
    let shares = threads.filter_map(|thread| {
        let share = data.share(thread.cpu, |one| one.softirq_s + one.irq_s)?;
        Some((thread.cpu, share))
    });
    let (cpu, share) = shares.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    if share <= SHARE_MAX {
        return None;
    }
    let kind = most_frequent(data, cpu);
    let kind = kind.map_or_else(String::new, |kind| format!(", mostly {kind}"));
    let text = format!(
        "Forwarding CPU {cpu} spent {} of its time in interrupts and softirqs{kind}.",
        format::percent(share * 100.0)
    );
    let cure = "keep the kernel's network and timer work off this CPU (`quietwire partition apply`; ports that bypass the kernel)";
    Some(MachineFinding::new("softirqs", data.case, text, cure))
}

fn most_frequent<'a>(data: &CaseData<'a>, cpu: u32) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let all = data
        .activities
        .iter()
        .flat_map(|activity| &activity.softirqs);
    for one in all.filter(|one| one.cpu == cpu) {
        let sum = counts.entry(&one.kind).or_default();
        *sum = sum.saturating_add(one.count);
    }
    counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map(|(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use quietwire_monitor::SoftirqCount;

    use super::super::tests::{activity, cpu, data, forwarding};
    use super::*;

    #[test]
    fn softirqs_on_forwarding_cpus_are_reported_with_their_kind() {
        for (softirq_s, is_found) in [(0.8, true), (0.1, false)] {
            let mut found = activity(10.0, vec![forwarding("qw-fwd-1", 1)]);
            let mut of_kernel = cpu(1, 10.0 - softirq_s, 10.0 - softirq_s);
            of_kernel.softirq_s = softirq_s;
            found.cpus = vec![of_kernel, cpu(2, 1.0, 10.0)];
            let count = |cpu, kind: &str, count| SoftirqCount {
                cpu,
                kind: kind.to_owned(),
                count,
            };
            found.softirqs = vec![
                count(1, "RCU", 2),
                count(1, "NET_RX", 9),
                count(2, "TIMER", 99),
            ];
            let finding = softirqs(&data(&[&found]));
            assert_eq!(finding.is_some(), is_found);
            if let Some(finding) = finding {
                let text = finding.text.replace(format::THIN, " ");
                assert_eq!(
                    text,
                    "Forwarding CPU 1 spent 8.00 % of its time in interrupts and softirqs, mostly NET_RX."
                );
            }
        }
    }
}
