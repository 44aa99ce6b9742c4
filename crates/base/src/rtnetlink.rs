// SPDX-License-Identifier: Apache-2.0
//! Requests to rtnetlink(7), one by one.

// Messages from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;

use crate::deadline::Deadline;

/// Bits of an attribute's type that are no flags (linux/netlink.h, `NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;
/// Octets of struct nlmsghdr and struct nlattr.
const MESSAGE_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// Octets of struct ifinfomsg.
const LINK_HEADER: usize = 16;
/// Largest reply: a link with all its attributes.
const REPLY_MAX: usize = 64 << 10;
/// Timeout for a reply, which the kernel sends at once, seconds.
const REPLY_S: i64 = 5;
/// Time for which late replies to earlier requests are skipped.
const SKIPPING: Duration = Duration::from_secs(5);
/// Sequence number of the next request of this process.
static SEQUENCE: AtomicU32 = AtomicU32::new(1);

/// Opens a socket in the network namespace of the thread.
///
/// # Errors
/// The kernel's error.
pub fn open() -> Result<OwnedFd, Errno> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(REPLY_S, 0))?;
    Ok(socket)
}

/// Sends a message of a type (RTM_*) with flags (NLM_F_*) beside NLM_F_REQUEST, and returns the reply. Skips replies to earlier requests of
/// the socket, which arrived after their timeout.
///
/// # Errors
/// The kernel's error, or a reply that is too short or too long.
pub fn ask(
    socket: impl AsFd,
    kind: u16,
    flags: libc::c_int,
    contents: &[u8],
) -> io::Result<Vec<u8>> {
    let octets = contents.len().saturating_add(MESSAGE_HEADER);
    let length = u32::try_from(octets).map_err(io::Error::other)?;
    let flags = u16::try_from(libc::NLM_F_REQUEST | flags).map_err(io::Error::other)?;
    let mut message = Vec::with_capacity(octets);
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    message.extend(sequence.to_ne_bytes());
    // Port of the sender, which the kernel knows.
    message.extend([0; 4]);
    message.extend(contents);
    let socket = socket.as_fd();
    send(socket.as_raw_fd(), &message, MsgFlags::empty())?;
    receive(socket, sequence, Deadline::after(SKIPPING))
}

