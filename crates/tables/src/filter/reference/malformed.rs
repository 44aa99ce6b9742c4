// SPDX-License-Identifier: Apache-2.0
//! Reference implementation of the check for malformed frames: field by field, on the whole frame.

use quietwire_packet::IPV6_EXTENSIONS_MAX;

use crate::filter::Malformation;

/// A frame, and the number of octets that were required so far.
struct Frame<'a> {
    octets: &'a [u8],
    required: usize,
}

/// Returns the malformation of a frame, of which `held` octets are in the first buffer.
pub(crate) fn malformation(octets: &[u8], held: usize) -> Option<Malformation> {
    let mut frame = Frame {
        octets,
        required: 14,
    };
    let found = frame.ethernet();
    match frame.required > held {
        true => Some(Malformation::ScatteredHeaders),
        false => found,
    }
}

impl Frame<'_> {
    fn octet(&mut self, at: usize) -> usize {
        self.required = self.required.max(at + 1);
        usize::from(self.octets[at])
    }

    fn number(&mut self, at: usize) -> usize {
        self.octet(at) * 256 + self.octet(at + 1)
    }

    fn ethernet(&mut self) -> Option<Malformation> {
        let mut vlans = Vec::new();
        let mut at = 12;
        while [0x8100, 0x88a8].contains(&self.number(at)) {
            if vlans.len() == 2 {
                return Some(Malformation::TooManyTags);
            }
            if vlans == [0] {
                return Some(Malformation::HiddenVlan);
            }
            if self.octets.len() < at + 6 {
                return Some(Malformation::TruncatedTag);
            }
            vlans.push(self.number(at + 2) % 4096);
            at += 4;
            self.number(at);
        }
        let content = at + 2;
        match self.number(at) {
            0x0800 => self.ipv4(content),
            0x86dd => self.ipv6(content),
            0..0x0600 => self.llc(content),
            _ => None,
        }
    }

    fn llc(&mut self, at: usize) -> Option<Malformation> {
        if self.octets.len() < at + 8 {
            return None;
        }
        let header: Vec<usize> = (at..at + 8).map(|at| self.octet(at)).collect();
        let is_snap = header[..2] == [0xaa, 0xaa];
        let is_ethernet = [[0, 0, 0], [0, 0, 0xf8]].contains(&[header[3], header[4], header[5]]);
        let kinds = [0x0800, 0x0806, 0x86dd, 0x8100, 0x88a8];
        (is_snap && is_ethernet && kinds.contains(&(header[6] * 256 + header[7])))
            .then_some(Malformation::Snap)
    }

    fn ipv4(&mut self, at: usize) -> Option<Malformation> {
        if self.octets.len() < at + 20 {
            return Some(Malformation::TruncatedHeader);
        }
        self.octet(at + 19);
        let (version, header) = (self.octet(at) / 16, self.octet(at) % 16 * 4);
        if version != 4 {
            return Some(Malformation::IpVersion);
        }
        if header < 20 {
            return Some(Malformation::HeaderLength);
        }
        let end = at + self.number(at + 2);
        if end < at + header || end > self.octets.len() {
            return Some(Malformation::PacketLength);
        }
        let mut option = at + 20;
        while option < at + header {
            match self.octet(option) {
                0 => break,
                1 => option += 1,
                _ if option + 1 == at + header => return Some(Malformation::Options),
                _ => {
                    let length = self.octet(option + 1);
                    if length < 2 || option + length > at + header {
                        return Some(Malformation::Options);
                    }
                    option += length;
                }
            }
        }
        self.octet(at + header - 1);
        let offset = self.number(at + 6) % 8192 * 8;
        let more = self.number(at + 6) & 0x2000 != 0;
        let payload = end - at - header;
        if more && !payload.is_multiple_of(8) {
            return Some(Malformation::FragmentLength);
        }
        if header + offset + payload > 65_535 {
            return Some(Malformation::FragmentEnd);
        }
        let transport = match self.octet(at + 9) {
            1 | 17 | 136 => 8,
            6 => 20,
            33 | 132 => 12,
            _ => 0,
        };
        self.transport(offset, at + header, end, transport)
    }

    fn ipv6(&mut self, at: usize) -> Option<Malformation> {
        if self.octets.len() < at + 40 {
            return Some(Malformation::TruncatedHeader);
        }
        self.octet(at + 39);
        if self.octet(at) / 16 != 6 {
            return Some(Malformation::IpVersion);
        }
        let payload = self.number(at + 4);
        let end = at + 40 + payload;
        if end > self.octets.len() {
            return Some(Malformation::PacketLength);
        }
        let mut next = self.octet(at + 6);
        if payload == 0 && next == 0 {
            return Some(Malformation::Jumbogram);
        }
        let start = at + 40;
        let mut here = start;
        let mut walked = Vec::new();
        let mut offset = 0;
        while offset == 0 {
            if next == 0 && !walked.is_empty() || next == 44 && walked.contains(&44) {
                return Some(Malformation::ExtensionOrder);
            }
            if [253, 254].contains(&next) {
                return Some(Malformation::UnknownExtension);
            }
            if ![0, 43, 44, 51, 60, 135, 139, 140].contains(&next) {
                break;
            }
            if walked.len() == IPV6_EXTENSIONS_MAX {
                return Some(Malformation::TooManyExtensions);
            }
            if here + 8 > end {
                return Some(Malformation::TruncatedExtension);
            }
            self.octet(here + 7);
            let length = match next {
                44 => 8,
                51 => (self.octet(here + 1) + 2) * 4,
                _ => (self.octet(here + 1) + 1) * 8,
            };
            if here + length > end {
                return Some(Malformation::TruncatedExtension);
            }
            if next == 44 {
                offset = self.number(here + 2) / 8 * 8;
                let left = end - here - 8;
                if self.octet(here + 3) % 2 == 1 && !left.is_multiple_of(8) {
                    return Some(Malformation::FragmentLength);
                }
                if here - start + offset + left > 65_535 {
                    return Some(Malformation::FragmentEnd);
                }
            }
            walked.push(next);
            next = self.octet(here);
            here += length;
        }
        let transport = match next {
            17 | 136 => 8,
            6 => 20,
            33 | 132 => 12,
            58 => 4,
            _ => 0,
        };
        self.transport(offset, here, end, transport)
    }

    fn transport(
        &mut self,
        offset: usize,
        at: usize,
        end: usize,
        length: usize,
    ) -> Option<Malformation> {
        if offset > 0 {
            return (offset < length).then_some(Malformation::OverlappingFragment);
        }
        if end - at < length {
            return Some(Malformation::TruncatedTransport);
        }
        if length > 0 {
            self.octet(at + length - 1);
        }
        None
    }
}
