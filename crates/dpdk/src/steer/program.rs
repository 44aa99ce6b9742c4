// SPDX-License-Identifier: Apache-2.0
//! The XDP program of a list of rules.
//!
//! The program reads the headers of a frame once and writes their fields to its stack. Each rule then compares its fields. The first rule
//! that matches, or the default, sets a counter and a target. Without a loop, the number of executed instructions is bounded by the
//! length of the program. IPv6 extension headers are read with a function of the kernel (Linux 5.18).

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use quietwire_packet::{IPV6_EXTENSIONS_MAX, IpProtocol};

use super::rule::{CardTarget, SteerMatch, SteerRule, SteerTarget};
use super::slots::{self, Slots, UNMATCHED};
use crate::ebpf::assembler::{
    Assembler, AssemblerError, Condition, Helper, Instruction, Label, R0, R1, R2, R3, R4, R5, R6,
    R7, R8, R9, R10, Register, Size,
};
use Condition::{AnyBit, Equal, Greater, Less, NotEqual};
use Size::{Half, Octet, Word};

/// linux/bpf.h, XDP_PASS: the kernel processes the frame.
pub(super) const PASS: i32 = 2;

/// Maps of a program.
#[derive(Debug)]
pub(super) struct Maps<F> {
    /// AF_XDP sockets by receive queue.
    pub(super) sockets: F,
    /// Counters of each CPU.
    pub(super) hits: F,
}

impl<F: AsFd> Maps<F> {
    pub(super) fn as_fds(&self) -> Maps<BorrowedFd<'_>> {
        Maps {
            sockets: self.sockets.as_fd(),
            hits: self.hits.as_fd(),
        }
    }
}

// Fields of a frame on the stack, offsets from its end. Addresses and MAC addresses are in network order, other fields numbers.
/// Number of the counter.
const KEY: i16 = -4;
const SOURCE_MAC: i16 = -16;
const DESTINATION_MAC: i16 = -24;
const VLAN: i16 = -28;
const ETHERTYPE: i16 = -32;
const PROTOCOL: i16 = -36;
const SOURCE_PORT: i16 = -40;
const DESTINATION_PORT: i16 = -44;
const SOURCE: i16 = -64;
const DESTINATION: i16 = -80;
const QUEUE: i16 = -84;
/// Version of IP whose addresses were read, or 0.
const VERSION: i16 = -88;
/// Octets that a function of the kernel has read.
const READ: i16 = -96;

/// A value that no field of a frame has.
const ABSENT: i32 = 0x1_0000;

// Octets of struct xdp_md (linux/bpf.h).
const FRAME: i16 = 0;
const FRAME_END: i16 = 4;
const RX_QUEUE: i16 = 16;

const CUSTOMER_TAG: u32 = 0x8100;
const SERVICE_TAG: u32 = 0x88a8;
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const TAGS_MAX: usize = 2;
/// TCP, UDP, DCCP, SCTP and UDP-Lite begin with source and destination port.
const WITH_PORTS: [u32; 5] = [6, 17, 33, 132, 136];
const FRAGMENT: u32 = IpProtocol::FRAGMENT.0 as u32;
const AUTHENTICATION: u32 = IpProtocol::AUTHENTICATION.0 as u32;
/// IPv6 extension headers, with those two.
const EXTENSIONS: [u32; 8] = [
    IpProtocol::HOP_BY_HOP.0 as u32,
    IpProtocol::ROUTING.0 as u32,
    FRAGMENT,
    AUTHENTICATION,
    IpProtocol::DESTINATION_OPTIONS.0 as u32,
    IpProtocol::MOBILITY.0 as u32,
    IpProtocol::HOST_IDENTITY.0 as u32,
    IpProtocol::SHIM6.0 as u32,
];

