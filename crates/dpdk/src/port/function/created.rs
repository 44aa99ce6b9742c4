// SPDX-License-Identifier: Apache-2.0
//! Virtual functions (SR-IOV) that a port creates, through `sriov_numvfs` of the physical function, and binds to `vfio-pci`
//! (Documentation/PCI/pci-iov-howto.rst).
//!
//! The kernel changes the number of functions only to or from 0, so the first port of a card creates the functions of all, and the last one
//! deletes them. A record is written for each port before the first change. Functions of a killed process stay until a later process uses
//! them again: DPDK may already have started the driver of one when its port is opened.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::pci_driver::{DriverChange, FUNCTIONS, FUNCTIONS_MAX, STEP_MAX};
use quietwire_base::{ProcessId, run_within};

use crate::error::Error;
use crate::pci::{self, Problem, VFIO, VirtualFunction};
use crate::port::options::PortOptions;
use crate::port::records::{self, Process, Record as _};
use crate::uri::PortUri;

/// Directory of the records.
const DIRECTORY: &str = "/run/quietwire/created-functions";

/// A port's function of a card whose functions were created for ports. Dropping the value deletes them, unless others are in use.
#[derive(Debug)]
pub(in crate::port) struct CreatedFunction(Record);

impl Drop for CreatedFunction {
    fn drop(&mut self) {
        Machine::own().give_back(&self.0);
    }
}

impl CreatedFunction {
    /// Creates the functions that a URI requests, and binds the port's one to `vfio-pci`. `None` if the URI requests none, or if the
    /// function exists and no port has created it.
    ///
    /// # Errors
    /// The card has no such function, its driver creates none, or DPDK cannot use the function. Everything is as before then.
    pub(in crate::port) fn open(
        uri: &PortUri,
        options: &PortOptions,
    ) -> Result<Option<Self>, Error> {
        let PortUri::Pci {
            address,
            functions: Some(count),
            ..
        } = uri
        else {
            return Ok(None);
        };
        let machine = Machine::own();
        let opened = machine.open(address, *count).and_then(|record| {
            let created = record.map(Self);
            // An error deletes them again.
            pci::check(machine.root, address).map(|()| created)
        });
        opened.map_err(|problem| problem.of_port(&options.name, address))
    }
}

/// Deletes the functions that killed processes have created. Returns the PCI addresses of those that had ports.
pub(super) fn delete_left_functions() -> Vec<String> {
    Machine::own().delete_left()
}

/// A port with a function of a card whose functions were created for ports.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    /// PCI address of the function.
    address: String,
    /// PCI address of the physical function.
    physical: String,
    /// Number of functions that were created.
    count: u16,
    process: Process,
}

impl records::Record for Record {
    fn name(&self) -> String {
        self.address.clone()
    }

    fn text(&self) -> String {
        let (pid, start) = self.process;
        format!(
            "{} {} {} {pid} {start}\n",
            self.address, self.physical, self.count
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let record = Self {
            address: words.next()?.to_owned(),
            physical: words.next()?.to_owned(),
            count: words.next()?.parse().ok()?,
            process: (words.next()?.parse().ok()?, words.next()?.parse().ok()?),
        };
        // They become names of files.
        let is_whole = !record.address.contains('/') && !record.physical.contains('/');
        (is_whole && words.next().is_none()).then_some(record)
    }

    fn process(&self) -> Process {
        self.process
    }
}

/// Changes of files in sysfs.
trait Files {
    /// Writes to a file, within a time: the kernel may block while a driver hangs.
    fn write(&self, path: PathBuf, text: String, time: Duration) -> io::Result<()>;
}

struct Kernel;

impl Files for Kernel {
    fn write(&self, path: PathBuf, text: String, time: Duration) -> io::Result<()> {
        run_within(time, move || {
            let mut file = OpenOptions::new().write(true).open(path)?;
            file.write_all(text.as_bytes())
        })
    }
}

struct Machine<'a> {
    /// `/`, or the root of a constructed machine.
    root: &'a Path,
    /// Directory of the records.
    directory: &'a Path,
    files: &'a dyn Files,
}

