// SPDX-License-Identifier: Apache-2.0
//! Head of a conversation: the first octets that a client sends, and the first octets of each datagram. It names the conversation and what
//! the client expects, so that the server can answer without a memory of the client, and knows what a NAT has changed:
//!
//! | octets | what |
//! |---|---|
//! | 0..4 | magic number: of a request, or of the answer in a datagram |
//! | 4..8 | check: a hash of the other octets and the seed |
//! | 8..16 | number of the conversation |
//! | 16..20 | length of a request, octets |
//! | 20..24 | length of an answer, octets |
//! | 24..28 | number of requests |
//! | 28..32 | index of the request, in datagrams |
//! | 32..48 | address of the client, as the client knows it |
//! | 48..50 | port of the client, as the client knows it |
//! | 50..52 | zero |

use std::net::Ipv6Addr;

use quietwire_base::random::mix;

use super::octets::put;
use super::pattern::{Pattern, Sender};

/// Length of the head, octets: the shortest request.
pub(crate) const HEAD: u32 = 52;
const HEAD_LENGTH: usize = HEAD as usize;

/// Magic numbers: `qwcr` and `qwca`.
const OF_REQUEST: [u8; 4] = *b"qwcr";
const OF_ANSWER: [u8; 4] = *b"qwca";

/// Request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Number of the conversation.
    pub(crate) number: u64,
    /// Length of a request, octets.
    pub(crate) request: u32,
    /// Length of an answer, octets.
    pub(crate) answer: u32,
    /// Number of requests.
    pub(crate) count: u32,
    /// Index of the request, in datagrams.
    pub(crate) index: u32,
    /// Address of the client.
    pub(crate) address: Ipv6Addr,
    /// Port of the client.
    pub(crate) port: u16,
}

/// Returns the hash of a head, without its magic number and its hash.
fn check(seed: u64, octets: &[u8]) -> [u8; 4] {
    let (words, rest) = octets.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let words = words.iter().chain([&last]);
    let hash = words.fold(seed, |hash, word| mix(hash ^ u64::from_le_bytes(*word)));
    let [a, b, c, d, ..] = hash.to_be_bytes();
    [a, b, c, d]
}

impl Request {
    /// Returns the octets of the head. `sender` is the end that sends it.
    pub(crate) fn head(&self, seed: u64, sender: Sender) -> [u8; HEAD_LENGTH] {
        let magic = match sender {
            Sender::Client => OF_REQUEST,
            Sender::Server => OF_ANSWER,
        };
        let mut octets = [0; HEAD_LENGTH];
        let Some((start, rest)) = octets.split_first_chunk_mut::<8>() else {
            return octets;
        };
        let mut fields = put(rest, &self.number.to_be_bytes());
        for number in [self.request, self.answer, self.count, self.index] {
            fields = put(fields, &number.to_be_bytes());
        }
        fields = put(fields, &self.address.octets());
        put(fields, &self.port.to_be_bytes());
        let hash = check(seed, rest);
        put(put(start, &magic), &hash);
        octets
    }

    /// Reads the head at the start of octets from `sender`. Returns `None` if there is no head with a correct check.
    pub(crate) fn read(seed: u64, sender: Sender, octets: &[u8]) -> Option<Self> {
        let (head, _) = octets.split_first_chunk::<HEAD_LENGTH>()?;
        let (number, rest) = head.get(8..)?.split_first_chunk()?;
        let (lengths, rest) = rest.split_first_chunk::<16>()?;
        let (address, rest) = rest.split_first_chunk::<16>()?;
        let (port, _) = rest.split_first_chunk()?;
        let mut numbers = lengths.as_chunks::<4>().0.iter().copied();
        let mut next = || numbers.next().map_or(0, u32::from_be_bytes);
        let request = Self {
            number: u64::from_be_bytes(*number),
            request: next(),
            answer: next(),
            count: next(),
            index: next(),
            address: Ipv6Addr::from(*address),
            port: u16::from_be_bytes(*port),
        };
        (request.head(seed, sender) == *head).then_some(request)
    }
}

