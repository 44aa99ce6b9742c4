// SPDX-License-Identifier: Apache-2.0
//! Programs, maps and links of bpf(2).

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use nix::libc;

use super::assembler::Instruction;

// linux/bpf.h, enum bpf_cmd.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const LINK_UPDATE: libc::c_long = 29;
// enum bpf_map_type, enum bpf_prog_type, enum bpf_attach_type.
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// Names of programs and maps, as `bpftool` shows them.
const PROGRAM_NAME: &str = "qw_steer";
const SOCKETS_NAME: &str = "qw_sockets";
const HITS_NAME: &str = "qw_hits";
const LICENSE: &std::ffi::CStr = c"Apache-2.0";
/// Size of the verifier's log, octets. Its end has the reason for a refusal.
const LOG_LENGTH: u32 = 1 << 20;
/// Lines of the verifier's log in an error.
const LOG_LINES: usize = 3;
/// CPUs that the kernel may ever use, whose counters it writes.
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";

/// union bpf_attr, for a new map.
#[repr(C)]
#[derive(Default)]
struct NewMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

/// union bpf_attr, for an element of a map.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// union bpf_attr, for a new program.
#[repr(C)]
#[derive(Default)]
struct NewProgram {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_length: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// union bpf_attr, for a new link.
#[repr(C)]
struct NewLink {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// union bpf_attr, for a link whose program is replaced.
#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    former: u32,
}

/// Calls bpf(2).
///
/// # Safety
/// Pointers in the attributes must be valid for what the command reads and writes.
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes at most as many octets as are given; the caller ensures the rest.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            mem::size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(result).map_err(io::Error::other)
}

fn owned(file: i32) -> OwnedFd {
    // SAFETY: a new descriptor of bpf(2), which this value owns.
    unsafe { OwnedFd::from_raw_fd(file) }
}

fn number(file: BorrowedFd<'_>) -> u32 {
    file.as_raw_fd().cast_unsigned()
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// Returns a name as the kernel's structures have it.
fn named(name: &str) -> [u8; 16] {
    let mut octets = [0; 16];
    // The last octet stays 0.
    for (octet, of_name) in octets.iter_mut().take(15).zip(name.bytes()) {
        *octet = of_name;
    }
    octets
}

/// Creates a map of AF_XDP sockets by receive queue.
///
/// # Errors
/// The kernel's error.
pub(super) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    map(MAP_TYPE_XSKMAP, SOCKETS_NAME, (4, queues))
}

/// Creates a map of counters, each with a number for each CPU.
///
/// # Errors
/// The kernel's error.
pub(super) fn counter_map(counters: u32) -> io::Result<OwnedFd> {
    map(MAP_TYPE_PERCPU_ARRAY, HITS_NAME, (8, counters))
}

fn map(kind: u32, name: &str, (value_size, entries): (u32, u32)) -> io::Result<OwnedFd> {
    let mut new = NewMap {
        kind,
        key_size: 4,
        value_size,
        entries,
        name: named(name),
        ..NewMap::default()
    };
    // SAFETY: no pointers.
    unsafe { bpf(MAP_CREATE, &mut new) }.map(owned)
}

/// Accesses an element of a map.
///
/// # Safety
/// The value must be as large as the kernel reads or writes it.
unsafe fn element(
    command: libc::c_long,
    map: BorrowedFd<'_>,
    key: u32,
    value: u64,
) -> io::Result<()> {
    let mut element = Element {
        map: number(map),
        padding: 0,
        key: address(&raw const key),
        value,
        flags: 0,
    };
    // SAFETY: the key has 4 octets; the caller ensures the rest.
    unsafe { bpf(command, &mut element) }.map(drop)
}

/// Sets the socket of a receive queue.
///
/// # Errors
/// The kernel's error.
pub(super) fn set_socket(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    let value = number(socket);
    // SAFETY: values of this map have 4 octets.
    unsafe { element(MAP_UPDATE_ELEM, map, queue, address(&raw const value)) }
}

/// Returns space for the numbers of a counter, one for each CPU.
fn numbers() -> io::Result<Vec<u64>> {
    static CPUS: OnceLock<usize> = OnceLock::new();
    if let Some(cpus) = CPUS.get() {
        return Ok(vec![0; *cpus]);
    }
    let text = fs::read_to_string(POSSIBLE_CPUS)?;
    // A list such as 0-3,8-11.
    let last = text.trim().rsplit([',', '-']).next().unwrap_or_default();
    let last: u16 = last.parse().map_err(io::Error::other)?;
    let cpus = CPUS.get_or_init(|| usize::from(last).saturating_add(1));
    Ok(vec![0; *cpus])
}

