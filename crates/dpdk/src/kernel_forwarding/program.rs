// SPDX-License-Identifier: Apache-2.0
//! The maps and the two programs of kernel forwarding.

use std::io;
use std::os::fd::AsFd;

use crate::ebpf::assembler::{
    Assembler, AssemblerError, Condition, Helper, Instruction, Label, R0, R1, R2, R3, R4, R6, R7,
    R8, R9, R10, Register, Size,
};
use crate::ebpf::table::{CpuNumbers, Table};
use Condition::{Equal, NotEqual};
use Size::{Double, Half, Word};

/// Maximum number of stations in the table of a bridge.
pub const KERNEL_ADDRESSES_MAX: usize = 4096;

/// Maps that both programs and this process share.
#[derive(Debug)]
pub(super) struct Maps {
    /// Ports by index of their interface: [`port`].
    pub(super) ports: Table<4, 8>,
    /// Stations by address and VLAN: [`station`].
    pub(super) stations: Table<8, 24>,
    /// A single value: not 0 while the kernel forwards.
    pub(super) control: Table<4, 4>,
    /// A single value, the decision of the filter: index of the output's interface, or 0; indexes of the counters of input and output.
    decision: CpuNumbers<2>,
    /// Frames and octets; two counters for each port: [`counters`].
    pub(super) counters: CpuNumbers<2>,
}

impl Maps {
    pub(super) fn new(ports_max: u16) -> io::Result<Self> {
        let ports_max = u32::from(ports_max);
        let stations_max = u32::try_from(KERNEL_ADDRESSES_MAX).map_err(io::Error::other)?;
        Ok(Self {
            ports: Table::hash("qw_ports", ports_max)?,
            stations: Table::hash("qw_stations", stations_max)?,
            control: Table::array("qw_control", 1)?,
            decision: CpuNumbers::new("qw_decision", 1)?,
            counters: CpuNumbers::new("qw_counters", ports_max.saturating_mul(2))?,
        })
    }
}

// Octets of a port.
const PORT_VLAN: i16 = 0;
const PORT_IS_UNTAGGED: i16 = 4;

/// Returns the value of a port with this VLAN, or 0: tagged frames are not for a VLAN.
pub(super) fn port(vlan: u16) -> [u8; 8] {
    octets([u32::from(vlan), u32::from(vlan > 0)])
}

// Octets of a station.
const STATION_INTERFACE: i16 = 0;
const STATION_NUMBER: i16 = 4;
const STATION_LENGTH_MAX: i16 = 8;
const STATION_LAST_FRAME: i16 = 16;

/// Returns the value of a station at a port that has not sent a frame yet.
pub(super) fn station(interface: u32, number: u16, length_max: u32) -> [u8; 24] {
    octets([interface, u32::from(number), length_max, 0, 0, 0])
}

/// Returns the time of the last frame of a station.
pub(super) fn last_frame(station: [u8; 24]) -> u64 {
    station
        .last_chunk()
        .map_or(0, |octets| u64::from_ne_bytes(*octets))
}

/// Returns the numbers as octets. The result has four for each number.
fn octets<const NUMBERS: usize, const OCTETS: usize>(numbers: [u32; NUMBERS]) -> [u8; OCTETS] {
    let mut octets = [0; OCTETS];
    let of_numbers = numbers.iter().flat_map(|number| number.to_ne_bytes());
    for (octet, value) in octets.iter_mut().zip(of_numbers) {
        *octet = value;
    }
    octets
}

/// Returns the indexes of the counters of a port: those of received and of sent frames.
pub(super) const fn counters(number: u16) -> [u32; 2] {
    let first = (number as u32).saturating_mul(2);
    [first, first.saturating_add(1)]
}

// Octets of a decision.
const OUTPUT: i16 = 0;
const INPUT_NUMBER: i16 = 4;
const OUTPUT_NUMBER: i16 = 8;

// Octets of struct __sk_buff (linux/bpf.h).
const LENGTH: i16 = 0;
const PACKET_TYPE: i16 = 4;
const HAS_TAG: i16 = 20;
const INTERFACE: i16 = 40;
const SEGMENT_SIZE: i16 = 176;

