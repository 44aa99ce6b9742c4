// SPDX-License-Identifier: Apache-2.0
//! Verdicts on the flows of one forwarding thread. The thread that receives from the inspector writes them without waiting.

use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::{Judgement, Ticket};

/// Flows of a forwarding thread.
pub const INSPECT_FLOWS: usize = 16_384;
/// Attempts to write a verdict while the forwarding thread sends packets of the same flow.
const ATTEMPTS: usize = 8;

/// The memory is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot allocate the memory for inspected flows (use rules without inspect)")]
pub struct NoInspectFlows;

/// State of a flow, as it is in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No flow, or not decided.
    Pending,
    Accepted,
    Dropped,
}

/// A flow's verdict: one word, so that both threads see all of it or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) state: State,
    /// Number of the last packet that may pass.
    pub(super) released: u8,
    /// Number of the last packet that was sent to the inspector.
    pub(super) sent: u8,
    /// Number of the inspector's port. Ports have numbers below 256.
    pub(super) port: u8,
    pub(super) nonce: u32,
}

impl Word {
    const fn pack(self) -> u64 {
        let state = match self.state {
            State::Pending => 0,
            State::Accepted => 1,
            State::Dropped => 2,
        };
        let [n0, n1, n2, n3] = self.nonce.to_be_bytes();
        u64::from_be_bytes([n0, n1, n2, n3, self.port, self.sent, self.released, state])
    }

    const fn unpack(word: u64) -> Self {
        let [n0, n1, n2, n3, port, sent, released, state] = word.to_be_bytes();
        Self {
            state: match state {
                0 => State::Pending,
                1 => State::Accepted,
                _ => State::Dropped,
            },
            released,
            sent,
            port,
            nonce: u32::from_be_bytes([n0, n1, n2, n3]),
        }
    }

    /// Returns the word after an answer from a port. `None` for an answer on another flow, on a flow that is decided, from another port, or to
    /// a packet that the inspector has not received or has released before.
    fn after(self, port: u16, ticket: Ticket, judgement: Judgement) -> Option<Self> {
        let is_of_flow = self.nonce == ticket.nonce && u16::from(self.port) == port;
        if !is_of_flow || self.state != State::Pending || self.sent == 0 {
            return None;
        }
        let packet = ticket.packet;
        match judgement {
            Judgement::Accept => Some(Self {
                state: State::Accepted,
                ..self
            }),
            Judgement::Drop => Some(Self {
                state: State::Dropped,
                ..self
            }),
            Judgement::Continue if packet > self.released && packet <= self.sent => Some(Self {
                released: packet,
                ..self
            }),
            Judgement::Continue => None,
        }
    }
}

/// Verdicts of a forwarding thread's flows.
#[derive(Debug)]
pub struct Board {
    /// By place of the flow.
    words: Box<[AtomicU64]>,
}

impl Board {
    /// Creates the verdicts of a thread: 128 KiB.
    ///
    /// # Errors
    /// [`NoInspectFlows`].
    pub fn new() -> Result<Self, NoInspectFlows> {
        let mut words = Vec::new();
        words
            .try_reserve_exact(INSPECT_FLOWS)
            .map_err(|_| NoInspectFlows)?;
        words.resize_with(INSPECT_FLOWS, AtomicU64::default);
        Ok(Self {
            words: words.into_boxed_slice(),
        })
    }

    /// Begins or changes a flow. Only the forwarding thread that has it calls this.
    pub(super) fn set(&self, place: usize, word: Word) {
        if let Some(place) = self.words.get(place) {
            place.store(word.pack(), Ordering::Release);
        }
    }

    /// Notes that the inspector gets a packet of a flow.
    pub(super) fn note_sent(&self, place: usize, packet: u8) {
        let Some(place) = self.words.get(place) else {
            return;
        };
        // A verdict that arrives meanwhile is kept. It changes the word a few times at most.
        for _ in 0..ATTEMPTS {
            let now = place.load(Ordering::Acquire);
            let next = Word {
                sent: packet,
                ..Word::unpack(now)
            };
            let written =
                place.compare_exchange(now, next.pack(), Ordering::AcqRel, Ordering::Acquire);
            if written.is_ok() {
                return;
            }
        }
    }

    /// Returns the verdict on the flow at a place.
    pub(super) fn read(&self, place: usize) -> Option<Word> {
        let word = self.words.get(place)?.load(Ordering::Acquire);
        Some(Word::unpack(word))
    }

    /// Writes an answer that a port has received. Returns false if it does not fit the flow.
    pub fn answer(&self, port: u16, ticket: Ticket, judgement: Judgement) -> bool {
        let Some(place) = self.words.get(usize::from(ticket.place)) else {
            return false;
        };
        for _ in 0..ATTEMPTS {
            let now = place.load(Ordering::Acquire);
            let Some(next) = Word::unpack(now).after(port, ticket, judgement) else {
                return false;
            };
            let written =
                place.compare_exchange(now, next.pack(), Ordering::AcqRel, Ordering::Acquire);
            if written.is_ok() {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ticket(place: u16, nonce: u32, packet: u8) -> Ticket {
        Ticket {
            place,
            nonce,
            packet,
        }
    }

    #[test]
    fn answers_fit_flow_port_and_packets() {
        let board = Board::new().unwrap();
        let word = Word {
            state: State::Pending,
            released: 0,
            sent: 0,
            port: 4,
            nonce: 77,
        };
        board.set(9, word);
        let answer = |port, ticket: Ticket, judgement| board.answer(port, ticket, judgement);
        // The inspector has not received any packet.
        assert!(!answer(4, ticket(9, 77, 1), Judgement::Accept));
        board.note_sent(9, 3);
        for (port, one) in [
            (5, ticket(9, 77, 1)),
            (4, ticket(9, 78, 1)),
            (4, ticket(8, 77, 1)),
            (4, ticket(u16::MAX, 77, 1)),
            (4, ticket(9, 77, 0)),
            (4, ticket(9, 77, 4)),
            (260, ticket(9, 77, 1)),
        ] {
            assert!(!answer(port, one, Judgement::Continue), "{port} {one:?}");
        }
        assert!(answer(4, ticket(9, 77, 2), Judgement::Continue));
        assert!(!answer(4, ticket(9, 77, 2), Judgement::Continue), "again");
        assert!(!answer(4, ticket(9, 77, 1), Judgement::Continue), "earlier");
        assert_eq!(board.read(9).unwrap().released, 2);
        assert!(answer(4, ticket(9, 77, 1), Judgement::Drop));
        assert!(!answer(4, ticket(9, 77, 3), Judgement::Accept), "decided");
        assert_eq!(board.read(9).unwrap().state, State::Dropped);
        board.set(9, Word { nonce: 78, ..word });
        assert!(!answer(4, ticket(9, 77, 1), Judgement::Accept), "replaced");
    }

    proptest! {
        #[test]
        fn words_are_unpacked_as_they_are_packed(
            state in 0..3u8, numbers in any::<[u8; 3]>(), nonce in any::<u32>(),
        ) {
            let word = Word {
                state: [State::Pending, State::Accepted, State::Dropped][usize::from(state)],
                released: numbers[0],
                sent: numbers[1],
                port: numbers[2],
                nonce,
            };
            prop_assert_eq!(Word::unpack(word.pack()), word);
        }
    }
}
