// SPDX-License-Identifier: Apache-2.0
//! Ports of the memif protocol: sockets, and copies between rings and packet buffers. `quietwire_memif` has messages, sessions
//! and rings.

mod client;
mod messages;
mod program;
mod queues;
mod rings;
mod server;

use std::path::Path;
use std::sync::Arc;

use quietwire_base::read_regular;
use quietwire_memif::message::{Name, Secret};
use quietwire_memif::ring::RingSizes;
use quietwire_memif::session::{ClientConfig, Limits, ServerConfig};
use quietwire_memory::Sealing;

use self::client::Client;
use self::program::program;
use self::queues::{Queues, Taps};
pub(crate) use self::queues::{Receiver, Sender};
use self::server::{Interface, Server};
use super::interrupts::Interrupts;
use super::options::{PortOptions, buffer_size, length_max};
use super::peer::{Begin, End, PeerPort, Status, add_endpoint, gated_queues};
use super::peers::Reactor;
use super::peers::socket::Address;
use crate::eal::Eal;
use crate::error::Error;
use crate::mempool::Mempool;
use crate::uri::{PortUri, Role};

/// Most memory that a peer may share, octets.
const MEMORY_MAX: u64 = 256 << 20;
/// Maximum length of a file with a secret, octets: more than the longest secret and a line feed.
const SECRET_FILE_MAX: u64 = 4096;
/// Most regions that a peer may share.
const REGIONS_MAX: u16 = 8;

type Opened = (PeerPort, Vec<Receiver>, Vec<Sender>);

/// Opens a port. It listens or connects after its start.
pub(super) fn open(
    eal: &Eal,
    uri: &PortUri,
    options: &PortOptions,
    pool: &Mempool,
    interrupts: &[Interrupts],
) -> Result<Opened, Error> {
    let PortUri::Memif {
        path,
        role,
        id,
        secret_file,
        trust_memory,
        ..
    } = uri
    else {
        return Err(Error::PortOptions {
            port: options.name.clone(),
            what: format!("{uri} is not a memif port"),
        });
    };
    let secret = secret_file
        .as_deref()
        .map(|file| {
            read_secret(file).map_err(|what| Error::PortOptions {
                port: options.name.clone(),
                what: format!("secret-file {}: {what}", file.display()),
            })
        })
        .transpose()?;
    let status = Arc::new(Status::default());
    let limit = length_max(options);
    let rx = gated_queues(options.rx_queues, |reader, counters| {
        Receiver::new(reader, pool.clone(), limit, counters)
    });
    let tx = gated_queues(options.tx_queues, Sender::new);
    let taps = Taps {
        rx: rx.owners,
        tx: tx.owners,
    };
    let queues = Queues::new(&options.name, taps, interrupts, Arc::clone(&status));
    let address = Address::of(path);
    let begin: Begin = match role {
        Role::Server => {
            let interface = server_interface(options, (*id, secret), *trust_memory, queues);
            Box::new(move |reactor| begin_server(reactor, address, interface))
        }
        Role::Client => {
            let client = client_endpoint(eal, options, address, (*id, secret), queues);
            Box::new(move |reactor| Ok(add_endpoint(reactor, client)))
        }
    };
    let port = PeerPort::new(
        eal.peers(),
        begin,
        status,
        rx.counters,
        tx.counters,
        (options.rx_ring_size, options.tx_ring_size),
    );
    Ok((port, rx.queues, tx.queues))
}

/// Returns the interface of a port that is a server.
fn server_interface(
    options: &PortOptions,
    (id, secret): (u32, Option<Secret>),
    trust_memory: bool,
    queues: Queues,
) -> Interface {
    let config = ServerConfig {
        id,
        interface: Name::truncated(&options.name),
        secret,
        limits: Limits {
            regions: REGIONS_MAX,
            octets: MEMORY_MAX,
            c2s_rings: options.rx_queues,
            s2c_rings: options.tx_queues,
            ..Limits::default()
        },
    };
    let sealing = if trust_memory {
        Sealing::Trusted
    } else {
        Sealing::Required
    };
    Interface::new(config, sealing, queues)
}

