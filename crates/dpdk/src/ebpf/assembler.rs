// SPDX-License-Identifier: Apache-2.0
//! An assembler for the instructions of eBPF that the programs of this crate require (Documentation/bpf/standardization/instruction-set.rst;
//! RFC 9669).

use std::os::fd::{AsRawFd, BorrowedFd};

/// An instruction as the kernel reads it (linux/bpf.h, `struct bpf_insn`).
pub(crate) type Instruction = [u8; 8];

/// A register. R0 has results, R1 to R5 have arguments, R6 to R9 survive calls, and R10 points to the end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register(u8);

pub(crate) const R0: Register = Register(0);
pub(crate) const R1: Register = Register(1);
pub(crate) const R2: Register = Register(2);
pub(crate) const R3: Register = Register(3);
pub(crate) const R4: Register = Register(4);
pub(crate) const R5: Register = Register(5);
pub(crate) const R6: Register = Register(6);
pub(crate) const R7: Register = Register(7);
pub(crate) const R8: Register = Register(8);
pub(crate) const R9: Register = Register(9);
pub(crate) const R10: Register = Register(10);

/// Size of a memory access (RFC 9669, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// 4 octets.
    Word = 0x00,
    /// 2 octets.
    Half = 0x08,
    /// 1 octet.
    Octet = 0x10,
    /// 8 octets.
    Double = 0x18,
}

/// Condition of a jump, without signs (RFC 9669, section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Equal = 0x10,
    Greater = 0x20,
    AnyBit = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
}

/// Functions of the kernel (linux/bpf.h, `enum bpf_func_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    MapLookup = 1,
    MapDelete = 3,
    Time = 5,
    Redirect = 23,
    LoadSocketOctets = 26,
    RedirectMap = 51,
    FrameLength = 188,
    LoadOctets = 189,
}

// RFC 9669, sections 3 to 5: classes, sources and operations.
const LOAD_WIDE: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE_NUMBER: u8 = 0x62;
const STORE: u8 = 0x63;
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP32: u8 = 0x06;
const OF_REGISTER: u8 = 0x08;
const ADD: u8 = 0x00;
const AND: u8 = 0x50;
const SHIFT_LEFT: u8 = 0x60;
const SHIFT_RIGHT: u8 = 0x70;
const MOVE: u8 = 0xb0;
const TO_BIG_ENDIAN: u8 = 0xd8;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// Source register of a wide load: the number is a descriptor of a map (linux/bpf.h, `BPF_PSEUDO_MAP_FD`).
const MAP: Register = Register(1);
const NONE: Register = Register(0);

/// A target of jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AssemblerError {
    /// A jump to a label that is nowhere.
    #[error("a jump of the program has no target (this is a bug)")]
    NoTarget,
    /// A jump over more than 32,767 instructions.
    #[error("the program is too long (use fewer rules)")]
    TooLong,
}

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
    /// Place of each label.
    labels: Vec<Option<usize>>,
    /// Places of jumps.
    jumps: Vec<(usize, Label)>,
}

fn instruction(
    code: u8,
    (destination, source): (Register, Register),
    offset: i16,
    number: i32,
) -> Instruction {
    let registers = match cfg!(target_endian = "big") {
        true => destination.0 << 4 | source.0,
        false => source.0 << 4 | destination.0,
    };
    let [a, b] = offset.to_ne_bytes();
    let [c, d, e, f] = number.to_ne_bytes();
    [code, registers, a, b, c, d, e, f]
}

impl Assembler {
    fn put(&mut self, code: u8, registers: (Register, Register), offset: i16, number: i32) {
        self.instructions
            .push(instruction(code, registers, offset, number));
    }

    /// Sets a register to a number.
    pub(crate) fn set(&mut self, register: Register, number: i32) {
        self.put(ALU64 | MOVE, (register, NONE), 0, number);
    }

    /// Copies `source` to `destination`.
    pub(crate) fn copy(&mut self, destination: Register, source: Register) {
        self.put(ALU64 | MOVE | OF_REGISTER, (destination, source), 0, 0);
    }

