// SPDX-License-Identifier: Apache-2.0
//! The flow rules of a port in the table of its card. All rules of a list are in the table, or none that was not there before.

use std::io;

use super::flow_spec::FlowSpec;
use super::rule::SteerRule;

/// Location that the driver chooses (linux/ethtool.h, RX_CLS_LOC_ANY).
pub(crate) const ANY_LOCATION: u32 = 0xffff_ffff;

/// Contents of a card's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Locations with a rule.
    pub(crate) locations: Vec<u32>,
    /// Number of locations.
    pub(crate) size: u32,
    /// True if only the driver chooses locations.
    pub(crate) is_unordered: bool,
}

/// A rule in the table, or one that is about to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) spec: FlowSpec,
    /// `None` until the driver has chosen it.
    pub(crate) location: Option<u32>,
}

/// The table of flow rules of a card. Other programs have rules there too.
pub(crate) trait FlowTable {
    /// Returns the contents.
    fn contents(&self) -> io::Result<Contents>;

    /// Returns the rule at a location.
    fn rule(&self, location: u32) -> io::Result<FlowSpec>;

    /// Adds a rule at an unused location, or at [`ANY_LOCATION`]. Returns its location.
    fn insert(&self, spec: &FlowSpec, location: u32) -> io::Result<u32>;

    /// Removes the rule at a location.
    fn remove(&self, location: u32) -> io::Result<()>;

    /// Records the rules of this process for the case that it is killed. Without rules, there is no record.
    fn record(&self, rules: &[Entry]) -> io::Result<()>;
}

/// A rule of a list, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedRule {
    /// Place in the list of steering rules of the port, from 1.
    place: usize,
    spec: FlowSpec,
}

/// Returns the flow rules of steering rules, in their order.
///
/// # Errors
/// A rule with conditions that a flow rule cannot have: a text for the user.
pub(crate) fn wanted(rules: &[SteerRule]) -> Result<Vec<RequestedRule>, String> {
    let mut wanted = Vec::new();
    for (place, rule) in (1..).zip(rules) {
        let Some(target) = rule.card else {
            continue;
        };
        let specs =
            FlowSpec::of(&rule.frames, target).map_err(|why| format!("rule {place}: {why}"))?;
        wanted.extend(specs.into_iter().map(|spec| RequestedRule { place, spec }));
    }
    Ok(wanted)
}

/// The rules of a port. They are removed with this value.
#[derive(Debug)]
pub(crate) struct CardRules<T: FlowTable> {
    table: T,
    installed: Vec<(RequestedRule, u32)>,
}

impl<T: FlowTable> CardRules<T> {
    pub(crate) const fn new(table: T) -> Self {
        Self {
            table,
            installed: Vec::new(),
        }
    }

    /// Returns the rules that are in the table.
    pub(crate) fn wanted(&self) -> Vec<RequestedRule> {
        self.installed.iter().map(|(one, _)| one.clone()).collect()
    }

