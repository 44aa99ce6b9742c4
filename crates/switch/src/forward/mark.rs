// SPDX-License-Identifier: Apache-2.0
//! Marks of frames between forwarding threads and the service thread.

use quietwire_dpdk::{BURST_MAX, Burst, Mbuf};
use quietwire_tables::route::Punt;

/// Metadata of a frame on its way to or from the service thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// To the service thread: the reason, the ingress interface, and whether the packet is known to have the destination that its sender
    /// has given it.
    Punt(Punt, u16, bool),
    /// From the service thread: send the frame out of this interface. The flag is that of the packet in an ICMP error: with it, no
    /// translator changes that packet.
    Send(u16, bool),
    /// From the service thread: route the frame as if received on this interface.
    Route(u16),
    /// From another forwarding thread, which received the frame on this port.
    Relayed(u16),
}

/// Places of frames in a burst, as bits.
pub(super) type Places = u64;

const _: () = assert!(BURST_MAX <= Places::BITS as usize);

/// In the mark of a frame with its interface: the router has had the frame before, or NAT64 has made it, so its destination may be another
/// one than its sender has given it.
pub(super) const AGAIN: u32 = 1 << 16;

const AS_SENT: u32 = 0x80;
const SEND: u32 = 0x100;
const ROUTE: u32 = 0x101;
const RELAYED: u32 = 0x102;

/// Returns the interface in the mark of a frame at the router.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half of the mark"
)]
#[inline(always)]
pub(super) const fn interface_of(mark: u32) -> u16 {
    mark as u16
}

impl Mark {
    #[allow(clippy::arithmetic_side_effects, reason = "few kinds, above 16 bits")]
    #[inline]
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Punt(punt, interface, is_as_sent) => {
                (punt as u32 + AS_SENT * is_as_sent as u32) << 16 | interface as u32
            }
            Self::Send(interface, is_as_sent) => {
                (SEND + AS_SENT * is_as_sent as u32) << 16 | interface as u32
            }
            Self::Route(interface) => ROUTE << 16 | interface as u32,
            Self::Relayed(port) => RELAYED << 16 | port as u32,
        }
    }

    /// Adds a frame with this mark to a burst, which has space for it.
    #[inline(always)]
    pub(super) fn push(self, mut frame: Mbuf<'_>, burst: &mut Burst) {
        frame.set_mark(self.number());
        drop(burst.push(frame));
    }

    #[inline]
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        let interface = interface_of(number);
        let kind = number >> 16;
        let is_as_sent = kind & AS_SENT != 0;
        match kind & !AS_SENT {
            SEND => Some(Self::Send(interface, is_as_sent)),
            ROUTE => Some(Self::Route(interface)),
            RELAYED => Some(Self::Relayed(interface)),
            punt => {
                let punt = Punt::ALL.get(punt as usize)?;
                Some(Self::Punt(*punt, interface, is_as_sent))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_are_written() {
        let mut marks = vec![Mark::Route(7), Mark::Relayed(u16::MAX)];
        for is_as_sent in [false, true] {
            marks.push(Mark::Send(4095, is_as_sent));
            for punt in Punt::ALL {
                marks.push(Mark::Punt(punt, 4095, is_as_sent));
            }
        }
        for mark in &marks {
            assert_eq!(Mark::of_number(mark.number()), Some(*mark));
        }
        assert_eq!(Mark::of_number(0x104 << 16), None);
    }
}
