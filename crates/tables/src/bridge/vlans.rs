// SPDX-License-Identifier: Apache-2.0
//! Sets of VLANs, types of tags, and what has to be done to a frame's tag on the way out.

use std::fmt;
use std::str::FromStr;

use quietwire_packet::{EtherType, VlanId, VlanTag};

const VLAN_ID_MAX: u16 = 4094;

/// A set of VLANs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VlanSet([u64; 64]);

impl VlanSet {
    /// No VLAN.
    pub const NONE: Self = Self([0; 64]);

    /// All VLANs, 1 to 4094.
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

    /// True when the VLAN with this number is in the set; never for 0, 4095 and above.
    #[inline(always)]
    #[must_use]
    pub fn contains(&self, number: u16) -> bool {
        self.0
            .get(usize::from(number / 64))
            .is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    /// The VLANs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        (1..=VLAN_ID_MAX)
            .filter(|number| self.contains(*number))
            .filter_map(|number| VlanId::new(number).ok())
    }

    /// True when no VLAN is in the set.
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
    /// Numbers and ranges as in `1,5,10-20`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut numbers = self.iter().map(VlanId::get).peekable();
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
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

/// A text that is no set of VLANs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a set of VLANs; write numbers from 1 to 4094 and ranges of them, like 1,5,10-20, or 'all'"
)]
pub struct VlanSetError(pub String);

impl FromStr for VlanSet {
    type Err = VlanSetError;

    /// Reads `1,5,10-20` or `all`.
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

/// Type of the tags that a port takes for such (IEEE 802.1Q, section 9.5, table 9-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TagType {
    /// 0x8100: tags of customers.
    #[default]
    Customer,
    /// 0x88a8: tags of providers.
    Service,
}

impl TagType {
    /// The type as it stands in the frame.
    #[inline(always)]
    #[must_use]
    pub const fn ethertype(self) -> EtherType {
        match self {
            Self::Customer => EtherType::VLAN,
            Self::Service => EtherType::SERVICE_VLAN,
        }
    }
}

/// How frames of a VLAN leave a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Egress {
    /// As they are: the bridge knows no VLANs.
    AsIs,
    /// Without a tag of this VLAN.
    Untagged,
    /// With a tag of this type.
    Tagged(TagType),
}

/// What is to be done to a frame's outermost tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagAction {
    /// Nothing.
    None,
    /// It is taken out.
    Pop,
    /// This one is put in, before any other.
    Push(VlanTag),
    /// It is overwritten by this one.
    Replace(VlanTag),
}

/// How a frame came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// To a bridge that knows no VLANs.
    AsIs,
    /// Without a tag that the port takes for one.
    Untagged,
    /// With a tag of its VLAN, of this type.
    Tagged(EtherType),
    /// With a tag that says a priority and no VLAN.
    PriorityTagged,
}

/// A frame's place among VLANs: which one it is in, and how it came in. Says what to do to its tag at each output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    pub(super) arrival: Arrival,
    /// Priority and number of the VLAN, as in a tag.
    pub(super) tci: u16,
}

impl Membership {
    pub(super) const NONE: Self = Self {
        arrival: Arrival::AsIs,
        tci: 0,
    };

    /// Number of the VLAN; 0 in a bridge that knows none.
    #[inline(always)]
    #[must_use]
    pub const fn vlan(self) -> u16 {
        self.tci & 0xfff
    }

    /// What to do so that the frame leaves as it should: a tag keeps its priority, and what had none gets priority 0
    /// (IEEE 802.1Q, section 6.9.2).
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
