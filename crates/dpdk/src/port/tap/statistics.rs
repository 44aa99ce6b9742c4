// SPDX-License-Identifier: Apache-2.0
//! Statistics of an interface (rtnetlink(7), RTM_GETSTATS of linux/if_link.h).

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{MsgFlags, recv, send};

const RTM_NEWSTATS: u16 = 92;
const RTM_GETSTATS: u16 = 94;
const NLM_F_REQUEST: u16 = 1;
/// struct nlmsghdr, struct if_stats_msg and struct nlattr, octets.
const MESSAGE: usize = 16;
const HEADER: usize = 12;
const ATTRIBUTE: usize = 4;
/// IFLA_STATS_LINK_64 has a struct rtnl_link_stats64.
const LINK_64: u16 = 1;
/// Number of `tx_dropped` among its words.
const TX_DROPPED: usize = 7;

/// Returns the number of frames that the kernel sent to an interface and dropped.
pub(super) fn dropped(socket: &OwnedFd, index: i32) -> Option<u64> {
    let mut request = [0; MESSAGE + HEADER];
    put(&mut request, 0, &((MESSAGE + HEADER) as u32).to_ne_bytes())?;
    put(&mut request, 4, &RTM_GETSTATS.to_ne_bytes())?;
    put(&mut request, 6, &NLM_F_REQUEST.to_ne_bytes())?;
    put(&mut request, MESSAGE + 4, &index.to_ne_bytes())?;
    // A filter: the bit of an attribute is that of its number minus one.
    put(&mut request, MESSAGE + 8, &1u32.to_ne_bytes())?;
    let socket = socket.as_raw_fd();
    send(socket, &request, MsgFlags::empty()).ok()?;
    let mut answer = [0; 1024];
    let length = recv(socket, &mut answer, MsgFlags::MSG_DONTWAIT).ok()?;
    dropped_in(answer.get(..length)?)
}

fn dropped_in(answer: &[u8]) -> Option<u64> {
    if u16::from_ne_bytes(array(answer, 4)?) != RTM_NEWSTATS {
        return None;
    }
    let mut rest = answer.get(MESSAGE + HEADER..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(array(rest, 0)?));
        let attribute = rest.get(ATTRIBUTE..length)?;
        if u16::from_ne_bytes(array(rest, 2)?) == LINK_64 {
            return Some(u64::from_ne_bytes(array(attribute, TX_DROPPED * 8)?));
        }
        rest = rest.get(length.next_multiple_of(ATTRIBUTE)..)?;
    }
}

fn put(octets: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    octets.get_mut(at..at + value.len())?.copy_from_slice(value);
    Some(())
}

fn array<const N: usize>(octets: &[u8], at: usize) -> Option<[u8; N]> {
    octets.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_are_found_behind_padding() {
        let mut answer = vec![0; MESSAGE + HEADER];
        answer[4..6].copy_from_slice(&RTM_NEWSTATS.to_ne_bytes());
        // IFLA_STATS_UNSPEC, as the kernel pads.
        answer.extend([4, 0, 0, 0]);
        answer.extend((4 + 10 * 8u16).to_ne_bytes());
        answer.extend(LINK_64.to_ne_bytes());
        answer.extend((0..10u64).flat_map(|word| (100 + word).to_ne_bytes()));
        assert_eq!(dropped_in(&answer), Some(107));
        for length in 0..answer.len() {
            assert_eq!(dropped_in(&answer[..length]), None, "{length}");
        }
        answer[4] = 2;
        assert_eq!(dropped_in(&answer), None);
        assert_eq!(dropped_in(&[0; 64]), None);
    }
}