/// Returns the program of rules. The default is the kernel, or the switch without rules. A frame for the switch that comes in on a queue
/// without socket gets the result `without_socket` (linux/bpf.h, `XDP_*`).
///
/// # Errors
/// [`AssemblerError`].
pub(super) fn generate(
    slots: &Slots,
    maps: &Maps<BorrowedFd<'_>>,
    without_socket: i32,
) -> Result<Vec<Instruction>, AssemblerError> {
    let mut program = Program::default();
    let rules = program.code.label();
    let decided = program.code.label();
    program.parse(rules);
    program.code.bind(rules);
    let mut has_default = true;
    for (rule, slot) in slots.rules() {
        if rule.frames == SteerMatch::default() {
            // It decides on all frames. The verifier refuses instructions that are never reached.
            program.decide_by(rule, slot);
            has_default = false;
            break;
        }
        let next = program.code.label();
        program.compare(&rule.frames, next);
        program.decide_by(rule, slot);
        program.code.jump(decided);
        program.code.bind(next);
    }
    if has_default {
        let default = match slots.rules().next() {
            Some(_) => SteerTarget::Kernel,
            None => SteerTarget::Switch,
        };
        program.decide(UNMATCHED, default);
    }
    program.code.bind(decided);
    program.end(maps, without_socket);
    program.code.finish()
}

#[derive(Debug, Default)]
struct Program {
    code: Assembler,
}

