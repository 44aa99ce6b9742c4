// SPDX-License-Identifier: Apache-2.0
//! rtnetlink(7) socket to the kernel's tables: dumps and notifications.

use std::io::ErrorKind;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Size of the socket's receive buffer, octets.
const ROOM: usize = 4 << 20;
/// Maximum number of datagrams per turn, because the service thread has other work.
const DATAGRAMS_A_TURN: usize = 64;

/// A message of the kernel.
#[derive(Debug)]
pub(super) enum NetlinkEvent {
    /// A part of a dump, or a notification.
    Message(RouteNetlinkMessage),
    /// End of the dump.
    Done,
    /// Error code of a refused request.
    Refused(i32),
    /// Notifications were lost for lack of buffer space (ENOBUFS).
    Missed,
}

/// A netlink socket.
#[derive(Debug)]
pub(super) struct NetlinkSocket(Socket);

impl NetlinkSocket {
    /// Opens a socket that receives notifications of these groups (RTNLGRP_ of linux/rtnetlink.h).
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn new(groups: &[u32]) -> std::io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        // The kernel limits the size.
        if let Err(error) = socket.set_rx_buf_sz(ROOM) {
            tracing::debug!("cannot enlarge the netlink receive buffer: {error}");
        }
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Self(socket))
    }

    /// Requests a dump of a table.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn ask(&self, question: RouteNetlinkMessage) -> std::io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(question));
        request.finalize();
        let mut octets = vec![0; request.buffer_len()];
        request.serialize(&mut octets);
        self.0.send_to(&octets, &SocketAddr::new(0, 0), 0)?;
        Ok(())
    }

    /// Reads pending messages, up to a limit.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn receive_events(&self) -> std::io::Result<Vec<NetlinkEvent>> {
        let mut received = Vec::new();
        for _ in 0..DATAGRAMS_A_TURN {
            match self.0.recv_from_full() {
                Ok((octets, _)) => read(&octets, &mut received),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                    received.push(NetlinkEvent::Missed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(received)
    }
}

fn read(octets: &[u8], received: &mut Vec<NetlinkEvent>) {
    let mut rest = octets;
    while !rest.is_empty() {
        let message = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest) {
            Ok(message) => message,
            Err(error) => {
                // The library does not support this message. The next datagram may be valid.
                tracing::debug!("ignored a netlink message: {error}");
                return;
            }
        };
        let length = (message.header.length as usize).next_multiple_of(4);
        rest = rest.get(length.max(16)..).unwrap_or_default();
        match message.payload {
            NetlinkPayload::Done(_) => received.push(NetlinkEvent::Done),
            NetlinkPayload::Error(error) => {
                if let Some(code) = error.code {
                    received.push(NetlinkEvent::Refused(code.get()));
                }
            }
            NetlinkPayload::InnerMessage(message) => received.push(NetlinkEvent::Message(message)),
            _ => {}
        }
    }
}
