// SPDX-License-Identifier: Apache-2.0
//! Interfaces of the node that are in a container for its lifetime (rtnetlink(7)). The alias of such an interface has the name of its
//! attachment and its former name, so that it is found in every namespace: when a namespace ends without DEL, the kernel moves the
//! interfaces of cards to the node, with the name that they had in the container or another one (network_namespaces(7)).
//!
//! A container may change aliases and names of its interfaces. So the former name is that of the record, and an interface with a device of
//! its own, such as a virtual function, is found by this device.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::{if_nameindex, if_nametoindex};
use quietwire_base::is_file_name;
use quietwire_base::netns::{self, Failure};
use quietwire_base::rtnetlink::{self, attribute, link, parse_link, push};
use serde::{Deserialize, Serialize};

use super::environment::INTERFACE_MAX;
use super::reply::{CniError, ErrorCode};

// linux/if_link.h.
const IFLA_IFNAME: u16 = 3;
const IFLA_IFALIAS: u16 = 20;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_PARENT_DEV_NAME: u16 = 56;
/// PCI devices in sysfs.
const DEVICES: &str = "/sys/bus/pci/devices";
/// Network namespace of the plugin, which is that of the node.
pub(super) const OWN: &str = "/proc/thread-self/ns/net";
/// First word of the alias of an interface that this plugin moved.
const WORD: &str = "quietwire-cni";
/// Pattern of the name of an interface on the node before it has its former name. The kernel completes it.
const PATTERN: &str = "dev%d";

/// An interface as it was on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Moved {
    /// Its name.
    former: String,
    /// Name of its device, such as a PCI address, if no other interface has this device. `None` also before Linux 5.14.
    parent: Option<String>,
}

/// An attachment whose interface is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceAttachment<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Its interface, as the record has it. `None`: an earlier version wrote the record, or there is none.
    pub(super) moved: Option<&'a Moved>,
}

impl DeviceAttachment<'_> {
    /// Returns the former name of an interface if it is that of the attachment.
    fn former(&self, interface: &Described) -> Option<String> {
        let alias = interface.alias.as_deref().and_then(parse_alias);
        let of_alias = alias.filter(|(attachment, _)| *attachment == self.name);
        let Some(moved) = self.moved else {
            return of_alias.map(|(_, former)| former.to_owned());
        };
        let is_it = match &moved.parent {
            Some(_) => interface.parent == moved.parent,
            None => of_alias.is_some(),
        };
        is_it.then(|| moved.former.clone())
    }
}

/// Returns the alias of an interface.
fn alias(attachment: &str, former: &str) -> String {
    format!("{WORD} {attachment} {former}")
}

/// Returns the attachment and the former name in an alias of this plugin. A container may write aliases, too.
fn parse_alias(alias: &str) -> Option<(&str, &str)> {
    let mut words = alias.split(' ');
    let first = words.next()?;
    let (attachment, former) = (words.next()?, words.next()?);
    let is_own = first == WORD && words.next().is_none() && is_interface_name(former);
    is_own.then_some((attachment, former))
}

/// Returns true if an interface can have this name, and the kernel takes it for no pattern.
fn is_interface_name(name: &str) -> bool {
    is_file_name(name) && name.len() <= INTERFACE_MAX && !name.contains([':', '%', ' '])
}

/// Returns true if a device is named by its PCI address. Names of interfaces have no colon.
pub(super) fn is_pci(device: &str) -> bool {
    device.contains(':')
}

/// Returns the interface of a device, which is a name or a PCI address.
fn resolve(device: &str, devices: &Path) -> Result<String, CniError> {
    if !is_pci(device) {
        return Ok(device.to_owned());
    }
    let unavailable =
        |what: String| CniError::new(ErrorCode::Io, format!("device {device}: {what}"));
    let directory = devices.join(device).join("net");
    let listed = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(|error| unavailable(format!("{}: {error}", directory.display())))?,
    };
    match listed.as_slice() {
        [one] => Ok(one.file_name().to_string_lossy().into_owned()),
        [] => Err(unavailable(
            "no interface on this node (bind it to the kernel's driver, or wait for another container)"
                .to_owned(),
        )),
        _ => Err(unavailable(
            "several interfaces (name one of them)".to_owned(),
        )),
    }
}

