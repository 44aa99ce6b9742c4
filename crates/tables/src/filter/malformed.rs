// SPDX-License-Identifier: Apache-2.0
//! Malformed frames: those whose headers a filter cannot read, or reads otherwise than their receiver does. A rule that drops frames by
//! their headers does not match them, so a filter drops them before the rules ([`MalformedAction::Drop`]), unless it matches them by the
//! headers that it can read ([`MalformedAction::Match`]).
//!
//! Malformed are, from the front of a frame:
//!
//! - tags: a third one, a truncated one, and a priority tag in front of another tag, which hides the VLAN of that tag (IEEE 802.1Q, table
//!   9-2);
//! - IP, ARP and tags in 802.2 encapsulation (RFC 1042; IEEE 802.1H), which receivers may unpack;
//! - IPv4 headers that contradict themselves or the frame (RFC 791, section 3.1), including the lengths of their options;
//! - IPv6 headers that do so (RFC 8200, section 3), and jumbograms (RFC 2675);
//! - extension headers that are truncated, too many, of a type without known structure (RFC 4727, section 3), or in a place that RFC 8200,
//!   section 4.1, forbids: hop-by-hop options that are not first, and a second fragment header;
//! - packets and first fragments without the whole transport header (RFC 1858, section 3; RFC 3128; RFC 7112, section 5);
//! - later fragments that overlap the transport header of the first (RFC 1858, section 4; RFC 5722);
//! - fragments that are not the last and have no multiple of eight octets, and those that end beyond the longest packet (RFC 791, section
//!   3.1; RFC 8200, section 4.5);
//! - frames whose headers continue beyond the first buffer.
//!
//! Fragments that overlap behind the transport header are not detected, because filters have no state. They change nothing that rules
//! compare: every fragment that contains a part of the transport header contains all of it, and is compared like a whole packet.

use quietwire_packet::{IPV6_EXTENSIONS_MAX, VLAN_TAG_LENGTH};

use super::pattern::{ADDRESSES, IPV4, IPV4_HEADER, IPV6, IPV6_HEADER, TAGS_MAX};
use crate::named;

named! {
    /// Kind of a malformed frame.
    pub enum Malformation {
        /// Ends within a VLAN tag, or before the EtherType behind it.
        TruncatedTag = "truncated-tag";
        /// More than two VLAN tags.
        TooManyTags = "too-many-tags";
        /// A priority tag in front of another tag.
        HiddenVlan = "hidden-vlan";
        /// IP, ARP or a tag in the 802.2 encapsulation of RFC 1042.
        Snap = "snap";
        /// Ends within the IP header.
        TruncatedHeader = "truncated-header";
        /// The version field differs from the EtherType.
        IpVersion = "ip-version";
        /// IPv4 header length under five words.
        HeaderLength = "header-length";
        /// IPv4 total length below the header length, or a packet longer than the frame.
        PacketLength = "packet-length";
        /// An IPv4 option with a length of 0 or 1, or beyond the header.
        Options = "options";
        /// IPv6 payload length 0 with hop-by-hop options (RFC 2675).
        Jumbogram = "jumbogram";
        /// The IPv6 payload ends within an extension header.
        TruncatedExtension = "truncated-extension";
        /// More than [`IPV6_EXTENSIONS_MAX`] extension headers.
        TooManyExtensions = "too-many-extensions";
        /// Hop-by-hop options that are not first, or a second fragment header.
        ExtensionOrder = "extension-order";
        /// An experimental extension header (RFC 4727, section 3).
        UnknownExtension = "unknown-extension";
        /// A packet or first fragment without the whole transport header.
        TruncatedTransport = "truncated-transport";
        /// A later fragment that overlaps the transport header.
        OverlappingFragment = "overlapping-fragment";
        /// A fragment that is not the last, with other than a multiple of eight octets.
        FragmentLength = "fragment-length";
        /// A fragment that ends beyond the longest packet.
        FragmentEnd = "fragment-end";
        /// The headers continue beyond the first buffer of the frame.
        ScatteredHeaders = "scattered-headers";
    }
}