    /// Replaces the rules. Those at the begin that stay are not touched.
    ///
    /// # Errors
    /// A rule that the card refuses, or the driver's error, as a text for the user. The former rules are in the table then; the text says
    /// so if the driver refuses them too.
    pub(crate) fn replace(&mut self, wanted: &[RequestedRule]) -> Result<(), String> {
        let kept = self.unchanged(wanted);
        if kept == wanted.len() && kept == self.installed.len() {
            return Ok(());
        }
        self.refuse_foreign(wanted.get(kept..).unwrap_or_default())?;
        let former = self.wanted();
        let failed = match self.exchange(kept, wanted) {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        match self.exchange(self.unchanged(&former), &former) {
            Ok(()) => Err(failed),
            Err(again) => Err(format!(
                "{failed}; the former flow rules of the card could not be restored: {again}"
            )),
        }
    }

    /// Returns how many rules at the begin are those of a list.
    fn unchanged(&self, wanted: &[RequestedRule]) -> usize {
        let pairs = self.installed.iter().zip(wanted);
        let same = pairs.take_while(|((one, _), other)| one.spec == other.spec);
        same.count()
    }

    /// Removes the rules behind the first ones, and adds those of a list instead.
    fn exchange(&mut self, kept: usize, wanted: &[RequestedRule]) -> Result<(), String> {
        self.record(wanted.get(kept..).unwrap_or_default())?;
        while self.installed.len() > kept {
            if let Some((one, location)) = self.installed.last() {
                remove(&self.table, &one.spec, *location)
                    .map_err(|error| format!("rule {}: cannot remove it: {error}", one.place))?;
            }
            self.installed.pop();
        }
        for one in wanted.get(kept..).unwrap_or_default() {
            let location = self
                .insert(&one.spec)
                .map_err(|why| format!("rule {}: {why}", one.place))?;
            self.installed.push((one.clone(), location));
        }
        self.record(&[])
    }

    /// Refuses rules that another program has in the table: a record could not distinguish the two.
    fn refuse_foreign(&self, coming: &[RequestedRule]) -> Result<(), String> {
        if coming.is_empty() {
            return Ok(());
        }
        let is_foreign = |location: &&u32| !self.installed.iter().any(|(_, own)| own == *location);
        let contents = self.table.contents().map_err(unreadable)?;
        for location in contents.locations.iter().filter(is_foreign) {
            let rule = self.table.rule(*location).map_err(unreadable)?;
            if let Some(same) = coming.iter().find(|one| one.spec.is_same(&rule)) {
                return Err(format!(
                    "rule {}: another program has this flow rule on the card, at location {location} (remove one of them)",
                    same.place
                ));
            }
        }
        Ok(())
    }

    /// Records the rules in the table, and those that are about to be there.
    fn record(&self, coming: &[RequestedRule]) -> Result<(), String> {
        let entry = |one: &RequestedRule, location| Entry {
            spec: one.spec.clone(),
            location,
        };
        let there = self.installed.iter();
        let there = there.map(|(one, location)| entry(one, Some(*location)));
        let coming = coming.iter().map(|one| entry(one, None));
        let all: Vec<Entry> = there.chain(coming).collect();
        self.table
            .record(&all)
            .map_err(|error| format!("cannot record the flow rules: {error}"))
    }

    /// Adds a rule, and reads it back.
    fn insert(&self, spec: &FlowSpec) -> Result<u32, String> {
        let place = self.place(&self.table.contents().map_err(unreadable)?)?;
        let location = self
            .table
            .insert(spec, place)
            .map_err(|error| format!("the card refuses it: {error}"))?;
        let made = self.table.rule(location);
        let why = match made {
            Ok(made) if made.is_same(spec) => return Ok(location),
            Ok(_) => "the card installed a different flow rule".to_owned(),
            Err(error) => unreadable(error),
        };
        match self.table.remove(location) {
            Ok(()) => Err(why),
            Err(error) => Err(format!(
                "{why}; the flow rule at location {location} is not removed: {error}"
            )),
        }
    }

    /// Returns the location of the next rule. A lower one has precedence, so it is behind the last rule.
    fn place(&self, contents: &Contents) -> Result<u32, String> {
        if contents.is_unordered {
            return Ok(ANY_LOCATION);
        }
        let begin = self
            .installed
            .last()
            .map_or(0, |(_, last)| last.saturating_add(1));
        (begin..contents.size)
            .find(|location| !contents.locations.contains(location))
            .ok_or_else(|| {
                format!(
                    "the table of the card, of {} flow rules, is full",
                    contents.size
                )
            })
    }

    /// Adds the rules again that the driver has lost, such as by a reset of the card. Returns their number.
    ///
    /// # Errors
    /// As [`Self::replace`].
    pub(crate) fn renew(&mut self) -> Result<usize, String> {
        let contents = self.table.contents().map_err(unreadable)?;
        let is_there = |(one, location): &(RequestedRule, u32)| {
            contents.locations.contains(location)
                && self
                    .table
                    .rule(*location)
                    .is_ok_and(|rule| rule.is_same(&one.spec))
        };
        let lost = self.installed.iter().filter(|one| !is_there(one)).count();
        if lost == 0 {
            return Ok(0);
        }
        let wanted = self.wanted();
        self.refuse_foreign(&wanted)?;
        self.exchange(0, &wanted)?;
        Ok(lost)
    }

    /// Removes all rules. Reports those that stay.
    pub(crate) fn clear(&mut self) {
        if let Err(why) = self.exchange(0, &[]) {
            tracing::warn!("cannot remove flow rules from a card: {why}");
        }
    }
}

impl<T: FlowTable> Drop for CardRules<T> {
    fn drop(&mut self) {
        self.clear();
    }
}

fn unreadable(error: io::Error) -> String {
    format!("cannot read the flow rules of the card: {error}")
}

/// Removes a rule, unless it is not there any more, or another program has replaced it.
fn remove(table: &impl FlowTable, spec: &FlowSpec, location: u32) -> io::Result<()> {
    if !table.contents()?.locations.contains(&location) || !table.rule(location)?.is_same(spec) {
        return Ok(());
    }
    table.remove(location)
}

/// Removes the rules of a process that was killed. Returns their number.
///
/// # Errors
/// The driver's error.
pub(crate) fn remove_left(table: &impl FlowTable, rules: &[Entry]) -> io::Result<usize> {
    let locations = table.contents()?.locations;
    let left: Vec<_> = rules
        .iter()
        .map(|entry| (entry.location, entry.spec.essence()))
        .collect();
    let mut removed = 0_usize;
    for location in locations {
        let essence = table.rule(location)?.essence();
        let is_left = left
            .iter()
            .any(|(own, other)| own.is_none_or(|own| own == location) && *other == essence);
        if is_left {
            table.remove(location)?;
            removed = removed.saturating_add(1);
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests;
