// SPDX-License-Identifier: Apache-2.0
//! Settings of virtual functions (SR-IOV): MAC address, VLAN, trust, spoof check, rate. The driver of the physical function makes them, at a
//! request about its kernel interface (rtnetlink(7)).
//!
//! The driver keeps a setting when the port's process ends. A record of the former values is therefore written before the first change.
//! They are restored when the port is closed, or by a later process if this one was killed. A setting that another program has changed since
//! is left alone.

pub(super) mod created;
mod message;
mod record;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::libc;
use quietwire_base::{ProcessId, rtnetlink};

use self::message::{Setting, State};
use self::record::{Change, Record};
use crate::error::Error;
use crate::pci;
use crate::port::options::PortOptions;
use crate::port::records::Record as _;
use crate::uri::{FunctionSettings, PortUri};

/// Directory of the records.
const DIRECTORY: &str = "/run/quietwire/functions";

/// A virtual function with the settings of its port. Dropping the value restores the former ones.
#[derive(Debug)]
pub(super) struct ConfiguredFunction(Record);

impl Drop for ConfiguredFunction {
    fn drop(&mut self) {
        give_back(Path::new("/"), Path::new(DIRECTORY), &self.0);
    }
}

impl ConfiguredFunction {
    /// Makes the settings of a URI. `None` if there is nothing to change. The function's driver has to be started after that: it reads
    /// them at its start.
    ///
    /// # Errors
    /// The device is no virtual function, its physical function has no kernel interface, another process has the function, or the driver
    /// refuses a setting. All settings are as before then.
    pub(super) fn open(uri: &PortUri, options: &PortOptions) -> Result<Option<Self>, Error> {
        let PortUri::Pci {
            address, function, ..
        } = uri
        else {
            return Ok(None);
        };
        let (root, directory) = (Path::new("/"), Path::new(DIRECTORY));
        let port = options.name.clone();
        if function.is_empty() {
            return Ok(None);
        }
        configure_device(root, directory, address, function).map_err(|problem| match problem {
            Problem::NoFunction(what) => Error::NoPciDevice {
                port,
                address: address.clone(),
                what,
            },
            Problem::Unavailable(what) => Error::PciNotReady {
                port,
                address: address.clone(),
                what,
            },
        })
    }
}

/// Why settings cannot be made: text after the address of the device.
#[derive(Debug)]
enum Problem {
    /// The device is no virtual function.
    NoFunction(String),
    /// The machine does not support it.
    Unavailable(String),
}

/// Access to one virtual function.
trait Function {
    /// Returns its settings.
    fn state(&self) -> io::Result<State>;

    /// Changes a setting.
    fn set(&self, setting: &Setting) -> io::Result<()>;
}

/// A function by the interface of its physical function.
struct KernelFunction {
    socket: OwnedFd,
    /// Index of the interface.
    index: u32,
    /// Number of the function.
    number: u32,
}

impl KernelFunction {
    fn open(index: u32, number: u32) -> io::Result<Self> {
        Ok(Self {
            socket: rtnetlink::open()?,
            index,
            number,
        })
    }
}

impl Function for KernelFunction {
    fn state(&self) -> io::Result<State> {
        let message = message::request(self.index)?;
        let reply = rtnetlink::ask(&self.socket, libc::RTM_GETLINK, 0, &message)?;
        State::parse(&reply, self.number)
            .ok_or_else(|| io::Error::other("the driver does not report the function"))
    }

    fn set(&self, setting: &Setting) -> io::Result<()> {
        let message = message::change(self.index, self.number, setting)?;
        rtnetlink::ask(&self.socket, libc::RTM_SETLINK, libc::NLM_F_ACK, &message).map(drop)
    }
}

/// Restores settings that a killed process has changed for a port of the same device.
pub(super) fn restore_left_on(uri: &PortUri) {
    if let PortUri::Pci { address, .. } = uri {
        let (root, directory) = (Path::new("/"), Path::new(DIRECTORY));
        restore_left(root, directory, |record| record.address == *address);
    }
}