use Malformation::{
    ExtensionOrder, FragmentEnd, FragmentLength, HeaderLength, HiddenVlan, IpVersion, Jumbogram,
    Options, OverlappingFragment, PacketLength, ScatteredHeaders, Snap, TooManyExtensions,
    TooManyTags, TruncatedExtension, TruncatedHeader, TruncatedTag, TruncatedTransport,
    UnknownExtension,
};

/// Length of the EtherType field.
const ETHERTYPE: usize = 2;
const ARP: u16 = 0x0806;
/// Numbers below are lengths of 802.3 frames (IEEE 802.3, section 3.2.6).
const ETHERTYPE_MIN: u16 = 0x0600;
/// Longest IPv4 packet and longest IPv6 payload.
const PACKET_MAX: usize = 65_535;
/// IPv6 next headers.
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
/// Protocols of most packets.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

#[inline(always)]
const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8)
}

/// Returns the length of the transport header that a packet or first fragment must contain, without TCP options; 0 for protocols without
/// ports other than ICMP.
#[inline(always)]
pub(super) const fn transport_header(ethertype: u16, protocol: u8) -> usize {
    match (protocol, ethertype) {
        // RFC 9293, section 3.1.
        (TCP, _) => 20,
        // UDP and UDP-Lite: RFC 768; RFC 3828, section 3.1. ICMP: RFC 792.
        (UDP | 136, _) | (1, IPV4) => 8,
        // DCCP and SCTP: RFC 4340, section 5.1; RFC 9260, section 3.1.
        (33 | 132, _) => 12,
        // ICMPv6: RFC 4443, section 2.1.
        (58, IPV6) => 4,
        _ => 0,
    }
}

/// Returns why a frame is malformed; `None` if it is well-formed. `octets` are those of the first buffer, at least an Ethernet header;
/// `length` is the length of the frame. `vlan` and `rest` are those of [`after_tags`](super::pattern::after_tags).
#[inline(always)]
pub(super) fn malformation(
    octets: &[u8],
    length: usize,
    vlan: Option<u16>,
    rest: &[u8],
) -> Option<Malformation> {
    let more = length.saturating_sub(octets.len());
    if vlan != Some(0) && is_plain(rest, more) {
        return None;
    }
    examine(octets, length).err()
}

/// Returns true for the most frequent well-formed packets: whole ones without options and extension headers. `rest` begins with the
/// EtherType; `more` octets follow in further buffers.
#[inline(always)]
fn is_plain(rest: &[u8], more: usize) -> bool {
    let Some(([a, b], packet)) = rest.split_first_chunk::<ETHERTYPE>() else {
        return false;
    };
    let ethertype = u16::from_be_bytes([*a, *b]);
    let (header, protocol, end) = match ethertype {
        IPV4 => {
            let Some(header) = packet.first_chunk::<IPV4_HEADER>() else {
                return false;
            };
            let fragment = u16::from_be_bytes([header[6], header[7]]);
            if header[0] != 0x45 || fragment & 0x3fff != 0 {
                return false;
            }
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            (IPV4_HEADER, header[9], total)
        }
        IPV6 => {
            let Some(header) = packet.first_chunk::<IPV6_HEADER>() else {
                return false;
            };
            if header[0] >> 4 != 6 {
                return false;
            }
            let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
            (IPV6_HEADER, header[6], payload.saturating_add(IPV6_HEADER))
        }
        _ => return ethertype >= ETHERTYPE_MIN && !is_tag(ethertype),
    };
    // Other protocols have either no transport header, or are extension headers.
    if !matches!(protocol, TCP | UDP) {
        return false;
    }
    let headers = header.saturating_add(transport_header(ethertype, protocol));
    let length = packet.len().saturating_add(more);
    end >= headers && packet.len() >= headers && end <= length
}