/// Sets a counter to 0.
///
/// # Errors
/// The kernel's error.
pub(super) fn clear_counter(map: BorrowedFd<'_>, counter: u32) -> io::Result<()> {
    let numbers = numbers()?;
    // SAFETY: a number for each possible CPU.
    unsafe { element(MAP_UPDATE_ELEM, map, counter, address(numbers.as_ptr())) }
}

/// Returns the sum of a counter over all CPUs.
///
/// # Errors
/// The kernel's error.
pub(super) fn counter(map: BorrowedFd<'_>, counter: u32) -> io::Result<u64> {
    let mut numbers = numbers()?;
    let value = address(numbers.as_mut_ptr().cast_const());
    // SAFETY: a number for each possible CPU.
    unsafe { element(MAP_LOOKUP_ELEM, map, counter, value) }?;
    Ok(numbers
        .iter()
        .fold(0, |sum: u64, one| sum.wrapping_add(*one)))
}

/// Loads an XDP program.
///
/// # Errors
/// The kernel's error, with the end of the verifier's log if it refuses the program.
pub(super) fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let mut program = NewProgram {
        kind: PROG_TYPE_XDP,
        count: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        instructions: address(instructions.as_ptr()),
        license: address(LICENSE.as_ptr()),
        name: named(PROGRAM_NAME),
        attach_type: ATTACH_XDP,
        ..NewProgram::default()
    };
    // SAFETY: the instructions are as many as stated, the license ends with 0.
    let error = match unsafe { bpf(PROG_LOAD, &mut program) } {
        Ok(file) => return Ok(owned(file)),
        Err(error) => error,
    };
    let mut log = vec![0_u8; LOG_LENGTH as usize];
    program.log_level = 1;
    program.log_length = LOG_LENGTH;
    program.log = address(log.as_mut_ptr().cast_const());
    // SAFETY: as above; the log has space for as many octets as stated.
    match unsafe { bpf(PROG_LOAD, &mut program) } {
        Ok(file) => Ok(owned(file)),
        Err(_) => Err(refused(&error, &log)),
    }
}

/// Returns an error with the last lines of the verifier's log.
fn refused(error: &io::Error, log: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(log);
    let text = text.trim_end_matches('\0');
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let last = lines.iter().skip(lines.len().saturating_sub(LOG_LINES));
    let last: Vec<&str> = last.copied().collect();
    let text = match last.is_empty() {
        true => error.to_string(),
        false => format!("{error}: {}", last.join("; ")),
    };
    io::Error::new(error.kind(), text)
}

/// Attaches a program to an interface without one. The kernel detaches it when the descriptor is closed.
///
/// # Errors
/// The kernel's error.
pub(super) fn attach(program: BorrowedFd<'_>, interface: u32, mode: u32) -> io::Result<OwnedFd> {
    let mut link = NewLink {
        program: number(program),
        interface,
        attach_type: ATTACH_XDP,
        flags: mode,
    };
    // SAFETY: no pointers.
    unsafe { bpf(LINK_CREATE, &mut link) }.map(owned)
}

/// Replaces the program of a link in one step.
///
/// # Errors
/// The kernel's error. The former program stays.
pub(super) fn update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut update = LinkUpdate {
        link: number(link),
        program: number(program),
        flags: 0,
        former: 0,
    };
    // SAFETY: no pointers.
    unsafe { bpf(LINK_UPDATE, &mut update) }.map(drop)
}

/// Runs a program on a frame of at least 14 octets. Returns its result.
///
/// # Errors
/// The kernel's error.
#[cfg(test)]
pub(super) fn run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    const PROG_TEST_RUN: libc::c_long = 10;
    #[repr(C)]
    #[derive(Default)]
    struct TestRun {
        program: u32,
        result: u32,
        input_length: u32,
        output_length: u32,
        input: u64,
        output: u64,
        repeat: u32,
        duration: u32,
        context_lengths: [u32; 2],
        contexts: [u64; 2],
    }
    let mut run = TestRun {
        program: number(program),
        input_length: u32::try_from(frame.len()).map_err(io::Error::other)?,
        input: address(frame.as_ptr()),
        repeat: 1,
        ..TestRun::default()
    };
    // SAFETY: the frame has as many octets as stated, and no output is requested.
    unsafe { bpf(PROG_TEST_RUN, &mut run) }?;
    Ok(run.result)
}
