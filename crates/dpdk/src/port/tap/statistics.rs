// SPDX-License-Identifier: Apache-2.0
//! Statistics of an interface (rtnetlink(7), RTM_GETSTATS of linux/if_link.h).

use std::os::fd::OwnedFd;

use quietwire_base::rtnetlink::{ask, attribute, contents};

const RTM_NEWSTATS: u16 = 92;
const RTM_GETSTATS: u16 = 94;
/// Octets of struct if_stats_msg, and places of index and filter in it.
const HEADER: usize = 12;
const INDEX: usize = 4;
const FILTER: usize = 8;
/// IFLA_STATS_LINK_64 has a struct rtnl_link_stats64.
const LINK_64: u16 = 1;
/// Number of `tx_dropped` among its words.
const TX_DROPPED: usize = 7;

/// Returns the number of frames that the kernel sent to an interface and dropped.
pub(super) fn dropped(socket: &OwnedFd, index: i32) -> Option<u64> {
    let mut request = [0; HEADER];
    put(&mut request, INDEX, &index.to_ne_bytes())?;
    // A filter: the bit of an attribute is that of its number minus one.
    put(&mut request, FILTER, &1u32.to_ne_bytes())?;
    dropped_in(&ask(socket, RTM_GETSTATS, 0, &request).ok()?)
}

fn dropped_in(answer: &[u8]) -> Option<u64> {
    let attributes = contents(answer, RTM_NEWSTATS)?.get(HEADER..)?;
    let statistics = attribute(attributes, LINK_64)?;
    let word = statistics.get(TX_DROPPED * 8..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

fn put(octets: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    octets
        .get_mut(at..)?
        .get_mut(..value.len())?
        .copy_from_slice(value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Octets of struct nlmsghdr.
    const MESSAGE: usize = 16;

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