/// Checks that a container has no interface of a name.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if it has one, [`ErrorCode::UnknownContainer`] if the namespace does not exist.
pub(super) fn check_free(namespace: &str, name: &str) -> Result<(), CniError> {
    let container = open(namespace)?;
    let is_free = || -> Result<bool, Failure> {
        match if_nametoindex(name) {
            Err(Errno::ENODEV) => Ok(true),
            Err(error) => Err(("if_nametoindex", error)),
            Ok(_) => Ok(false),
        }
    };
    match netns::within(Some(&container), is_free).map_err(|failure| refused(name, failure))? {
        true => Ok(()),
        false => {
            let what = format!("the container has interface {name} already");
            Err(CniError::new(ErrorCode::InvalidConfig, what))
        }
    }
}

/// An interface of the node that is about to move.
#[derive(Debug)]
pub(super) struct Found {
    index: u32,
    /// Its name now.
    name: String,
    /// For the record.
    pub(super) moved: Moved,
}

/// Finds the interface of a device of the node. `recorded` are the attachments that have records: after the end of an earlier container
/// without DEL, the interface has another name than before.
///
/// # Errors
/// [`ErrorCode::Io`] if the node has no such device.
pub(super) fn find(device: &str, recorded: &[DeviceAttachment<'_>]) -> Result<Found, CniError> {
    let name = resolve(device, Path::new(DEVICES))?;
    let found = || -> Result<Found, Failure> {
        let links = Links::open()?;
        let index = if_nametoindex(name.as_str()).map_err(|error| ("finding it", error))?;
        let own = links.describe(index)?;
        let former = recorded.iter().find_map(|it| it.former(&own));
        let all = links.all()?;
        let with_device = all.iter().filter(|(_, it)| it.parent == own.parent);
        let is_only = with_device.count() == 1;
        Ok(Found {
            index,
            name: name.clone(),
            moved: Moved {
                former: former.unwrap_or_else(|| name.clone()),
                parent: own.parent.filter(|_| is_only),
            },
        })
    };
    found().map_err(|failure| refused(&name, failure))
}

/// Moves an interface of the node into a container, as the interface `name`, which [`check_free`] has found free. Its record has to be written
/// before.
///
/// # Errors
/// [`ErrorCode::UnknownContainer`] if the namespace does not exist, [`ErrorCode::Io`] with the step that the kernel refused. [`give_back`]
/// undoes the steps before.
pub(super) fn take(
    namespace: &str,
    found: &Found,
    name: &str,
    attachment: &str,
) -> Result<(), CniError> {
    let container = open(namespace)?;
    let moved = || -> Result<(), Failure> {
        let links = Links::open()?;
        let mark = text(IFLA_IFALIAS, &alias(attachment, &found.moved.former));
        links.set(found.index, "setting the alias", mark)?;
        links.set(found.index, "moving it", to_namespace(&container, name))
    };
    moved().map_err(|failure| refused(&found.name, failure))
}

/// Moves the interface of an attachment from its container back to the node, and gives it its former name there, also if the kernel has moved
/// it already. If the former name is in use, the interface keeps the name that it has.
///
/// # Errors
/// [`ErrorCode::Io`] with the step that the kernel refused. The call can be repeated.
pub(super) fn give_back(
    namespace: Option<&str>,
    attachment: DeviceAttachment<'_>,
) -> Result<(), CniError> {
    let node = File::open(OWN).map_err(|error| {
        let what = format!("{OWN}: {error}");
        CniError::new(ErrorCode::Io, what)
    })?;
    // A namespace that does not exist has no interfaces.
    let container = namespace.and_then(|namespace| netns::open(namespace).ok());
    if let Some(container) = &container {
        let leave = || -> Result<(), Failure> {
            let links = Links::open()?;
            // An attachment has one: further aliases are of the container.
            let Some(interface) = links.of(attachment)?.into_iter().next() else {
                return Ok(());
            };
            let back = to_namespace(&node, PATTERN);
            links.set(interface.index, "moving it back", back)
        };
        match netns::within(Some(container), leave) {
            // An ended namespace can leave a file that is none.
            Ok(()) | Err(("setns", Errno::EINVAL)) => {}
            Err(failure) => return Err(refused("of the container", failure)),
        }
    }
    restore(attachment).map_err(|failure| refused("of the node", failure))?;
    Ok(())
}

/// Gives the interface of an attachment its former name, if it is in the network namespace of a file. Returns whether it is there. A file that
/// does not exist has none.
///
/// # Errors
/// [`ErrorCode::Io`] with the step that the kernel refused.
pub(super) fn restore_in(
    namespace: &Path,
    attachment: DeviceAttachment<'_>,
) -> Result<bool, CniError> {
    let node = match File::open(namespace) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(|error| {
            let what = format!("{}: {error}", namespace.display());
            CniError::new(ErrorCode::Io, what)
        })?,
    };
    netns::within(Some(&node), || restore(attachment))
        .map_err(|failure| refused("of the node", failure))
}

