// SPDX-License-Identifier: Apache-2.0
//! Sets as forwarding threads use them. All sets that rules compare with one field are compiled into one classifier of their elements. It
//! finds the most specific element that contains the value of a packet, and with it the marks of all sets that contain the value. Rules
//! compare the marks: one bit for each pair of a field and a set. So a set may change without the rules being compiled again, and the time
//! for a packet depends neither on the number of sets nor on that of their elements.

use std::cmp::Reverse;
use std::sync::Arc;

use ipnet::IpNet;
use quietwire_base::BURST_MAX;

use super::element::{Element, SetField, low_bits, prefix_of, prefixes};
use super::kept::KeptClassifier;
use crate::classifier::{Field, Key, NO_RULE, Rule};

/// Maximum number of pairs of a field and a set that all rules together refer to. The next bits of [`Field::METADATA`] are the
/// states of connections.
pub const SET_USES_MAX: usize = 24;
/// Maximum number of compiled elements of all sets together. A range of addresses is compiled into prefixes.
pub const SET_ELEMENTS_MAX: usize = 1 << 18;

/// All bits of a MAC address.
const MAC: u64 = 0xffff_ffff_ffff;

/// The sets that rules compare with one field.
#[derive(Debug)]
pub(super) struct FieldSets {
    field: SetField,
    /// Elements of all sets, each with the bit of its set.
    elements: Vec<(Element, u32)>,
    /// Finds the most specific element.
    classifier: KeptClassifier,
    /// Bits of the sets that contain the element.
    marks: Vec<u32>,
}

impl FieldSets {
    /// Compiles the elements of sets, each with the bit of its set. If there are many and few differ from those of `former`, it compiles
    /// these.
    fn new(field: SetField, all: Vec<(Element, u32)>, former: Option<&Self>) -> Self {
        let elements = &all[..];
        let compiled = match field {
            SetField::Source => addresses(elements, Rule::with_source),
            SetField::Destination => addresses(elements, Rule::with_destination),
            SetField::SourcePort => {
                ports(elements, |ports| Rule::ANY.with_ports(ports, 0..=u16::MAX))
            }
            SetField::DestinationPort => {
                ports(elements, |ports| Rule::ANY.with_ports(0..=u16::MAX, ports))
            }
            SetField::SourceMac => macs(elements, |mac| Rule::ANY.with_macs((mac, MAC), (0, 0))),
            SetField::DestinationMac => {
                macs(elements, |mac| Rule::ANY.with_macs((0, 0), (mac, MAC)))
            }
        };
        let (rules, marks): (Vec<Rule>, Vec<u32>) = compiled.into_iter().unzip();
        Self {
            field,
            classifier: KeptClassifier::after(former.map(|one| &one.classifier), &Arc::new(rules)),
            marks,
            elements: all,
        }
    }

    /// Marks the packets of a burst with the sets that contain their values.
    #[inline(never)]
    pub(super) fn mark(&self, keys: &mut [Key]) {
        let mut found = [NO_RULE; BURST_MAX];
        self.classifier.lookup(keys, &mut found);
        for (key, element) in keys.iter_mut().zip(found) {
            if let Some(marks) = self.marks.get(element as usize) {
                key.set(Field::METADATA, *marks);
            }
        }
    }
}

/// Compiles sets. The bit of a pair of field and set is its place among the `uses`; sets are numbered by their place in `sets`. The sets of a
/// field that are as in `former` are not compiled again.
pub(super) fn compile(
    uses: &[(SetField, u32)],
    sets: &[&[Element]],
    former: &[Arc<FieldSets>],
) -> Vec<Arc<FieldSets>> {
    let of_field = |field: SetField| {
        let elements = || {
            let used = uses.iter().enumerate();
            let used = used.filter(move |(_, (used_by, _))| *used_by == field);
            used.flat_map(move |(place, (_, set))| {
                let list = sets.get(*set as usize).copied().unwrap_or_default();
                list.iter().map(move |element| (*element, bit(place)))
            })
        };
        let former = former.iter().find(|one| one.field == field);
        if let Some(same) = former.filter(|one| one.elements.iter().copied().eq(elements())) {
            return Some(Arc::clone(same));
        }
        let all: Vec<(Element, u32)> = elements().collect();
        let former = former.map(|one| &**one);
        (!all.is_empty()).then(|| Arc::new(FieldSets::new(field, all, former)))
    };
    SetField::ALL.into_iter().filter_map(of_field).collect()
}

