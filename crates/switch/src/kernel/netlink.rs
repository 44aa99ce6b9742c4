// SPDX-License-Identifier: Apache-2.0
//! rtnetlink(7) socket to the kernel's tables: dumps and notifications.

use std::io::ErrorKind;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::dump::DumpEvent;

#[cfg(test)]
mod tests;

/// Size of the socket's receive buffer, octets.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Maximum size of a datagram, octets. The kernel's are at most 32 KiB (`netlink_dump` in net/netlink/af_netlink.c).
const DATAGRAM_MAX: usize = 64 << 10;
/// Maximum number of datagrams per turn, because the service thread has other work.
const DATAGRAMS_A_TURN: usize = 64;
/// Types of messages that end an answer (linux/netlink.h).
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Sizes of a message's header and of the alignment of messages (netlink(7)).
const HEADER: usize = 16;
const ALIGNMENT: usize = 4;

/// Kind of a message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Part of a dump. It may be older than notifications that arrived before it, because the kernel fills a datagram of a dump before it
    /// queues it.
    Dumped,
    Notification,
}

/// A message of the kernel.
#[derive(Debug)]
pub(super) enum NetlinkEvent {
    Message(Kind, RouteNetlinkMessage),
    /// A message that the library cannot parse: its type (linux/rtnetlink.h) and its octets after the netlink header.
    Unparsed(Kind, u16, Vec<u8>),
    /// News of the dump in progress.
    Dump(DumpEvent),
    /// Notifications were lost for lack of buffer space, or cannot be read. After ENOBUFS the kernel drops all further ones, without
    /// another error, until the receive queue has been emptied (`netlink_overrun` and `netlink_rcv_wake` in net/netlink/af_netlink.c), so
    /// this event comes twice: at the error and when the queue is empty.
    Missed,
}

/// Datagrams to and from the kernel. Tests have a kernel of their own.
pub(super) trait Line: std::fmt::Debug + Send + Sync {
    /// Sends a request to the kernel.
    ///
    /// # Errors
    /// The kernel's error.
    fn send(&self, request: &[u8]) -> std::io::Result<()>;

    /// Receives a datagram into an empty buffer, without waiting. Returns its length, which is larger than that of the buffer if the
    /// datagram was too long, and the port number of its sender.
    ///
    /// # Errors
    /// The kernel's error; [`ErrorKind::WouldBlock`] if there is no datagram.
    fn receive(&self, buffer: &mut Vec<u8>) -> std::io::Result<(usize, u32)>;
}

impl Line for Socket {
    fn send(&self, request: &[u8]) -> std::io::Result<()> {
        self.send_to(request, &SocketAddr::new(0, 0), 0).map(drop)
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> std::io::Result<(usize, u32)> {
        // With MSG_TRUNC the kernel returns the whole length.
        let (length, sender) = self.recv_from(buffer, nix::libc::MSG_TRUNC)?;
        Ok((length, sender.port_number()))
    }
}

/// Opens a socket that receives notifications of these groups.
fn open(groups: &[u32]) -> std::io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    // The kernel limits the size.
    if let Err(error) = socket.set_rx_buf_sz(RECEIVE_BUFFER) {
        tracing::debug!("cannot enlarge the netlink receive buffer: {error}");
    }
    for group in groups {
        socket.add_membership(*group)?;
    }
    Ok(socket)
}

/// A netlink socket.
#[derive(Debug)]
pub(super) struct NetlinkSocket {
    line: Box<dyn Line>,
    buffer: Vec<u8>,
    is_congested: bool,
    /// Sequence number of the latest request.
    sequence: u32,
}

impl NetlinkSocket {
    /// Opens a socket that receives notifications of these groups (RTNLGRP_ of linux/rtnetlink.h).
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn new(groups: &[u32]) -> std::io::Result<Self> {
        Ok(Self::over(open(groups)?))
    }

    /// Uses an open socket.
    pub(super) fn over(line: impl Line + 'static) -> Self {
        Self {
            line: Box::new(line),
            buffer: Vec::with_capacity(DATAGRAM_MAX),
            is_congested: false,
            sequence: 0,
        }
    }

    /// Returns true if the kernel may be dropping notifications. The changes since the request of a dump would then be missing.
    pub(super) fn is_congested(&self) -> bool {
        self.is_congested
    }

