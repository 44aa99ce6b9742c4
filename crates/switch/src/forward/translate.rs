// SPDX-License-Identifier: Apache-2.0
//! Translation around the router: load balancers and NAT, for received frames, for frames that leave, and for copies that the tracker
//! classifies. Prefixes are translated in these copies only: [`super::prefixes`] translates the frames.

use quietwire_dpdk::{Mbuf, Mempool};
use quietwire_tables::drops::RouterDrop;
use quietwire_tables::nat::NatDrop;
use quietwire_tables::nptv6::PrefixTranslation;

use super::balance::BalanceStage;
use super::nat::{NatCopy, NatStage};
use super::prefix_copy;
use super::telemetry::Telemetry;

/// Translators of destinations of received packets to inside ones.
#[derive(Clone, Copy)]
pub(super) struct TranslatorsView<'a> {
    pub(super) nat: Option<&'a NatStage>,
    pub(super) balance: Option<&'a BalanceStage>,
    pub(super) prefixes: Option<&'a PrefixTranslation>,
}

impl TranslatorsView<'_> {
    /// Returns a copy of a received frame with its inside destination; `None` for frames that are not translated.
    #[inline]
    pub(super) fn copy_of<'copy>(
        &self,
        frame: &[u8],
        length: usize,
        copy: &'copy mut NatCopy,
    ) -> Option<&'copy [u8]> {
        if let Some(balance) = self.balance
            && balance.copy_inside(frame, length, copy)
        {
            return copy.get(frame);
        }
        if let Some(nat) = self.nat
            && nat.inside_copy(frame, length, copy).is_some()
        {
            return copy.get(frame);
        }
        if let Some(prefixes) = self.prefixes
            && !prefixes.is_empty()
            && prefix_copy::copy_inside(prefixes, frame, length, copy)
        {
            return copy.get(frame);
        }
        None
    }

    /// Translates the packet in an ICMP error of the router itself that leaves by an interface.
    pub(super) fn send_own(&self, octets: &mut [u8], interface: u16) {
        if let Some(balance) = self.balance {
            balance.send_own(octets);
        }
        if let Some(nat) = self.nat {
            nat.send_own(octets, interface);
        }
    }
}

/// Translators of received frames.
pub(super) struct Translators<'a> {
    pub(super) nat: Option<&'a mut NatStage>,
    pub(super) balance: Option<&'a mut BalanceStage>,
    pub(super) now_s: u32,
}

impl Translators<'_> {
    /// Returns true if a frame of a VRF may have to be translated.
    #[inline(always)]
    pub(super) fn concern(&self, frame: &[u8], vrf: u16) -> bool {
        let nat = self.nat.as_ref();
        let balance = self.balance.as_ref();
        nat.is_some_and(|nat| nat.concerns(frame, vrf))
            || balance.is_some_and(|balance| balance.concerns(frame, vrf))
    }

    /// Translates a frame that leaves by an interface and was received on another one of a VRF. `None` if there is no buffer for a frame whose
    /// octets cannot be changed.
    ///
    /// # Errors
    /// The reason to drop the frame, and the frame.
    #[inline]
    pub(super) fn send<'eal>(
        &mut self,
        frame: Mbuf<'eal>,
        interface: u16,
        place: (u16, u16),
        pool: &Mempool,
        telemetry: &mut Telemetry,
    ) -> Result<Option<Mbuf<'eal>>, (RouterDrop, Mbuf<'eal>)> {
        let nat = self.nat.as_mut().filter(|nat| nat.is_outside(interface));
        let balance = self.balance.as_mut();
        let balance = balance.filter(|one| one.concerns_sent(frame.octets(), place.1));
        if nat.is_none() && balance.is_none() {
            return Ok(Some(frame));
        }
        let Some(mut frame) = exclusive(frame, pool, telemetry) else {
            return Ok(None);
        };
        let length = frame.length() as usize;
        let octets = frame.octets_mut().unwrap_or_default();
        if let Some(balance) = balance {
            balance.send(octets, length, self.now_s);
        }
        if let Some(nat) = nat
            && let Err(reason) = nat.send(octets, length, interface, place, self.now_s)
        {
            return Err((reason.router_drop(), frame));
        }
        Ok(Some(frame))
    }

    /// Translates a frame received on an interface of a VRF. A frame of a load balancer is not one of NAT.
    pub(super) fn translate(
        &mut self,
        frame: &mut Mbuf<'_>,
        place: (u16, u16),
    ) -> Result<(), RouterDrop> {
        let length = frame.length() as usize;
        let octets = frame.octets_mut().unwrap_or_default();
        if let Some(balance) = &mut self.balance
            && balance.concerns(octets, place.1)
            && balance.receive(octets, length, self.now_s)?
        {
            return Ok(());
        }
        if let Some(nat) = &mut self.nat {
            nat.receive(octets, length, place, self.now_s)
                .map_err(NatDrop::router_drop)?;
        }
        Ok(())
    }
}

/// Returns a frame whose octets can be changed: the same, or a copy if its buffer is shared. `None` without buffers.
#[inline(always)]
pub(super) fn exclusive<'eal>(
    frame: Mbuf<'eal>,
    pool: &Mempool,
    telemetry: &mut Telemetry,
) -> Option<Mbuf<'eal>> {
    if frame.is_exclusive() {
        return Some(frame);
    }
    let copy = frame.copy(pool)?;
    telemetry.copied(frame.buffer(), copy.buffer());
    Some(copy)
}
