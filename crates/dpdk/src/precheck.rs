// SPDX-License-Identifier: Apache-2.0
//! Checks of the place in a URI (socket, interface or file) before DPDK uses it, because DPDK's errors give no
//! reason.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use quietwire_base::connect_within;

use quietwire_base::net_device;

use crate::eal::Eal;
use crate::error::Error;
use crate::pcap;
use crate::pci;
use crate::port::TUN_DEVICE;
use crate::port::peers::socket::Address;
use crate::uri::{PortUri, Role};

/// Time for a process that listens on a path to accept a connection, while its backlog is full.
const PROBE: Duration = Duration::from_millis(100);

/// Checks the place of a port before it is opened, and registers its use of a socket.
pub(crate) fn check(eal: &Eal, uri: &PortUri, port: &str) -> Result<(), Error> {
    if let Some(interface) = uri.interface()
        && !net_device::exists(interface)
    {
        return Err(Error::NoInterface {
            port: port.to_owned(),
            interface: interface.to_owned(),
        });
    }
    if let PortUri::Memif {
        path,
        role: Role::Client,
        ..
    }
    | PortUri::VirtioUser {
        path,
        role: Role::Client,
        ..
    } = uri
        && matches!(Address::of(path), Address::Path(_))
        && !path.exists()
    {
        return Err(Error::NoPeer {
            port: port.to_owned(),
            path: path.clone(),
        });
    }
    check_pci(uri, port)?;
    check_tap(uri, port)?;
    check_interface_queues(uri, port)?;
    check_files(uri, port)?;
    let mut sockets = eal.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = uri.own_socket()
        && matches!(Address::of(path), Address::Path(_))
    {
        if !path.parent().is_some_and(Path::is_dir) {
            return Err(Error::NoSocketDirectory {
                port: port.to_owned(),
                path: path.to_owned(),
            });
        }
        if !sockets.get(path).is_some_and(|socket| socket.made_here) {
            clear_socket(path, port)?;
        }
    }
    if let Some(path) = uri.socket() {
        let socket = sockets.entry(path.to_owned()).or_default();
        socket.ports = socket.ports.saturating_add(1);
        socket.made_here |= uri.own_socket().is_some();
    }
    Ok(())
}

/// Removes a socket without a listener, which a killed process leaves behind.
fn clear_socket(path: &Path, port: &str) -> Result<(), Error> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(Error::NotASocket {
            port: port.to_owned(),
            path: path.to_owned(),
        });
    }
    // Only ECONNREFUSED means that there is no listener. A listener of the other socket type (memif's is SOCK_SEQPACKET) gives
    // EPROTOTYPE, a listener with a full backlog is a timeout.
    if !matches!(connect_within(path, PROBE), Err(error) if error.kind() == ErrorKind::ConnectionRefused)
    {
        return Err(Error::SocketInUse {
            port: port.to_owned(),
            path: path.to_owned(),
        });
    }
    fs::remove_file(path).map_err(|error| Error::PortOpen {
        port: port.to_owned(),
        uri: path.display().to_string(),
        step: "removing the socket of a former process",
        cause: error.to_string(),
    })
}

fn check_pci(uri: &PortUri, port: &str) -> Result<(), Error> {
    // A port that creates functions checks its device afterwards.
    let PortUri::Pci {
        address,
        functions: None,
        ..
    } = uri
    else {
        return Ok(());
    };
    pci::check(Path::new("/"), address).map_err(|problem| problem.of_port(port, address))
}

fn check_tap(uri: &PortUri, port: &str) -> Result<(), Error> {
    let PortUri::Tap {
        interface, netns, ..
    } = uri
    else {
        return Ok(());
    };
    if !Path::new(TUN_DEVICE).exists() {
        return Err(Error::NoTunDevice {
            port: port.to_owned(),
        });
    }
    let is_tap = net_device::path(interface, "tun_flags").exists();
    if netns.is_none() && net_device::exists(interface) && !is_tap {
        return Err(Error::NotATap {
            port: port.to_owned(),
            interface: interface.clone(),
        });
    }
    Ok(())
}

/// Checks that the interface has the queues that AF_XDP uses.
fn check_interface_queues(uri: &PortUri, port: &str) -> Result<(), Error> {
    let PortUri::AfXdp {
        interface,
        queues,
        first_queue,
        ..
    } = uri
    else {
        return Ok(());
    };
    let Ok(entries) = fs::read_dir(net_device::path(interface, "queues")) else {
        return Ok(());
    };
    let there = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-"))
        .count();
    let wanted = usize::from(*first_queue).saturating_add(usize::from(*queues));
    if wanted <= there {
        return Ok(());
    }
    Err(Error::PortOptions {
        port: port.to_owned(),
        what: format!(
            "{uri} requires {wanted} receive queues, but '{interface}' has {there} (add queues with `ethtool -L {interface} combined {wanted}` if the card supports it)"
        ),
    })
}

fn check_files(uri: &PortUri, port: &str) -> Result<(), Error> {
    let PortUri::Pcap { rx, tx, repeat } = uri else {
        return Ok(());
    };
    let wrong = |path: &Path, what: String| Error::PcapFile {
        port: port.to_owned(),
        path: path.to_owned(),
        what,
    };
    if let Some(path) = rx {
        let kind = pcap::kind(path).map_err(|what| wrong(path, what))?;
        if *repeat && kind != pcap::Kind::Classic {
            return Err(wrong(
                path,
                "is a pcapng file, but loop=on requires a pcap file (convert it with `editcap -F pcap`)"
                    .to_owned(),
            ));
        }
    }
    if let Some(path) = tx {
        if path.exists() && !path.is_file() {
            return Err(wrong(
                path,
                "is not a file (left unchanged; use another path)".to_owned(),
            ));
        }
        if !path.parent().is_some_and(Path::is_dir) {
            return Err(wrong(
                path,
                "is in a directory that does not exist (create it, or use another path)".to_owned(),
            ));
        }
    }
    Ok(())
}