/// Receives the reply to the request with this sequence number.
fn receive(socket: BorrowedFd<'_>, sequence: u32, skipping: Deadline) -> io::Result<Vec<u8>> {
    loop {
        let mut reply = vec![0; REPLY_MAX];
        let length = recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty())?;
        reply.truncate(length);
        let field = |at: usize| Some(u32::from_ne_bytes(*reply.get(at..)?.first_chunk()?));
        let (whole, number) = field(0).zip(field(8)).ok_or_else(malformed)?;
        if number == sequence {
            // The kernel cuts a message that is longer than the buffer.
            let is_whole = usize::try_from(whole).is_ok_and(|whole| whole <= reply.len());
            return if is_whole {
                checked(reply)
            } else {
                Err(malformed())
            };
        }
        if skipping.has_passed() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn malformed() -> io::Error {
    io::Error::other("malformed reply of rtnetlink")
}

/// Returns a reply, or the error that it reports.
fn checked(reply: Vec<u8>) -> io::Result<Vec<u8>> {
    if libc::c_int::from(kind_of(&reply).ok_or_else(malformed)?) != libc::NLMSG_ERROR {
        return Ok(reply);
    }
    let code = reply.get(MESSAGE_HEADER..);
    let code = code.and_then(|octets| octets.first_chunk());
    match i32::from_ne_bytes(*code.ok_or_else(malformed)?) {
        // An acknowledgement.
        0 => Ok(reply),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

fn kind_of(message: &[u8]) -> Option<u16> {
    let kind = message.get(4..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*kind))
}

/// Returns what follows the header of a message, if it is of this type.
#[must_use]
pub fn contents(message: &[u8], kind: u16) -> Option<&[u8]> {
    let contents = message.get(MESSAGE_HEADER..)?;
    (kind_of(message)? == kind).then_some(contents)
}

/// Returns the contents of a message about the link of an interface: struct ifinfomsg and attributes. The kernel gives those flags (IFF_*)
/// that are in `changed` the value in `flags`.
#[must_use]
pub fn link(index: u32, flags: u32, changed: u32, attributes: &[u8]) -> Vec<u8> {
    let mut link = Vec::with_capacity(attributes.len().saturating_add(LINK_HEADER));
    // Family and type.
    link.extend([0; 4]);
    for word in [index, flags, changed] {
        link.extend(word.to_ne_bytes());
    }
    link.extend(attributes);
    link
}

/// Returns the index and the attributes in a message about a link (RTM_NEWLINK).
#[must_use]
pub fn parse_link(message: &[u8]) -> Option<(u32, &[u8])> {
    let link = contents(message, libc::RTM_NEWLINK)?;
    let index = link.get(4..)?.first_chunk()?;
    Some((u32::from_ne_bytes(*index), link.get(LINK_HEADER..)?))
}

/// Appends an attribute.
///
/// # Errors
/// The value is too long.
pub fn push(to: &mut Vec<u8>, kind: u16, value: &[u8]) -> io::Result<()> {
    let length = value.len().saturating_add(ATTRIBUTE_HEADER);
    let length = u16::try_from(length).map_err(io::Error::other)?;
    to.extend(length.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(ATTRIBUTE_HEADER), 0);
    Ok(())
}

/// Returns the value of an attribute.
#[must_use]
pub fn attribute(mut octets: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*octets.first_chunk()?));
        let kind = u16::from_ne_bytes(*octets.get(2..)?.first_chunk()?);
        if kind & TYPE_MASK == wanted {
            return octets.get(ATTRIBUTE_HEADER..length);
        }
        let next = length.max(ATTRIBUTE_HEADER);
        octets = octets.get(next.next_multiple_of(ATTRIBUTE_HEADER)..)?;
    }
}

