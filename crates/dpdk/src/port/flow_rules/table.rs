// SPDX-License-Identifier: Apache-2.0
//! The table of flow rules of an interface's driver (linux/ethtool.h, `struct ethtool_rxnfc`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use quietwire_base::ProcessId;

use super::record::Record;
use crate::port::interface_request::InterfaceRequest;
use crate::port::records::Record as _;
use crate::port::xdp_program::kernel::InterfaceId;
use crate::steer::card_rules::{Contents, Entry, FlowTable};
use crate::steer::flow_spec::{FlowSpec, LENGTH};

// linux/ethtool.h.
const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
const ETHTOOL_GRXCLSRULE: u32 = 0x2f;
const ETHTOOL_GRXCLSRLALL: u32 = 0x30;
const ETHTOOL_SRXCLSRLDEL: u32 = 0x31;
const ETHTOOL_SRXCLSRLINS: u32 = 0x32;
/// Flag of a table whose driver chooses locations.
const RX_CLS_LOC_SPECIAL: u64 = 0x8000_0000;
/// linux/sockios.h. The type differs between C libraries.
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// Most rules of a table that are read. Cards have some thousands.
const RULES_MAX: usize = 16_384;

/// struct ethtool_rxnfc with space for locations. Its size without them is a multiple of 8, for which one location is needed.
#[repr(C)]
#[derive(Debug)]
struct Request<const LOCATIONS: usize> {
    command: u32,
    flow_type: u32,
    /// Also aligns the rule, which has a member of 8 octets.
    data: u64,
    rule: [u8; LENGTH],
    count: u32,
    locations: [u32; LOCATIONS],
}

// linux/ethtool.h on machines of 64 bits: the kernel reads and writes so many octets.
const _: () = assert!(size_of::<Request<1>>() == 192 && align_of::<Request<1>>() == 8);

impl<const LOCATIONS: usize> Request<LOCATIONS> {
    const fn new(command: u32, rule: [u8; LENGTH]) -> Self {
        const {
            assert!(LOCATIONS > 0, "the structure of the kernel has padding");
        }
        Self {
            command,
            flow_type: 0,
            data: 0,
            rule,
            count: 0,
            locations: [0; LOCATIONS],
        }
    }
}

/// Tables that this process has opened.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// Flow rules of an interface.
#[derive(Debug)]
pub(super) struct KernelTable {
    socket: OwnedFd,
    interface: InterfaceId,
    /// Number of the table in records.
    number: u32,
    /// Directory of the records.
    directory: PathBuf,
}

impl KernelTable {
    /// Opens the table of an interface of this network namespace.
    ///
    /// # Errors
    /// The kernel's error, such as ENODEV.
    pub(super) fn open(interface: InterfaceId, directory: &Path) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
        let table = Self {
            socket,
            interface,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            directory: directory.to_owned(),
        };
        table.named()?;
        Ok(table)
    }

    /// Returns a request for the interface, which may have been renamed.
    fn named(&self) -> Result<InterfaceRequest, Errno> {
        let index = self.interface.index.cast_signed();
        InterfaceRequest::indexed(self.socket.as_fd(), index)
    }

    fn ask<const LOCATIONS: usize>(&self, request: &mut Request<LOCATIONS>) -> io::Result<()> {
        let mut interface = self.named()?;
        // SAFETY: the structure has the members of the kernel's, and space for `count` locations: `contents` sets it, all others leave it
        // at 0.
        let called = unsafe { interface.call_with(self.socket.as_fd(), SIOCETHTOOL as _, request) };
        Ok(called?)
    }

    /// Sends a command about one rule.
    fn ask_about(&self, command: u32, rule: [u8; LENGTH]) -> io::Result<FlowSpec> {
        let mut request = Request::<1>::new(command, rule);
        self.ask(&mut request)?;
        Ok(FlowSpec::from_octets(request.rule))
    }

    /// Returns a rule that has only a location.
    fn nothing_at(location: u32) -> [u8; LENGTH] {
        FlowSpec::from_octets([0; LENGTH]).at(location)
    }
}

