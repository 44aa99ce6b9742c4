// SPDX-License-Identifier: Apache-2.0
//! XDP programs that ports of killed processes leave on interfaces.
//!
//! DPDK's driver attaches a program of libxdp to the interface of an `af-xdp` port, and detaches it when the port closes. The program of a
//! killed process stays, and redirects frames to a socket that does not exist any more. A file therefore records each attached program:
//! its number and load time, which no other program of this boot shares, and its process. Only a program with a record of a dead process
//! is removed.

pub(super) mod kernel;
mod record;

use std::io;
use std::path::Path;

use quietwire_base::ProcessId;

use crate::port::records::Record as _;
use record::Record;

/// Directory of the records.
pub(super) const DIRECTORY: &str = "/run/quietwire/xdp";
/// Directory in which libxdp pins links, if the BPF file system is mounted.
const PINS: &str = "/sys/fs/bpf/xdp";

/// The record of the program of an open port, removed with this value. The port has detached the program by then.
#[derive(Debug)]
pub(super) struct RecordedProgram(Record);

impl RecordedProgram {
    /// Records the program that an opened port has attached to its interface. `former` is the program before that. `None` if it is not
    /// this port's, or cannot be recorded: it then stays if this process is killed.
    pub(super) fn of(interface: &str, former: Option<u32>) -> Option<Self> {
        let recorded = || {
            let interface = kernel::interface(interface)?;
            let Some(attached) = kernel::attached(interface.index)? else {
                return Ok(None);
            };
            let is_own = former != Some(attached.program);
            let Some(process) = ProcessId::own().filter(|_| is_own) else {
                return Ok(None);
            };
            let loaded = kernel::Program::open(attached.program)?.load_time;
            let record = Record {
                interface,
                program: attached.program,
                loaded,
                process: (process.pid, process.start_time),
            };
            record.write(Path::new(DIRECTORY))?;
            Ok(Some(Self(record)))
        };
        let recorded: io::Result<_> = recorded();
        recorded.unwrap_or_else(|error| {
            tracing::warn!(
                "the XDP program of interface '{interface}' will stay if this process is killed: {error}"
            );
            None
        })
    }

    /// Detaches the program and attaches another one, of the same port. `attach` gets the index of the interface and the mode
    /// (linux/if_link.h, `XDP_FLAGS_*_MODE`). If it fails, the former program is attached again.
    ///
    /// # Errors
    /// The program is not on the interface any more, or another process uses it too; the kernel's error; that of `attach`.
    pub(super) fn hand_over<T>(
        &self,
        attach: impl FnOnce(u32, u32) -> io::Result<T>,
    ) -> io::Result<T> {
        let record = &self.0;
        let index = record.interface.index;
        let attached = kernel::attached(index)?;
        let Some(attached) = attached.filter(|attached| attached.program == record.program) else {
            return Err(io::Error::other(
                "another XDP program has replaced that of the port",
            ));
        };
        let others = Record::all(Path::new(DIRECTORY)).into_iter();
        let mut others = others.filter(|other| other.process != record.process);
        if others.any(|other| other.is_same_program(record) && other.is_of_a_living_process()) {
            return Err(io::Error::other(
                "another process receives from other queues of this interface",
            ));
        }
        let (mode, program) = (
            attached.mode_flag()?,
            kernel::Program::open(attached.program)?,
        );
        kernel::detach(index, mode, &program)?;
        match attach(index, mode) {
            Ok(attached) => {
                unpin(index, record.program);
                Ok(attached)
            }
            Err(error) => {
                if let Err(again) = kernel::attach(index, mode, &program) {
                    tracing::error!(
                        "interface {index} has lost the XDP program of its port, which receives no frames now: {again}"
                    );
                }
                Err(error)
            }
        }
    }
}

/// Removes what libxdp has pinned for a program that is not attached any more: the links of a dispatcher (xdp-tools, protocol.org). A
/// program without dispatcher has no pins.
fn unpin(interface: u32, program: u32) {
    let pins = Path::new(PINS).join(format!("dispatch-{interface}-{program}"));
    if pins.is_dir()
        && let Err(error) = std::fs::remove_dir_all(&pins)
    {
        tracing::warn!("cannot remove {}: {error}", pins.display());
    }
}

impl Drop for RecordedProgram {
    fn drop(&mut self) {
        self.0.remove(Path::new(DIRECTORY));
    }
}

/// Returns the number of the program on an interface, if it has one.
pub(super) fn program_of(interface: &str) -> Option<u32> {
    let interface = kernel::interface(interface).ok()?;
    Some(kernel::attached(interface.index).ok()??.program)
}

/// Removes the program that a killed process has left on an interface of this network namespace.
pub(super) fn remove_left_on(interface: &str) {
    if let Ok(id) = kernel::interface(interface) {
        let removed = remove_left(Path::new(DIRECTORY), |record| record.interface == id);
        tracing::debug!(
            "programs of killed processes on '{interface}': {}",
            removed.len()
        );
    }
}

/// Removes the programs that killed processes have left on interfaces of this network namespace, and their records. Returns the indexes of
/// these interfaces.
#[must_use]
pub fn remove_left_xdp_programs() -> Vec<u32> {
    let network = kernel::network();
    remove_left(Path::new(DIRECTORY), |record| {
        Some(record.interface.network) == network
    })
}

fn remove_left(directory: &Path, which: impl Fn(&Record) -> bool) -> Vec<u32> {
    let (mut living, mut dead) = (Vec::new(), Vec::new());
    for record in Record::all(directory).into_iter().filter(which) {
        let is_alive = record.is_of_a_living_process();
        if is_alive { &mut living } else { &mut dead }.push(record);
    }
    let mut removed = Vec::new();
    for record in dead {
        // Another process may have opened other queues of the interface since, and use the same program.
        if living.iter().any(|other| other.is_same_program(&record)) {
            continue;
        }
        match detach(&record) {
            Ok(is_detached) => {
                record.remove(directory);
                removed.extend(is_detached.then_some(record.interface.index));
            }
            Err(error) => tracing::warn!(
                "cannot remove the XDP program {} that a killed process has left on interface {}: {error}",
                record.program,
                record.interface.index
            ),
        }
    }
    removed
}

/// Detaches the program of a record, if it is still on its interface.
fn detach(record: &Record) -> io::Result<bool> {
    let attached = match kernel::attached(record.interface.index) {
        Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => return Ok(false),
        attached => attached?,
    };
    let Some(attached) = attached.filter(|attached| attached.program == record.program) else {
        return Ok(false);
    };
    let program = kernel::Program::open(attached.program)?;
    if program.load_time != record.loaded {
        return Ok(false);
    }
    let mode = attached.mode_flag()?;
    kernel::detach(record.interface.index, mode, &program)?;
    tracing::info!(
        "removed XDP program {} from interface {}: it was left by process {}, which has ended",
        record.program,
        record.interface.index,
        record.process.0
    );
    Ok(true)
}
