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
const MAP_DELETE_ELEM: libc::c_long = 3;
const PROG_LOAD: libc::c_long = 5;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const LINK_CREATE: libc::c_long = 28;
const LINK_UPDATE: libc::c_long = 29;
// enum bpf_map_type, enum bpf_prog_type, enum bpf_attach_type.
const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_INGRESS: u32 = 46;
/// BPF_F_NO_PREALLOC: the elements of a map get memory when they are set.
const NO_PREALLOCATION: u32 = 1 << 0;
/// BPF_F_BEFORE: a program runs before the others of its interface.
const BEFORE: u32 = 1 << 3;

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

/// union bpf_attr, for the information of an object.
#[repr(C)]
struct Question {
    file: u32,
    length: u32,
    information: u64,
}

/// The begin of struct bpf_prog_info. The kernel fills as much as is given.
#[repr(C)]
#[derive(Default)]
struct Information {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    lengths: [u32; 2],
    instructions: [u64; 2],
    load_time: u64,
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
pub(crate) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    new_map((MAP_TYPE_XSKMAP, 0), SOCKETS_NAME, [4, 4, queues])
}

/// Creates a map of counters, each with a number for each CPU.
///
/// # Errors
/// The kernel's error.
pub(crate) fn counter_map(counters: u32) -> io::Result<OwnedFd> {
    per_cpu_map(HITS_NAME, 8, counters)
}

/// Creates an array whose values the kernel has for each CPU.
///
/// # Errors
/// The kernel's error.
pub(super) fn per_cpu_map(name: &str, value_size: u32, entries: u32) -> io::Result<OwnedFd> {
    new_map((MAP_TYPE_PERCPU_ARRAY, 0), name, [4, value_size, entries])
}

/// Creates an array.
///
/// # Errors
/// The kernel's error.
pub(super) fn array_map(name: &str, value_size: u32, entries: u32) -> io::Result<OwnedFd> {
    new_map((MAP_TYPE_ARRAY, 0), name, [4, value_size, entries])
}

/// Creates a hash table, whose entries get memory when they are set. `sizes` are those of key and value, and the maximum number of entries.
///
/// # Errors
/// The kernel's error.
pub(super) fn hash_map(name: &str, sizes: [u32; 3]) -> io::Result<OwnedFd> {
    new_map((MAP_TYPE_HASH, NO_PREALLOCATION), name, sizes)
}

fn new_map(
    (kind, flags): (u32, u32),
    name: &str,
    [key_size, value_size, entries]: [u32; 3],
) -> io::Result<OwnedFd> {
    let mut new = NewMap {
        kind,
        key_size,
        value_size,
        entries,
        flags,
        name: named(name),
        ..NewMap::default()
    };
    // SAFETY: no pointers.
    unsafe { bpf(MAP_CREATE, &mut new) }.map(owned)
}

/// Accesses an element of a map. Key and value are addresses.
///
/// # Safety
/// Key and value must be as large as the kernel reads or writes them.
unsafe fn element(
    command: libc::c_long,
    map: BorrowedFd<'_>,
    key: u64,
    value: u64,
) -> io::Result<()> {
    let mut element = Element {
        map: number(map),
        padding: 0,
        key,
        value,
        flags: 0,
    };
    // SAFETY: the caller ensures it.
    unsafe { bpf(command, &mut element) }.map(drop)
}

/// Sets the value of a key.
///
/// # Safety
/// Keys and values of the map have these sizes, and it has no value for each CPU.
///
/// # Errors
/// The kernel's error.
pub(super) unsafe fn set_value(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    let (key, value) = (address(key.as_ptr()), address(value.as_ptr()));
    // SAFETY: guaranteed by the caller.
    unsafe { element(MAP_UPDATE_ELEM, map, key, value) }
}

/// Reads the value of a key. Returns false if the map does not have the key.
///
/// # Safety
/// As for [`set_value`].
///
/// # Errors
/// The kernel's error.
pub(super) unsafe fn value(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    let (key, value) = (
        address(key.as_ptr()),
        address(value.as_mut_ptr().cast_const()),
    );
    // SAFETY: guaranteed by the caller.
    is_found(unsafe { element(MAP_LOOKUP_ELEM, map, key, value) })
}

