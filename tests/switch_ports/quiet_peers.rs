// SPDX-License-Identifier: Apache-2.0
//! Peers that begin a handshake and then send nothing more.

use std::os::unix::net::UnixListener;

use crate::bystander::Scene;
use crate::memif::Peer;
use crate::rig::{Switch, until};
use crate::vhost;

/// Waits until a port reports why it waits again.
fn gives_up(switch: &Switch, port: &str, why: &str) {
    until(&format!("{port} disconnects its peer"), || {
        (switch.port(port)["waiting_reason"] == why).then_some(())
    });
}

#[test]
fn peers_that_do_not_go_on_are_given_up() {
    let scene = Scene::new("quiet-memif", "memif", 1);
    // A server that accepts every connection and answers nothing.
    let path = scene.path("silent.sock");
    let silent = UnixListener::bind(&path).unwrap();
    let uri = |kind: &str, path: &std::path::Path| format!("{kind}:{}", path.display());
    let switch = &scene.switch;
    switch.change(&["add", "port", "client", &uri("virtio-user", &path)]);
    let host = scene.path("host.sock");
    switch.change(&["add", "port", "host", &uri("vhost", &host)]);

    let guest = vhost::connect(&host);
    let whole = vhost::message(vhost::GET_FEATURES, &[]);
    assert!(crate::sockets::send(&guest, &whole[..5], &[]));
    let peer = Peer::begun(&scene.path("v.sock"));
    gives_up(
        switch,
        "host",
        "the front end did not send the rest of a message in time",
    );
    peer.is_refused("a client that does not continue");
    gives_up(switch, "v", "the client did not set up its rings in time");
    gives_up(
        switch,
        "client",
        "the back end did not start the rings in time",
    );
    drop((guest, silent));
    assert_eq!(scene.switch.end(), Some(0));
}
