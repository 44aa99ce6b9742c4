// SPDX-License-Identifier: Apache-2.0
//! Peers that begin a handshake and then send nothing more.

use std::os::unix::net::UnixListener;

use tempfile::TempDir;

use crate::memif::Peer;
use crate::rig::{Namespace, Switch, until};
use crate::vhost;

/// Waits until a port reports why it waits again.
fn gives_up(switch: &Switch, port: &str, why: &str) {
    until(&format!("{port} disconnects its peer"), || {
        (switch.port(port)["waiting_reason"] == why).then_some(())
    });
}

#[test]
fn peers_that_do_not_go_on_are_given_up() {
    let namespace = Namespace::new("quiet");
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let uri = |kind: &str, name: &str| format!("{kind}:{}", path(name).display());
    let ports = [("v", format!("{}?role=server", uri("memif", "v.sock")))];
    // The test waits longer than any other, and leaves the CPU to them.
    let idle = ["--idle", "sleep"];
    let switch = Switch::start(&namespace, directory.path(), &ports, &idle);
    // A server that accepts every connection and answers nothing.
    let silent = UnixListener::bind(path("silent.sock")).unwrap();
    let client = uri("virtio-user", "silent.sock");
    switch.change(&["add", "port", "client", &client]);
    switch.change(&["add", "port", "host", &uri("vhost", "host.sock")]);

    let guest = vhost::connect(&path("host.sock"));
    let whole = vhost::message(vhost::GET_FEATURES, &[]);
    assert!(crate::sockets::send(&guest, &whole[..5], &[]));
    let peer = Peer::begun(&path("v.sock"));
    gives_up(
        &switch,
        "host",
        "the front end did not send the rest of a message in time",
    );
    peer.is_refused("a client that does not continue");
    gives_up(&switch, "v", "the client did not set up its rings in time");
    gives_up(
        &switch,
        "client",
        "the back end did not start the rings in time",
    );
    drop((guest, silent));
    assert_eq!(switch.end(), Some(0));
}
