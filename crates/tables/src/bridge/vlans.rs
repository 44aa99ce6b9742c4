// SPDX-License-Identifier: Apache-2.0
//! Sets of VLANs, tag types, and tag actions on egress.

use std::fmt;
use std::str::FromStr;

use quietwire_packet::{EtherType, VlanId, VlanTag};

const VLAN_ID_MAX: u16 = 4094;

/// A set of VLANs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VlanSet([u64; 64]);

impl VlanSet {
    /// The empty set.
    pub const NONE: Self = Self([0; 64]);

    /// Returns all VLANs, 1 to 4094.
    #[must_use]
    pub fn all() -> Self {
        (1..=VLAN_ID_MAX)
            .filter_map(|number| VlanId::new(number).ok())
            .collect()
    }

    /// Adds a VLAN.
    pub fn insert(&mut self, vlan: VlanId) {
        let number = usize::from(vlan.get());
        if let Some(word) = self.0.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    /// Returns true if the VLAN with this number is in the set; never for 0, 4095 and above.
    #[inline(always)]
    #[must_use]
    pub fn contains(&self, number: u16) -> bool {
        self.0
            .get(usize::from(number / 64))
            .is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    /// Returns the VLANs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        (1..=VLAN_ID_MAX)
            .filter(|number| self.contains(*number))
            .filter_map(|number| VlanId::new(number).ok())
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

impl Default for VlanSet {
    fn default() -> Self {
        Self::NONE
    }
}

impl FromIterator<VlanId> for VlanSet {
    fn from_iter<I: IntoIterator<Item = VlanId>>(vlans: I) -> Self {
        let mut set = Self::NONE;
        for vlan in vlans {
            set.insert(vlan);
        }
        set
    }
}

impl fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VlanSet({self})")
    }
}

impl fmt::Display for VlanSet {
    /// Formats numbers and ranges as in `1,5,10-20`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut numbers = self.iter().map(VlanId::get).peekable();
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&last.saturating_add(1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

/// Text that is not a set of VLANs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a set of VLANs (use numbers and ranges from 1 to 4094, like 1,5,10-20, or 'all')"
)]
pub struct VlanSetError(pub String);

impl FromStr for VlanSet {
    type Err = VlanSetError;

    /// Parses `1,5,10-20` or `all`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Self::all());
        }
        let bad = || VlanSetError(text.to_owned());
        let number = |text: &str| -> Result<u16, VlanSetError> {
            let number: u16 = text.trim().parse().map_err(|_| bad())?;
            VlanId::new(number).map(VlanId::get).map_err(|_| bad())
        };
        let mut set = Self::NONE;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(bad());
            }
            (first..=last)
                .filter_map(|number| VlanId::new(number).ok())
                .for_each(|vlan| set.insert(vlan));
        }
        Ok(set)
    }
}

/// EtherType of the tags that a port recognises (IEEE 802.1Q, section 9.5, table 9-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TagType {
    /// 0x8100: customer tags.
    #[default]
    Customer,
    /// 0x88a8: service tags.
    Service,
}

impl TagType {
    /// Returns the EtherType.
    #[inline(always)]
    #[must_use]
    pub const fn ethertype(self) -> EtherType {
        match self {
            Self::Customer => EtherType::VLAN,
            Self::Service => EtherType::SERVICE_VLAN,
        }
    }
}

/// Egress tagging of a VLAN at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Egress {
    /// Unchanged: the bridge is not VLAN-aware.
    AsIs,
    /// Untagged.
    Untagged,
    /// Tagged with this type.
    Tagged(TagType),
}

/// Action on a frame's outermost tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagAction {
    /// Nothing.
    None,
    /// Remove the tag.
    Pop,
    /// Insert this tag before all others.
    Push(VlanTag),
    /// Overwrite the tag with this one.
    Replace(VlanTag),
}

/// Tagging of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// In a bridge without VLANs.
    AsIs,
    /// Without a tag that the port recognises.
    Untagged,
    /// With a VLAN tag of this type.
    Tagged(EtherType),
    /// With a priority tag (VLAN 0).
    PriorityTagged,
}

/// VLAN of a frame and its tagging on arrival, from which the tag action at each output follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    pub(super) arrival: Arrival,
    /// Priority and VLAN number, as in a tag.
    pub(super) tci: u16,
}

impl Membership {
    pub(super) const NONE: Self = Self {
        arrival: Arrival::AsIs,
        tci: 0,
    };

    /// Returns the number of the VLAN; 0 in a bridge without VLANs.
    #[inline(always)]
    #[must_use]
    pub const fn vlan(self) -> u16 {
        self.tci & 0xfff
    }

    /// Returns the tag action for an output. A tag keeps its priority; an untagged frame gets priority 0 (IEEE 802.1Q, section 6.9.2).
    #[inline(always)]
    #[must_use]
    pub fn action(self, egress: Egress) -> TagAction {
        match (self.arrival, egress) {
            (Arrival::AsIs, _) | (_, Egress::AsIs) | (Arrival::Untagged, Egress::Untagged) => {
                TagAction::None
            }
            (Arrival::Untagged, Egress::Tagged(tag)) => TagAction::Push(self.tag(tag)),
            (Arrival::Tagged(_) | Arrival::PriorityTagged, Egress::Untagged) => TagAction::Pop,
            (Arrival::Tagged(tpid), Egress::Tagged(tag)) if tpid == tag.ethertype() => {
                TagAction::None
            }
            (Arrival::Tagged(_) | Arrival::PriorityTagged, Egress::Tagged(tag)) => {
                TagAction::Replace(self.tag(tag))
            }
        }
    }

    const fn tag(self, tag: TagType) -> VlanTag {
        VlanTag {
            tpid: tag.ethertype(),
            tci: self.tci,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_and_set_and_back(numbers in prop::collection::btree_set(1..=4094u16, 0..40)) {
            let set: VlanSet = numbers.iter().filter_map(|n| VlanId::new(*n).ok()).collect();
            prop_assert_eq!(set.iter().map(VlanId::get).collect::<Vec<_>>(), numbers.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.is_empty(), numbers.is_empty());
            if !numbers.is_empty() {
                prop_assert_eq!(set.to_string().parse::<VlanSet>(), Ok(set));
            }
        }
    }

    #[test]
    fn texts() {
        let set: VlanSet = "1, 5,10-12".parse().unwrap();
        assert_eq!(set.to_string(), "1,5,10-12");
        assert!(set.contains(11) && !set.contains(13) && !set.contains(0) && !set.contains(4095));
        let all: VlanSet = "all".parse().unwrap();
        assert_eq!(all.to_string(), "1-4094");
        for bad in ["", "0", "4095", "5-1", "1,,2", "a", "1-", "70000"] {
            assert_eq!(bad.parse::<VlanSet>(), Err(VlanSetError(bad.to_owned())));
        }
    }
}
