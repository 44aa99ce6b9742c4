// SPDX-License-Identifier: Apache-2.0
//! Pairs of interfaces that a port creates (veth(4)): the port has packet sockets ([`super::af_packet`]) on the near end, and the network
//! stack of a namespace is its peer at the far end.
//!
//! The kernel keeps a pair when its process ends. The near end therefore has an alias with the port and the process that created it
//! ([`marker`]). No other interface is ever changed or deleted. While a port uses a pair, it holds the near end in promiscuous mode; the
//! kernel ends this mode with the process, so that a pair without it is free.

mod links;
mod marker;
mod message;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nameindex;

use self::links::Links;
use self::marker::Marker;
use self::message::{End, Link};
use crate::error::Error;
use crate::port::options::{PortOptions, requested_mtu};
use crate::promiscuity::Promiscuity;
use crate::uri::PortUri;
use quietwire_base::netns::{self, Failure};

/// Flags of the near end: the kernel of this side must not reply to ARP requests, which are the port's.
const NEAR_FLAGS: libc::c_int = libc::IFF_UP | libc::IFF_NOARP;

/// The interfaces of a port. The value deletes them when it is dropped, or sets the near end down if they are kept.
#[derive(Debug)]
pub(super) struct Pair {
    near: Links,
    /// Index of the near end.
    index: u32,
    is_deleted: bool,
    is_kept: bool,
    promiscuity: Option<Promiscuity>,
}

impl Pair {
    /// Keeps the pair if the URI requires that. A pair that was created for a port that cannot be opened is deleted before that.
    pub(super) const fn settle(&mut self) {
        self.is_deleted = !self.is_kept;
    }

    /// Returns the index of the near end.
    pub(super) const fn index(&self) -> u32 {
        self.index
    }

    /// Returns true if the value deletes the pair.
    pub(super) const fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    /// Returns the promiscuous mode, which marks the pair as in use as long as it exists.
    pub(super) const fn take_promiscuity(&mut self) -> Option<Promiscuity> {
        self.promiscuity.take()
    }

    fn release(&self) -> Result<(), Failure> {
        let Some(link) = self.near.indexed(self.index)? else {
            return Ok(());
        };
        if !is_of_a_port(&link) {
            let index = self.index;
            tracing::warn!("interface {index} is kept, because its alias was changed");
            return Ok(());
        }
        if self.is_deleted {
            return self.near.delete(self.index);
        }
        // The far end loses its carrier.
        let down = message::set_flags(self.index, 0, libc::IFF_UP);
        self.near.change(Ok(down))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Err((step, error)) = self.release() {
            let cause = error.desc();
            tracing::warn!(
                "cannot release the pair of interface {}: {step}: {cause}",
                self.index
            );
        }
    }
}

/// Relation of an interface to ports of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// It is not of such a port.
    Foreign,
    /// A port has it.
    InUse,
    /// A former port left it.
    Left,
}

/// Returns true for the near end of a pair that a port created.
fn is_of_a_port(link: &Link) -> bool {
    link.is_veth && (link.is_unfinished || Marker::parse(&link.alias).is_some())
}

fn claim(link: &Link) -> Claim {
    if !is_of_a_port(link) {
        return Claim::Foreign;
    }
    // Other programs, such as a packet capture, also use promiscuous mode.
    let may_be_alive = Marker::parse(&link.alias).is_none_or(|marker| marker.may_be_alive());
    if link.promiscuity > 0 && may_be_alive {
        Claim::InUse
    } else {
        Claim::Left
    }
}

