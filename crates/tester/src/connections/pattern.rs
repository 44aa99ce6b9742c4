// SPDX-License-Identifier: Apache-2.0
//! Payload that follows from a key and an offset, so that neither end stores any.

use quietwire_base::random::mix;

/// Octets that follow from one key: the contents of a stream or of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(u64);

/// End that sends a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The client: requests.
    Client,
    /// The server: answers.
    Server,
}

impl Pattern {
    /// Returns the pattern of the payload that one end of a conversation sends.
    pub(crate) fn new(seed: u64, number: u64, sender: Sender) -> Self {
        let side = match sender {
            Sender::Client => 0x7265_7175_6573_7400,
            Sender::Server => 0x616e_7377_6572_0000,
        };
        Self(mix(mix(seed ^ side) ^ number))
    }

    /// Returns the eight octets at `8 * word`.
    #[inline(always)]
    fn word(self, word: u64) -> [u8; 8] {
        mix(self.0 ^ word).to_le_bytes()
    }

    /// Writes the octets from `offset` on.
    #[inline]
    pub(crate) fn fill(self, offset: u32, octets: &mut [u8]) {
        let (head, rest) = octets.split_at_mut(unaligned(offset, octets.len()));
        let mut word = u64::from(offset / 8);
        if !head.is_empty() {
            let first = self.word(word);
            let first = first.iter().skip((offset % 8) as usize);
            head.iter_mut()
                .zip(first)
                .for_each(|(to, from)| *to = *from);
            word = word.wrapping_add(1);
        }
        let (whole, tail) = rest.as_chunks_mut::<8>();
        for chunk in whole {
            *chunk = self.word(word);
            word = word.wrapping_add(1);
        }
        let last = self.word(word);
        tail.iter_mut().zip(last).for_each(|(to, from)| *to = from);
    }

    /// Returns true if these are the octets from `offset` on.
    #[inline]
    pub(crate) fn is(self, offset: u32, octets: &[u8]) -> bool {
        let (head, rest) = octets.split_at(unaligned(offset, octets.len()));
        let mut word = u64::from(offset / 8);
        let mut is_same = true;
        if !head.is_empty() {
            let first = self.word(word);
            is_same &= head
                .iter()
                .eq(first.iter().skip((offset % 8) as usize).take(head.len()));
            word = word.wrapping_add(1);
        }
        let (whole, tail) = rest.as_chunks::<8>();
        for chunk in whole {
            is_same &= *chunk == self.word(word);
            word = word.wrapping_add(1);
        }
        let last = self.word(word);
        is_same && tail.iter().eq(last.iter().take(tail.len()))
    }
}

/// Returns the number of octets before the next whole word, at most `length`.
#[inline(always)]
fn unaligned(offset: u32, length: usize) -> usize {
    (8_u32.wrapping_sub(offset % 8) as usize % 8).min(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_part_is_the_same_part_of_the_whole(number in any::<u64>(), from in 0usize..100, length in 0usize..100) {
            let pattern = Pattern::new(1, number, Sender::Client);
            let mut whole = vec![0; 200];
            pattern.fill(0, &mut whole);
            let mut part = vec![0; length];
            pattern.fill(from as u32, &mut part);
            prop_assert_eq!(&part[..], &whole[from..from + length]);
            prop_assert!(pattern.is(from as u32, &part));
        }

        #[test]
        fn each_changed_octet_is_noticed(offset in 0u32..1000, length in 1usize..100, at in any::<prop::sample::Index>(), change in 1u8..) {
            let pattern = Pattern::new(1, 2, Sender::Server);
            let mut octets = vec![0; length];
            pattern.fill(offset, &mut octets);
            octets[at.index(length)] ^= change;
            prop_assert!(!pattern.is(offset, &octets));
        }
    }

    #[test]
    fn conversations_seeds_and_ends_have_patterns_of_their_own() {
        let patterns = [
            Pattern::new(1, 1, Sender::Client),
            Pattern::new(1, 1, Sender::Server),
            Pattern::new(1, 2, Sender::Client),
            Pattern::new(2, 1, Sender::Client),
        ];
        for (index, one) in patterns.iter().enumerate() {
            let mut octets = [0; 64];
            one.fill(0, &mut octets);
            for (other, pattern) in patterns.iter().enumerate() {
                assert_eq!(pattern.is(0, &octets), index == other);
            }
        }
    }
}