/// Gives interfaces on the node their former names, and removes the aliases. Returns whether there are such interfaces.
fn restore(attachment: DeviceAttachment<'_>) -> Result<bool, Failure> {
    let links = Links::open()?;
    let found = links.of(attachment)?;
    let is_any = !found.is_empty();
    for interface in found {
        // Kernels before 6.2 rename interfaces only that are down.
        let down = link(interface.index, 0, libc::IFF_UP.cast_unsigned(), &[]);
        links.ask(libc::RTM_SETLINK, "setting it down", Ok(down))?;
        let name = text(IFLA_IFNAME, &interface.former);
        match links.set(interface.index, "renaming it", name) {
            // Another try would fail as well, and keep the container from ending.
            Err((_, Errno::EEXIST)) => tracing::warn!(
                "an interface of the node keeps another name, because '{}' is in use",
                interface.former
            ),
            renamed => renamed?,
        }
        // An empty one is none.
        let mut empty = Vec::new();
        let none = push(&mut empty, IFLA_IFALIAS, &[]).map(|()| empty);
        links.set(interface.index, "removing the alias", none)?;
    }
    Ok(is_any)
}

fn open(namespace: &str) -> Result<File, CniError> {
    netns::open(namespace).map_err(|what| {
        let message = "the network namespace cannot be opened";
        CniError::new(ErrorCode::UnknownContainer, message).with_details(what)
    })
}

fn refused(interface: &str, (step, error): Failure) -> CniError {
    let what = format!("interface {interface}: {step}: {error}");
    CniError::new(ErrorCode::Io, what)
}

/// Returns an attribute with a text that ends with a zero.
fn text(kind: u16, value: &str) -> io::Result<Vec<u8>> {
    let mut attributes = Vec::new();
    let ended = [value.as_bytes(), &[0]].concat();
    push(&mut attributes, kind, &ended)?;
    Ok(attributes)
}

/// Returns the attributes that move an interface into a namespace and give it a name there.
fn to_namespace(namespace: &File, name: &str) -> io::Result<Vec<u8>> {
    let mut attributes = text(IFLA_IFNAME, name)?;
    let descriptor = namespace.as_raw_fd().to_ne_bytes();
    push(&mut attributes, IFLA_NET_NS_FD, &descriptor)?;
    Ok(attributes)
}

/// An interface that this plugin moved.
struct Returning {
    index: u32,
    former: String,
}

/// Alias and device of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Described {
    alias: Option<String>,
    parent: Option<String>,
}

impl Described {
    /// Reads a message about the link of an interface.
    fn read(message: &[u8]) -> Self {
        let link = parse_link(message);
        let attributes = link.map(|(_, attributes)| attributes).unwrap_or_default();
        let text = |kind: u16| {
            let value = std::str::from_utf8(attribute(attributes, kind)?).ok()?;
            Some(value.trim_end_matches('\0').to_owned())
        };
        Self {
            alias: text(IFLA_IFALIAS),
            parent: text(IFLA_PARENT_DEV_NAME),
        }
    }
}

/// A socket in the network namespace of the thread.
struct Links(OwnedFd);

