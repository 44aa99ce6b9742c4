// SPDX-License-Identifier: Apache-2.0
//! Prefix translation of IPv6 around the router (RFC 6296): destinations before the routing decision, sources behind it. It has no state, so
//! every forwarding thread does it.

use quietwire_dpdk::{Mbuf, Mempool};
use quietwire_packet::ETHERNET_HEADER_LENGTH;
use quietwire_tables::drops::RouterDrop;
use quietwire_tables::nptv6::{NptDrop, PrefixPair, PrefixTranslation};

use super::telemetry::Telemetry;
use super::translate::exclusive;

/// Returns the IPv6 packet in an untagged frame.
#[inline(always)]
fn ipv6(frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_HEADER_LENGTH>()?;
    let [.., high, low] = *ethernet;
    ([high, low] == [0x86, 0xdd]).then_some(packet)
}

/// Returns the packet in a frame, and the number of its octets by the length of the frame.
#[inline(always)]
fn packet_in(frame: &mut [u8], length: usize) -> (&mut [u8], usize) {
    let packet = frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
    (packet, length.saturating_sub(ETHERNET_HEADER_LENGTH))
}

/// Translates the source of a frame that leaves by an outside interface. `None` if there is no buffer for a frame whose octets cannot be
/// changed.
///
/// # Errors
/// The reason to drop the frame.
#[inline]
pub(super) fn send<'eal>(
    frame: Mbuf<'eal>,
    pair: &PrefixPair,
    pool: &Mempool,
    telemetry: &mut Telemetry,
) -> Result<Option<Mbuf<'eal>>, RouterDrop> {
    if ipv6(frame.octets()).is_none() {
        return Ok(Some(frame));
    }
    let Some(mut frame) = exclusive(frame, pool, telemetry) else {
        return Ok(None);
    };
    let length = frame.length() as usize;
    let (packet, length) = packet_in(frame.octets_mut().unwrap_or_default(), length);
    match pair.send(packet, length) {
        Ok(_) => Ok(Some(frame)),
        Err(reason) => Err(reason.router_drop()),
    }
}

/// Translates the packet in an ICMPv6 error of the router itself that leaves by an interface.
pub(super) fn send_own(prefixes: &PrefixTranslation, frame: &mut [u8], interface: u16) {
    if let Some(pair) = prefixes.of(interface)
        && ipv6(frame).is_some()
    {
        let length = frame.len();
        let (packet, length) = packet_in(frame, length);
        pair.translate_own_error(packet, length);
    }
}

/// Returns true if a frame of a VRF is to an external address.
#[inline(always)]
pub(super) fn concern(prefixes: &PrefixTranslation, frame: &[u8], vrf: u16) -> bool {
    ipv6(frame).is_some_and(|packet| prefixes.concerns(packet, vrf))
}

/// Translates a frame of a VRF to an external address.
///
/// # Errors
/// The reason to drop the frame.
pub(super) fn receive(
    prefixes: &PrefixTranslation,
    frame: &mut Mbuf<'_>,
    vrf: u16,
) -> Result<(), RouterDrop> {
    let length = frame.length() as usize;
    let (packet, length) = packet_in(frame.octets_mut().unwrap_or_default(), length);
    let translated = prefixes.receive(packet, length, vrf);
    translated.map_err(NptDrop::router_drop)
}