    /// Requests a dump of a table.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn ask(&mut self, question: RouteNetlinkMessage) -> std::io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(question));
        request.finalize();
        let mut octets = vec![0; request.buffer_len()];
        request.serialize(&mut octets);
        self.line.send(&octets)
    }

    /// Reads pending messages, up to a limit. Messages of other processes are ignored.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn receive_events(&mut self) -> std::io::Result<Vec<NetlinkEvent>> {
        self.receive_events_up_to(DATAGRAMS_A_TURN)
    }

    fn receive_events_up_to(&mut self, datagrams: usize) -> std::io::Result<Vec<NetlinkEvent>> {
        let mut received = Vec::new();
        for _ in 0..datagrams {
            self.buffer.clear();
            match self.line.receive(&mut self.buffer) {
                // Any process may send to this socket; the kernel's port number is 0.
                Ok((_, sender)) if sender != 0 => {}
                Ok((length, _)) if length > self.buffer.len() => {
                    received.push(NetlinkEvent::Missed);
                }
                Ok(_) => read(&self.buffer, self.sequence, &mut received),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if std::mem::take(&mut self.is_congested) {
                        received.push(NetlinkEvent::Missed);
                    }
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                    self.is_congested = true;
                    received.push(NetlinkEvent::Missed);
                }
                // Events that were read are not lost for a later error, which the next turn returns if it persists.
                Err(error) if received.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(received)
    }
}

/// Reads the messages of a datagram. One that the library cannot parse is skipped by the length in its header. Parts of dumps count only if
/// they answer the request with this sequence number: the end of a dump that was given up must not complete the next one.
pub(super) fn read(datagram: &[u8], sequence: u32, received: &mut Vec<NetlinkEvent>) {
    let mut rest = datagram;
    while !rest.is_empty() {
        let Some((header, octets)) = first_message(rest) else {
            tracing::debug!("a netlink datagram ends within a message");
            received.push(NetlinkEvent::Missed);
            return;
        };
        rest = rest
            .get(octets.len().next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
        let is_answer = header.is_multipart || matches!(header.kind, NLMSG_ERROR | NLMSG_DONE);
        if is_answer && header.sequence != sequence {
            continue;
        }
        let kind = if header.is_multipart {
            Kind::Dumped
        } else {
            Kind::Notification
        };
        if header.is_multipart {
            received.push(NetlinkEvent::Dump(DumpEvent::Progress(
                header.is_interrupted,
            )));
        }
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(octets) {
            Ok(message) => match message.payload {
                NetlinkPayload::Done(end) if end.code != 0 => {
                    received.push(NetlinkEvent::Dump(DumpEvent::Refused(end.code)));
                }
                NetlinkPayload::Done(_) => received.push(NetlinkEvent::Dump(DumpEvent::Done)),
                NetlinkPayload::Error(error) => {
                    if let Some(code) = error.code {
                        received.push(NetlinkEvent::Dump(DumpEvent::Refused(code.get())));
                    }
                }
                NetlinkPayload::InnerMessage(message) => {
                    received.push(NetlinkEvent::Message(kind, message));
                }
                _ => {}
            },
            Err(error) => {
                tracing::debug!("cannot parse a netlink message: {error}");
                let payload = octets.get(HEADER..).unwrap_or_default();
                received.push(NetlinkEvent::Unparsed(kind, header.kind, payload.to_vec()));
            }
        }
    }
}

/// Fields of a message's header (struct nlmsghdr of linux/netlink.h) that this module reads.
struct Header {
    kind: u16,
    is_multipart: bool,
    is_interrupted: bool,
    sequence: u32,
}

/// Returns the first message of a datagram with its header; `None` if it is cut short or its length cannot be right.
fn first_message(datagram: &[u8]) -> Option<(Header, &[u8])> {
    let length = u32::from_ne_bytes(*datagram.first_chunk()?);
    let kind = u16::from_ne_bytes(*datagram.get(4..)?.first_chunk()?);
    let flags = u16::from_ne_bytes(*datagram.get(6..)?.first_chunk()?);
    let sequence = u32::from_ne_bytes(*datagram.get(8..)?.first_chunk()?);
    let length = usize::try_from(length).ok().filter(|n| *n >= HEADER)?;
    let header = Header {
        kind,
        is_multipart: flags & NLM_F_MULTIPART != 0,
        is_interrupted: flags & NLM_F_DUMP_INTR != 0,
        sequence,
    };
    Some((header, datagram.get(..length)?))
}

/// Returns the attributes that follow the fixed part of a message: their types and values, as far as lengths can be right (struct rtattr
/// of linux/rtnetlink.h).
pub(super) fn attributes(octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const ATTRIBUTE_HEADER: usize = 4;
    /// NLA_F_NESTED and NLA_F_NET_BYTEORDER are flags in the type.
    const TYPE_MASK: u16 = 0x3fff;
    let mut rest = octets;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        rest = rest
            .get(length.next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
        Some((kind & TYPE_MASK, value))
    })
}