/// Opens the pair of a port. Returns `None` for ports of other kinds.
///
/// # Errors
/// The namespace does not exist, an end has the name of an interface that is not of a former port, the MTU is larger than the largest frame
/// allows, or the kernel's error.
pub(super) fn open(uri: &PortUri, options: &PortOptions) -> Result<Option<Pair>, Error> {
    let PortUri::Veth {
        interface,
        peer,
        netns,
        mtu,
        mac,
        peer_mac,
        persist,
        ..
    } = uri
    else {
        return Ok(None);
    };
    let mtu = requested_mtu(*mtu, options)?;
    let request = Request {
        port: &options.name,
        near: End {
            name: interface,
            mtu,
            address: mac.map(|mac| mac.0),
        },
        far: End {
            name: peer,
            mtu,
            address: peer_mac.map(|mac| mac.0),
        },
        netns: netns.as_deref(),
        is_kept: *persist,
    };
    let opened = request.open().map(Some);
    opened.map_err(|problem| problem.into_error(uri, options))
}

/// Reason why a pair cannot be opened.
enum Problem {
    Failed(Failure),
    /// The network namespace does not exist.
    NoNamespace(String),
    /// An end has the name of another interface: the name, the problem and the remedy.
    Name(String, String),
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Problem {
    fn into_error(self, uri: &PortUri, options: &PortOptions) -> Error {
        let port = options.name.clone();
        let (step, cause) = match self {
            Self::Name(interface, what) => {
                return Error::VethName {
                    port,
                    interface,
                    what,
                };
            }
            Self::NoNamespace(cause) => ("the network namespace", cause),
            Self::Failed((step, error)) => (step, error.desc().to_owned() + hint(step, error)),
        };
        Error::PortOpen {
            port,
            uri: uri.to_string(),
            step,
            cause,
        }
    }
}

/// An interface disappeared while it was opened.
const VANISHED: Failure = ("RTM_GETLINK", Errno::ENODEV);

/// Pair that a port requires.
struct Request<'uri> {
    /// Name of the port.
    port: &'uri str,
    near: End<'uri>,
    far: End<'uri>,
    /// Network namespace of the far end, if it is another one.
    netns: Option<&'uri str>,
    is_kept: bool,
}

impl Request<'_> {
    fn open(&self) -> Result<Pair, Problem> {
        let namespace = self.netns.map(netns::open).transpose();
        let namespace = namespace.map_err(Problem::NoNamespace)?;
        let near = Links::open()?;
        let far = netns::within(namespace.as_ref(), Links::open)?;
        if let Some(left) = self.left(&near)? {
            if self.is_kept
                && let Some(other) = self.other_end(&left, &far)?
            {
                return Ok(self.reuse(near, &far, &left, &other)?);
            }
            near.delete(left.index)?;
            let name = self.near.name;
            tracing::info!("replaced the pair of interface '{name}', which a former port left");
        }
        self.check_far_name(&far)?;
        Ok(self.create(near, &far, namespace.as_ref())?)
    }

    /// Returns the near end that a former port left, if there is one.
    fn left(&self, near: &Links) -> Result<Option<Link>, Problem> {
        let name = self.near.name;
        let Some(link) = near.named(name)? else {
            return Ok(None);
        };
        let what = match claim(&link) {
            Claim::Left => return Ok(Some(link)),
            Claim::InUse => {
                "is in use by another veth port (close that port, or use another name)".to_owned()
            }
            Claim::Foreign => format!(
                "exists and is not of a veth port (left unchanged; use another name, or open it with af-packet:{name})"
            ),
        };
        Err(Problem::Name(name.to_owned(), what))
    }

    /// Returns the other end of a pair, if it has the requested name and namespace.
    fn other_end(&self, left: &Link, far: &Links) -> Result<Option<Link>, Failure> {
        let found = far.named(self.far.name)?;
        Ok(found
            .filter(|other| other.is_veth && other.index == left.peer && other.peer == left.index))
    }

    fn check_far_name(&self, far: &Links) -> Result<(), Problem> {
        let name = self.far.name;
        if far.named(name)?.is_none() {
            return Ok(());
        }
        let place = self.netns.map_or_else(String::new, |netns| {
            format!(" in network namespace {netns}")
        });
        let what = format!("exists{place} (left unchanged; use another name with peer=NAME)");
        Err(Problem::Name(name.to_owned(), what))
    }

    fn create(&self, near: Links, far: &Links, namespace: Option<&File>) -> Result<Pair, Failure> {
        let file = namespace.map(AsRawFd::as_raw_fd);
        near.create(message::create(&self.near, &self.far, file))?;
        let index = near.named(self.near.name)?.ok_or(VANISHED)?.index;
        let mut pair = Pair {
            near,
            index,
            is_deleted: true,
            is_kept: self.is_kept,
            promiscuity: None,
        };
        let other = far.named(self.far.name)?.ok_or(VANISHED)?;
        self.set_up(&mut pair, far, &other)?;
        Ok(pair)
    }

    /// Opens a pair that a former port left.
    fn reuse(&self, near: Links, far: &Links, left: &Link, other: &Link) -> Result<Pair, Failure> {
        let mut pair = Pair {
            near,
            index: left.index,
            is_deleted: false,
            is_kept: self.is_kept,
            promiscuity: None,
        };
        pair.near
            .change(message::configure(left.index, &self.near))?;
        far.change(message::configure(other.index, &self.far))?;
        self.set_up(&mut pair, far, other)?;
        Ok(pair)
    }

    /// Marks a pair as that of this port, and sets both ends up.
    fn set_up(&self, pair: &mut Pair, far: &Links, other: &Link) -> Result<(), Failure> {
        let (near, index) = (&pair.near, pair.index);
        // Before the alias: a pair with an alias and without promiscuous mode is free.
        let promiscuity = Promiscuity::of(self.near.name).map_err(|error| {
            let error = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            ("promiscuous mode", error)
        })?;
        let marker = Marker::own(self.port, self.is_kept)?.to_string();
        near.change(message::set_alias(index, &marker))?;
        near.change(message::finish(index))?;
        match near.change(message::without_addresses(index)) {
            // The kernel has no IPv6, or none on this interface.
            Err((_, Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP | Errno::EINVAL)) | Ok(()) => {}
            Err(failure) => return Err(failure),
        }
        let up = message::set_flags(other.index, libc::IFF_UP, libc::IFF_UP);
        far.change(Ok(up))?;
        near.change(Ok(message::set_flags(index, NEAR_FLAGS, NEAR_FLAGS)))?;
        pair.promiscuity = Some(promiscuity);
        Ok(())
    }
}

