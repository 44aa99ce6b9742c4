// SPDX-License-Identifier: Apache-2.0
//! A scripted driver: after each change that fails, its card has the former rules, and a rule that the driver would refuse changes nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::steer::rule::{CardTarget, SteerTarget};

#[derive(Debug, Default)]
struct Scripted {
    /// Rules by handle, and the frames that they have matched.
    rules: RefCell<BTreeMap<u32, (Flow, u64)>>,
    next: Cell<u32>,
    /// Creations and destructions that succeed before one fails.
    successes: Cell<Option<usize>>,
    /// Creations and destructions.
    changes: Cell<u32>,
    /// VLANs, of which the driver refuses rules.
    refused: Vec<u16>,
    has_counters: bool,
    /// VLAN whose rules the driver does not remove.
    stuck: Cell<Option<u16>>,
}

impl Scripted {
    fn change(&self) -> Result<(), String> {
        self.changes.set(self.changes.get() + 1);
        match self.successes.take() {
            Some(0) => Err("scripted failure".to_owned()),
            left => {
                self.successes.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }

    /// Returns the rules on the card, in an order of their own.
    fn on_card(&self) -> Vec<String> {
        let rules = self.rules.borrow();
        let mut all: Vec<String> = rules
            .values()
            .map(|(flow, _)| flow.spec.to_string())
            .collect();
        all.sort();
        all
    }

    fn receive(&self, vlan: u16, frames: u64) {
        let mut rules = self.rules.borrow_mut();
        let matching = rules.values_mut().filter(|(flow, _)| vlan_of(flow) == vlan);
        matching.for_each(|(_, count)| *count += frames);
    }
}

fn vlan_of(flow: &Flow) -> u16 {
    u16::from_be_bytes(flow.spec.fields().vlan.0)
}

impl FlowDriver for Scripted {
    type Rule = u32;

    fn validate(&self, flow: &Flow) -> Result<(), String> {
        if self.refused.contains(&vlan_of(flow)) {
            return Err("Unsupported item".to_owned());
        }
        match flow.is_counted && !self.has_counters {
            true => Err("Unsupported action".to_owned()),
            false => Ok(()),
        }
    }

    fn create(&self, flow: &Flow) -> Result<u32, String> {
        assert_eq!(self.validate(flow), Ok(()));
        self.change()?;
        let handle = self.next.get();
        self.next.set(handle + 1);
        self.rules.borrow_mut().insert(handle, (flow.clone(), 0));
        Ok(handle)
    }

    fn destroy(&self, rule: &u32) -> Result<(), String> {
        self.change()?;
        let vlan = self.rules.borrow().get(rule).map(|(flow, _)| vlan_of(flow));
        if vlan.is_some() && vlan == self.stuck.get() {
            return Err("scripted refusal".to_owned());
        }
        assert!(self.rules.borrow_mut().remove(rule).is_some());
        Ok(())
    }

    fn hits(&self, rule: &u32) -> Option<u64> {
        let rules = self.rules.borrow();
        let (flow, frames) = rules.get(rule).unwrap();
        assert!(flow.is_counted);
        Some(*frames)
    }
}

fn rule(vlan: u16, queue: u16) -> SteerRule {
    SteerRule {
        frames: SteerMatch {
            vlan: Some(vlan),
            protocol: Some(17),
            ..SteerMatch::default()
        },
        target: SteerTarget::Switch,
        card: Some(CardTarget::Queue(queue)),
    }
}

fn expected(rules: &[SteerRule]) -> Vec<String> {
    let mut all: Vec<String> = wanted(rules)
        .unwrap()
        .iter()
        .map(|one| one.spec.to_string())
        .collect();
    all.sort();
    all
}

proptest! {
    #[test]
    fn a_driver_has_all_rules_of_a_list_or_the_former_ones(
        lists in vec((vec((0_u16..8, 0_u16..2), 0..6), option::of(0_usize..20)), 1..8),
        has_counters in any::<bool>(),
        refused in 6_u16..12,
    ) {
        let mut card = OffloadedRules::new(Scripted {
            has_counters,
            refused: vec![refused],
            ..Scripted::default()
        });
        for (listed, successes) in &lists {
            // One destination for each VLAN, as others would be ambiguous.
            let by_vlan: BTreeMap<u16, u16> = listed.iter().copied().collect();
            let rules: Vec<SteerRule> = by_vlan.iter().map(|(vlan, queue)| rule(*vlan, *queue)).collect();
            let before = (card.driver.on_card(), card.hits());
            let changes = card.driver.changes.get();
            card.driver.successes.set(*successes);
            let replaced = card.replace(&rules);
            let has_failed = successes.is_some() && card.driver.successes.take().is_none();
            let is_refused = by_vlan.contains_key(&refused);
            match replaced {
                Ok(()) => {
                    prop_assert!(!has_failed && !is_refused);
                    prop_assert_eq!(card.driver.on_card(), expected(&rules));
                    prop_assert_eq!(card.hits().len(), rules.len());
                }
                Err(why) => {
                    prop_assert!(has_failed || is_refused, "{}", why);
                    prop_assert!(!why.contains("lost") && !why.contains("stays"), "{}", why);
                    if is_refused {
                        prop_assert!(why.contains("the card refuses it: Unsupported item"), "{}", why);
                        prop_assert_eq!(card.driver.changes.get(), changes);
                    }
                    prop_assert_eq!((card.driver.on_card(), card.hits().len()), (before.0, before.1.len()));
                }
            }
        }
        card.clear();
        prop_assert_eq!(card.driver.on_card(), Vec::<String>::new());
        prop_assert_eq!(card.hits(), Vec::new());
    }

    #[test]
    fn prefixes_exclude_each_other_if_their_common_bits_differ(
        pairs in vec((any::<u8>(), 0_u8..=8), 2),
    ) {
        let prefix = |(octet, length): (u8, u8)| (std::net::IpAddr::from([10, octet, 0, 0]), 8 + length);
        let is_in = |address: u8, (octet, length): (u8, u8)| {
            (0..length).all(|bit| (address ^ octet) >> (7 - bit) & 1 == 0)
        };
        let meet = (0..=255).any(|address| is_in(address, pairs[0]) && is_in(address, pairs[1]));
        prop_assert_eq!(are_apart_prefixes(prefix(pairs[0]), prefix(pairs[1])), !meet);
    }
}

#[test]
fn a_rule_works_once_the_card_has_counted_a_frame() {
    let mut card = OffloadedRules::new(Scripted {
        has_counters: true,
        ..Scripted::default()
    });
    card.replace(&[rule(1, 0), rule(2, 1)]).unwrap();
    assert_eq!(card.hits(), [Some(0), Some(0)]);
    card.driver.receive(2, 5);
    // UDP has a rule for each version of IP, and the scripted card counts both.
    assert_eq!(card.hits(), [Some(0), Some(10)]);
    // A rule that stays keeps its counter, also at another place.
    card.replace(&[rule(2, 1), rule(3, 1)]).unwrap();
    assert_eq!(card.hits(), [Some(10), Some(0)]);
    card.driver.has_counters = false;
    card.replace(&[rule(4, 1), rule(2, 1)]).unwrap();
    assert_eq!(card.hits(), [None, Some(10)]);
    // Nothing is destroyed on a card that was removed.
    let changes = card.driver.changes.get();
    card.forget();
    assert_eq!((card.hits(), card.driver.changes.get()), (vec![], changes));
}

/// Returns a card without rules that counts the frames of each rule.
fn counting_card() -> OffloadedRules<Scripted> {
    OffloadedRules::counted(Scripted {
        has_counters: true,
        ..Scripted::default()
    })
}

/// Returns a rule by which the card drops the frames of a VLAN.
fn dropped(vlan: u16) -> SteerRule {
    SteerRule {
        card: Some(CardTarget::Drop),
        ..rule(vlan, 0)
    }
}

#[test]
fn a_card_drops_frames_only_if_it_counts_them() {
    let mut card = counting_card();
    card.replace(&[dropped(1), dropped(3)]).unwrap();
    let on_card = card.driver.on_card();
    let rules = card.driver.rules.borrow().clone();
    assert!(
        rules
            .values()
            .all(|(flow, _)| flow.is_counted && flow.spec.target() == CardTarget::Drop)
    );
    card.driver.has_counters = false;
    let why = card.replace(&[dropped(1), dropped(2)]).unwrap_err();
    assert_eq!(why, "rule 2: the card refuses it: Unsupported action");
    assert_eq!(card.driver.on_card(), on_card);
    card.replace(&[]).unwrap();
    assert_eq!(card.driver.on_card(), Vec::<String>::new());
}

#[test]
fn rules_that_a_driver_does_not_remove_stay_alone_until_it_does() {
    let mut card = counting_card();
    card.replace(&[dropped(1), dropped(2), dropped(3)]).unwrap();
    assert!(card.kept().is_empty());
    card.driver.stuck.set(Some(2));
    assert_eq!(card.withdraw(), Err("scripted refusal".to_owned()));
    // UDP has a rule for each version of IP.
    assert_eq!(card.driver.on_card(), expected(&[dropped(2)]));
    assert_eq!((card.kept(), card.hits()), (vec![Some(1); 2], vec![]));
    card.driver.stuck.set(None);
    assert_eq!((card.withdraw(), card.kept()), (Ok(()), vec![]));
    assert_eq!(card.driver.on_card(), Vec::<String>::new());
}

#[test]
fn a_rule_of_a_refused_list_that_stays_is_removed_by_a_later_change() {
    let mut card = counting_card();
    card.replace(&[dropped(1)]).unwrap();
    card.driver.stuck.set(Some(2));
    // The second of the new rules fails.
    card.driver.successes.set(Some(1));
    let why = card.replace(&[dropped(1), dropped(2)]).unwrap_err();
    assert!(why.contains("not removed from the card"), "{why}");
    assert_eq!((card.driver.on_card().len(), card.kept()), (3, vec![None]));
    assert_eq!(card.hits(), [Some(0)]);
    let why = card.replace(&[dropped(1), dropped(3)]).unwrap_err();
    assert!(why.starts_with("an earlier rule: cannot remove"), "{why}");
    card.driver.stuck.set(None);
    card.replace(&[dropped(1)]).unwrap();
    assert_eq!(card.driver.on_card(), expected(&[dropped(1)]));
    assert!(card.kept().is_empty());
}

#[test]
fn lists_that_a_card_cannot_have_are_refused_before_it_is_asked() {
    let mut card = OffloadedRules::new(Scripted::default());
    let plain = SteerRule {
        card: None,
        ..rule(1, 0)
    };
    let prefix = |text: &str, length: u8, queue: u16| SteerRule {
        frames: SteerMatch {
            source: Some((text.parse().unwrap(), length)),
            ..SteerMatch::default()
        },
        ..rule(1, queue)
    };
    for (rules, reason) in [
        (vec![plain], "rule 1: a card selects queues"),
        (vec![rule(1, 0), rule(1, 1)], "rule 2: a frame may match"),
        (
            vec![prefix("192.0.2.0", 24, 0), prefix("192.0.0.0", 16, 1)],
            "rule 2: a frame may match",
        ),
        (
            vec![SteerRule {
                frames: SteerMatch::default(),
                ..rule(1, 0)
            }],
            "rule 1: a flow rule of a card requires a condition",
        ),
    ] {
        let why = card.replace(&rules).unwrap_err();
        assert!(why.starts_with(reason), "{why}");
    }
    assert_eq!(card.driver.changes.get(), 0);
    let apart = [
        prefix("192.0.2.0", 24, 0),
        prefix("192.0.3.0", 24, 1),
        prefix("2001:db8::", 32, 0),
        prefix("2001:db9::", 32, 1),
    ];
    card.replace(&apart).unwrap();
    assert_eq!(card.hits().len(), 4);
}
