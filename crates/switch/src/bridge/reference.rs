// SPDX-License-Identifier: Apache-2.0
//! The same bridge, slow and obvious: what [`super::decide`] is compared with.

use std::collections::HashMap;

use quietwire_packet::{EthernetHeader, MacAddress};

use super::{Decision, Reason};

/// A learning bridge by the book, frame by frame, without bounds on its table.
#[derive(Debug)]
pub struct ReferenceBridge {
    ageing_s: u32,
    /// Port, and second last seen.
    seen: HashMap<MacAddress, (u16, u32)>,
}

impl ReferenceBridge {
    /// A bridge that knows nobody.
    #[must_use]
    pub fn new(ageing_s: u32) -> Self {
        Self {
            ageing_s,
            seen: HashMap::new(),
        }
    }

    /// Decides on one frame and learns its source.
    pub fn decide(&mut self, input: u16, now_s: u32, frame: &[u8]) -> Decision {
        let Ok((header, _)) = EthernetHeader::split(frame) else {
            return Decision::Drop(Reason::Short);
        };
        let (destination, source) = (header.destination(), header.source());
        if matches!(destination.0, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f]) {
            return Decision::Drop(Reason::Reserved);
        }
        if !source.is_multicast() && source != MacAddress::default() {
            self.seen.insert(source, (input, now_s));
        }
        if destination.is_multicast() {
            return Decision::Flood;
        }
        match self.port_of(destination, now_s) {
            Some(port) if port == input => Decision::Drop(Reason::Filtered),
            Some(port) => Decision::Forward(port),
            None => Decision::Flood,
        }
    }

    /// Where an address was last seen, if that is not too long ago.
    #[must_use]
    pub fn port_of(&self, address: MacAddress, now_s: u32) -> Option<u16> {
        let (port, stamp_s) = self.seen.get(&address)?;
        (now_s - stamp_s <= self.ageing_s).then_some(*port)
    }

    /// Forgets an address.
    pub fn remove(&mut self, address: MacAddress) {
        self.seen.remove(&address);
    }

    /// Number of addresses known.
    #[must_use]
    pub fn entries(&self, now_s: u32) -> usize {
        self.seen
            .values()
            .filter(|(_, stamp_s)| now_s - stamp_s <= self.ageing_s)
            .count()
    }
}
