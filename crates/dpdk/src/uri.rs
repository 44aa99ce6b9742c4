// SPDX-License-Identifier: Apache-2.0
//! Ports by URI: `memif:/path?role=server&id=0`, `virtio-user:/path?role=server`,
//! `vhost:/path?role=client`, `af-xdp:IFNAME`, `af-packet:IFNAME`, `null:`,
//! `pci:0000:17:00.0`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Which side of a socket a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Makes the socket and listens.
    Server,
    /// Connects to a socket made by the peer.
    Client,
}

/// Where a port is and what drives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortUri {
    /// Shared-memory interface over a Unix socket (DPDK `net_memif`).
    Memif {
        /// The control socket.
        path: PathBuf,
        /// Which side this is. The client brings the memory.
        role: Role,
        /// Interface id on that socket.
        id: u32,
    },
    /// Guest side of vhost-user, without a guest (DPDK `net_virtio_user`).
    VirtioUser {
        /// The vhost-user socket, or `/dev/vhost-net`.
        path: PathBuf,
        /// Which side this is.
        role: Role,
    },
    /// Host side of vhost-user (DPDK `net_vhost`).
    Vhost {
        /// The vhost-user socket.
        path: PathBuf,
        /// Which side this is.
        role: Role,
    },
    /// AF_XDP socket on a kernel interface (DPDK `net_af_xdp`).
    AfXdp {
        /// Name of the interface.
        interface: String,
    },
    /// AF_PACKET socket on a kernel interface (DPDK `net_af_packet`).
    AfPacket {
        /// Name of the interface.
        interface: String,
    },
    /// Swallows what it is given and yields empty frames (DPDK `net_null`).
    Null,
    /// A PCI device bound to a driver that DPDK can use.
    Pci {
        /// Full address: domain:bus:device.function.
        address: String,
    },
}

/// Why a text is not the URI of a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{uri}' is not the URI of a port: {what}. Known forms: memif:/path?role=server|client&id=N, virtio-user:/path?role=server|client, vhost:/path?role=server|client, af-xdp:IFNAME, af-packet:IFNAME, null:, pci:0000:17:00.0"
)]
pub struct UriError {
    /// The text.
    pub uri: String,
    /// What is wrong with it.
    pub what: String,
}

/// Longest path of a Unix socket: sun_path of unix(7), 108 octets with the terminating zero.
const SOCKET_PATH_MAX: usize = 107;

/// Longest name of a network interface: IFNAMSIZ of linux/if.h, less the terminating zero.
const INTERFACE_NAME_MAX: usize = 15;

struct Query {
    role: Option<Role>,
    id: Option<u32>,
}

fn query(text: &str) -> Result<Query, String> {
    let mut found = Query {
        role: None,
        id: None,
    };
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("role", "server")) => found.role = Some(Role::Server),
            Some(("role", "client")) => found.role = Some(Role::Client),
            Some(("role", other)) => {
                return Err(format!("the role is 'server' or 'client', not '{other}'"));
            }
            Some(("id", number)) => {
                let id = number.parse().map_err(|_| {
                    format!("the id '{number}' is not a number from 0 to 4294967295")
                })?;
                found.id = Some(id);
            }
            _ => return Err(format!("the option '{pair}' is not known")),
        }
    }
    Ok(found)
}

fn socket_path(text: &str) -> Result<PathBuf, String> {
    if !text.starts_with('/') {
        return Err("the path of the socket has to be absolute".to_owned());
    }
    if text.len() > SOCKET_PATH_MAX {
        return Err(format!(
            "the path of the socket has {} octets, and the kernel allows {SOCKET_PATH_MAX}",
            text.len()
        ));
    }
    // DPDK's device arguments are separated by commas and cannot quote them.
    if text.contains([',', '=', '[', ']', '"']) || text.chars().any(char::is_control) {
        return Err(
            "the path of the socket may not hold , = [ ] \" or control characters".to_owned(),
        );
    }
    Ok(PathBuf::from(text))
}