/// Returns the attributes in these octets: type without flags, and value. Ends at the first malformed one.
pub fn attributes(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*octets.first_chunk()?));
        let kind = u16::from_ne_bytes(*octets.get(2..)?.first_chunk()?);
        let value = octets.get(ATTRIBUTE_HEADER..length)?;
        let next = length.next_multiple_of(ATTRIBUTE_HEADER);
        octets = octets.get(next..).unwrap_or_default();
        Some((kind & TYPE_MASK, value))
    })
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::socketpair;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_are_found_as_they_were_written() {
        let mut octets = Vec::new();
        push(&mut octets, 7, &[]).unwrap();
        push(&mut octets, 8 | 1 << 15, &[1, 2, 3]).unwrap();
        push(&mut octets, 9, &[4, 5, 6, 7]).unwrap();
        assert_eq!(octets.len(), 4 + 8 + 8);
        assert_eq!(attribute(&octets, 7), Some(&[][..]));
        assert_eq!(attribute(&octets, 8), Some(&[1, 2, 3][..]));
        assert_eq!(attribute(&octets, 9), Some(&[4, 5, 6, 7][..]));
        assert_eq!(attribute(&octets, 10), None);
        for length in 0..octets.len() {
            assert_eq!(attribute(&octets[..length], 9), None, "{length}");
        }
        let all: Vec<(u16, &[u8])> = attributes(&octets).collect();
        assert_eq!(all, [(7, &[][..]), (8, &[1, 2, 3]), (9, &[4, 5, 6, 7])]);
        assert_eq!(attributes(&octets[..octets.len() - 1]).count(), 2);
        assert!(push(&mut octets, 1, &[0; 65_536]).is_err());
    }

    #[test]
    fn a_link_is_read_as_it_was_written() {
        let link = link(7, 1, 3, &[5, 6]);
        let header = [0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0];
        assert_eq!(link, [&header[..], &[5, 6]].concat());
        let message = |kind: u16| {
            let header = [&[0; 4][..], &kind.to_ne_bytes(), &[0; 10]].concat();
            [header, link.clone()].concat()
        };
        let whole = message(libc::RTM_NEWLINK);
        assert_eq!(parse_link(&whole), Some((7, &[5, 6][..])));
        assert_eq!(parse_link(&message(libc::RTM_DELLINK)), None);
        for length in 0..MESSAGE_HEADER + LINK_HEADER {
            assert_eq!(parse_link(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn an_error_is_that_of_the_kernel_and_an_acknowledgement_is_none() {
        let kind = libc::NLMSG_ERROR as u16;
        let reply = |code: i32| {
            let header = [&[0; 4][..], &kind.to_ne_bytes(), &[0; 10]].concat();
            checked([&header[..], &code.to_ne_bytes()].concat())
        };
        let acknowledged = reply(0).unwrap();
        assert_eq!(contents(&acknowledged, kind), Some(&[0; 4][..]));
        assert_eq!(contents(&acknowledged, kind + 1), None);
        let error = reply(-libc::ENODEV).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(checked(vec![0; 5]).is_err());
    }

    /// Returns a reply as the kernel sends it.
    fn reply(kind: u16, sequence: u32, contents: &[u8]) -> Vec<u8> {
        let length = (MESSAGE_HEADER + contents.len()) as u32;
        let mut reply = length.to_ne_bytes().to_vec();
        reply.extend(kind.to_ne_bytes());
        reply.extend([0; 2]);
        reply.extend(sequence.to_ne_bytes());
        reply.extend([0; 4]);
        reply.extend(contents);
        reply
    }

    /// Receives the reply to request 7 from a kernel that has sent these, and sends no more.
    fn received(replies: &[Vec<u8>], skipping: Duration) -> io::Result<Vec<u8>> {
        let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
        let (ours, kernels) = socketpair(family, kind, None, SockFlag::SOCK_CLOEXEC).unwrap();
        setsockopt(&ours, sockopt::ReceiveTimeout, &TimeVal::new(0, 10_000)).unwrap();
        for reply in replies {
            send(kernels.as_raw_fd(), reply, MsgFlags::empty()).unwrap();
        }
        receive(ours.as_fd(), 7, Deadline::after(skipping))
    }

    #[test]
    fn late_replies_to_earlier_requests_are_skipped_for_some_time() {
        const MINUTE: Duration = Duration::from_secs(60);
        let error = (-libc::ENODEV).to_ne_bytes();
        let late = [
            reply(libc::RTM_NEWLINK, 5, &[1]),
            reply(libc::NLMSG_ERROR as u16, 6, &error),
        ];
        let own = reply(libc::RTM_NEWLINK, 7, &[2]);
        let all = [&late[..], &[own]].concat();
        let found = received(&all, MINUTE).unwrap();
        assert_eq!(contents(&found, libc::RTM_NEWLINK), Some(&[2][..]));
        let own = reply(libc::NLMSG_ERROR as u16, 7, &error);
        let found = received(&[&late[..], &[own]].concat(), MINUTE).unwrap_err();
        assert_eq!(found.raw_os_error(), Some(libc::ENODEV));
        let found = received(&late, MINUTE).unwrap_err();
        assert_eq!(found.kind(), io::ErrorKind::WouldBlock, "no reply");
        let found = received(&late, Duration::ZERO).unwrap_err();
        assert_eq!(found.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_reply_that_is_cut_is_an_error() {
        let whole = reply(libc::RTM_NEWLINK, 7, &[0; 20]);
        assert!(received(std::slice::from_ref(&whole), Duration::ZERO).is_ok());
        for length in 1..whole.len() {
            let cut = whole[..length].to_vec();
            let found = received(&[cut], Duration::ZERO);
            assert!(found.is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read_to_an_end(octets in prop::collection::vec(any::<u8>(), 0..64), wanted in 0u16..4) {
            if let Some(value) = attribute(&octets, wanted) {
                prop_assert!(value.len() < octets.len());
            }
            for (_, value) in attributes(&octets) {
                prop_assert!(value.len() < octets.len());
            }
            let _ = contents(&octets, wanted);
            let _ = parse_link(&octets);
            let _ = checked(octets);
        }
    }
}