fn configure_device(
    root: &Path,
    directory: &Path,
    address: &str,
    settings: &FunctionSettings,
) -> Result<Option<ConfiguredFunction>, Problem> {
    let Some(function) = pci::virtual_function(root, address) else {
        return Err(Problem::NoFunction(
            "is not a virtual function, but mac, vlan, trust, spoof-check and max-tx-rate are settings of one (create functions with `echo N > /sys/bus/pci/devices/CARD/sriov_numvfs`, or remove the options)"
                .to_owned(),
        ));
    };
    let physical = function.physical.clone();
    let unavailable = |what: String| {
        Problem::Unavailable(format!(
            "is function {} of {physical}, {what}",
            function.number
        ))
    };
    let Some((interface, index)) = pci::interface(root, &physical) else {
        let driver = pci::driver(root, &physical);
        let driver = driver.map_or("no driver".to_owned(), |name| format!("the driver {name}"));
        return Err(unavailable(format!(
            "which has {driver} and no kernel interface in this network namespace, through which settings are made (bind it to the kernel's driver of the card, or remove the options)"
        )));
    };
    if let Some(other) = Record::all(directory)
        .into_iter()
        .find(|record| record.address == address && record.is_of_another())
    {
        let (pid, _) = other.process;
        return Err(unavailable(format!(
            "and process {pid} has a port with it (close that port, or use another function)"
        )));
    }
    let failed = |error: io::Error| {
        unavailable(format!(
            "whose settings cannot be read through {interface}: {error}"
        ))
    };
    let Some(process) = ProcessId::own() else {
        return Err(failed(io::ErrorKind::NotFound.into()));
    };
    let access = KernelFunction::open(index, function.number).map_err(failed)?;
    let changes = changes(&access, settings, &interface).map_err(&unavailable)?;
    if changes.is_empty() {
        return Ok(None);
    }
    let record = Record {
        address: address.to_owned(),
        function: function.clone(),
        process: (process.pid, process.start_time),
        changes,
    };
    record.write(directory).map_err(|error| {
        unavailable(format!(
            "and nothing is changed, because {} cannot be written: {error}",
            directory.display()
        ))
    })?;
    // From here on, an error restores the changed settings.
    let configured = ConfiguredFunction(record);
    apply_changes(&access, &configured.0.changes, &interface).map_err(&unavailable)?;
    Ok(Some(configured))
}

/// Returns the settings that differ from those of a URI.
fn changes(
    access: &dyn Function,
    settings: &FunctionSettings,
    interface: &str,
) -> Result<Vec<Change>, String> {
    let state = access
        .state()
        .map_err(|error| format!("whose settings cannot be read through {interface}: {error}"))?;
    let mut changes = Vec::new();
    for new in state.wanted(settings) {
        let Some(former) = state.current(&new) else {
            return Err(format!(
                "and the driver of {interface} does not support {} (remove the option)",
                new.name()
            ));
        };
        if former != new {
            changes.push(Change { former, new });
        }
    }
    Ok(changes)
}

/// Makes changes, and checks that the driver reports them.
fn apply_changes(access: &dyn Function, changes: &[Change], interface: &str) -> Result<(), String> {
    for Change { new, .. } in changes {
        access.set(new).map_err(|error| {
            format!("and the driver of {interface} refuses {new}: {error} (use another value, or remove the option)")
        })?;
    }
    let state = access
        .state()
        .map_err(|error| format!("whose settings cannot be read through {interface}: {error}"))?;
    for Change { new, .. } in changes {
        let now = state.current(new);
        if now != Some(*new) {
            let now = now.map_or("nothing".to_owned(), |now| now.to_string());
            return Err(format!(
                "and the driver of {interface} accepted {new} but reports {now} (remove the option)"
            ));
        }
    }
    Ok(())
}

/// Restores former settings, the last first, unless another program has changed them since. Returns the problems.
fn restore(access: &dyn Function, changes: &[Change]) -> Vec<String> {
    let mut problems = Vec::new();
    for Change { former, new } in changes.iter().rev() {
        let now = match access.state() {
            Ok(state) => state.current(new),
            Err(error) => {
                problems.push(format!("{former}: {error}"));
                continue;
            }
        };
        if now == Some(*former) {
            continue;
        }
        if now != Some(*new) {
            tracing::warn!(
                "{new} of a virtual function was changed by another program since: left unchanged"
            );
            continue;
        }
        if let Err(error) = access.set(former) {
            problems.push(format!("{former}: {error}"));
        }
    }
    problems
}