impl Machine<'static> {
    fn own() -> Self {
        Self {
            root: Path::new("/"),
            directory: Path::new(DIRECTORY),
            files: &Kernel,
        }
    }
}

impl Machine<'_> {
    fn device(&self, address: &str) -> PathBuf {
        self.root.join("sys/bus/pci/devices").join(address)
    }

    /// Returns the records of a card's functions.
    fn records_of(&self, physical: &str) -> Vec<Record> {
        let mut records = Record::all(self.directory);
        records.retain(|record| record.physical == physical);
        records
    }

    fn open(&self, address: &str, count: u16) -> Result<Option<Record>, Problem> {
        let Some(function) = pci::possible_function(self.root, address) else {
            return match self.device(address).exists() {
                true => Err(Problem::Wrong(
                    "is not a virtual function, but functions is an option of such (remove the option)"
                        .to_owned(),
                )),
                // The check of the device has the reason.
                false => Ok(None),
            };
        };
        let VirtualFunction { physical, number } = function;
        if number >= u32::from(count) {
            return Err(Problem::Wrong(format!(
                "is virtual function {number} of {physical}, but functions={count} creates the functions 0 to {} (use a larger number)",
                count.saturating_sub(1)
            )));
        }
        let is_there = self.device(address).exists();
        let records = self.records_of(&physical);
        let mut living = records
            .iter()
            .filter(|record| record.is_of_a_living_process());
        if let Some(other) = living.find(|other| other.address == address) {
            return Err(Problem::NotReady(format!(
                "has a port of process {} (close that port, or use another function)",
                other.process.0
            )));
        }
        if is_there && records.is_empty() {
            return Ok(None);
        }
        let failed = |what: String| {
            Problem::NotReady(format!(
                "is virtual function {number} of {physical}, {what}"
            ))
        };
        if !self.root.join("sys/bus/pci/drivers").join(VFIO).exists() {
            return Err(failed(format!(
                "and cannot be bound to {VFIO}, which is not loaded (run `modprobe {VFIO}`)"
            )));
        }
        let Some(process) = ProcessId::own() else {
            return Err(failed("but /proc has no entry of this process".to_owned()));
        };
        let present = pci::function_count(self.root, &physical);
        let present = present.and_then(|count| u16::try_from(count).ok());
        let record = Record {
            address: address.to_owned(),
            physical: physical.clone(),
            count: present.filter(|_| is_there).unwrap_or(count),
            process: (process.pid, process.start_time),
        };
        record.write(self.directory).map_err(|error| {
            failed(format!(
                "and nothing is changed, because {} cannot be written: {error}",
                self.directory.display()
            ))
        })?;
        match self.create(&record).and_then(|()| self.bind(address)) {
            Ok(()) => Ok(Some(record)),
            Err(what) => {
                self.give_back(&record);
                Err(failed(what))
            }
        }
    }

    /// Creates the functions of a record, unless another port has done so.
    fn create(&self, record: &Record) -> Result<(), String> {
        let Record {
            address,
            physical,
            count,
            ..
        } = record;
        if self.device(address).exists() {
            return Ok(());
        }
        match pci::function_count(self.root, physical) {
            Some(0) => {}
            Some(present) => {
                return Err(format!(
                    "which has {present} functions already, and the kernel changes their number only to or from 0 (use one of them, or run `echo 0 > /sys/bus/pci/devices/{physical}/sriov_numvfs`)"
                ));
            }
            None => return Err("whose number of functions cannot be read".to_owned()),
        }
        self.set_count(physical, *count)
            .map_err(|error| format!("whose driver does not create {count} functions: {error}"))?;
        match self.device(address).exists() {
            true => Ok(()),
            false => Err("whose driver has created no function with this address".to_owned()),
        }
    }

    fn set_count(&self, physical: &str, count: u16) -> io::Result<()> {
        let file = self.device(physical).join(FUNCTIONS);
        self.files.write(file, count.to_string(), FUNCTIONS_MAX)
    }

    /// Binds a function to `vfio-pci`.
    fn bind(&self, address: &str) -> Result<(), String> {
        if pci::driver(self.root, address).as_deref() == Some(VFIO) {
            return Ok(());
        }
        self.change_driver(address, VFIO)
            .map_err(|error| format!("and cannot be bound to {VFIO}: {error}"))?;
        match pci::driver(self.root, address).as_deref() {
            Some(VFIO) => Ok(()),
            driver => Err(format!(
                "and has the driver '{}' after it was bound to {VFIO}",
                driver.unwrap_or_default()
            )),
        }
    }

    /// Sets the driver that alone may have a device, or none with an empty name, and lets the kernel choose the driver again.
    fn change_driver(&self, address: &str, only: &str) -> io::Result<()> {
        let bound = pci::driver(self.root, address);
        let change = DriverChange {
            only: Some(only),
            unbind: bound.as_deref(),
            probes: true,
        };
        let bus = self.root.join("sys/bus/pci");
        change.make(&bus, address, |file, text| {
            let (file, text) = (file.to_owned(), text.to_owned());
            self.files.write(file, text, STEP_MAX)
        })
    }

    /// Deletes the functions of a card with the last record of a port, and returns the function of a record to its usual driver otherwise.
    /// Removes the record. Returns false, and leaves the record, if the kernel refuses it.
    fn give_back(&self, record: &Record) -> bool {
        let Record {
            address,
            physical,
            count,
            ..
        } = record;
        let records = self.records_of(physical);
        let is_shared = records
            .iter()
            .any(|other| other.address != *address && other.is_of_a_living_process());
        let present = pci::function_count(self.root, physical);
        let functions = pci::functions_of(self.root, physical);
        // A program has them that is not known here, such as QEMU.
        let in_use = functions.iter().find(|function| {
            let is_recorded = records.iter().any(|record| record.address == **function);
            let driver = pci::driver(self.root, function);
            !is_recorded && driver.is_some_and(|driver| pci::is_of_user_space(&driver))
        });
        let done = if present != Some(u32::from(*count)) || !functions.contains(address) {
            // Another program has changed the number since, or the card is gone.
            Ok(())
        } else if is_shared {
            self.change_driver(address, "")
        } else if let Some(in_use) = in_use {
            tracing::warn!(
                "the virtual functions of {physical} stay, because {in_use} is bound to a driver for user space (delete them with `echo 0 > /sys/bus/pci/devices/{physical}/sriov_numvfs`)"
            );
            self.change_driver(address, "")
        } else {
            self.set_count(physical, 0)
        };
        match &done {
            Ok(()) => record.remove(self.directory),
            Err(error) => tracing::warn!(
                "cannot delete or release the virtual functions of {physical}: {error} (`quietwire lab clean` tries again)"
            ),
        }
        done.is_ok()
    }

    /// Deletes the functions of killed processes. Returns the addresses of those that had ports.
    fn delete_left(&self) -> Vec<String> {
        let records = Record::all(self.directory).into_iter();
        let left = records.filter(|record| !record.is_of_a_living_process());
        left.filter(|record| self.give_back(record))
            .map(|record| record.address)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    const CARD: &str = "0000:17:00.0";

    /// Returns the address of a function of the card.
    fn function(number: u16) -> String {
        format!("0000:17:02.{number}")
    }

    /// A machine with a card and the kernel's reactions to changes. The driver `vf` has functions that no driver overrides.
    struct Scripted {
        root: TempDir,
        records: PathBuf,
        /// Changes that succeed before the driver refuses one.
        successes: Cell<Option<usize>>,
    }

    impl Scripted {
        fn new() -> Self {
            let root = TempDir::new().unwrap();
            let card = root.path().join("sys/bus/pci/devices").join(CARD);
            fs::create_dir_all(&card).unwrap();
            let files = [
                ("class", "0x020000\n"),
                ("sriov_totalvfs", "8\n"),
                ("sriov_offset", "16\n"),
                ("sriov_stride", "1\n"),
                ("sriov_numvfs", "0\n"),
            ];
            for (file, text) in files {
                fs::write(card.join(file), text).unwrap();
            }
            for driver in [VFIO, "vf"] {
                fs::create_dir_all(root.path().join("sys/bus/pci/drivers").join(driver)).unwrap();
            }
            Self {
                records: root.path().join("records"),
                root,
                successes: Cell::new(None),
            }
        }

        fn machine(&self) -> Machine<'_> {
            Machine {
                root: self.root.path(),
                directory: &self.records,
                files: self,
            }
        }

        fn device(&self, address: &str) -> PathBuf {
            self.root.path().join("sys/bus/pci/devices").join(address)
        }

        fn count(&self) -> u32 {
            pci::function_count(self.root.path(), CARD).unwrap()
        }

        fn driver(&self, number: u16) -> Option<String> {
            pci::driver(self.root.path(), &function(number))
        }

        /// Gives a device the driver that the kernel chooses.
        fn probe(&self, address: &str) {
            let device = self.device(address);
            let only = fs::read_to_string(device.join("driver_override")).unwrap();
            let driver = match only.trim() {
                "" => "vf",
                only => only,
            };
            let target = format!("../../drivers/{driver}");
            symlink(target, device.join("driver")).unwrap();
        }

        fn set_count(&self, count: u16) {
            let card = self.device(CARD);
            for number in 0..8 {
                let link = card.join(format!("virtfn{number}"));
                if count == 0 && link.is_symlink() {
                    fs::remove_file(link).unwrap();
                    fs::remove_dir_all(self.device(&function(number))).unwrap();
                } else if number < count {
                    let address = function(number);
                    let device = self.device(&address);
                    fs::create_dir_all(&device).unwrap();
                    fs::write(device.join("class"), "0x020000\n").unwrap();
                    fs::write(device.join("driver_override"), "\n").unwrap();
                    symlink(format!("../{CARD}"), device.join("physfn")).unwrap();
                    symlink(format!("../{address}"), link).unwrap();
                    self.probe(&address);
                }
            }
            fs::write(card.join("sriov_numvfs"), format!("{count}\n")).unwrap();
        }
    }

    impl Files for Scripted {
        fn write(&self, path: PathBuf, text: String, _: Duration) -> io::Result<()> {
            match self.successes.get() {
                Some(0) => return Err(io::ErrorKind::PermissionDenied.into()),
                left => self.successes.set(left.map(|left| left - 1)),
            }
            match path.file_name().unwrap().to_str().unwrap() {
                "sriov_numvfs" => self.set_count(text.parse().unwrap()),
                "driver_override" => fs::write(path, text).unwrap(),
                "unbind" => fs::remove_file(self.device(&text).join("driver")).unwrap(),
                "drivers_probe" => self.probe(&text),
                other => panic!("{other}"),
            }
            Ok(())
        }
    }

    #[test]
    fn the_first_port_creates_functions_and_the_last_one_deletes_them() {
        let scripted = Scripted::new();
        let machine = scripted.machine();
        let one = machine.open(&function(0), 4).unwrap().unwrap();
        assert_eq!(scripted.count(), 4);
        assert_eq!(scripted.driver(0).as_deref(), Some(VFIO));
        assert_eq!(scripted.driver(1).as_deref(), Some("vf"));
        let two = machine.open(&function(1), 4).unwrap().unwrap();
        assert_eq!(scripted.driver(1).as_deref(), Some(VFIO));
        let Problem::NotReady(what) = machine.open(&function(1), 4).unwrap_err() else {
            panic!("a function has one port");
        };
        assert!(what.contains("has a port of process"), "{what}");
        assert!(machine.give_back(&one));
        assert_eq!(scripted.count(), 4);
        assert_eq!(scripted.driver(0).as_deref(), Some("vf"));
        assert!(machine.give_back(&two));
        assert_eq!(scripted.count(), 0);
        assert_eq!(Record::all(&scripted.records), []);
    }

    #[test]
    fn after_a_failure_all_functions_can_be_deleted() {
        // The number, and three files that change a driver.
        for successes in 0..4 {
            let scripted = Scripted::new();
            let machine = scripted.machine();
            scripted.successes.set(Some(successes));
            let Problem::NotReady(what) = machine.open(&function(0), 2).unwrap_err() else {
                panic!("the card is there");
            };
            let begin = "is virtual function 0 of 0000:17:00.0, ";
            assert!(what.starts_with(begin), "{what}");
            scripted.successes.set(None);
            for left in Record::all(&scripted.records) {
                assert!(machine.give_back(&left));
            }
            assert_eq!(scripted.count(), 0);
            assert_eq!(Record::all(&scripted.records), []);
        }
    }

    #[test]
    fn functions_of_others_stay() {
        let scripted = Scripted::new();
        let machine = scripted.machine();
        scripted.set_count(2);
        assert_eq!(machine.open(&function(0), 4), Ok(None));
        let message = |address: &str| match machine.open(address, 4).unwrap_err() {
            Problem::Wrong(what) => format!("wrong: {what}"),
            Problem::NotReady(what) => what,
        };
        for (address, part) in [
            (function(3), "which has 2 functions already"),
            (function(4), "wrong: is virtual function 4 of 0000:17:00.0"),
            (CARD.to_owned(), "wrong: is not a virtual function"),
        ] {
            let message = message(&address);
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(scripted.count(), 2);
        assert_eq!(Record::all(&scripted.records), []);
        // A guest has another function of the same card.
        scripted.set_count(0);
        let record = machine.open(&function(0), 4).unwrap().unwrap();
        machine.bind(&function(2)).unwrap();
        assert!(machine.give_back(&record));
        assert_eq!(scripted.count(), 4);
        assert_eq!(scripted.driver(0).as_deref(), Some("vf"));
        assert_eq!(scripted.driver(2).as_deref(), Some(VFIO));
    }

    /// Makes the record of a port one of a process that was killed.
    fn killed(scripted: &Scripted, record: Record) {
        let (pid, start) = record.process;
        let killed = Record {
            process: (pid, start + 1),
            ..record
        };
        killed.write(&scripted.records).unwrap();
    }

    #[test]
    fn functions_of_a_killed_process_are_used_again_or_deleted() {
        let scripted = Scripted::new();
        let machine = scripted.machine();
        for number in 0..2 {
            let record = machine.open(&function(number), 4).unwrap().unwrap();
            killed(&scripted, record);
        }
        // A port with another number uses them, too.
        let record = machine.open(&function(0), 2).unwrap().unwrap();
        assert_eq!((record.count, scripted.count()), (4, 4));
        // Only the function of the killed process is released.
        assert_eq!(machine.delete_left(), [function(1)]);
        assert_eq!(scripted.count(), 4);
        assert_eq!(scripted.driver(0).as_deref(), Some(VFIO));
        assert_eq!(scripted.driver(1).as_deref(), Some("vf"));
        killed(&scripted, record);
        assert_eq!(machine.delete_left(), [function(0)]);
        assert_eq!(scripted.count(), 0);
        assert_eq!(Record::all(&scripted.records), []);
    }

    #[test]
    fn records_are_read_as_they_are_written() {
        let record = Record {
            address: function(0),
            physical: CARD.to_owned(),
            count: 4,
            process: (1, 2),
        };
        assert_eq!(Record::parse(&record.text()), Some(record));
        for line in ["", "a b 4 1", "a b 4 1 2 3", "a b x 1 2", "a ../b 4 1 2"] {
            assert_eq!(Record::parse(line), None, "{line}");
        }
    }
}