/// linux/if_packet.h, PACKET_OUTGOING.
const OUTGOING: u32 = 4;
/// Octets of the headers of the shortest frame with data to be segmented: Ethernet, IPv4, UDP.
const HEADERS_MIN: i32 = 14 + 20 + 8;
/// Octets of a tag, which the kernel keeps beside the frame.
const TAG: i32 = 4;
const ADDRESSES_LENGTH: i32 = 12;
/// Result of a filter: the socket gets the whole frame, or nothing.
const ALL: i32 = -1;
const NOTHING: i32 = 0;
/// linux/bpf.h, TCX_NEXT: further programs, then the protocols get the frame.
const NEXT: i32 = -1;

// Fields on the stack, offsets from its end.
/// Key of an array.
const KEY: i16 = -4;
const INPUT: i16 = -8;
/// Both addresses of the frame, the destination first.
const ADDRESSES: i16 = -24;
/// Keys of stations.
const SOURCE: i16 = -32;
const DESTINATION: i16 = -40;
/// Distance of the VLAN in the key of a station.
const KEY_VLAN: i16 = 6;
/// Halves of an address, and their distances from the first one.
const HALVES: [i16; 3] = [0, 2, 4];

/// Returns the filter of the packet sockets. R6 points to the frame, R9 to the decision, R8 to the source, and R7 to the port, then to the
/// destination.
///
/// # Errors
/// [`AssemblerError`].
#[expect(
    clippy::arithmetic_side_effects,
    reason = "distances on the stack, of a few octets"
)]
pub(super) fn filter(maps: &Maps) -> Result<Vec<Instruction>, AssemblerError> {
    let mut code = Assembler::default();
    let (to_socket, has_moved) = (code.label(), code.label());
    code.copy(R6, R1);
    code.store_number((R10, KEY), 0);
    look_up(&mut code, &maps.decision, KEY, to_socket);
    code.copy(R9, R0);
    code.store_number((R9, OUTPUT), 0);
    look_up(&mut code, &maps.control, KEY, to_socket);
    code.load(Word, R1, (R0, 0));
    code.jump_if(R1, Equal, 0, to_socket);
    code.load(Word, R1, (R6, PACKET_TYPE));
    code.jump_if(R1, Equal, OUTGOING, to_socket);
    load_addresses(&mut code, to_socket);
    code.load(Word, R1, (R6, INTERFACE));
    code.store(Word, (R10, INPUT), R1);
    look_up(&mut code, &maps.ports, INPUT, to_socket);
    code.copy(R7, R0);
    let is_admitted = code.label();
    code.load(Word, R1, (R7, PORT_IS_UNTAGGED));
    code.jump_if(R1, Equal, 0, is_admitted);
    code.load(Word, R1, (R6, HAS_TAG));
    code.jump_if(R1, NotEqual, 0, to_socket);
    code.bind(is_admitted);
    code.load(Word, R1, (R7, PORT_VLAN));
    for (key, at) in [(DESTINATION, ADDRESSES), (SOURCE, ADDRESSES + 6)] {
        code.store(Half, (R10, key + KEY_VLAN), R1);
        for half in HALVES {
            code.load(Half, R2, (R10, at + half));
            code.store(Half, (R10, key + half), R2);
        }
    }
    look_up(&mut code, &maps.stations, SOURCE, to_socket);
    code.copy(R8, R0);
    code.load(Word, R1, (R8, STATION_INTERFACE));
    code.load(Word, R2, (R10, INPUT));
    code.jump_if_different(R1, R2, has_moved);
    look_up(&mut code, &maps.stations, DESTINATION, to_socket);
    code.copy(R7, R0);
    code.load(Word, R1, (R7, STATION_INTERFACE));
    code.load(Word, R2, (R10, INPUT));
    code.jump_if_same(R1, R2, to_socket);
    check_length(&mut code, to_socket);
    decide(&mut code);
    code.bind(has_moved);
    code.load_map(R1, maps.stations.as_fd());
    code.copy(R2, R10);
    code.add(R2, i32::from(SOURCE));
    code.call(Helper::MapDelete);
    code.bind(to_socket);
    code.set(R0, ALL);
    code.exit();
    code.finish()
}