/// Restores the settings of a record, and removes the record if that succeeds. Returns true for a record that is done.
fn give_back(root: &Path, directory: &Path, record: &Record) -> bool {
    let Record {
        address,
        function,
        changes,
        ..
    } = record;
    // Functions that were created again have the settings of new ones.
    let is_there = pci::virtual_function(root, address).as_ref() == Some(function);
    let problems = match pci::interface(root, &function.physical).filter(|_| is_there) {
        Some((_, index)) => match KernelFunction::open(index, function.number) {
            Ok(access) => restore(&access, changes),
            Err(error) => vec![error.to_string()],
        },
        None if is_there => {
            let physical = &function.physical;
            vec![format!(
                "{physical} has no kernel interface in this network namespace"
            )]
        }
        None => Vec::new(),
    };
    if problems.is_empty() {
        record.remove(directory);
        return true;
    }
    tracing::warn!(
        "cannot restore all settings of the virtual function {address}: {} (`quietwire lab clean` tries again)",
        problems.join("; ")
    );
    false
}

/// Restores settings of virtual functions that killed processes have changed, and deletes functions that they have created. Returns the PCI
/// addresses of these functions.
#[must_use]
pub fn restore_left_functions() -> Vec<String> {
    let mut restored = restore_left(Path::new("/"), Path::new(DIRECTORY), |record| {
        let own = ProcessId::own().map(|own| (own.pid, own.start_time));
        own != Some(record.process)
    });
    restored.extend(created::delete_left_functions());
    restored.sort();
    restored.dedup();
    restored
}

