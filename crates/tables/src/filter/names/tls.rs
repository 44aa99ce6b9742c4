// SPDX-License-Identifier: Apache-2.0
//! Server name in the first handshake message of a TLS client (RFC 8446, sections 4.1.2 and 5.1; RFC 6066, section 3).

use super::found::{Found, Name};

/// Content type of records of the handshake, and of all records (RFC 8446, section 5.1; RFC 6520, section 3).
const HANDSHAKE: u8 = 22;
const RECORDS: std::ops::RangeInclusive<u8> = 20..=24;
/// Major version of all records.
const MAJOR: u8 = 3;
/// Longest fragment of a record without encryption, octets.
const FRAGMENT_MAX: usize = 1 << 14;
/// Type of the first message of a client.
const CLIENT_HELLO: u8 = 1;
/// Octets of version and random number.
const VERSION_AND_RANDOM: usize = 34;
/// Longest session identifier, octets.
const SESSION_MAX: usize = 32;
/// Type of the extension with the server name.
const SERVER_NAME: usize = 0;
/// Type of a name that is a host name.
const HOST_NAME: usize = 0;

/// Handshake messages in records. A message may continue in the next record.
struct Handshake<'a> {
    rest: &'a [u8],
    /// Octets that are left of the record.
    in_record: usize,
}

impl Handshake<'_> {
    fn open_record(&mut self) -> Result<(), Found> {
        let (header, rest) = self.rest.split_first_chunk::<5>().ok_or(Found::More)?;
        let [kind, major, _, a, b] = *header;
        let length = usize::from(u16::from_be_bytes([a, b]));
        // Records without octets are not allowed.
        if kind != HANDSHAKE || major != MAJOR || !(1..=FRAGMENT_MAX).contains(&length) {
            return Err(Found::Undecidable);
        }
        (self.rest, self.in_record) = (rest, length);
        Ok(())
    }

    fn octet(&mut self) -> Result<u8, Found> {
        if self.in_record == 0 {
            self.open_record()?;
        }
        let (octet, rest) = self.rest.split_first().ok_or(Found::More)?;
        self.rest = rest;
        self.in_record = self.in_record.saturating_sub(1);
        Ok(*octet)
    }

    /// Skips octets. Each turn takes an octet at least.
    fn skip(&mut self, mut count: usize) -> Result<(), Found> {
        while count > 0 {
            if self.in_record == 0 {
                self.open_record()?;
            }
            let step = count.min(self.in_record);
            self.rest = self.rest.get(step..).ok_or(Found::More)?;
            self.in_record = self.in_record.saturating_sub(step);
            count = count.saturating_sub(step);
        }
        Ok(())
    }

    /// Reads a number of up to three octets.
    fn number(&mut self, octets: usize) -> Result<usize, Found> {
        let mut number = 0;
        for _ in 0..octets {
            number = (number << 8) | usize::from(self.octet()?);
        }
        Ok(number)
    }

    /// Reads a number within a part of which `left` octets are left.
    fn number_within(&mut self, left: &mut usize, octets: usize) -> Result<usize, Found> {
        take(left, octets)?;
        self.number(octets)
    }

    fn skip_within(&mut self, left: &mut usize, count: usize) -> Result<(), Found> {
        take(left, count)?;
        self.skip(count)
    }
}

/// Takes octets of a part.
fn take(left: &mut usize, count: usize) -> Result<(), Found> {
    *left = left.checked_sub(count).ok_or(Found::Undecidable)?;
    Ok(())
}

/// Finds the server name in the data of a client.
pub(super) fn find(octets: &[u8], name: &mut Name) -> Found {
    match (octets.first(), octets.get(1)) {
        (None, _) => Found::More,
        (Some(&HANDSHAKE), _) => match client_hello(octets, name) {
            Ok(found) | Err(found) => found,
        },
        (Some(kind), None) if RECORDS.contains(kind) => Found::More,
        // Some servers ignore a warning, and read the message behind it.
        (Some(kind), Some(&MAJOR)) if RECORDS.contains(kind) => Found::Undecidable,
        (Some(_), _) => Found::Nothing,
    }
}

fn client_hello(octets: &[u8], name: &mut Name) -> Result<Found, Found> {
    let mut input = Handshake {
        rest: octets,
        in_record: 0,
    };
    if input.octet()? != CLIENT_HELLO {
        return Err(Found::Undecidable);
    }
    let mut left = input.number(3)?;
    input.skip_within(&mut left, VERSION_AND_RANDOM)?;
    let session = input.number_within(&mut left, 1)?;
    if session > SESSION_MAX {
        return Err(Found::Undecidable);
    }
    input.skip_within(&mut left, session)?;
    let suites = input.number_within(&mut left, 2)?;
    input.skip_within(&mut left, suites)?;
    let compressions = input.number_within(&mut left, 1)?;
    input.skip_within(&mut left, compressions)?;
    if left == 0 {
        return Ok(Found::Nothing);
    }
    let mut extensions = input.number_within(&mut left, 2)?;
    if extensions != left {
        return Err(Found::Undecidable);
    }
    // Each turn takes four octets at least.
    while extensions > 0 {
        let kind = input.number_within(&mut extensions, 2)?;
        let length = input.number_within(&mut extensions, 2)?;
        take(&mut extensions, length)?;
        if kind == SERVER_NAME {
            return server_name(&mut input, length, name);
        }
        input.skip(length)?;
    }
    Ok(Found::Nothing)
}

/// Reads a list of names, which has one name.
fn server_name(
    input: &mut Handshake<'_>,
    mut left: usize,
    name: &mut Name,
) -> Result<Found, Found> {
    let list = input.number_within(&mut left, 2)?;
    if list != left {
        return Err(Found::Undecidable);
    }
    let kind = input.number_within(&mut left, 1)?;
    let length = input.number_within(&mut left, 2)?;
    if kind != HOST_NAME || length == 0 || length != left {
        return Err(Found::Undecidable);
    }
    *name = Name::EMPTY;
    for _ in 0..length {
        if !name.push(input.octet()?) {
            return Err(Found::Undecidable);
        }
    }
    name.remove_root();
    match name.is_empty() {
        true => Err(Found::Undecidable),
        false => Ok(Found::Name),
    }
}