fn interface_name(text: &str) -> Result<String, String> {
    let good = !text.is_empty()
        && text.len() <= INTERFACE_NAME_MAX
        && !text.contains(['/', ',', '=', ':', '[', ']', '"'])
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
        && text != "."
        && text != "..";
    if good {
        Ok(text.to_owned())
    } else {
        Err(format!("'{text}' is not a name of a network interface"))
    }
}

fn pci_address(text: &str) -> Result<String, String> {
    let whole = if text.matches(':').count() == 1 {
        format!("0000:{text}")
    } else {
        text.to_owned()
    };
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.chars().all(|c| c.is_ascii_hexdigit())
    };
    let parts: Vec<&str> = whole.split([':', '.']).collect();
    match parts.as_slice() {
        [domain, bus, device, function]
            if hex(domain, 4)
                && hex(bus, 2)
                && hex(device, 2)
                && function.len() == 1
                && matches!(function.as_bytes()[0], b'0'..=b'7') =>
        {
            Ok(whole.to_lowercase())
        }
        _ => Err(format!("'{text}' is not a PCI address like 0000:17:00.0")),
    }
}

impl PortUri {
    fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once(':').ok_or("it has no scheme and colon")?;
        let (place, options) = match rest.split_once('?') {
            Some((place, options)) => (place, query(options)?),
            None => (rest, query("")?),
        };
        let takes_id = scheme == "memif";
        let takes_role = matches!(scheme, "memif" | "virtio-user" | "vhost");
        if options.id.is_some() && !takes_id {
            return Err(format!("{scheme} takes no id"));
        }
        if options.role.is_some() && !takes_role {
            return Err(format!("{scheme} takes no role"));
        }
        match scheme {
            "memif" => Ok(Self::Memif {
                path: socket_path(place)?,
                role: options
                    .role
                    .ok_or("memif needs role=server or role=client")?,
                id: options.id.unwrap_or(0),
            }),
            "virtio-user" => Ok(Self::VirtioUser {
                path: socket_path(place)?,
                role: options.role.unwrap_or(Role::Client),
            }),
            "vhost" => Ok(Self::Vhost {
                path: socket_path(place)?,
                role: options.role.unwrap_or(Role::Server),
            }),
            "af-xdp" => Ok(Self::AfXdp {
                interface: interface_name(place)?,
            }),
            "af-packet" => Ok(Self::AfPacket {
                interface: interface_name(place)?,
            }),
            "null" if place.is_empty() => Ok(Self::Null),
            "null" => Err("null: takes nothing after the colon".to_owned()),
            "pci" => Ok(Self::Pci {
                address: pci_address(place)?,
            }),
            other => Err(format!("the scheme '{other}' is not known")),
        }
    }

    /// The socket that this side makes itself, if any.
    #[must_use]
    pub fn own_socket(&self) -> Option<&Path> {
        match self {
            Self::Memif {
                path,
                role: Role::Server,
                ..
            }
            | Self::VirtioUser {
                path,
                role: Role::Server,
            }
            | Self::Vhost {
                path,
                role: Role::Server,
            } => Some(path),
            _ => None,
        }
    }

    /// The kernel interface that the port takes over, if any.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::AfXdp { interface } | Self::AfPacket { interface } => Some(interface),
            _ => None,
        }
    }

    /// True where the peer's receive queue is shared memory: a frame that it has no room for was
    /// offered to the peer and lost there. False where transmission happens by a device or kernel of this host.
    #[must_use]
    pub fn is_shared_memory(&self) -> bool {
        matches!(
            self,
            Self::Memif { .. } | Self::VirtioUser { .. } | Self::Vhost { .. }
        )
    }

    /// The socket that the port uses, made by itself or by its peer.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match self {
            Self::Memif { path, .. } | Self::VirtioUser { path, .. } | Self::Vhost { path, .. } => {
                Some(path)
            }
            _ => None,
        }
    }

    /// DPDK's device arguments for this port, the `index`-th of its kind in this process. `buffer_size`
    /// holds the largest frame.
    pub(crate) fn device_arguments(
        &self,
        index: u32,
        rx_ring_size: u16,
        buffer_size: u16,
    ) -> String {
        match self {
            Self::Memif { path, role, id } => format!(
                "net_memif{index},role={},id={id},socket={},socket-abstract=no,rsize={},bsize={buffer_size}",
                match role {
                    Role::Server => "server",
                    Role::Client => "client",
                },
                path.display(),
                rx_ring_size.ilog2(),
            ),
            Self::VirtioUser { path, role } => format!(
                "net_virtio_user{index},path={},queues=1,queue_size={rx_ring_size}{}",
                path.display(),
                match role {
                    Role::Server => ",server=1",
                    Role::Client => "",
                },
            ),
            Self::Vhost { path, role } => format!(
                "net_vhost{index},iface={},queues=1{}",
                path.display(),
                match role {
                    Role::Server => "",
                    Role::Client => ",client=1",
                },
            ),
            Self::AfXdp { interface } => format!("net_af_xdp{index},iface={interface}"),
            Self::AfPacket { interface } => format!("net_af_packet{index},iface={interface}"),
            Self::Null => format!("net_null{index}"),
            Self::Pci { address } => address.clone(),
        }
    }
}