impl Links {
    fn open() -> Result<Self, Failure> {
        let socket = rtnetlink::open();
        socket.map(Self).map_err(|error| ("socket", error))
    }

    fn ask(
        &self,
        kind: u16,
        step: &'static str,
        message: io::Result<Vec<u8>>,
    ) -> Result<Vec<u8>, Failure> {
        let flags = match kind {
            libc::RTM_GETLINK => 0,
            _ => libc::NLM_F_ACK,
        };
        let reply = message.and_then(|message| rtnetlink::ask(&self.0, kind, flags, &message));
        reply.map_err(|error| {
            let error = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            (step, error)
        })
    }

    /// Changes attributes of an interface.
    fn set(
        &self,
        index: u32,
        step: &'static str,
        attributes: io::Result<Vec<u8>>,
    ) -> Result<(), Failure> {
        let message = attributes.map(|attributes| link(index, 0, 0, &attributes));
        self.ask(libc::RTM_SETLINK, step, message).map(drop)
    }

    /// Returns the interfaces of the namespace with their indices.
    fn all(&self) -> Result<Vec<(u32, Described)>, Failure> {
        let all = if_nameindex().map_err(|error| ("if_nameindex", error))?;
        let mut found = Vec::new();
        for interface in &all {
            let index = interface.index();
            match self.describe(index) {
                // It has ended meanwhile.
                Err((_, Errno::ENODEV)) => {}
                described => found.push((index, described?)),
            }
        }
        Ok(found)
    }

    /// Returns the interfaces of an attachment, with their former names.
    fn of(&self, attachment: DeviceAttachment<'_>) -> Result<Vec<Returning>, Failure> {
        let all = self.all()?.into_iter();
        let of_attachment = all.filter_map(|(index, interface)| {
            let former = attachment.former(&interface)?;
            Some(Returning { index, former })
        });
        Ok(of_attachment.collect())
    }