/// Removes a key. Returns false if the map does not have it.
///
/// # Safety
/// Keys of the map have this size.
///
/// # Errors
/// The kernel's error.
pub(super) unsafe fn remove_key(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<bool> {
    // SAFETY: guaranteed by the caller; a removal has no value.
    is_found(unsafe { element(MAP_DELETE_ELEM, map, address(key.as_ptr()), 0) })
}

fn is_found(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets the socket of a receive queue.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set_socket(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    let (key, value) = (queue.to_ne_bytes(), number(socket).to_ne_bytes());
    // SAFETY: keys and values of this map have 4 octets.
    unsafe { set_value(map, &key, &value) }
}

/// Returns the number of CPUs for which the kernel has values.
fn possible_cpus() -> io::Result<usize> {
    static CPUS: OnceLock<usize> = OnceLock::new();
    if let Some(cpus) = CPUS.get() {
        return Ok(*cpus);
    }
    let text = fs::read_to_string(POSSIBLE_CPUS)?;
    // A list such as 0-3,8-11.
    let last = text.trim().rsplit([',', '-']).next().unwrap_or_default();
    let last: u16 = last.parse().map_err(io::Error::other)?;
    Ok(*CPUS.get_or_init(|| usize::from(last).saturating_add(1)))
}

/// Sets a counter to 0.
///
/// # Errors
/// The kernel's error.
pub(crate) fn clear_counter(map: BorrowedFd<'_>, counter: u32) -> io::Result<()> {
    let numbers = vec![0_u64; possible_cpus()?];
    let key = address(&raw const counter);
    // SAFETY: a key of 4 octets, and a number for each possible CPU.
    unsafe { element(MAP_UPDATE_ELEM, map, key, address(numbers.as_ptr())) }
}

/// Returns the sum of a counter over all CPUs.
///
/// # Errors
/// The kernel's error.
pub(crate) fn counter(map: BorrowedFd<'_>, counter: u32) -> io::Result<u64> {
    // SAFETY: keys of 4 octets, and a number for each possible CPU.
    let [sum] = unsafe { sums(map, counter) }?;
    Ok(sum)
}

/// Returns the sums of the numbers of a value over all CPUs.
///
/// # Safety
/// Values of the map are this many numbers, for each CPU, and keys have 4 octets.
///
/// # Errors
/// The kernel's error.
pub(super) unsafe fn sums<const NUMBERS: usize>(
    map: BorrowedFd<'_>,
    index: u32,
) -> io::Result<[u64; NUMBERS]> {
    let mut numbers = vec![[0_u64; NUMBERS]; possible_cpus()?];
    let value = address(numbers.as_mut_ptr().cast_const());
    let key = address(&raw const index);
    // SAFETY: a key of 4 octets, and space for the value of each possible CPU; the caller ensures the rest.
    unsafe { element(MAP_LOOKUP_ELEM, map, key, value) }?;
    let mut sums = [0_u64; NUMBERS];
    for of_cpu in &numbers {
        for (sum, number) in sums.iter_mut().zip(of_cpu) {
            *sum = sum.wrapping_add(*number);
        }
    }
    Ok(sums)
}

/// Kind of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// Runs on the frames that a driver receives.
    Xdp,
    /// Decides which frames a socket receives.
    SocketFilter,
    /// Runs on the frames of an interface, before its protocols (tc-bpf(8)).
    Classifier,
}

impl ProgramKind {
    /// Returns the types of program and attachment with which it is loaded.
    const fn types(self) -> (u32, u32) {
        match self {
            Self::Xdp => (PROG_TYPE_XDP, ATTACH_XDP),
            Self::SocketFilter => (PROG_TYPE_SOCKET_FILTER, 0),
            Self::Classifier => (PROG_TYPE_SCHED_CLS, ATTACH_TCX_INGRESS),
        }
    }
}

/// Loads an XDP program that steers.
///
/// # Errors
/// Those of [`load_as`].
pub(crate) fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    load_as(ProgramKind::Xdp, PROGRAM_NAME, instructions)
}

/// Loads a program. `name` is that which `bpftool` shows, of at most 15 octets.
///
/// # Errors
/// The kernel's error, with the end of the verifier's log if it refuses the program.
pub(crate) fn load_as(
    kind: ProgramKind,
    name: &str,
    instructions: &[Instruction],
) -> io::Result<OwnedFd> {
    let (kind, attach_type) = kind.types();
    let mut program = NewProgram {
        kind,
        count: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        instructions: address(instructions.as_ptr()),
        license: address(LICENSE.as_ptr()),
        name: named(name),
        attach_type,
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
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, mode: u32) -> io::Result<OwnedFd> {
    link(program, interface, (ATTACH_XDP, mode))
}

/// Attaches a classifier to the frames that an interface receives, before its other ones (TCX, Linux 6.6). The kernel detaches it when the
/// descriptor is closed.
///
/// # Errors
/// The kernel's error, EINVAL without TCX.
pub(crate) fn attach_ingress(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    link(program, interface, (ATTACH_TCX_INGRESS, BEFORE))
}

fn link(
    program: BorrowedFd<'_>,
    interface: u32,
    (attach_type, flags): (u32, u32),
) -> io::Result<OwnedFd> {
    let mut link = NewLink {
        program: number(program),
        interface,
        attach_type,
        flags,
    };
    // SAFETY: no pointers.
    unsafe { bpf(LINK_CREATE, &mut link) }.map(owned)
}

/// Replaces the program of a link in one step.
///
/// # Errors
/// The kernel's error. The former program stays.
pub(crate) fn update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut update = LinkUpdate {
        link: number(link),
        program: number(program),
        flags: 0,
        former: 0,
    };
    // SAFETY: no pointers.
    unsafe { bpf(LINK_UPDATE, &mut update) }.map(drop)
}

/// Opens a program by its number. Requires `CAP_SYS_ADMIN`.
///
/// # Errors
/// The kernel's error.
pub(crate) fn open_program(id: u32) -> io::Result<OwnedFd> {
    // The number, and no flags.
    let mut attributes = [id, 0, 0];
    // SAFETY: no pointers.
    unsafe { bpf(PROG_GET_FD_BY_ID, &mut attributes) }.map(owned)
}

/// Returns when a program was loaded, ns since boot.
///
/// # Errors
/// The kernel's error.
pub(crate) fn load_time(program: BorrowedFd<'_>) -> io::Result<u64> {
    let mut information = Information::default();
    let mut question = Question {
        file: number(program),
        length: u32::try_from(mem::size_of_val(&information)).map_err(io::Error::other)?,
        information: address((&raw mut information).cast_const()),
    };
    // SAFETY: the kernel writes at most as much information as the question says.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut question) }?;
    Ok(information.load_time)
}

/// Runs a program on a frame of at least 14 octets. Returns its result.
///
/// # Errors
/// The kernel's error.
#[cfg(test)]
pub(crate) fn run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
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
