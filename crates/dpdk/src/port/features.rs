// SPDX-License-Identifier: Apache-2.0
//! Offload features of a kernel interface (linux/ethtool.h), by the names that `ethtool -k` and the kernel use.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::libc;

use super::interface_request::InterfaceRequest;

/// linux/ethtool.h.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
/// linux/sockios.h. The type differs between C libraries.
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// Octets of a name, and most features of an interface.
const NAME: usize = 32;
const FEATURES_MAX: usize = 256;
const WORD: usize = 32;
const WORDS_MAX: usize = FEATURES_MAX / WORD;

/// struct ethtool_sset_info for one set.
#[repr(C)]
struct SetInfo {
    command: u32,
    reserved: u32,
    mask: u64,
    length: u32,
}

/// struct ethtool_drvinfo.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; NAME],
    /// Versions, bus, reserved octets, sizes.
    others: [u8; 4 * NAME + 12 + 20],
}

/// struct ethtool_gstrings.
#[repr(C)]
struct Names {
    command: u32,
    set: u32,
    length: u32,
    names: [[u8; NAME]; FEATURES_MAX],
}

/// struct ethtool_get_features_block.
#[repr(C)]
#[derive(Clone, Copy)]
struct Block {
    available: u32,
    requested: u32,
    active: u32,
    never_changed: u32,
}

/// struct ethtool_gfeatures.
#[repr(C)]
struct Blocks {
    command: u32,
    count: u32,
    blocks: [Block; WORDS_MAX],
}

/// struct ethtool_set_features_block.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct BlockChange {
    valid: u32,
    requested: u32,
}

/// struct ethtool_sfeatures.
#[repr(C)]
struct Changes {
    command: u32,
    count: u32,
    blocks: [BlockChange; WORDS_MAX],
}

/// A structure that the kernel reads and writes for its command.
///
/// # Safety
/// It begins with its command and has space for the answer.
unsafe trait Request {}

// SAFETY: linux/ethtool.h, struct ethtool_sset_info; the kernel writes one word for each bit of the mask, and one bit is set.
unsafe impl Request for SetInfo {}
// SAFETY: linux/ethtool.h, struct ethtool_drvinfo, which the kernel fills.
unsafe impl Request for DriverInfo {}
// SAFETY: struct ethtool_gstrings; the kernel writes all names of the set, of which there is space for `FEATURES_MAX` (checked by
// `names`).
unsafe impl Request for Names {}
// SAFETY: struct ethtool_gfeatures; the kernel writes at most `count` blocks.
unsafe impl Request for Blocks {}
// SAFETY: struct ethtool_sfeatures; the kernel reads `count` blocks, and writes nothing.
unsafe impl Request for Changes {}

/// Active offload features of an interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Features(Vec<String>);

impl Features {
    /// Reads the active features of the interface with this name in the network namespace of `socket`.
    ///
    /// # Errors
    /// The kernel's error.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are at most FEATURES_MAX names"
    )]
    pub(super) fn of(socket: BorrowedFd<'_>, interface: &str) -> Result<Self, Errno> {
        let names = names(socket, interface)?;
        let none = Block {
            available: 0,
            requested: 0,
            active: 0,
            never_changed: 0,
        };
        let mut all = Blocks {
            command: ETHTOOL_GFEATURES,
            count: names.len().div_ceil(WORD) as u32,
            blocks: [none; WORDS_MAX],
        };
        request(socket, interface, &mut all)?;
        let is_active = |at: usize| {
            let block = all.blocks.get(at / WORD);
            block.is_some_and(|block| block.active >> (at % WORD) & 1 == 1)
        };
        let active = names.into_iter().enumerate();
        let active = active.filter(|(at, _)| is_active(*at));
        Ok(Self(active.map(|(_, name)| name).collect()))
    }

    /// Switches features of the interface with this name on or off. Those that the kernel does not know, or whose state is fixed, stay as
    /// they are, and so do features that require another one.
    ///
    /// # Errors
    /// The kernel's error, such as EPERM.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are at most FEATURES_MAX names"
    )]
    pub(super) fn switch(
        socket: BorrowedFd<'_>,
        interface: &str,
        features: &[&str],
        is_on: bool,
    ) -> Result<(), Errno> {
        let names = names(socket, interface)?;
        let mut changes = Changes {
            command: ETHTOOL_SFEATURES,
            count: names.len().div_ceil(WORD) as u32,
            blocks: [BlockChange::default(); WORDS_MAX],
        };
        for (at, name) in names.iter().enumerate() {
            let is_meant = features.contains(&name.as_str());
            if let Some(block) = changes.blocks.get_mut(at / WORD).filter(|_| is_meant) {
                block.valid |= 1 << (at % WORD);
                block.requested |= u32::from(is_on) << (at % WORD);
            }
        }
        request(socket, interface, &mut changes)
    }

    /// Returns true if the feature is active.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|active| active == name)
    }
}

