// SPDX-License-Identifier: Apache-2.0
//! Flow rules that a DPDK driver gives its card (rte_flow): all rules of a list, or none that was not there before.

use super::flow_spec::FlowSpec;
use super::rule::{SteerMatch, SteerRule};

/// A rule for a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) spec: FlowSpec,
    /// True if the card counts the frames.
    pub(crate) is_counted: bool,
}

/// A driver with flow rules. Errors are its reasons.
pub(crate) trait FlowDriver {
    /// A rule on the card.
    type Rule: std::fmt::Debug;

    /// Checks whether the driver would accept a rule.
    fn validate(&self, flow: &Flow) -> Result<(), String>;

    /// Gives the card a rule.
    fn create(&self, flow: &Flow) -> Result<Self::Rule, String>;

    /// Removes a rule from the card.
    fn destroy(&self, rule: &Self::Rule) -> Result<(), String>;

    /// Returns the frames that a rule with a counter has matched; none if the driver does not know them.
    fn hits(&self, rule: &Self::Rule) -> Option<u64>;
}

/// Place of a rule that is on the card and in no list, because the driver did not remove it.
const NO_PLACE: usize = usize::MAX;

/// A rule of a list. A steering rule about both versions of IP has two.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RequestedRule {
    /// Place in the list, from 0, or [`NO_PLACE`].
    place: usize,
    spec: FlowSpec,
}

#[derive(Debug)]
struct Installed<R> {
    wanted: RequestedRule,
    is_counted: bool,
    rule: R,
}

/// The rules of a port on its card.
#[derive(Debug)]
pub(crate) struct OffloadedRules<D: FlowDriver> {
    driver: D,
    /// True to refuse rules that the card does not count.
    requires_counters: bool,
    /// Length of the list.
    count: usize,
    installed: Vec<Installed<D::Rule>>,
}

/// Returns the number of a rule in messages, from 1.
const fn number_of(place: usize) -> usize {
    place.saturating_add(1)
}

/// Returns the flow rules of a list of steering rules.
fn wanted(rules: &[SteerRule]) -> Result<Vec<RequestedRule>, String> {
    let mut wanted = Vec::new();
    for (place, rule) in rules.iter().enumerate() {
        let Some(target) = rule.card else {
            return Err(format!(
                "rule {}: a card selects queues and virtual functions only (set queue or virtual-function)",
                number_of(place)
            ));
        };
        let mut earlier = rules.iter().take(place);
        let is_ambiguous = earlier
            .any(|other| other.card != rule.card && !are_disjoint(&other.frames, &rule.frames));
        if is_ambiguous {
            return Err(format!(
                "rule {}: a frame may match an earlier rule of the port too, and cards have no order of rules (make the conditions exclude each other)",
                number_of(place)
            ));
        }
        let specs = FlowSpec::of(&rule.frames, target)
            .map_err(|why| format!("rule {}: {why}", number_of(place)))?;
        wanted.extend(specs.into_iter().map(|spec| RequestedRule { place, spec }));
    }
    Ok(wanted)
}

impl SteerMatch {
    /// Returns true if no frame can match both.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        are_disjoint(self, other)
    }
}

/// Returns true if no frame can match both.
fn are_disjoint(one: &SteerMatch, other: &SteerMatch) -> bool {
    fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
        one.zip(other).is_some_and(|(one, other)| one != other)
    }
    let prefixes = [
        (one.source, other.source),
        (one.destination, other.destination),
    ];
    let ranges = [
        (one.source_ports, other.source_ports),
        (one.destination_ports, other.destination_ports),
    ];
    differ(one.source_mac, other.source_mac)
        || differ(one.destination_mac, other.destination_mac)
        || differ(one.vlan, other.vlan)
        || differ(one.ethertype, other.ethertype)
        || differ(one.protocol, other.protocol)
        || prefixes.into_iter().any(|(one, other)| {
            one.zip(other)
                .is_some_and(|(one, other)| are_apart_prefixes(one, other))
        })
        || ranges.into_iter().any(|(one, other)| {
            one.zip(other)
                .is_some_and(|(one, other)| one.1 < other.0 || other.1 < one.0)
        })
}

