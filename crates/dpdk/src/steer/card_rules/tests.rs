// SPDX-License-Identifier: Apache-2.0
//! A scripted table: after each change that fails it has its former rules, and at every moment the record has all own rules.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::steer::rule::{CardTarget, SteerMatch, SteerTarget};

#[derive(Debug, Default)]
struct Scripted {
    rules: RefCell<BTreeMap<u32, FlowSpec>>,
    size: u32,
    is_unordered: bool,
    /// Rules of another program.
    foreign: BTreeMap<u32, FlowSpec>,
    recorded: RefCell<Vec<Entry>>,
    /// Calls that succeed before one fails.
    successes: Cell<Option<usize>>,
    /// True if the driver makes another rule of each.
    alters: bool,
    /// True for the table on which a record is tried.
    is_trial: bool,
}

impl Scripted {
    fn new(size: u32, is_unordered: bool, foreign: BTreeMap<u32, FlowSpec>) -> Self {
        Self {
            rules: RefCell::new(foreign.clone()),
            size,
            is_unordered,
            foreign,
            ..Self::default()
        }
    }

    fn call(&self) -> io::Result<()> {
        // A record cannot distinguish a rule that the driver has altered from one of another program.
        if !self.is_trial && !self.alters {
            self.is_left_as_it_was_if_the_process_is_killed_now();
        }
        match self.successes.take() {
            Some(0) => Err(io::Error::other("scripted failure")),
            left => {
                self.successes.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }

    fn is_left_as_it_was_if_the_process_is_killed_now(&self) {
        let trial = Self {
            rules: self.rules.clone(),
            is_trial: true,
            ..Self::default()
        };
        remove_left(&trial, &self.recorded.borrow()).unwrap();
        assert_eq!(*trial.rules.borrow(), self.foreign);
    }

    /// Returns the own rules, by their locations.
    fn own(&self) -> Vec<FlowSpec> {
        let rules = self.rules.borrow();
        let own = rules
            .iter()
            .filter(|(at, _)| !self.foreign.contains_key(*at));
        own.map(|(_, spec)| FlowSpec::from_octets(spec.at(0)))
            .collect()
    }
}

impl FlowTable for Scripted {
    fn contents(&self) -> io::Result<Contents> {
        self.call()?;
        Ok(Contents {
            locations: self.rules.borrow().keys().copied().collect(),
            size: self.size,
            is_unordered: self.is_unordered,
        })
    }

    fn rule(&self, location: u32) -> io::Result<FlowSpec> {
        self.call()?;
        let rules = self.rules.borrow();
        let rule = rules.get(&location).cloned();
        rule.ok_or_else(|| io::Error::other("no rule there"))
    }

    fn insert(&self, spec: &FlowSpec, location: u32) -> io::Result<u32> {
        self.call()?;
        let mut rules = self.rules.borrow_mut();
        assert_eq!(location == ANY_LOCATION, self.is_unordered);
        let location = match self.is_unordered {
            // A driver may choose any, such as the last unused one.
            true => (0..self.size).rev().find(|at| !rules.contains_key(at)),
            false => Some(location),
        };
        let location = location.ok_or_else(|| io::Error::other("no space"))?;
        assert!(location < self.size);
        let made = match self.alters {
            true => spec_of(99, CardTarget::Queue(0)),
            false => spec.clone(),
        };
        let former = rules.insert(location, FlowSpec::from_octets(made.at(location)));
        assert_eq!(former, None);
        Ok(location)
    }

    fn remove(&self, location: u32) -> io::Result<()> {
        self.call()?;
        assert!(self.rules.borrow_mut().remove(&location).is_some());
        Ok(())
    }

    fn record(&self, rules: &[Entry]) -> io::Result<()> {
        self.call()?;
        self.recorded.replace(rules.to_vec());
        Ok(())
    }
}

fn spec_of(vlan: u16, target: CardTarget) -> FlowSpec {
    let frames = SteerMatch {
        vlan: Some(vlan),
        ..SteerMatch::default()
    };
    FlowSpec::of(&frames, target).unwrap().remove(0)
}

fn listed(vlans: &[u16]) -> Vec<RequestedRule> {
    let rule = |vlan: &u16| SteerRule {
        frames: SteerMatch {
            vlan: Some(*vlan),
            ..SteerMatch::default()
        },
        target: SteerTarget::Switch,
        card: Some(CardTarget::Queue(1)),
    };
    let rules: Vec<SteerRule> = vlans.iter().map(rule).collect();
    wanted(&rules).unwrap()
}

fn specs(wanted: &[RequestedRule]) -> Vec<FlowSpec> {
    wanted.iter().map(|one| one.spec.clone()).collect()
}

proptest! {
    #[test]
    fn a_change_is_made_as_a_whole_or_not_at_all(
        lists in vec((vec(0_u16..6, 0..6), option::of(0_usize..40)), 1..8),
        // VLAN 5 is one that lists have too.
        foreign in btree_map(0_u32..10, 5_u16..8, 0..4),
        size in 4_u32..12,
        is_unordered in any::<bool>(),
    ) {
        let foreign: BTreeMap<u32, FlowSpec> = foreign
            .into_iter()
            .filter(|(at, _)| *at < size)
            .map(|(at, vlan)| {
                let spec = spec_of(vlan, CardTarget::Queue(1));
                (at, FlowSpec::from_octets(spec.at(at)))
            })
            .collect();
        let space = size as usize - foreign.len();
        let mut card = CardRules::new(Scripted::new(size, is_unordered, foreign));
        for (vlans, successes) in &lists {
            let wanted = listed(vlans);
            let before = card.table.own();
            card.table.successes.set(*successes);
            let replaced = card.replace(&wanted);
            let has_failed = successes.is_some() && card.table.successes.take().is_none();
            let sorted = |mut specs: Vec<FlowSpec>| {
                if is_unordered {
                    specs.sort_by_key(|spec| spec.to_string());
                }
                specs
            };
            match replaced {
                Ok(()) => {
                    prop_assert!(!has_failed);
                    prop_assert_eq!(sorted(card.table.own()), sorted(specs(&wanted)));
                    prop_assert_eq!(card.wanted(), wanted);
                }
                Err(why) => {
                    if why.contains("could not be restored") {
                        // The list does not fit, and then a call failed.
                        prop_assert!(has_failed, "{}", why);
                        continue;
                    }
                    let has_twin = card
                        .table
                        .foreign
                        .values()
                        .any(|spec| wanted.iter().any(|one| one.spec.is_same(spec)));
                    prop_assert!(has_failed || has_twin || wanted.len() > space);
                    prop_assert_eq!(sorted(card.table.own()), sorted(before));
                }
            }
            // Nothing that is gone stays in the record once the list was made.
            card.table.is_left_as_it_was_if_the_process_is_killed_now();
        }
        card.clear();
        prop_assert_eq!(card.table.own(), Vec::new());
        prop_assert_eq!(card.table.rules.borrow().clone(), card.table.foreign.clone());
        prop_assert_eq!(card.table.recorded.borrow().len(), 0);
    }
}

#[test]
fn rules_at_the_begin_that_stay_are_not_touched() {
    let mut card = CardRules::new(Scripted::new(8, false, BTreeMap::new()));
    card.replace(&listed(&[1, 2, 3])).unwrap();
    let locations = |card: &CardRules<Scripted>| -> Vec<u32> {
        card.installed.iter().map(|one| one.1).collect()
    };
    assert_eq!(locations(&card), [0, 1, 2]);
    card.replace(&listed(&[1, 4, 3, 2])).unwrap();
    assert_eq!(locations(&card), [0, 1, 2, 3]);
    // Nothing changes, so no call can fail.
    card.table.successes.set(Some(0));
    card.replace(&listed(&[1, 4, 3, 2])).unwrap();
    card.table.successes.set(None);
}

#[test]
fn a_refusal_names_the_rule_and_the_reason() {
    let foreign = spec_of(3, CardTarget::Queue(1));
    let foreign = BTreeMap::from([(6, FlowSpec::from_octets(foreign.at(6)))]);
    let mut card = CardRules::new(Scripted::new(2, false, foreign.clone()));
    for (vlans, reason) in [
        (
            &[1, 3][..],
            "rule 2: another program has this flow rule on the card, at location 6",
        ),
        (
            &[1, 2, 4][..],
            "rule 3: the table of the card, of 2 flow rules, is full",
        ),
    ] {
        let why = card.replace(&listed(vlans)).unwrap_err();
        assert!(why.starts_with(reason), "{why}");
        assert_eq!(*card.table.rules.borrow(), foreign);
    }
    card.table.alters = true;
    let why = card.replace(&listed(&[1])).unwrap_err();
    assert_eq!(why, "rule 1: the card installed a different flow rule");
    assert_eq!(*card.table.rules.borrow(), foreign);
    let impossible = SteerRule {
        frames: SteerMatch::default(),
        target: SteerTarget::Kernel,
        card: Some(CardTarget::Function(1)),
    };
    let plain = SteerRule {
        card: None,
        ..impossible.clone()
    };
    let why = wanted(&[plain, impossible]).unwrap_err();
    assert_eq!(why, "rule 2: a flow rule of a card requires a condition");
}

#[test]
fn rules_that_a_card_has_lost_come_back_and_those_of_others_stay() {
    let mut card = CardRules::new(Scripted::new(8, false, BTreeMap::new()));
    card.replace(&listed(&[1, 2])).unwrap();
    assert_eq!(card.renew(), Ok(0));
    card.table.rules.borrow_mut().clear();
    assert_eq!(card.renew(), Ok(2));
    assert_eq!(card.table.own(), specs(&listed(&[1, 2])));
    // Another program has replaced a rule, which is not removed then.
    let other = FlowSpec::from_octets(spec_of(9, CardTarget::Queue(2)).at(1));
    card.table.rules.borrow_mut().insert(1, other.clone());
    card.table.foreign.insert(1, other.clone());
    card.clear();
    assert_eq!(*card.table.rules.borrow(), BTreeMap::from([(1, other)]));
}