/// Octets of a packet in its first buffer, and the end of the packet by the header in front of it.
#[derive(Clone, Copy)]
struct Octets<'frame> {
    held: &'frame [u8],
    end: usize,
}

impl<'frame> Octets<'frame> {
    /// Returns `N` octets. `truncated` is the error if the packet ends before them.
    fn read<const N: usize>(
        self,
        at: usize,
        truncated: Malformation,
    ) -> Result<&'frame [u8; N], Malformation> {
        if at.saturating_add(N) > self.end {
            return Err(truncated);
        }
        let held = self.held.get(at..).unwrap_or_default();
        held.first_chunk().ok_or(ScatteredHeaders)
    }

    /// Returns the octets behind these, of a packet that ends `end` octets after them.
    fn after(self, octets: usize, end: usize) -> Self {
        Self {
            held: self.held.get(octets..).unwrap_or_default(),
            end,
        }
    }

    /// Returns the number of octets behind these.
    fn left_after(self, octets: usize) -> usize {
        self.end.saturating_sub(octets)
    }
}

/// Checks a frame from the front. The first malformation is the result.
#[cold]
#[inline(never)]
fn examine(octets: &[u8], length: usize) -> Result<(), Malformation> {
    let frame = Octets {
        held: octets,
        end: length,
    };
    let mut at = ADDRESSES;
    let mut ethertype = u16::from_be_bytes(*frame.read::<ETHERTYPE>(at, TruncatedTag)?);
    let mut outermost = None;
    for tags in 0..=TAGS_MAX {
        if !is_tag(ethertype) {
            break;
        }
        if tags == TAGS_MAX {
            return Err(TooManyTags);
        }
        if outermost == Some(0) {
            return Err(HiddenVlan);
        }
        let [_, _, a, b, c, d] =
            *frame.read::<{ VLAN_TAG_LENGTH + ETHERTYPE }>(at, TruncatedTag)?;
        outermost = outermost.or(Some(u16::from_be_bytes([a, b]) & 0xfff));
        ethertype = u16::from_be_bytes([c, d]);
        at = at.saturating_add(VLAN_TAG_LENGTH);
    }
    let at = at.saturating_add(ETHERTYPE);
    let payload = frame.after(at, frame.left_after(at));
    match ethertype {
        IPV4 => examine_ipv4(payload),
        IPV6 => examine_ipv6(payload),
        0..ETHERTYPE_MIN => examine_llc(payload),
        _ => Ok(()),
    }
}