    /// Adds a number to a register.
    pub(crate) fn add(&mut self, register: Register, number: i32) {
        self.put(ALU64 | ADD, (register, NONE), 0, number);
    }

    /// Adds `source` to `destination`.
    pub(crate) fn add_register(&mut self, destination: Register, source: Register) {
        self.put(ALU64 | ADD | OF_REGISTER, (destination, source), 0, 0);
    }

    /// Shifts a register left by this number of bits.
    pub(crate) fn shift_left(&mut self, register: Register, bits: i32) {
        self.put(ALU64 | SHIFT_LEFT, (register, NONE), 0, bits);
    }

    /// Shifts a register right, without sign.
    pub(crate) fn shift_right(&mut self, register: Register, bits: i32) {
        self.put(ALU64 | SHIFT_RIGHT, (register, NONE), 0, bits);
    }

    /// Keeps the bits of a mask, of the lower 32 bits.
    pub(crate) fn mask(&mut self, register: Register, mask: u32) {
        self.put(ALU32 | AND, (register, NONE), 0, mask.cast_signed());
    }

    /// Converts two octets in network byte order.
    pub(crate) fn network_order_of(&mut self, register: Register) {
        self.put(ALU32 | TO_BIG_ENDIAN, (register, NONE), 0, 16);
    }

    /// Loads from memory: `base` plus `offset`.
    pub(crate) fn load(&mut self, size: Size, register: Register, (base, offset): (Register, i16)) {
        self.put(LOAD | size as u8, (register, base), offset, 0);
    }

    /// Stores to memory.
    pub(crate) fn store(
        &mut self,
        size: Size,
        (base, offset): (Register, i16),
        register: Register,
    ) {
        self.put(STORE | size as u8, (base, register), offset, 0);
    }

    /// Stores a number of 4 octets.
    pub(crate) fn store_number(&mut self, (base, offset): (Register, i16), number: i32) {
        self.put(
            STORE_NUMBER | Size::Word as u8,
            (base, NONE),
            offset,
            number,
        );
    }

    /// Adds 1 to the number of 8 octets that a register points to. R1 is lost.
    pub(crate) fn increment(&mut self, pointer: Register) {
        self.load(Size::Double, R1, (pointer, 0));
        self.add(R1, 1);
        self.store(Size::Double, (pointer, 0), R1);
    }

    /// Loads a map.
    pub(crate) fn load_map(&mut self, register: Register, map: BorrowedFd<'_>) {
        self.put(LOAD_WIDE, (register, MAP), 0, map.as_raw_fd());
        self.put(0, (NONE, NONE), 0, 0);
    }