/// Looks a key on the stack up. R0 points to its value. Jumps to `absent` if there is none. R1 to R5 are lost.
fn look_up(code: &mut Assembler, map: &impl AsFd, key: i16, absent: Label) {
    code.load_map(R1, map.as_fd());
    code.copy(R2, R10);
    code.add(R2, i32::from(key));
    code.call(Helper::MapLookup);
    code.jump_if_null(R0, absent);
}

/// Reads both addresses of the frame.
fn load_addresses(code: &mut Assembler, to_socket: Label) {
    code.copy(R1, R6);
    code.set(R2, 0);
    code.copy(R3, R10);
    code.add(R3, i32::from(ADDRESSES));
    code.set(R4, ADDRESSES_LENGTH);
    code.call(Helper::LoadSocketOctets);
    code.jump_if(R0, NotEqual, 0, to_socket);
}

/// Leaves frames that are too long for the destination, whose length is known exactly without segmentation only.
fn check_length(code: &mut Assembler, to_socket: Label) {
    let (is_whole, compare) = (code.label(), code.label());
    code.load(Word, R1, (R6, SEGMENT_SIZE));
    code.jump_if(R1, Equal, 0, is_whole);
    code.add(R1, HEADERS_MIN);
    code.jump(compare);
    code.bind(is_whole);
    code.load(Word, R1, (R6, LENGTH));
    code.bind(compare);
    code.load(Word, R2, (R7, STATION_LENGTH_MAX));
    code.jump_if_above(R1, R2, to_socket);
}

/// Notes the output and the time, and keeps the frame from the socket.
fn decide(code: &mut Assembler) {
    code.call(Helper::Time);
    code.store(Double, (R8, STATION_LAST_FRAME), R0);
    let copies: [(i16, Register, i16); 3] = [
        (INPUT_NUMBER, R8, STATION_NUMBER),
        (OUTPUT_NUMBER, R7, STATION_NUMBER),
        (OUTPUT, R7, STATION_INTERFACE),
    ];
    for (to, from, field) in copies {
        code.load(Word, R1, (from, field));
        code.store(Word, (R9, to), R1);
    }
    code.set(R0, NOTHING);
    code.exit();
}

/// Returns the classifier. R6 points to the frame, R7 to the decision; R8 is the interface of the output, R9 the length of the frame.
///
/// # Errors
/// [`AssemblerError`].
pub(super) fn classifier(maps: &Maps) -> Result<Vec<Instruction>, AssemblerError> {
    let mut code = Assembler::default();
    let next = code.label();
    code.copy(R6, R1);
    code.store_number((R10, KEY), 0);
    look_up(&mut code, &maps.decision, KEY, next);
    code.copy(R7, R0);
    code.load(Word, R8, (R7, OUTPUT));
    code.jump_if(R8, Equal, 0, next);
    code.store_number((R7, OUTPUT), 0);
    let is_untagged = code.label();
    code.load(Word, R9, (R6, LENGTH));
    code.load(Word, R1, (R6, HAS_TAG));
    code.jump_if(R1, Equal, 0, is_untagged);
    code.add(R9, TAG);
    code.bind(is_untagged);
    // Each port has two counters.
    for (number, which) in [(INPUT_NUMBER, 0), (OUTPUT_NUMBER, 1)] {
        let counted = code.label();
        code.load(Word, R1, (R7, number));
        code.shift_left(R1, 1);
        code.add(R1, which);
        code.store(Word, (R10, KEY), R1);
        look_up(&mut code, &maps.counters, KEY, counted);
        code.increment(R0);
        code.load(Double, R1, (R0, 8));
        code.add_register(R1, R9);
        code.store(Double, (R0, 8), R1);
        code.bind(counted);
    }
    code.copy(R1, R8);
    code.set(R2, 0);
    code.call(Helper::Redirect);
    code.exit();
    code.bind(next);
    code.set(R0, NEXT);
    code.exit();
    code.finish()
}
