// SPDX-License-Identifier: Apache-2.0
//! Blocks of a pcapng file (draft-ietf-opsawg-pcapng), in little-endian order.

/// Block types (sections 4.1 to 4.3 of the draft).
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// Options (section 3.5, and those of each block).
const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_DESCRIPTION_TEXT: u16 = 3;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_ID: u16 = 5;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const VERSION: [u16; 2] = [1, 0];
/// A section of unknown length.
const UNKNOWN_LENGTH: u64 = u64::MAX;
/// LINKTYPE_USER0: the contents of the packets are those of [`packet`], not of a protocol.
const LINK_TYPE: u16 = 147;
/// Time stamps in units of 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Interface of transmit times.
pub(super) const TRANSMIT: u32 = 0;
/// Interface of receive times.
pub(super) const RECEIVE: u32 = 1;

/// Transmit or receive time of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Instant {
    /// Nanoseconds since the Unix epoch.
    pub(super) unix_ns: u64,
    /// [`TRANSMIT`] or [`RECEIVE`].
    pub(super) interface: u32,
    /// Index of the transmitting port.
    pub(super) port: u8,
    /// Sequence number in the stream of the port.
    pub(super) sequence: u32,
}

/// Returns the octets before the packets: the section header and both interfaces.
pub(super) fn head() -> Vec<u8> {
    let mut section = BYTE_ORDER_MAGIC.to_le_bytes().to_vec();
    section.extend(VERSION.iter().flat_map(|number| number.to_le_bytes()));
    section.extend(UNKNOWN_LENGTH.to_le_bytes());
    let application = format!("quietwire {}", env!("CARGO_PKG_VERSION"));
    option(&mut section, SECTION_APPLICATION, application.as_bytes());
    option(&mut section, END_OF_OPTIONS, &[]);
    let mut octets = block(SECTION_HEADER, &section);
    for (name, text) in [
        ("transmit", "low-rate streams of the tester, transmit times"),
        ("receive", "low-rate streams of the tester, receive times"),
    ] {
        octets.extend(interface(name, text));
    }
    octets
}

fn interface(name: &str, text: &str) -> Vec<u8> {
    let mut body = LINK_TYPE.to_le_bytes().to_vec();
    // Reserved, then no limit of the captured length.
    body.extend([0; 6]);
    option(&mut body, INTERFACE_NAME, name.as_bytes());
    option(&mut body, INTERFACE_DESCRIPTION_TEXT, text.as_bytes());
    option(&mut body, INTERFACE_RESOLUTION, &[NANOSECONDS]);
    option(&mut body, END_OF_OPTIONS, &[]);
    block(INTERFACE_DESCRIPTION, &body)
}

/// Returns the packet of a time. Its contents are the start of the trial, nanoseconds since the Unix epoch (64 bits), the transmitting port
/// (32 bits) and the sequence number (32 bits), in network byte order. Its identifier is the same for transmission and reception of a frame
/// and unique within a trial; the comment has port and sequence number for people.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the contents have 16 octets, and a time is written as two words"
)]
pub(super) fn packet(trial_unix_ns: u64, instant: &Instant) -> Vec<u8> {
    let port = u32::from(instant.port);
    let mut contents = trial_unix_ns.to_be_bytes().to_vec();
    contents.extend(port.to_be_bytes());
    contents.extend(instant.sequence.to_be_bytes());
    let length = (contents.len() as u32).to_le_bytes();
    let mut body = instant.interface.to_le_bytes().to_vec();
    body.extend(((instant.unix_ns >> 32) as u32).to_le_bytes());
    body.extend((instant.unix_ns as u32).to_le_bytes());
    // Captured and original length.
    body.extend(length);
    body.extend(length);
    body.extend(contents);
    let identifier = (u64::from(port) << 32) | u64::from(instant.sequence);
    option(&mut body, PACKET_ID, &identifier.to_le_bytes());
    let comment = format!("port {port} sequence {}", instant.sequence);
    option(&mut body, COMMENT, comment.as_bytes());
    option(&mut body, END_OF_OPTIONS, &[]);
    block(ENHANCED_PACKET, &body)
}

/// Appends an option, padded to 32 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "values are names and comments of a few octets"
)]
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(octets: &mut Vec<u8>) {
    octets.resize(octets.len().next_multiple_of(4), 0);
}

/// Returns a block: its type, its length, the body and the length again.
#[expect(clippy::cast_possible_truncation, reason = "a body is a few options")]
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    // Type and the two lengths.
    const AROUND: usize = 12;
    let length = (body.len().saturating_add(AROUND) as u32).to_le_bytes();
    let mut octets = kind.to_le_bytes().to_vec();
    octets.extend(length);
    octets.extend(body);
    octets.extend(length);
    octets
}
