// SPDX-License-Identifier: Apache-2.0
//! Peers of ports that come and go: senders that are killed, and connections that send nothing that the protocols allow.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quietwire_base::testing::KillOnDrop;

use crate::changes::{Kind, PORTS, kind_of, socket};
use crate::rig::quietwire;
use crate::rng::Rng;
use crate::{PAUSE, Shared};

/// Lifetime of a sender, milliseconds.
const LIFE_MS: (u64, u64) = (300, 3000);

/// Connects senders to ports and kills them, one after the other.
pub(crate) fn run(shared: &Shared, directory: &Path, seed: u64) {
    let mut rng = Rng::of(seed);
    while !shared.ends() {
        if shared.stops() {
            shared.pause();
            continue;
        }
        for _ in 0..3 {
            disturb(&mut rng, directory);
        }
        let Some(sender) = connect(&mut rng, directory) else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let end = Instant::now() + Duration::from_millis(rng.between(LIFE_MS.0, LIFE_MS.1));
        while Instant::now() < end && !shared.stops() {
            std::thread::sleep(PAUSE);
        }
        drop(sender);
        shared.killed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts a sender on two of the ports that have sockets; `None` if there are not enough.
fn connect(rng: &mut Rng, directory: &Path) -> Option<KillOnDrop> {
    let mut uris: Vec<String> = (0..PORTS)
        .filter(|port| socket(directory, *port).exists())
        .filter_map(|port| {
            let scheme = match kind_of(port) {
                Kind::Memif => "memif",
                Kind::Vhost => "virtio-user",
                Kind::Tap | Kind::AfPacket | Kind::Veth => return None,
            };
            let path = socket(directory, port);
            Some(format!("{scheme}:{}?role=client", path.display()))
        })
        .collect();
    let mut command = Command::new("nice");
    command.args(["-n", "19", quietwire(), "generate"]);
    for _ in 0..2 {
        let last = (uris.len() as u64).checked_sub(1)?;
        let uri = uris.swap_remove(rng.between(0, last) as usize);
        command.args(["--port", &uri]);
    }
    command.args([
        "--rate",
        "1000",
        "--duration",
        "10s",
        "--memory-mib",
        "64",
        "--no-huge",
    ]);
    command.args(["--isolation", "none"]);
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Some(KillOnDrop(quiet.spawn().unwrap()))
}

/// Connects to a port, writes noise, and leaves.
fn disturb(rng: &mut Rng, directory: &Path) {
    let path = socket(directory, rng.between(0, PORTS - 1));
    if let Ok(mut stream) = UnixStream::connect(path) {
        let noise: Vec<u8> = (0..rng.between(0, 300)).map(|_| rng.next() as u8).collect();
        // The port may end the connection at any moment.
        let _ = stream.write_all(&noise);
    }
}
