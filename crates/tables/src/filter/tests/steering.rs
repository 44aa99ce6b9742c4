// SPDX-License-Identifier: Apache-2.0
//! Steering rules compared with the reference implementation.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::filter::steering::{Steering, SteeringRule};

proptest! {
    #[test]
    fn frames_are_divided_as_the_reference_decides(
        rules in prop::collection::vec(rule(), 0..8),
        frames in prop::collection::vec(frame(), 1..BURST_MAX),
    ) {
        let compiled: Vec<SteeringRule> = rules
            .iter()
            .map(|(vlan, packet, action)| SteeringRule {
                vlan: *vlan,
                packet: *packet,
                is_for_kernel: *action == Action::Drop,
                ..SteeringRule::default()
            })
            .collect();
        let unmatched = Arc::new(AtomicU64::new(0));
        let steering = Steering::new(compiled.clone(), Arc::clone(&unmatched));
        let mut verdicts = [true; BURST_MAX];
        let octets = frames.iter().map(|(frame, _)| frame.as_slice());
        let for_kernel = steering.judge(octets, &mut verdicts);
        let mut hits = vec![0; rules.len()];
        let (mut others, mut expected) = (0, 0);
        for ((frame, _), is_for_kernel) in frames.iter().zip(verdicts) {
            let policy = (Action::Drop, MalformedAction::Match);
            let wanted = judge(&rules, policy, (frame, frame.len()));
            let is_expected = match wanted {
                Verdict::Rule(rule, action) => {
                    hits[rule as usize] += 1;
                    action == Action::Drop
                }
                Verdict::Short => false,
                _ => {
                    others += 1;
                    true
                }
            };
            expected += usize::from(is_expected);
            prop_assert_eq!(is_for_kernel, is_expected, "{:x?}", frame);
        }
        prop_assert_eq!(for_kernel, expected);
        let counted: Vec<u64> = compiled.iter().map(|one| one.frames.load(Ordering::Relaxed)).collect();
        prop_assert_eq!(counted, hits);
        prop_assert_eq!(unmatched.load(Ordering::Relaxed), others);
    }
}

#[test]
fn mac_addresses_are_compared_where_they_are() {
    let (a, b) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let rule = |source_mac, destination_mac| SteeringRule {
        source_mac,
        destination_mac,
        ..SteeringRule::default()
    };
    let frame = [&b[..], &a, &[0; 50]].concat();
    for (rule, is_for_kernel) in [
        (rule(Some(a), None), false),
        (rule(Some(b), None), true),
        (rule(None, Some(b)), false),
        (rule(None, Some(a)), true),
        (rule(Some(a), Some(b)), false),
        (rule(Some(b), Some(a)), true),
    ] {
        let steering = Steering::new([rule.clone()], Arc::default());
        let mut verdicts = [false; BURST_MAX];
        let count = steering.judge([frame.as_slice()].into_iter(), &mut verdicts);
        assert_eq!(
            (count == 1, verdicts[0]),
            (is_for_kernel, is_for_kernel),
            "{rule:?}"
        );
    }
}