    /// Calls a function of the kernel.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.put(JUMP | CALL, (NONE, NONE), 0, helper as i32);
    }

    /// Ends the program. R0 has its result.
    pub(crate) fn exit(&mut self) {
        self.put(JUMP | EXIT, (NONE, NONE), 0, 0);
    }

    /// Returns a new label, which is nowhere.
    pub(crate) fn label(&mut self) -> Label {
        let number = self.labels.len();
        self.labels.push(None);
        Label(number)
    }

    /// Sets a label here.
    pub(crate) fn bind(&mut self, label: Label) {
        let here = self.instructions.len();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(here);
        }
    }

    /// Appends an unconditional jump.
    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.put(JUMP, (NONE, NONE), 0, 0);
    }

    /// Jumps if the lower 32 bits of a register fulfil a condition.
    pub(crate) fn jump_if(
        &mut self,
        register: Register,
        condition: Condition,
        number: u32,
        to: Label,
    ) {
        self.jumps.push((self.instructions.len(), to));
        let code = JUMP32 | condition as u8;
        self.put(code, (register, NONE), 0, number.cast_signed());
    }

    /// Jumps if `register` is greater than `other`, as pointers or numbers of 64 bits.
    pub(crate) fn jump_if_above(&mut self, register: Register, other: Register, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        let code = JUMP | OF_REGISTER | Condition::Greater as u8;
        self.put(code, (register, other), 0, 0);
    }

    /// Jumps if `register` and `other` are the same numbers of 64 bits.
    pub(crate) fn jump_if_same(&mut self, register: Register, other: Register, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        let code = JUMP | OF_REGISTER | Condition::Equal as u8;
        self.put(code, (register, other), 0, 0);
    }

    /// Jumps if `register` and `other` are different numbers of 64 bits.
    pub(crate) fn jump_if_different(&mut self, register: Register, other: Register, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        let code = JUMP | OF_REGISTER | Condition::NotEqual as u8;
        self.put(code, (register, other), 0, 0);
    }

    /// Jumps if a pointer is null.
    pub(crate) fn jump_if_null(&mut self, register: Register, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.put(JUMP | Condition::Equal as u8, (register, NONE), 0, 0);
    }

    /// Returns the instructions, with the distances of jumps.
    ///
    /// # Errors
    /// [`AssemblerError`].
    pub(crate) fn finish(mut self) -> Result<Vec<Instruction>, AssemblerError> {
        for (at, label) in &self.jumps {
            let target = self.labels.get(label.0).copied().flatten();
            let target = target.ok_or(AssemblerError::NoTarget)?;
            // Distances count from the next instruction. All jumps go forward.
            let distance = target
                .checked_sub(at.saturating_add(1))
                .ok_or(AssemblerError::NoTarget)?;
            let distance = i16::try_from(distance).map_err(|_| AssemblerError::TooLong)?;
            let [a, b] = distance.to_ne_bytes();
            if let Some([_, _, first, second, ..]) = self.instructions.get_mut(*at) {
                (*first, *second) = (a, b);
            }
        }
        Ok(self.instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As RFC 9669, section 3.1, has them on a little-endian machine.
    #[cfg(target_endian = "little")]
    #[test]
    fn instructions_are_encoded_as_the_kernel_reads_them() {
        let mut assembler = Assembler::default();
        let end = assembler.label();
        assembler.set(R0, 2);
        assembler.copy(R6, R1);
        assembler.load(Size::Half, R4, (R2, 12));
        assembler.store(Size::Word, (R10, -4), R8);
        assembler.network_order_of(R4);
        assembler.jump_if(R4, Condition::Equal, 0x0800, end);
        assembler.jump_if_above(R1, R3, end);
        assembler.jump_if_same(R1, R2, end);
        assembler.jump_if_different(R1, R2, end);
        assembler.mask(R1, 0xfff);
        assembler.call(Helper::RedirectMap);
        assembler.bind(end);
        assembler.exit();
        assert_eq!(
            assembler.finish().unwrap(),
            [
                [0xb7, 0x00, 0, 0, 2, 0, 0, 0],
                [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
                [0x69, 0x24, 12, 0, 0, 0, 0, 0],
                [0x63, 0x8a, 0xfc, 0xff, 0, 0, 0, 0],
                [0xdc, 0x04, 0, 0, 16, 0, 0, 0],
                [0x16, 0x04, 5, 0, 0x00, 0x08, 0, 0],
                [0x2d, 0x31, 4, 0, 0, 0, 0, 0],
                [0x1d, 0x21, 3, 0, 0, 0, 0, 0],
                [0x5d, 0x21, 2, 0, 0, 0, 0, 0],
                [0x54, 0x01, 0, 0, 0xff, 0x0f, 0, 0],
                [0x85, 0x00, 0, 0, 51, 0, 0, 0],
                [0x95, 0x00, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn jumps_to_nowhere_and_too_far_are_errors() {
        let mut assembler = Assembler::default();
        let label = assembler.label();
        assembler.jump(label);
        assert_eq!(assembler.finish(), Err(AssemblerError::NoTarget));

        for (between, is_right) in [(0x7fff, true), (0x8000, false)] {
            let mut assembler = Assembler::default();
            let label = assembler.label();
            assembler.jump(label);
            for _ in 0..between {
                assembler.set(R0, 0);
            }
            assembler.bind(label);
            assert_eq!(assembler.finish().is_ok(), is_right, "{between}");
        }

        let mut assembler = Assembler::default();
        let label = assembler.label();
        assembler.bind(label);
        assembler.jump(label);
        assert_eq!(assembler.finish(), Err(AssemblerError::NoTarget));
    }
}