/// Returns the bit of a pair in [`Field::METADATA`].
#[allow(clippy::arithmetic_side_effects, reason = "the place is below 32")]
pub(super) const fn bit(place: usize) -> u32 {
    match place < SET_USES_MAX {
        true => 1 << place,
        // No packet has it.
        false => 1 << 31,
    }
}

/// A prefix of addresses and the sets that contain it.
#[derive(Clone, Copy, Debug)]
struct Marked {
    bits: u128,
    length: u32,
    marks: u32,
}

/// Compiles addresses: long prefixes first, each with the sets of all prefixes that contain it.
fn addresses(elements: &[(Element, u32)], rule: impl Fn(Rule, IpNet) -> Rule) -> Vec<(Rule, u32)> {
    let mut compiled = Vec::with_capacity(elements.len());
    for width in [32, 128] {
        let mut list: Vec<Marked> = Vec::new();
        for (element, mark) in elements {
            let Some((first, last, _)) = element.addresses().filter(|one| one.2 == width) else {
                continue;
            };
            list.extend(prefixes(first, last, width).map(|(bits, length)| Marked {
                bits,
                length,
                marks: *mark,
            }));
        }
        // A prefix is in front of those that it contains.
        list.sort_unstable_by_key(|one| (one.bits, one.length));
        list.dedup_by(|next, kept| {
            let is_same = (next.bits, next.length) == (kept.bits, kept.length);
            if is_same {
                kept.marks |= next.marks;
            }
            is_same
        });
        mark_contained(&mut list, width);
        // The order of those of one length stays.
        list.sort_by_key(|one| Reverse(one.length));
        compiled.extend(list.into_iter().filter_map(|one| {
            let prefix = prefix_of(one.bits, one.length, width)?;
            Some((rule(Rule::ANY, prefix), one.marks))
        }));
    }
    compiled
}

/// Adds to each prefix the marks of those that contain it. The prefixes are sorted by their first address, the shortest first.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "lengths are at most the width"
)]
fn mark_contained(list: &mut [Marked], width: u32) {
    // Last address and marks of the prefixes that contain the current one.
    let mut containing: Vec<(u128, u32)> = Vec::new();
    for one in list {
        while containing.last().is_some_and(|(last, _)| *last < one.bits) {
            containing.pop();
        }
        if let Some((_, marks)) = containing.last() {
            one.marks |= marks;
        }
        containing.push((one.bits | low_bits(width - one.length), one.marks));
    }
}

/// Compiles ports: ranges without overlap.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "ports have 16 bits, and there are few elements"
)]
fn ports(
    elements: &[(Element, u32)],
    rule: impl Fn(std::ops::RangeInclusive<u16>) -> Rule,
) -> Vec<(Rule, u32)> {
    let mut events = Vec::new();
    for (element, mark) in elements {
        if let Element::Ports(first, last) = element {
            events.push((u32::from(*first), true, *mark));
            events.push((u32::from(*last) + 1, false, *mark));
        }
    }
    events.sort_unstable();
    // Number of elements of each set that contain the port.
    let mut counts = [0u32; 32];
    let (mut from, mut marks) = (0, 0);
    let mut compiled = Vec::new();
    for (at, begins, mark) in events {
        if at > from && marks != 0 {
            let port = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
            compiled.push((rule(port(from)..=port(at - 1)), marks));
        }
        from = at;
        if let Some(count) = counts.get_mut(mark.trailing_zeros() as usize) {
            *count = match begins {
                true => *count + 1,
                false => count.saturating_sub(1),
            };
            marks = match *count {
                0 => marks & !mark,
                _ => marks | mark,
            };
        }
    }
    compiled
}

fn macs(elements: &[(Element, u32)], rule: impl Fn(u64) -> Rule) -> Vec<(Rule, u32)> {
    let mac = |(element, marks): &(Element, u32)| match element {
        Element::Mac(mac) => Some((mac.to_u64(), *marks)),
        _ => None,
    };
    let mut list: Vec<(u64, u32)> = elements.iter().filter_map(mac).collect();
    list.sort_unstable();
    list.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 |= next.1;
        }
        is_same
    });
    list.into_iter()
        .map(|(mac, marks)| (rule(mac), marks))
        .collect()
}