/// Returns true if no address has both prefixes.
fn are_apart_prefixes(
    (one, one_length): (std::net::IpAddr, u8),
    (other, other_length): (std::net::IpAddr, u8),
) -> bool {
    use std::net::IpAddr::{V4, V6};
    let (bits, width) = match (one, other) {
        (V4(one), V4(other)) => (u128::from(one.to_bits() ^ other.to_bits()), u32::BITS),
        (V6(one), V6(other)) => (one.to_bits() ^ other.to_bits(), u128::BITS),
        _ => return true,
    };
    let common = u32::from(one_length.min(other_length)).min(width);
    // The bits of the shorter prefix differ.
    bits.checked_shr(width.saturating_sub(common)).unwrap_or(0) != 0
}

impl<D: FlowDriver> OffloadedRules<D> {
    pub(crate) const fn new(driver: D) -> Self {
        Self {
            driver,
            requires_counters: false,
            count: 0,
            installed: Vec::new(),
        }
    }

    /// Returns no rules yet, of which the card counts each.
    pub(crate) const fn counted(driver: D) -> Self {
        Self {
            driver,
            requires_counters: true,
            count: 0,
            installed: Vec::new(),
        }
    }

    /// Replaces the rules. All new rules are validated before the first change. Rules that stay are not touched.
    ///
    /// # Errors
    /// A rule that cannot be a flow rule, or that the driver refuses: a text for the user. The former rules are on the card then; the text
    /// states it if the driver refuses them too.
    pub(crate) fn replace(&mut self, rules: &[SteerRule]) -> Result<(), String> {
        let mut fresh = wanted(rules)?;
        let mut kept = Vec::new();
        let mut gone = Vec::new();
        for mut one in std::mem::take(&mut self.installed) {
            let same = fresh.iter().position(|other| other.spec == one.wanted.spec);
            match same {
                Some(at) => {
                    let former = one.wanted.place;
                    one.wanted = fresh.remove(at);
                    kept.push((former, one));
                }
                None => gone.push(one),
            }
        }
        let changed = self.exchange(&mut gone, fresh);
        match changed {
            Ok(made) => {
                self.installed = kept.into_iter().map(|(_, one)| one).chain(made).collect();
                self.count = rules.len();
                Ok(())
            }
            Err(why) => {
                let kept = kept.into_iter().map(|(place, mut one)| {
                    one.wanted.place = place;
                    one
                });
                self.installed = kept.chain(gone).collect();
                Err(why)
            }
        }
    }

    /// Destroys the rules that are gone, and creates new ones. After an error, `gone` has those that are on the card again.
    fn exchange(
        &self,
        gone: &mut Vec<Installed<D::Rule>>,
        fresh: Vec<RequestedRule>,
    ) -> Result<Vec<Installed<D::Rule>>, String> {
        let fresh: Vec<(RequestedRule, bool)> = fresh
            .into_iter()
            .map(|one| self.validate(&one).map(|is_counted| (one, is_counted)))
            .collect::<Result<_, _>>()?;
        let mut destroyed = Vec::new();
        let mut made = Vec::new();
        let mut failed = None;
        while let Some(one) = gone.pop() {
            match self.driver.destroy(&one.rule) {
                Ok(()) => destroyed.push((one.wanted, one.is_counted)),
                Err(why) => {
                    let rule = match one.wanted.place {
                        NO_PLACE => "an earlier rule".to_owned(),
                        place => format!("former rule {}", number_of(place)),
                    };
                    failed = Some(format!("{rule}: cannot remove it: {why}"));
                    gone.push(one);
                    break;
                }
            }
        }
        if failed.is_none() {
            for (one, is_counted) in fresh {
                let place = number_of(one.place);
                match self.create(one, is_counted) {
                    Ok(one) => made.push(one),
                    Err(why) => {
                        failed = Some(format!("rule {place}: the card refuses it: {why}"));
                        break;
                    }
                }
            }
        }
        let Some(mut failed) = failed else {
            return Ok(made);
        };
        for mut one in made {
            if let Err(why) = self.driver.destroy(&one.rule) {
                failed.push_str(&format!(
                    "; a flow rule is not removed from the card: {why}"
                ));
                // The next change removes it.
                one.wanted.place = NO_PLACE;
                gone.push(one);
            }
        }
        for (one, is_counted) in destroyed {
            match self.create(one, is_counted) {
                Ok(one) => gone.push(one),
                Err(why) => {
                    failed.push_str(&format!("; a former flow rule of the card is lost: {why}"));
                }
            }
        }
        Err(failed)
    }