/// Returns the names of all features that the kernel knows, in the order of their bits.
fn names(socket: BorrowedFd<'_>, interface: &str) -> Result<Vec<String>, Errno> {
    let mut info = SetInfo {
        command: ETHTOOL_GSSET_INFO,
        reserved: 0,
        mask: 1 << ETH_SS_FEATURES,
        length: 0,
    };
    request(socket, interface, &mut info)?;
    let length = info.length as usize;
    if info.mask == 0 || length > FEATURES_MAX {
        return Err(Errno::EOPNOTSUPP);
    }
    // On the heap: it is large.
    let mut all = Box::new(Names {
        command: ETHTOOL_GSTRINGS,
        set: ETH_SS_FEATURES,
        length: info.length,
        names: [[0; NAME]; FEATURES_MAX],
    });
    request(socket, interface, &mut *all)?;
    Ok(all.names.iter().take(length).map(text).collect())
}

/// Returns the text before the first zero.
fn text(octets: &[u8; NAME]) -> String {
    let end = octets.iter().position(|octet| *octet == 0).unwrap_or(NAME);
    String::from_utf8_lossy(octets.get(..end).unwrap_or_default()).into_owned()
}

/// Returns the name of the driver of the interface with this name, such as `veth`, in the network namespace of `socket`.
///
/// # Errors
/// The kernel's error, such as EOPNOTSUPP.
pub(super) fn driver(socket: BorrowedFd<'_>, interface: &str) -> Result<String, Errno> {
    let mut info = DriverInfo {
        command: ETHTOOL_GDRVINFO,
        driver: [0; NAME],
        others: [0; 4 * NAME + 12 + 20],
    };
    request(socket, interface, &mut info)?;
    Ok(text(&info.driver))
}

/// Calls SIOCETHTOOL.
fn request<T: Request>(
    socket: BorrowedFd<'_>,
    interface: &str,
    value: &mut T,
) -> Result<(), Errno> {
    let mut request = InterfaceRequest::named(interface).ok_or(Errno::ENODEV)?;
    // SAFETY: the structure has space for the answer (`Request`).
    unsafe { request.call_with(socket, SIOCETHTOOL as _, value) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

    use super::*;
    use crate::testing::in_a_namespace;

    #[test]
    fn features_are_switched_off_and_on_by_their_names() {
        in_a_namespace(|| {
            let mut add = std::process::Command::new("ip");
            add.args([
                "link", "add", "qwf0", "type", "veth", "peer", "name", "qwf1",
            ]);
            assert!(add.status().unwrap().success());
            let flags = SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None).unwrap();
            let names = ["tx-vlan-hw-insert", "tx-vlan-stag-hw-insert", "nothing"];
            let has = |interface: &str| {
                let features = Features::of(socket.as_fd(), interface).unwrap();
                names.map(|name| features.has(name))
            };
            let before = Features::of(socket.as_fd(), "qwf0").unwrap();
            assert_eq!(has("qwf0"), [true, true, false]);
            for is_on in [false, true] {
                Features::switch(socket.as_fd(), "qwf0", &names, is_on).unwrap();
                assert_eq!(has("qwf0"), [is_on, is_on, false]);
                assert_eq!(has("qwf1"), [true, true, false]);
            }
            let after = Features::of(socket.as_fd(), "qwf0").unwrap();
            assert_eq!(after.0, before.0);
            // Those of the loopback interface are fixed.
            Features::switch(socket.as_fd(), "lo", &names, true).unwrap();
            assert_eq!(has("lo"), [false; 3]);
            let none = Features::switch(socket.as_fd(), "quietwire-none", &names, true);
            assert_eq!(none, Err(Errno::ENODEV));
        });
    }

    #[test]
    fn the_loopback_interface_has_features_that_the_kernel_names() {
        let socket = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::empty(),
            None,
        )
        .unwrap();
        let features = Features::of(socket.as_fd(), "lo").unwrap();
        assert!(features.has("loopback"), "{features:?}");
        assert!(!features.has("nothing"));
        assert_eq!(
            Features::of(socket.as_fd(), "quietwire-none").unwrap_err(),
            Errno::ENODEV
        );
        assert!(Features::of(socket.as_fd(), "a-name-of-sixteen-octets").is_err());
    }
}