/// Returns the endpoint of a port that is a client. It connects once the peer thread has it.
fn client_endpoint(
    eal: &Eal,
    options: &PortOptions,
    address: Address,
    (id, secret): (u32, Option<Secret>),
    queues: Queues,
) -> Client {
    let config = ClientConfig {
        id,
        secret: secret.unwrap_or_default(),
        program: program(),
        interface: Name::truncated(&options.name),
        c2s_rings: options.tx_queues,
        s2c_rings: options.rx_queues,
        sizes: RingSizes {
            c2s: log2(options.tx_ring_size),
            s2c: log2(options.rx_ring_size),
        },
    };
    Client::new(
        address,
        config,
        u32::from(buffer_size(options)),
        eal.memory(),
        queues,
    )
}

/// Adds an interface to a socket, which is created if it does not exist.
fn begin_server(
    reactor: &mut Reactor,
    address: Address,
    interface: Interface,
) -> Result<End, String> {
    let key = format!("memif:{address}");
    let id = interface.id();
    if let Some(endpoint) = reactor.shared.get(&key).copied() {
        let added = reactor.visit(endpoint, |endpoint, control| {
            let server = endpoint.as_any().downcast_mut::<Server>();
            server.map(|server| server.add(interface, control))
        });
        added
            .flatten()
            .ok_or("the socket is closed")?
            .map_err(|()| format!("interface {id} of {address} is in use by another port"))?;
        return Ok(end_server(endpoint, id));
    }
    let server = Server::listen(address, interface).map_err(|error| error.to_string())?;
    let endpoint = reactor.add(Box::new(server));
    reactor.shared.insert(key, endpoint);
    Ok(end_server(endpoint, id))
}

/// Removes an interface from its socket. The socket closes with the last one.
fn end_server(endpoint: u32, id: u32) -> End {
    Box::new(move |reactor| {
        let is_last = reactor.visit(endpoint, |endpoint, control| {
            let server = endpoint.as_any().downcast_mut::<Server>();
            server.is_none_or(|server| server.remove(id, control))
        });
        if is_last == Some(true) {
            drop(reactor.remove(endpoint));
        }
    })
}

/// Returns the binary logarithm of a ring's size.
fn log2(ring_size: u16) -> u8 {
    u8::try_from(ring_size.checked_ilog2().unwrap_or(0)).unwrap_or(0)
}

/// Reads a secret, without a line feed at the end. The switch does so while it runs: a FIFO or a file without end would block it.
fn read_secret(file: &Path) -> Result<Secret, String> {
    let octets = read_regular(file, SECRET_FILE_MAX);
    let octets = octets.map_err(|error| format!("cannot be read: {error}"))?;
    let octets = octets.strip_suffix(b"\n").unwrap_or(&octets);
    Some(octets)
        .filter(|octets| !octets.is_empty())
        .and_then(Secret::new)
        .ok_or_else(|| "a secret must have 1 to 24 octets and no NUL".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use quietwire_base::run_within;

    use super::*;

    #[test]
    fn a_secret_is_read_from_a_short_regular_file_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("sound"), "twenty-four octets long!\n").unwrap();
        fs::write(path("empty"), "\n").unwrap();
        fs::write(path("long"), [b'x'; 25]).unwrap();
        fs::write(path("huge"), [b'x'; 5000]).unwrap();
        mkfifo(&path("fifo"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let read = |path: PathBuf| {
            // Opening a FIFO that nothing writes would block the test.
            let read = run_within(
                Duration::from_secs(60),
                move || Ok(read_secret(&path).err()),
            );
            read.unwrap().unwrap_or_default()
        };
        assert_eq!(read(path("sound")), "");
        for name in ["empty", "long"] {
            assert!(read(path(name)).contains("1 to 24 octets"), "{name}");
        }
        assert!(read(path("huge")).contains("longer than 4096 octets"));
        for path in [path("fifo"), PathBuf::from("/dev/zero")] {
            let error = read(path);
            assert!(error.contains("not a regular file"), "{error}");
        }
    }
}
