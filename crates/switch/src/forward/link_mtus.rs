// SPDX-License-Identifier: Apache-2.0
//! MTUs of the links behind ports: those of the router interfaces on them. TCP segments are limited to them.

/// Frames of a port that a link has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFrames {
    /// All: those of a bridge, which gives each port other tags.
    All,
    /// Those with this VLAN in the outermost tag, or without a tag.
    OfVlan(Option<u16>),
}

/// MTUs of the links behind ports.
#[derive(Debug, Default)]
pub(crate) struct LinkMtus(Vec<(u16, LinkFrames, u16)>);

impl LinkMtus {
    /// Adds the MTU of a link behind a port.
    pub(crate) fn add(&mut self, port: u16, frames: LinkFrames, mtu: u16) {
        self.0.push((port, frames, mtu));
    }

    /// Returns the smallest MTU on the way of a frame that leaves by a port, with this VLAN in its outermost tag: that of its link, and that of the
    /// links behind the port that received it, by which the answers leave. `None` if there is no interface on these ports.
    pub(super) fn of_path(
        &self,
        output: usize,
        vlan: Option<u16>,
        from: Option<u16>,
    ) -> Option<u16> {
        let is_on_path = |(port, frames, _): &&(u16, LinkFrames, u16)| {
            let is_of_frame = match frames {
                LinkFrames::All => true,
                LinkFrames::OfVlan(one) => *one == vlan,
            };
            usize::from(*port) == output && is_of_frame || from == Some(*port)
        };
        self.0.iter().filter(is_on_path).map(|(.., mtu)| *mtu).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_mtu_of_both_ports_counts() {
        let mut mtus = LinkMtus::default();
        assert_eq!(mtus.of_path(1, None, Some(2)), None);
        mtus.add(1, LinkFrames::OfVlan(None), 1500);
        mtus.add(1, LinkFrames::OfVlan(Some(7)), 1400);
        mtus.add(2, LinkFrames::All, 1450);
        mtus.add(2, LinkFrames::All, 1420);
        mtus.add(3, LinkFrames::OfVlan(Some(9)), 1300);
        for (output, vlan, from, expected) in [
            (1, None, None, Some(1500)),
            (1, Some(7), None, Some(1400)),
            (1, Some(8), None, None),
            (1, Some(8), Some(2), Some(1420)),
            (2, Some(8), None, Some(1420)),
            // The tag of the received frame is not known any longer.
            (1, None, Some(3), Some(1300)),
            (4, None, Some(4), None),
        ] {
            let found = mtus.of_path(output, vlan, from);
            assert_eq!(found, expected, "{output} {vlan:?} {from:?}");
        }
    }
}