impl FlowTable for KernelTable {
    fn contents(&self) -> io::Result<Contents> {
        let mut counted = Request::<1>::new(ETHTOOL_GRXCLSRLCNT, [0; LENGTH]);
        self.ask(&mut counted)?;
        // On the heap: it is large.
        let mut listed = Box::new(Request::<RULES_MAX>::new(ETHTOOL_GRXCLSRLALL, [0; LENGTH]));
        // The kernel allocates as many. Rules may be added meanwhile.
        let rules_max = u32::try_from(RULES_MAX).unwrap_or(u32::MAX);
        let space = counted.count.saturating_add(64).min(rules_max);
        listed.count = space;
        self.ask(&mut *listed)?;
        if listed.count > space {
            return Err(io::Error::other(
                "the driver reports more flow rules than requested",
            ));
        }
        let locations = listed.locations.iter().take(listed.count as usize);
        Ok(Contents {
            locations: locations.copied().collect(),
            size: u32::try_from(listed.data & !RX_CLS_LOC_SPECIAL).unwrap_or(u32::MAX),
            is_unordered: counted.data & RX_CLS_LOC_SPECIAL != 0,
        })
    }

    fn rule(&self, location: u32) -> io::Result<FlowSpec> {
        self.ask_about(ETHTOOL_GRXCLSRULE, Self::nothing_at(location))
    }

    fn insert(&self, spec: &FlowSpec, location: u32) -> io::Result<u32> {
        let made = self.ask_about(ETHTOOL_SRXCLSRLINS, spec.at(location))?;
        Ok(made.location())
    }

    fn remove(&self, location: u32) -> io::Result<()> {
        self.ask_about(ETHTOOL_SRXCLSRLDEL, Self::nothing_at(location))
            .map(drop)
    }

    fn record(&self, rules: &[Entry]) -> io::Result<()> {
        let process = ProcessId::own()
            .ok_or_else(|| io::Error::other("the start time of this process is unknown"))?;
        let record = Record {
            interface: self.interface,
            process: (process.pid, process.start_time),
            table: self.number,
            rules: rules.to_vec(),
        };
        if rules.is_empty() {
            record.remove(&self.directory);
            return Ok(());
        }
        record.write(&self.directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::xdp_program::kernel::interface;

    /// Two ports may use different queues of one interface.
    #[test]
    fn tables_of_one_interface_have_records_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("flow-rules");
        let open = || KernelTable::open(interface("lo").unwrap(), &records).unwrap();
        let (first, second) = (open(), open());
        let rule = |octet: u8| Entry {
            spec: FlowSpec::from_octets([octet; LENGTH]),
            location: Some(7),
        };
        let recorded = || {
            let all = Record::all(&records).into_iter();
            let mut rules: Vec<Entry> = all.flat_map(|record| record.rules).collect();
            rules.sort_by_key(|entry| entry.spec.to_string());
            rules
        };
        first.record(&[rule(1)]).unwrap();
        second.record(&[rule(2)]).unwrap();
        assert_eq!(recorded(), [rule(1), rule(2)]);
        second.record(&[]).unwrap();
        assert_eq!(recorded(), [rule(1)]);
        first.record(&[]).unwrap();
        assert_eq!(recorded(), []);
    }

    #[test]
    fn an_interface_without_a_card_has_no_flow_rules() {
        let directory = tempfile::tempdir().unwrap();
        let lo = interface("lo").unwrap();
        let table = KernelTable::open(lo, directory.path()).unwrap();
        let code = |error: io::Error| error.raw_os_error();
        assert_eq!(table.contents().map_err(code), Err(Some(libc::EOPNOTSUPP)));
        let spec = FlowSpec::from_octets([0; LENGTH]);
        let inserted = table.insert(&spec, 0).map_err(code);
        // The kernel reports only to root that the driver has none.
        assert!(
            [Err(Some(libc::EOPNOTSUPP)), Err(Some(libc::EPERM))].contains(&inserted),
            "{inserted:?}"
        );
        let gone = InterfaceId {
            index: i32::MAX.cast_unsigned(),
            ..lo
        };
        let opened = KernelTable::open(gone, directory.path()).map(drop);
        assert_eq!(opened.map_err(code), Err(Some(libc::ENODEV)));
    }
}