/// Octets that one end sends: a head, if it sends one, and a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    head: Option<[u8; HEAD_LENGTH]>,
    pattern: Pattern,
}

impl Contents {
    /// Returns the octets that the client sends on a connection.
    pub(crate) fn of_client(seed: u64, request: &Request) -> Self {
        Self {
            head: Some(request.head(seed, Sender::Client)),
            pattern: Pattern::new(seed, request.number, Sender::Client),
        }
    }

    /// Returns the octets that the server sends on a connection.
    pub(crate) fn of_server(seed: u64, number: u64) -> Self {
        Self {
            head: None,
            pattern: Pattern::new(seed, number, Sender::Server),
        }
    }

    /// Returns the contents of a datagram.
    pub(crate) fn of_datagram(seed: u64, request: &Request, sender: Sender) -> Self {
        let number = request.number ^ u64::from(request.index) << 32;
        Self {
            head: Some(request.head(seed, sender)),
            pattern: Pattern::new(seed, mix(number), sender),
        }
    }

    /// Writes the octets from `offset` on.
    #[inline]
    pub(crate) fn fill(&self, offset: u32, octets: &mut [u8]) {
        self.pattern.fill(offset, octets);
        put(octets, self.head_from(offset));
    }

    /// Returns the octets of the head from `offset` on.
    #[inline]
    fn head_from(&self, offset: u32) -> &[u8] {
        let head = self.head.as_ref().map_or(&[][..], |head| head);
        head.get(offset as usize..).unwrap_or_default()
    }

    /// Returns true if these are the octets from `offset` on.
    #[inline]
    pub(crate) fn is(&self, offset: u32, octets: &[u8]) -> bool {
        let head = self.head_from(offset);
        let (first, rest) = octets.split_at(head.len().min(octets.len()));
        let is_head = head.starts_with(first);
        let skipped = u32::try_from(first.len()).unwrap_or(u32::MAX);
        is_head && self.pattern.is(offset.saturating_add(skipped), rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(number: u64, address: u128) -> Request {
        Request {
            number,
            request: 100,
            answer: 200,
            count: 3,
            index: 1,
            address: Ipv6Addr::from_bits(address),
            port: 1024,
        }
    }

    proptest! {
        #[test]
        fn a_head_is_read_back_and_each_change_is_noticed(
            number in any::<u64>(),
            address in any::<u128>(),
            at in 0..HEAD_LENGTH,
            change in 1u8..,
        ) {
            let request = request(number, address);
            for (sender, other) in [(Sender::Client, Sender::Server), (Sender::Server, Sender::Client)] {
                let mut head = request.head(5, sender);
                prop_assert_eq!(Request::read(5, sender, &head), Some(request));
                prop_assert_eq!(Request::read(5, other, &head), None);
                prop_assert_eq!(Request::read(6, sender, &head), None);
                prop_assert_eq!(Request::read(5, sender, &head[1..]), None);
                head[at] ^= change;
                prop_assert_eq!(Request::read(5, sender, &head), None);
            }
        }

        #[test]
        fn parts_of_contents_are_parts_of_the_whole(
            number in any::<u64>(),
            from in 0usize..120,
            length in 1usize..100,
            at in any::<prop::sample::Index>(),
        ) {
            let request = request(number, 7);
            let all = [
                Contents::of_client(5, &request),
                Contents::of_server(5, number),
                Contents::of_datagram(5, &request, Sender::Server),
            ];
            for contents in all {
                let mut whole = [0; 220];
                contents.fill(0, &mut whole);
                let mut part = vec![0; length];
                contents.fill(from as u32, &mut part);
                prop_assert_eq!(&part[..], &whole[from..from + length]);
                prop_assert!(contents.is(from as u32, &part));
                part[at.index(length)] ^= 1;
                prop_assert!(!contents.is(from as u32, &part));
            }
        }
    }
}