    fn describe(&self, index: u32) -> Result<Described, Failure> {
        let message = Ok(link(index, 0, 0, &[]));
        let reply = self.ask(libc::RTM_GETLINK, "RTM_GETLINK", message)?;
        Ok(Described::read(&reply))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use nix::sched::{CloneFlags, unshare};
    use quietwire_base::Deadline;
    use quietwire_base::supervised::Command;

    use super::*;

    const ONE: &str = "c0123456789abcd";

    /// Returns the network namespace of a node with an interface as the kernel moves it back from an ended container.
    fn node_with_returned_interface() -> File {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("requires root");
            // The container has changed the former name in it.
            let mark = alias(ONE, "eth7");
            let pair = [
                "link", "add", "dev0", "type", "veth", "peer", "name", "far0",
            ];
            let marked = ["link", "set", "dev0", "alias", &mark];
            for words in [&pair[..], &marked[..]] {
                let done = Command::new("ip").args(words);
                let done = done.run(Deadline::after(Duration::from_secs(30)));
                done.unwrap().into_result().unwrap();
            }
            File::open(OWN).unwrap()
        });
        made.join().unwrap()
    }

    #[test]
    fn an_interface_that_the_kernel_moved_back_gets_its_former_name() {
        let node = node_with_returned_interface();
        let moved = Moved {
            former: "eth1".to_owned(),
            parent: None,
        };
        let path = format!("/proc/self/fd/{}", node.as_raw_fd());
        let restored = |name: &str| {
            let moved = Some(&moved);
            restore_in(Path::new(&path), DeviceAttachment { name, moved }).unwrap()
        };
        assert!(!restored("c00000000000002"));
        assert!(restored(ONE));
        let names = || -> Result<[bool; 2], Failure> {
            Ok(["eth1", "dev0"].map(|name| if_nametoindex(name).is_ok()))
        };
        assert_eq!(netns::within(Some(&node), names), Ok([true, false]));
        // It has no alias any more.
        assert!(!restored(ONE));
        let absent = DeviceAttachment {
            name: ONE,
            moved: None,
        };
        assert!(!restore_in(Path::new("/absent"), absent).unwrap());
    }

    #[test]
    fn a_container_changes_neither_the_former_name_nor_the_attachment_of_its_interface() {
        const OTHER: &str = "c00000000000002";
        let moved = |parent: Option<&str>| Moved {
            former: "eth1".to_owned(),
            parent: parent.map(str::to_owned),
        };
        let former = |moved: Option<&Moved>, alias: Option<&str>, parent: Option<&str>| {
            let interface = Described {
                alias: alias.map(str::to_owned),
                parent: parent.map(str::to_owned),
            };
            DeviceAttachment { name: ONE, moved }.former(&interface)
        };
        let (own, other) = (alias(ONE, "eth7"), alias(OTHER, "eth7"));
        let (device, another) = (Some("0000:17:02.1"), Some("0000:17:02.2"));
        let found = Some("eth1".to_owned());
        // A function of a card, whichever alias it has.
        let function = moved(device);
        for alias in [Some(own.as_str()), Some(other.as_str()), Some(""), None] {
            assert_eq!(former(Some(&function), alias, device), found, "{alias:?}");
            assert_eq!(former(Some(&function), alias, another), None, "{alias:?}");
            assert_eq!(former(Some(&function), alias, None), None, "{alias:?}");
        }
        // An interface without a device of its own, and one whose record is of an earlier version.
        let plain = moved(None);
        assert_eq!(former(Some(&plain), Some(own.as_str()), device), found);
        assert_eq!(former(Some(&plain), Some(other.as_str()), device), None);
        assert_eq!(former(Some(&plain), None, device), None);
        let of_alias = Some("eth7".to_owned());
        assert_eq!(former(None, Some(own.as_str()), device), of_alias);
        assert_eq!(former(None, Some(other.as_str()), device), None);
    }

    #[test]
    fn an_alias_has_the_attachment_and_the_former_name() {
        let own = alias("c0123456789abcd", "eth1");
        assert_eq!(parse_alias(&own), Some(("c0123456789abcd", "eth1")));
        for foreign in [
            "",
            "uplink",
            "quietwire-cni",
            "quietwire-cni c01",
            "quietwire-cni c01 eth1 more",
            "other c01 eth1",
            "quietwire-cni c01 ",
            "quietwire-cni c01 ..",
            "quietwire-cni c01 a/b",
            "quietwire-cni c01 dev%d",
            "quietwire-cni c01 sixteen-letters-",
        ] {
            assert_eq!(parse_alias(foreign), None, "{foreign}");
        }
        let mut attributes = text(IFLA_IFALIAS, &own).unwrap();
        attributes.extend(text(IFLA_PARENT_DEV_NAME, "0000:17:02.1").unwrap());
        let message = |attributes: &[u8]| {
            let header = [&[0; 4][..], &libc::RTM_NEWLINK.to_ne_bytes(), &[0; 10]].concat();
            [header, link(3, 0, 0, attributes)].concat()
        };
        let described = Described {
            alias: Some(own),
            parent: Some("0000:17:02.1".to_owned()),
        };
        assert_eq!(Described::read(&message(&attributes)), described);
        assert_eq!(Described::read(&message(&[])), Described::default());
        assert_eq!(Described::read(&[]), Described::default());
    }

    #[test]
    fn a_namespace_that_has_ended_has_no_interfaces() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ended");
        fs::write(&file, "").unwrap();
        for namespace in [file.to_str(), Some("/absent"), None] {
            let absent = DeviceAttachment {
                name: "c00000000000002",
                moved: None,
            };
            give_back(namespace, absent).unwrap();
        }
    }

    #[test]
    fn a_pci_device_has_one_interface() {
        let devices = tempfile::tempdir().unwrap();
        let resolved = |device: &str| resolve(device, devices.path()).map_err(|it| it.to_string());
        assert_eq!(resolved("eth1").unwrap(), "eth1");
        let address = "0000:17:02.1";
        assert!(resolved(address).unwrap_err().contains("no interface"));
        let net = devices.path().join(address).join("net");
        fs::create_dir_all(net.join("ens1v1")).unwrap();
        assert_eq!(resolved(address).unwrap(), "ens1v1");
        fs::create_dir(net.join("ens1v2")).unwrap();
        assert!(resolved(address).unwrap_err().contains("several"));
    }
}
