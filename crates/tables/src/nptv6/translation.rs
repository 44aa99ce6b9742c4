// SPDX-License-Identifier: Apache-2.0
//! The pairs of a router's interfaces.

use super::NptDrop;
use super::packet::ends;
use super::prefix::PrefixPair;

/// The pair of an outside interface.
#[derive(Clone, Copy, Debug)]
struct Binding {
    interface: u16,
    vrf: u16,
    pair: PrefixPair,
}

/// All pairs of a router: none on most interfaces.
#[derive(Clone, Debug, Default)]
pub struct PrefixTranslation {
    bindings: Box<[Binding]>,
}

impl PrefixTranslation {
    /// Creates the set from outside interfaces, their VRFs and their pairs.
    #[must_use]
    pub fn new(pairs: impl IntoIterator<Item = (u16, u16, PrefixPair)>) -> Self {
        let bindings = pairs.into_iter().map(|(interface, vrf, pair)| Binding {
            interface,
            vrf,
            pair,
        });
        Self {
            bindings: bindings.collect(),
        }
    }

    /// Returns true if no interface has a pair.
    #[must_use]
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// Returns the pair of an interface.
    #[must_use]
    #[inline]
    pub fn of(&self, interface: u16) -> Option<&PrefixPair> {
        let mut bindings = self.bindings.iter();
        let binding = bindings.find(|one| one.interface == interface)?;
        Some(&binding.pair)
    }

    /// Returns true if the destination of a packet of a VRF, from its IPv6 header on, is an external address.
    #[must_use]
    #[inline]
    pub fn concerns(&self, packet: &[u8], vrf: u16) -> bool {
        ends(packet).is_some_and(|(_, destination)| self.find_external(destination, vrf).is_some())
    }

    /// Returns the pair of the destination of a packet of any VRF, from its IPv6 header on. `None` if the destination is no external address.
    #[must_use]
    #[inline]
    pub fn of_external(&self, packet: &[u8]) -> Option<&PrefixPair> {
        let (_, destination) = ends(packet)?;
        let mut bindings = self.bindings.iter();
        let binding = bindings.find(|one| one.pair.is_external(destination))?;
        Some(&binding.pair)
    }

    fn find_external(&self, destination: u128, vrf: u16) -> Option<&PrefixPair> {
        let mut bindings = self.bindings.iter();
        let binding = bindings.find(|one| one.vrf == vrf && one.pair.is_external(destination))?;
        Some(&binding.pair)
    }

    /// Translates a received packet of a VRF to an external address, from its IPv6 header on. `length` is the number of octets in the frame.
    /// A packet of an inside host gets its own external address as the source, so that answers come back the same way (hairpinning).
    ///
    /// # Errors
    /// [`NptDrop`]: the packet must be dropped.
    pub fn receive(&self, packet: &mut [u8], length: usize, vrf: u16) -> Result<(), NptDrop> {
        let Some((source, destination)) = ends(packet) else {
            return Err(NptDrop::Malformed);
        };
        let Some(pair) = self.find_external(destination, vrf) else {
            return Ok(());
        };
        pair.receive(packet, length)?;
        let mut bindings = self.bindings.iter();
        let of_source = bindings.find(|one| one.vrf == vrf && one.pair.is_internal(source));
        if pair.is_internal(source) {
            pair.send(packet, length)?;
        } else if let Some(other) = of_source {
            other.pair.send(packet, length)?;
        }
        Ok(())
    }
}