/// Returns the most likely cause and the remedy of an error, if it is not specific.
fn hint(step: &str, error: Errno) -> &'static str {
    match (step, error) {
        ("setns", Errno::EINVAL) => " (the file is not a network namespace)",
        ("RTM_NEWLINK", Errno::EOPNOTSUPP) => {
            " (the kernel has no driver of veth pairs: run `modprobe veth`)"
        }
        (_, Errno::EPERM | Errno::EACCES) => " (run as root)",
        _ => "",
    }
}

/// Deletes the pairs that ports of killed processes have left in this network namespace, except those with `persist=on`. Returns the names
/// of their near ends.
#[must_use]
pub fn remove_left_veth_pairs() -> Vec<String> {
    remove_left().unwrap_or_else(|(step, error)| {
        let cause = error.desc();
        tracing::warn!("cannot find veth pairs of killed processes: {step}: {cause}");
        Vec::new()
    })
}

fn remove_left() -> Result<Vec<String>, Failure> {
    let links = Links::open()?;
    let interfaces = if_nameindex().map_err(|error| ("if_nameindex", error))?;
    let mut removed = Vec::new();
    for interface in &interfaces {
        let Ok(Some(link)) = links.indexed(interface.index()) else {
            continue;
        };
        // A pair without an alias may be one that a process is creating.
        let is_kept = Marker::parse(&link.alias).is_none_or(|marker| marker.is_kept);
        if is_kept || claim(&link) != Claim::Left {
            continue;
        }
        let name = interface.name().to_string_lossy().into_owned();
        match links.delete(link.index) {
            Ok(()) => removed.push(name),
            Err((_, Errno::ENODEV)) => {}
            Err((_, error)) => {
                let cause = error.desc();
                tracing::warn!("cannot delete the pair of interface '{name}': {cause}");
            }
        }
    }
    Ok(removed)
}