impl FromStr for PortUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        Self::parse(text).map_err(|what| UriError {
            uri: text.to_owned(),
            what,
        })
    }
}

impl fmt::Display for PortUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role_name = |role: &Role| match role {
            Role::Server => "server",
            Role::Client => "client",
        };
        match self {
            Self::Memif { path, role, id } => {
                write!(
                    f,
                    "memif:{}?role={}&id={id}",
                    path.display(),
                    role_name(role)
                )
            }
            Self::VirtioUser { path, role } => {
                write!(f, "virtio-user:{}?role={}", path.display(), role_name(role))
            }
            Self::Vhost { path, role } => {
                write!(f, "vhost:{}?role={}", path.display(), role_name(role))
            }
            Self::AfXdp { interface } => write!(f, "af-xdp:{interface}"),
            Self::AfPacket { interface } => write!(f, "af-packet:{interface}"),
            Self::Null => write!(f, "null:"),
            Self::Pci { address } => write!(f, "pci:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_survives_printing_and_reading() {
        for text in [
            "memif:/run/a.sock?role=server&id=7",
            "memif:/run/a.sock?role=client&id=0",
            "virtio-user:/dev/vhost-net?role=client",
            "vhost:/run/v.sock?role=server",
            "af-xdp:eth0",
            "af-packet:veth1",
            "null:",
            "pci:0000:17:00.0",
        ] {
            let uri: PortUri = text.parse().unwrap();
            assert_eq!(uri.to_string(), text);
        }
        assert_eq!(
            "pci:17:00.1".parse::<PortUri>().unwrap().to_string(),
            "pci:0000:17:00.1"
        );
    }

    #[test]
    fn wrong_uris_say_what_is_wrong() {
        for (text, part) in [
            ("memif", "no scheme"),
            ("memif:/a", "role=server"),
            ("memif:a?role=server", "absolute"),
            ("memif:/a?role=boss", "'boss'"),
            ("memif:/a?role=server&id=-1", "'-1'"),
            ("memif:/a?role=server&colour=red", "colour=red"),
            ("memif:/a,zero-copy=yes?role=server", "may not hold"),
            ("null:x", "nothing after"),
            ("null:?id=3", "takes no id"),
            ("af-xdp:", "not a name"),
            ("af-packet:a/b", "not a name"),
            ("pci:banana", "PCI address"),
            ("pci:0000:17:00.9", "PCI address"),
            ("tap:x", "'tap'"),
        ] {
            let error = text.parse::<PortUri>().unwrap_err();
            assert!(error.what.contains(part), "{text}: {}", error.what);
        }
        let long = format!("memif:/{}?role=server", "a".repeat(SOCKET_PATH_MAX));
        assert!(long.parse::<PortUri>().is_err());
    }
}
