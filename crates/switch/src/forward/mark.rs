// SPDX-License-Identifier: Apache-2.0
//! Marks of frames between forwarding threads and the service thread.

use quietwire_tables::route::Punt;

/// Metadata of a frame on its way to or from the service thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// To the service thread: the reason and the ingress interface.
    Punt(Punt, u16),
    /// From the service thread: send the frame unchanged out of this interface.
    Send(u16),
    /// From the service thread: route the frame as if received on this interface.
    Route(u16),
    /// From another forwarding thread, which received the frame on this port.
    Relayed(u16),
}

const SEND: u32 = 0x100;
const ROUTE: u32 = 0x101;
const RELAYED: u32 = 0x102;

impl Mark {
    #[inline]
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Punt(punt, interface) => (punt as u32) << 16 | interface as u32,
            Self::Send(interface) => SEND << 16 | interface as u32,
            Self::Route(interface) => ROUTE << 16 | interface as u32,
            Self::Relayed(port) => RELAYED << 16 | port as u32,
        }
    }

    #[inline]
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        let interface = number as u16;
        match number >> 16 {
            SEND => Some(Self::Send(interface)),
            ROUTE => Some(Self::Route(interface)),
            RELAYED => Some(Self::Relayed(interface)),
            punt => {
                let punt = Punt::ALL.get(punt as usize)?;
                Some(Self::Punt(*punt, interface))
            }
        }
    }
}