fn restore_left(root: &Path, directory: &Path, which: impl Fn(&Record) -> bool) -> Vec<String> {
    let records = Record::all(directory).into_iter().filter(which);
    let left = records.filter(|record| !record.is_of_another());
    left.filter(|record| give_back(root, directory, record))
        .map(|record| record.address)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::errno::Errno;
    use quietwire_packet::MacAddress;

    use super::*;

    const ADDRESS: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x0a]);

    /// A function of a driver that applies every setting, except for those that it refuses or ignores.
    struct Scripted {
        state: Cell<State>,
        refused: &'static str,
        ignored: &'static str,
        set: RefCell<Vec<String>>,
    }

    impl Scripted {
        fn new() -> Self {
            Self {
                state: Cell::new(State {
                    mac: Some(MacAddress::default()),
                    vlan: Some((0, 0)),
                    trust: Some(false),
                    spoof_check: Some(true),
                    rate: Some((0, 0)),
                }),
                refused: "",
                ignored: "",
                set: RefCell::new(Vec::new()),
            }
        }
    }

    impl Function for Scripted {
        fn state(&self) -> io::Result<State> {
            Ok(self.state.get())
        }

        fn set(&self, setting: &Setting) -> io::Result<()> {
            if setting.name() == self.refused {
                return Err(Errno::EOPNOTSUPP.into());
            }
            self.set.borrow_mut().push(setting.to_string());
            if setting.name() == self.ignored {
                return Ok(());
            }
            let mut state = self.state.get();
            match *setting {
                Setting::Mac(mac) => state.mac = Some(mac),
                Setting::Vlan { id, priority } => state.vlan = Some((id, priority)),
                Setting::Trust(on) => state.trust = Some(on),
                Setting::SpoofCheck(on) => state.spoof_check = Some(on),
                Setting::Rate { min, max } => state.rate = Some((min, max)),
            }
            self.state.set(state);
            Ok(())
        }
    }

    const SETTINGS: FunctionSettings = FunctionSettings {
        mac: Some(ADDRESS),
        vlan: Some(5),
        trust: Some(false),
        spoof_check: Some(false),
        max_tx_rate: Some(100),
    };

    #[test]
    fn only_different_settings_are_changed_and_all_are_restored() {
        let function = Scripted::new();
        let before = function.state.get();
        let changes = changes(&function, &SETTINGS, "eth0").unwrap();
        apply_changes(&function, &changes, "eth0").unwrap();
        let made = function.set.take();
        let expected = [
            "mac=02:00:00:00:00:0a",
            "vlan=5,0",
            "spoof-check=off",
            "max-tx-rate=0,100",
        ];
        assert_eq!(made, expected);
        assert_eq!(restore(&function, &changes), Vec::<String>::new());
        assert_eq!(function.state.get(), before);
        // Twice changes nothing.
        function.set.take();
        assert_eq!(restore(&function, &changes), Vec::<String>::new());
        assert_eq!(function.set.take(), Vec::<String>::new());
    }

    #[test]
    fn settings_that_a_driver_refuses_ignores_or_lacks_are_reported() {
        let refusing = Scripted {
            refused: "spoof-check",
            ..Scripted::new()
        };
        let before = refusing.state.get();
        let all = changes(&refusing, &SETTINGS, "eth0").unwrap();
        let why = apply_changes(&refusing, &all, "eth0").unwrap_err();
        assert!(
            why.contains("the driver of eth0 refuses spoof-check=off"),
            "{why}"
        );
        assert_eq!(restore(&refusing, &all), Vec::<String>::new());
        assert_eq!(refusing.state.get(), before);
        let ignoring = Scripted {
            ignored: "vlan",
            ..Scripted::new()
        };
        let all = changes(&ignoring, &SETTINGS, "eth0").unwrap();
        let why = apply_changes(&ignoring, &all, "eth0").unwrap_err();
        assert!(
            why.contains("accepted vlan=5,0 but reports vlan=0,0"),
            "{why}"
        );
        let lacking = Scripted::new();
        let state = State {
            trust: None,
            ..lacking.state.get()
        };
        lacking.state.set(state);
        let why = changes(&lacking, &SETTINGS, "eth0").unwrap_err();
        assert!(why.contains("does not support trust"), "{why}");
    }

    #[test]
    fn settings_changed_by_another_program_are_not_restored() {
        let function = Scripted::new();
        let changes = changes(&function, &SETTINGS, "eth0").unwrap();
        apply_changes(&function, &changes, "eth0").unwrap();
        function.set(&Setting::Vlan { id: 9, priority: 0 }).unwrap();
        assert_eq!(restore(&function, &changes), Vec::<String>::new());
        let state = function.state.get();
        assert_eq!((state.vlan, state.rate), (Some((9, 0)), Some((0, 0))));
    }

    #[test]
    fn a_machine_without_such_a_function_is_named_as_such() {
        let root = tempfile::tempdir().unwrap();
        let devices = root.path().join("sys/bus/pci/devices");
        let (card, address) = ("0000:17:00.0", "0000:17:02.3");
        for device in [card, address] {
            fs::create_dir_all(devices.join(device)).unwrap();
        }
        let directory = root.path().join("functions");
        let problem = || configure_device(root.path(), &directory, address, &SETTINGS).unwrap_err();
        let Problem::NoFunction(what) = problem() else {
            panic!("it is no function");
        };
        assert!(what.contains("sriov_numvfs"), "{what}");
        symlink(format!("../{card}"), devices.join(address).join("physfn")).unwrap();
        symlink(format!("../{address}"), devices.join(card).join("virtfn3")).unwrap();
        symlink("../../drivers/vfio-pci", devices.join(card).join("driver")).unwrap();
        let Problem::Unavailable(what) = problem() else {
            panic!("it is a function");
        };
        assert!(
            what.contains("is function 3 of 0000:17:00.0, which has the driver vfio-pci and no kernel interface"),
            "{what}"
        );
        assert!(!directory.exists());
    }

    #[test]
    fn records_of_functions_that_are_gone_are_removed_and_those_of_living_processes_stay() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("functions");
        let record = |address: &str, process| Record {
            address: address.to_owned(),
            function: pci::VirtualFunction {
                physical: "0000:17:00.0".to_owned(),
                number: 3,
            },
            process,
            changes: vec![Change {
                former: Setting::Trust(false),
                new: Setting::Trust(true),
            }],
        };
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        let parent = ProcessId::of(parent).unwrap();
        let living = record("0000:17:02.1", (parent.pid, parent.start_time));
        let dead = record("0000:17:02.3", (parent.pid, parent.start_time + 1));
        for one in [&living, &dead] {
            one.write(&directory).unwrap();
        }
        let left = restore_left(root.path(), &directory, |_| true);
        assert_eq!(left, ["0000:17:02.3"]);
        assert_eq!(Record::all(&directory), [living]);
        // A function that exists, and whose physical function has lost its interface, keeps its record.
        dead.write(&directory).unwrap();
        let devices = root.path().join("sys/bus/pci/devices");
        fs::create_dir_all(devices.join("0000:17:00.0")).unwrap();
        fs::create_dir_all(devices.join("0000:17:02.3")).unwrap();
        symlink("../0000:17:00.0", devices.join("0000:17:02.3/physfn")).unwrap();
        symlink("../0000:17:02.3", devices.join("0000:17:00.0/virtfn3")).unwrap();
        assert_eq!(
            restore_left(root.path(), &directory, |_| true),
            Vec::<String>::new()
        );
        assert_eq!(Record::all(&directory).len(), 2);
    }
}
