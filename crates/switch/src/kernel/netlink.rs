// SPDX-License-Identifier: Apache-2.0
//! A line to the kernel's routing tables (rtnetlink(7)): questions for whole tables, and changes as they come.

use std::io::ErrorKind;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Room for changes that wait to be read, octets.
const ROOM: usize = 4 << 20;
/// Datagrams read in one turn: the service thread has more to do.
const DATAGRAMS_A_TURN: usize = 64;

/// What the kernel said.
#[derive(Debug)]
pub(super) enum Heard {
    /// A part of an answer, or a change.
    Message(RouteNetlinkMessage),
    /// The answer has ended.
    Done,
    /// The question was refused, with this code.
    Refused(i32),
    /// Changes were lost for want of room (ENOBUFS).
    Missed,
}

/// A socket of its own.
#[derive(Debug)]
pub(super) struct Line(Socket);

impl Line {
    /// A line that tells of changes of these groups (RTNLGRP_ of linux/rtnetlink.h).
    ///
    /// # Errors
    /// What the kernel said.
    pub(super) fn new(groups: &[u32]) -> std::io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        // As much as one may have.
        if let Err(error) = socket.set_rx_buf_sz(ROOM) {
            tracing::debug!("a larger buffer for the kernel's tables: {error}");
        }
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Self(socket))
    }

    /// Asks for all of a table.
    ///
    /// # Errors
    /// What the kernel said.
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

    /// Reads what there is, up to a bound.
    ///
    /// # Errors
    /// What the kernel said.
    pub(super) fn hear(&self) -> std::io::Result<Vec<Heard>> {
        let mut heard = Vec::new();
        for _ in 0..DATAGRAMS_A_TURN {
            match self.0.recv_from_full() {
                Ok((octets, _)) => read(&octets, &mut heard),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                    heard.push(Heard::Missed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(heard)
    }
}

fn read(octets: &[u8], heard: &mut Vec<Heard>) {
    let mut rest = octets;
    while !rest.is_empty() {
        let message = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest) {
            Ok(message) => message,
            Err(error) => {
                // Of a kind that the library does not know: the next datagram may be better.
                tracing::debug!("a message of the kernel's was not understood: {error}");
                return;
            }
        };
        let length = (message.header.length as usize).next_multiple_of(4);
        rest = rest.get(length.max(16)..).unwrap_or_default();
        match message.payload {
            NetlinkPayload::Done(_) => heard.push(Heard::Done),
            NetlinkPayload::Error(error) => {
                if let Some(code) = error.code {
                    heard.push(Heard::Refused(code.get()));
                }
            }
            NetlinkPayload::InnerMessage(message) => heard.push(Heard::Message(message)),
            _ => {}
        }
    }
}