/// Checks an 802.2 header: that of RFC 1042, and that of bridges (IEEE 802.1H), with another OUI.
fn examine_llc(payload: Octets<'_>) -> Result<(), Malformation> {
    if payload.end < 8 {
        return Ok(());
    }
    match *payload.read::<8>(0, Snap)? {
        [0xaa, 0xaa, _, 0, 0, 0 | 0xf8, a, b] => {
            let ethertype = u16::from_be_bytes([a, b]);
            match matches!(ethertype, IPV4 | IPV6 | ARP) || is_tag(ethertype) {
                true => Err(Snap),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn examine_ipv4(frame: Octets<'_>) -> Result<(), Malformation> {
    let header = frame.read::<IPV4_HEADER>(0, TruncatedHeader)?;
    if header[0] >> 4 != 4 {
        return Err(IpVersion);
    }
    let header_length = usize::from(header[0] & 0xf).saturating_mul(4);
    if header_length < IPV4_HEADER {
        return Err(HeaderLength);
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total < header_length || total > frame.end {
        return Err(PacketLength);
    }
    let options = header_length.saturating_sub(IPV4_HEADER);
    examine_options(frame.after(IPV4_HEADER, options))?;
    let field = u16::from_be_bytes([header[6], header[7]]);
    let payload = frame.after(header_length, total.saturating_sub(header_length));
    let offset = usize::from(field & 0x1fff).saturating_mul(8);
    examine_fragment(payload.end, offset, field & 0x2000 != 0, header_length)?;
    examine_transport(payload, offset, transport_header(IPV4, header[9]))
}

/// Checks the options (RFC 791, section 3.1).
fn examine_options(options: Octets<'_>) -> Result<(), Malformation> {
    let mut at = 0usize;
    // At most forty octets.
    while at < options.end {
        let octets = match *options.read::<1>(at, Options)? {
            [0] => break,
            [1] => 1,
            _ => {
                let [_, length] = *options.read::<2>(at, Options)?;
                let length = usize::from(length);
                if length < 2 || at.saturating_add(length) > options.end {
                    return Err(Options);
                }
                length
            }
        };
        at = at.saturating_add(octets);
    }
    match options.held.len() < options.end {
        true => Err(ScatteredHeaders),
        false => Ok(()),
    }
}

fn examine_ipv6(frame: Octets<'_>) -> Result<(), Malformation> {
    let header = frame.read::<IPV6_HEADER>(0, TruncatedHeader)?;
    if header[0] >> 4 != 6 {
        return Err(IpVersion);
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if length > frame.left_after(IPV6_HEADER) {
        return Err(PacketLength);
    }
    let mut next = header[6];
    if length == 0 && next == HOP_BY_HOP {
        return Err(Jumbogram);
    }
    let payload = frame.after(IPV6_HEADER, length);
    let (mut at, mut fragment_offset) = (0usize, None);
    for headers in 0..=IPV6_EXTENSIONS_MAX {
        match next {
            HOP_BY_HOP if headers > 0 => return Err(ExtensionOrder),
            FRAGMENT if fragment_offset.is_some() => return Err(ExtensionOrder),
            253 | 254 => return Err(UnknownExtension),
            HOP_BY_HOP | 43 | FRAGMENT | AUTHENTICATION | 60 | 135 | 139 | 140 => {}
            _ => break,
        }
        if headers == IPV6_EXTENSIONS_MAX {
            return Err(TooManyExtensions);
        }
        let [then, words, high, low, ..] = *payload.read::<8>(at, TruncatedExtension)?;
        let octets = match next {
            FRAGMENT => 8,
            AUTHENTICATION => usize::from(words).saturating_add(2).saturating_mul(4),
            _ => usize::from(words).saturating_add(1).saturating_mul(8),
        };
        let end = at.saturating_add(octets);
        if end > payload.end {
            return Err(TruncatedExtension);
        }
        if next == FRAGMENT {
            let field = u16::from_be_bytes([high, low]);
            let offset = usize::from(field & 0xfff8);
            let left = payload.left_after(end);
            examine_fragment(left, offset, field & 1 != 0, at)?;
            fragment_offset = Some(offset);
        }
        at = end;
        next = then;
        // The headers of the datagram are in the first fragment.
        if fragment_offset.is_some_and(|offset| offset > 0) {
            break;
        }
    }
    let rest = payload.after(at, payload.left_after(at));
    let offset = fragment_offset.unwrap_or(0);
    examine_transport(rest, offset, transport_header(IPV6, next))
}

/// Checks the extent of a fragment of this number of octets, or of a whole packet. The packet has `before` octets of headers in front of
/// the data that was cut into fragments.
fn examine_fragment(
    octets: usize,
    offset: usize,
    more: bool,
    before: usize,
) -> Result<(), Malformation> {
    if more && !octets.is_multiple_of(8) {
        return Err(FragmentLength);
    }
    match before.saturating_add(offset).saturating_add(octets) > PACKET_MAX {
        true => Err(FragmentEnd),
        false => Ok(()),
    }
}

/// Checks that the transport header of this length is complete, or begins and ends before the fragment.
fn examine_transport(
    payload: Octets<'_>,
    offset: usize,
    header: usize,
) -> Result<(), Malformation> {
    if offset > 0 {
        return match offset < header {
            true => Err(OverlappingFragment),
            false => Ok(()),
        };
    }
    if payload.end < header {
        return Err(TruncatedTransport);
    }
    match payload.held.len() < header {
        true => Err(ScatteredHeaders),
        false => Ok(()),
    }
}
