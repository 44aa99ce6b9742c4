// SPDX-License-Identifier: Apache-2.0
//! Sets as forwarding threads use them. All sets that rules compare with one field are compiled into one classifier of their elements. It
//! finds the most specific element that contains the value of a packet, and with it the marks of all sets that contain the value. Rules
//! compare the marks: one bit for each pair of a field and a set. So a set may change without the rules being compiled again, and the time
//! for a packet depends neither on the number of sets nor on that of their elements.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
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
            classifier: KeptClassifier::after(former.map(|one| &one.classifier), rules),
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
    sets: &[Vec<Element>],
    former: &[Arc<FieldSets>],
) -> Vec<Arc<FieldSets>> {
    let of_field = |field: SetField| {
        let mut elements = Vec::new();
        for (place, (used_by, set)) in uses.iter().enumerate() {
            let list = sets.get(*set as usize).filter(|_| *used_by == field);
            let list = list.into_iter().flatten();
            elements.extend(list.map(|element| (*element, bit(place))));
        }
        if elements.is_empty() {
            return None;
        }
        let former = former.iter().find(|one| one.field == field);
        let same = former.filter(|one| one.elements == elements);
        let sets = same.map_or_else(
            || Arc::new(FieldSets::new(field, elements, former.map(|one| &**one))),
            Arc::clone,
        );
        Some(sets)
    };
    SetField::ALL.into_iter().filter_map(of_field).collect()
}

/// Returns the bit of a pair in [`Field::METADATA`].
pub(super) const fn bit(place: usize) -> u32 {
    match place < SET_USES_MAX {
        true => 1 << place,
        // No packet has it.
        false => 1 << 31,
    }
}

/// Compiles addresses: long prefixes first, each with the sets of all prefixes that contain it.
fn addresses(elements: &[(Element, u32)], rule: impl Fn(Rule, IpNet) -> Rule) -> Vec<(Rule, u32)> {
    let mut compiled = Vec::new();
    for width in [32, 128] {
        let mut marks: HashMap<(u32, u128), u32> = HashMap::new();
        for (element, mark) in elements {
            let Some((first, last, _)) = element.addresses().filter(|one| one.2 == width) else {
                continue;
            };
            for (bits, length) in prefixes(first, last, width) {
                *marks.entry((length, bits)).or_default() |= mark;
            }
        }
        let lengths: BTreeSet<u32> = marks.keys().map(|(length, _)| *length).collect();
        let all_of = |length: u32, bits: u128| {
            let shorter = lengths.range(..=length);
            let found = shorter.filter_map(|one| marks.get(&(*one, bits & !low_bits(width - one))));
            found.fold(0, |all, mark| all | mark)
        };
        let mut list: Vec<(u32, u128)> = marks.keys().copied().collect();
        list.sort_unstable_by_key(|(length, bits)| (Reverse(*length), *bits));
        compiled.extend(list.into_iter().filter_map(|(length, bits)| {
            let prefix = prefix_of(bits, length, width)?;
            Some((rule(Rule::ANY, prefix), all_of(length, bits)))
        }));
    }
    compiled
}

/// Compiles ports: ranges without overlap.
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
    let mut marks: HashMap<u64, u32> = HashMap::new();
    for (element, mark) in elements {
        if let Element::Mac(mac) = element {
            *marks.entry(mac.to_u64()).or_default() |= mark;
        }
    }
    let mut list: Vec<(u64, u32)> = marks.into_iter().collect();
    list.sort_unstable();
    list.into_iter()
        .map(|(mac, marks)| (rule(mac), marks))
        .collect()
}
