// SPDX-License-Identifier: Apache-2.0
//! Name in the question of a DNS query (RFC 1035, section 4.1), over UDP and TCP.

use super::found::{Found, Name};

/// Octets of the header.
const HEADER: usize = 12;
/// Bit of a response, and bits of the kind of query, in the third octet.
const IS_RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;

/// Finds the name of the question. [`Found::More`] if the message ends before the name does.
pub(super) fn find(message: &[u8], name: &mut Name) -> Found {
    let Some((header, questions)) = message.split_first_chunk::<HEADER>() else {
        return Found::More;
    };
    let [_, _, flags, _, a, b, ..] = *header;
    if flags & (IS_RESPONSE | OPCODE) != 0 {
        return Found::Nothing;
    }
    match u16::from_be_bytes([a, b]) {
        0 => Found::Nothing,
        1 => question(questions, name),
        // RFC 9619: a query has one question at most.
        _ => Found::Undecidable,
    }
}

/// Finds the name of the first query on a TCP connection, which has its length in front (RFC 1035, section 4.2.2).
pub(super) fn find_in_stream(octets: &[u8], name: &mut Name) -> Found {
    let Some((length, rest)) = octets.split_first_chunk::<2>() else {
        return Found::More;
    };
    let length = usize::from(u16::from_be_bytes(*length));
    let message = rest.get(..length);
    match find(message.unwrap_or(rest), name) {
        // The message is whole.
        Found::More if message.is_some() => Found::Undecidable,
        found => found,
    }
}

fn question(mut rest: &[u8], name: &mut Name) -> Found {
    *name = Name::EMPTY;
    // Each turn adds an octet to the name at least, whose length is limited.
    loop {
        let Some((length, behind)) = rest.split_first() else {
            return Found::More;
        };
        match *length {
            0 if name.is_empty() => return Found::Nothing,
            0 => return Found::Name,
            1..=63 => {}
            // The question is the first name of the message, so there is nothing to point at (RFC 1035, section 4.1.4).
            _ => return Found::Undecidable,
        }
        if !name.is_empty() && !name.push(b'.') {
            return Found::Undecidable;
        }
        let Some((label, behind)) = behind.split_at_checked(usize::from(*length)) else {
            return Found::More;
        };
        // As text, a dot within a label looks like two labels.
        if label.contains(&b'.') || !name.extend(label) {
            return Found::Undecidable;
        }
        rest = behind;
    }
}
