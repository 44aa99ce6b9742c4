// SPDX-License-Identifier: Apache-2.0
//! The marks of frames between forwarding threads and the service thread.

use quietwire_tables::route::Punt;

/// What a frame is marked with on its way to the service thread and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// To the service thread: why, and the interface it came in by.
    Punt(Punt, u16),
    /// From the service thread: the frame goes out of this interface as it is.
    Send(u16),
    /// From the service thread: the frame is routed as if it came in by this interface.
    Route(u16),
}

const SEND: u32 = 0x100;
const ROUTE: u32 = 0x101;

impl Mark {
    #[inline]
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Punt(punt, interface) => (punt as u32) << 16 | interface as u32,
            Self::Send(interface) => SEND << 16 | interface as u32,
            Self::Route(interface) => ROUTE << 16 | interface as u32,
        }
    }

    #[inline]
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        let interface = number as u16;
        match number >> 16 {
            SEND => Some(Self::Send(interface)),
            ROUTE => Some(Self::Route(interface)),
            punt => {
                let punt = Punt::ALL.get(punt as usize)?;
                Some(Self::Punt(*punt, interface))
            }
        }
    }
}