impl Program {
    /// Reads the headers. Whatever is truncated or malformed ends the reading. The fields that were read before stay.
    ///
    /// R2 points to the frame, behind a tag 4 octets further; R3 to its end; R6 to the context. R9 is the distance of the EtherType.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "distances on the stack and in the headers of a frame, of a few octets"
    )]
    fn parse(&mut self, rules: Label) {
        const ETHERTYPE_AT: i32 = 12;
        let code = &mut self.code;
        code.copy(R6, R1);
        code.load(Word, R2, (R1, FRAME));
        code.load(Word, R3, (R1, FRAME_END));
        code.load(Word, R4, (R1, RX_QUEUE));
        code.store(Word, (R10, QUEUE), R4);
        for field in [VLAN, ETHERTYPE, PROTOCOL, SOURCE_PORT, DESTINATION_PORT] {
            code.store_number((R10, field), ABSENT);
        }
        code.store_number((R10, VERSION), 0);
        for field in [SOURCE, DESTINATION] {
            for word in 0..4 {
                code.store_number((R10, field + 4 * word), 0);
            }
        }
        for field in [SOURCE_MAC, DESTINATION_MAC] {
            code.store_number((R10, field), 0);
            code.store_number((R10, field + 4), 0);
        }
        code.set(R9, ETHERTYPE_AT);
        self.require(14, rules);
        for (field, at) in [(DESTINATION_MAC, 0), (SOURCE_MAC, 6)] {
            self.copy_field(Word, field, at);
            self.copy_field(Half, field + 4, at + 4);
        }
        self.code.load(Half, R4, (R2, 12));
        self.code.network_order_of(R4);
        let network = self.code.label();
        for tag in 0..TAGS_MAX {
            self.skip_tag(tag == 0, network, rules);
        }
        self.code.bind(network);
        self.code.store(Word, (R10, ETHERTYPE), R4);
        let (ipv4, ipv6) = (self.code.label(), self.code.label());
        self.code.jump_if(R4, Equal, IPV4, ipv4);
        self.code.jump_if(R4, Equal, IPV6, ipv6);
        self.code.jump(rules);
        self.code.bind(ipv4);
        self.parse_ipv4(rules);
        self.code.bind(ipv6);
        self.parse_ipv6(rules);
    }

    /// Skips a tag, and jumps to `network` if there is none. R4 is the EtherType before and after it.
    fn skip_tag(&mut self, is_outermost: bool, network: Label, rules: Label) {
        let tagged = self.code.label();
        self.code.jump_if(R4, Equal, CUSTOMER_TAG, tagged);
        self.code.jump_if(R4, NotEqual, SERVICE_TAG, network);
        self.code.bind(tagged);
        self.require(16, network);
        if is_outermost {
            self.code.load(Half, R1, (R2, 14));
            self.code.network_order_of(R1);
            self.code.mask(R1, 0xfff);
            self.code.store(Word, (R10, VLAN), R1);
        }
        self.require(18, rules);
        self.code.load(Half, R4, (R2, 16));
        self.code.network_order_of(R4);
        self.code.add(R2, 4);
        self.code.add(R9, 4);
    }

    /// Parses the IPv4 header (RFC 791, section 3.1).
    fn parse_ipv4(&mut self, rules: Label) {
        self.require(34, rules);
        self.code.load(Octet, R4, (R2, 14));
        self.code.copy(R5, R4);
        self.code.shift_right(R5, 4);
        self.code.jump_if(R5, NotEqual, 4, rules);
        self.code.mask(R4, 0xf);
        self.code.shift_left(R4, 2);
        self.code.jump_if(R4, Less, 20, rules);
        self.code.store_number((R10, VERSION), 4);
        self.copy_field(Word, SOURCE, 26);
        self.copy_field(Word, DESTINATION, 30);
        self.code.load(Octet, R8, (R2, 23));
        self.code.store(Word, (R10, PROTOCOL), R8);
        // Only the first fragment has ports.
        self.code.load(Half, R1, (R2, 20));
        self.code.network_order_of(R1);
        self.code.jump_if(R1, AnyBit, 0x1fff, rules);
        let ports = self.code.label();
        self.jump_if_one_of(R8, &WITH_PORTS, ports);
        self.code.jump(rules);
        self.code.bind(ports);
        self.code.add_register(R2, R4);
        self.require(18, rules);
        self.read_ports((R2, 14));
        self.code.jump(rules);
    }

    /// Parses the IPv6 header (RFC 8200, section 3). R8 is the type of the next header, R9 its distance, R7 the length of the frame.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "distances on the stack and in the headers of a frame, of a few octets"
    )]
    fn parse_ipv6(&mut self, rules: Label) {
        self.require(54, rules);
        self.code.load(Octet, R4, (R2, 14));
        self.code.shift_right(R4, 4);
        self.code.jump_if(R4, NotEqual, 6, rules);
        self.code.store_number((R10, VERSION), 6);
        for word in 0..4 {
            self.copy_field(Word, SOURCE + 4 * word, 22 + 4 * word);
            self.copy_field(Word, DESTINATION + 4 * word, 38 + 4 * word);
        }
        self.code.load(Octet, R8, (R2, 20));
        self.code.add(R9, 42);
        // Most packets have no extension headers.
        let plain = self.code.label();
        self.jump_if_one_of(R8, &[6, 17], plain);
        let (end, later) = (self.code.label(), self.code.label());
        self.code.copy(R1, R6);
        self.code.call(Helper::FrameLength);
        self.code.copy(R7, R0);
        for _ in 0..IPV6_EXTENSIONS_MAX {
            self.skip_extension(end, later, rules);
        }
        self.jump_if_one_of(R8, &EXTENSIONS, rules);
        self.code.jump(end);

        self.code.bind(later);
        self.code.store(Word, (R10, PROTOCOL), R8);
        self.code.jump(rules);

        self.code.bind(plain);
        self.code.store(Word, (R10, PROTOCOL), R8);
        self.require(58, rules);
        self.read_ports((R2, 54));
        self.code.jump(rules);

        self.code.bind(end);
        self.code.store(Word, (R10, PROTOCOL), R8);
        let ports = self.code.label();
        self.jump_if_one_of(R8, &WITH_PORTS, ports);
        self.code.jump(rules);
        self.code.bind(ports);
        self.read_octets(4, rules);
        self.read_ports((R10, READ));
    }

    /// Skips an extension header. Jumps to `end` if there is none, and to `later` behind the fragment header of a later fragment.
    fn skip_extension(&mut self, end: Label, later: Label, rules: Label) {
        let [extension, fragment, authentication, next] = [(); 4].map(|()| self.code.label());
        self.jump_if_one_of(R8, &EXTENSIONS, extension);
        self.code.jump(end);
        self.code.bind(extension);
        self.read_octets(8, rules);
        self.code.load(Octet, R1, (R10, READ + 1));
        self.code.jump_if(R8, Equal, FRAGMENT, fragment);
        self.code.jump_if(R8, Equal, AUTHENTICATION, authentication);
        self.code.add(R1, 1);
        self.code.shift_left(R1, 3);
        self.code.jump(next);
        // RFC 4302, section 2.2: in words of four octets, less two.
        self.code.bind(authentication);
        self.code.add(R1, 2);
        self.code.shift_left(R1, 2);
        self.code.jump(next);
        // RFC 8200, section 4.5.
        self.code.bind(fragment);
        self.code.load(Octet, R8, (R10, READ));
        self.code.load(Half, R1, (R10, READ + 2));
        self.code.network_order_of(R1);
        self.code.jump_if(R1, AnyBit, 0xfff8, later);
        self.code.set(R1, 8);
        self.code.bind(next);
        self.code.add_register(R9, R1);
        self.code.jump_if_above(R9, R7, rules);
        self.code.load(Octet, R8, (R10, READ));
    }

    /// Jumps if the frame has fewer octets than this from R2 on.
    fn require(&mut self, octets: i32, otherwise: Label) {
        self.code.copy(R1, R2);
        self.code.add(R1, octets);
        self.code.jump_if_above(R1, R3, otherwise);
    }

    /// Reads octets at the distance in R9 to the stack, and jumps if the frame ends before. R1 to R5 are lost.
    fn read_octets(&mut self, octets: i32, otherwise: Label) {
        self.code.copy(R1, R6);
        self.code.copy(R2, R9);
        self.code.copy(R3, R10);
        self.code.add(R3, i32::from(READ));
        self.code.set(R4, octets);
        self.code.call(Helper::LoadOctets);
        self.code.jump_if(R0, NotEqual, 0, otherwise);
    }

    /// Copies octets of the frame to the stack as they are.
    fn copy_field(&mut self, size: Size, field: i16, at: i16) {
        self.code.load(size, R1, (R2, at));
        self.code.store(size, (R10, field), R1);
    }

    /// Reads source and destination port.
    fn read_ports(&mut self, (base, offset): (Register, i16)) {
        for (field, at) in [
            (SOURCE_PORT, offset),
            (DESTINATION_PORT, offset.saturating_add(2)),
        ] {
            self.code.load(Half, R1, (base, at));
            self.code.network_order_of(R1);
            self.code.store(Word, (R10, field), R1);
        }
    }

    fn jump_if_one_of(&mut self, register: Register, numbers: &[u32], to: Label) {
        for number in numbers {
            self.code.jump_if(register, Equal, *number, to);
        }
    }

    /// Compares the fields of a frame, and jumps if one differs.
    fn compare(&mut self, frames: &SteerMatch, otherwise: Label) {
        let addresses = [
            (frames.source_mac, SOURCE_MAC),
            (frames.destination_mac, DESTINATION_MAC),
        ];
        for (mac, field) in addresses {
            let Some([a, b, c, d, e, f]) = mac else {
                continue;
            };
            let word = u32::from_ne_bytes([a, b, c, d]);
            self.compare_field(Word, field, word, otherwise);
            let rest = u32::from(u16::from_ne_bytes([e, f]));
            self.compare_field(Half, field.saturating_add(4), rest, otherwise);
        }
        let numbers = [
            (frames.vlan.map(u32::from), VLAN),
            (frames.ethertype.map(u32::from), ETHERTYPE),
            (frames.protocol.map(u32::from), PROTOCOL),
        ];
        for (number, field) in numbers {
            if let Some(number) = number {
                self.compare_field(Word, field, number, otherwise);
            }
        }
        for (prefix, field) in [(frames.source, SOURCE), (frames.destination, DESTINATION)] {
            if let Some((address, length)) = prefix {
                self.compare_prefix(address, length, field, otherwise);
            }
        }
        let ports = [
            (frames.source_ports, SOURCE_PORT),
            (frames.destination_ports, DESTINATION_PORT),
        ];
        for (range, field) in ports {
            if let Some((first, last)) = range {
                self.code.load(Word, R1, (R10, field));
                self.code.jump_if(R1, Less, u32::from(first), otherwise);
                // A frame without ports has a larger number.
                self.code.jump_if(R1, Greater, u32::from(last), otherwise);
            }
        }
    }

    fn compare_field(&mut self, size: Size, field: i16, number: u32, otherwise: Label) {
        self.code.load(size, R1, (R10, field));
        self.code.jump_if(R1, NotEqual, number, otherwise);
    }

    fn compare_prefix(&mut self, address: IpAddr, length: u8, field: i16, otherwise: Label) {
        let (version, octets) = match address {
            IpAddr::V4(address) => (4, address.octets().to_vec()),
            IpAddr::V6(address) => (6, address.octets().to_vec()),
        };
        self.compare_field(Word, VERSION, version, otherwise);
        let (words, _) = octets.as_chunks::<4>();
        let fields = (field..).step_by(4);
        let mut left = u32::from(length);
        for (word, field) in words.iter().zip(fields) {
            let bits = left.min(u32::BITS);
            left = left.saturating_sub(bits);
            let mask = u32::MAX
                .checked_shl(u32::BITS.saturating_sub(bits))
                .unwrap_or(0);
            if mask == 0 {
                break;
            }
            // The words are compared as they lie in the frame.
            let mask = u32::from_ne_bytes(mask.to_be_bytes());
            self.code.load(Word, R1, (R10, field));
            self.code.mask(R1, mask);
            let wanted = u32::from_ne_bytes(*word) & mask;
            self.code.jump_if(R1, NotEqual, wanted, otherwise);
        }
    }

    /// Sets counter and target of a rule. A frame on another queue than the card's rule selects has another counter.
    fn decide_by(&mut self, rule: &SteerRule, slot: u32) {
        let elsewhere = slots::misplaced(slot);
        match rule.card {
            None => self.decide(slot, rule.target),
            // The card should have delivered the frame to the function, or dropped it.
            Some(CardTarget::Function(_) | CardTarget::Drop) => {
                self.decide(elsewhere, rule.target);
            }
            Some(CardTarget::Queue(queue)) => {
                let counted = self.code.label();
                self.decide(slot, rule.target);
                self.code.load(Word, R1, (R10, QUEUE));
                self.code.jump_if(R1, Equal, u32::from(queue), counted);
                self.code.set(R8, elsewhere.cast_signed());
                self.code.bind(counted);
            }
        }
    }

    /// Sets counter and target: R8 and R7.
    fn decide(&mut self, slot: u32, target: SteerTarget) {
        self.code.set(R8, slot.cast_signed());
        self.code.set(
            R7,
            match target {
                SteerTarget::Kernel => 0,
                SteerTarget::Switch => 1,
            },
        );
    }

    /// Counts the frame and sends it to its target.
    fn end(&mut self, maps: &Maps<BorrowedFd<'_>>, without_socket: i32) {
        let code = &mut self.code;
        let (counted, pass) = (code.label(), code.label());
        code.store(Word, (R10, KEY), R8);
        code.load_map(R1, maps.hits);
        code.copy(R2, R10);
        code.add(R2, i32::from(KEY));
        code.call(Helper::MapLookup);
        code.jump_if_null(R0, counted);
        code.increment(R0);
        code.bind(counted);
        code.jump_if(R7, Equal, 0, pass);
        code.load_map(R1, maps.sockets);
        code.load(Word, R2, (R10, QUEUE));
        code.set(R3, without_socket);
        code.call(Helper::RedirectMap);
        code.exit();
        code.bind(pass);
        code.set(R0, PASS);
        code.exit();
    }
}