    /// Returns whether a rule has a counter: the driver may accept it only without a counter.
    fn validate(&self, one: &RequestedRule) -> Result<bool, String> {
        let flow = |is_counted| Flow {
            spec: one.spec.clone(),
            is_counted,
        };
        let refused = match self.driver.validate(&flow(true)) {
            Ok(()) => return Ok(true),
            Err(why) if self.requires_counters => Err(why),
            Err(_) => self.driver.validate(&flow(false)),
        };
        let place = number_of(one.place);
        refused
            .map(|()| false)
            .map_err(|why| format!("rule {place}: the card refuses it: {why}"))
    }

    fn create(
        &self,
        wanted: RequestedRule,
        is_counted: bool,
    ) -> Result<Installed<D::Rule>, String> {
        let rule = self.driver.create(&Flow {
            spec: wanted.spec.clone(),
            is_counted,
        })?;
        Ok(Installed {
            wanted,
            is_counted,
            rule,
        })
    }

    /// Returns the frames that the card has counted for each rule of the list; none for a rule without counter.
    pub(crate) fn hits(&self) -> Vec<Option<u64>> {
        let of = |place: usize| {
            let mut rules = self.installed.iter();
            rules.try_fold(0_u64, |sum, one| match one.wanted.place == place {
                false => Some(sum),
                true if !one.is_counted => None,
                true => Some(sum.saturating_add(self.driver.hits(&one.rule)?)),
            })
        };
        (0..self.count).map(of).collect()
    }

    /// Removes all rules, one by one. [`Self::kept`] has those that the driver does not remove.
    ///
    /// # Errors
    /// The driver's reason for the first rule that stays.
    pub(crate) fn withdraw(&mut self) -> Result<(), String> {
        self.count = 0;
        let mut result = Ok(());
        self.installed
            .retain(|one| match self.driver.destroy(&one.rule) {
                Ok(()) => false,
                Err(why) => {
                    if result.is_ok() {
                        result = Err(why);
                    }
                    true
                }
            });
        result
    }

    /// Returns the places, in the list before [`Self::withdraw`], of the rules that the driver did not remove, without order; none for a
    /// rule that was in no list.
    pub(crate) fn kept(&self) -> Vec<Option<usize>> {
        let others = self.installed.iter().map(|one| one.wanted.place);
        let others = others.filter(|place| *place >= self.count);
        others
            .map(|place| (place != NO_PLACE).then_some(place))
            .collect()
    }

    /// Removes all rules. Reports those that stay.
    pub(crate) fn clear(&mut self) {
        for one in std::mem::take(&mut self.installed) {
            if let Err(why) = self.driver.destroy(&one.rule) {
                tracing::warn!("cannot remove a flow rule from a card: {why}");
            }
        }
        self.count = 0;
    }

    /// Forgets all rules of a card that was removed.
    pub(crate) fn forget(&mut self) {
        self.installed.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests;
