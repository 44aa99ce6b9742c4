// SPDX-License-Identifier: Apache-2.0
//! memif ports with a secret, on a socket in the abstract namespace.

use std::fs;

use tempfile::TempDir;

use crate::rig::{Carrier, Namespace, Switch, lossless, quietwire, until};

/// A switch whose ports have secrets, with the files of the secrets.
struct Guarded {
    namespace: Namespace,
    directory: TempDir,
    switch: Switch,
}

impl Guarded {
    fn start() -> Self {
        let namespace = Namespace::new("secret");
        let directory = TempDir::new().unwrap();
        for (name, secret) in [("right", "open sesame\n"), ("wrong", "open barley\n")] {
            fs::write(directory.path().join(name), secret).unwrap();
        }
        let uri = |id: u32| {
            let secret = directory.path().join("right").display().to_string();
            format!("memif:@quietwire?role=server&id={id}&secret-file={secret}")
        };
        let switch = Switch::start(
            &namespace,
            directory.path(),
            &[("a", uri(0)), ("b", uri(1))],
            &["--cross-connect", "a,b"],
        );
        Self {
            namespace,
            directory,
            switch,
        }
    }

    /// Returns the URI of a client with the secret of a file.
    fn client(&self, id: u32, secret: Option<&str>) -> String {
        let secret = secret.map_or_else(String::new, |name| {
            format!(
                "&secret-file={}",
                self.directory.path().join(name).display()
            )
        });
        format!("memif:@quietwire?role=client&id={id}{secret}")
    }
}

#[test]
fn a_memif_client_on_an_abstract_socket_needs_the_secret() {
    let guarded = Guarded::start();
    for secret in [Some("wrong"), None] {
        let place = TempDir::new().unwrap();
        let client = Switch::start(
            &guarded.namespace,
            place.path(),
            &[
                ("link", guarded.client(0, secret)),
                ("x", "null:".to_owned()),
            ],
            &["--cross-connect", "link,x"],
        );
        let reason = "interface 0: wrong secret";
        until("the client reports the reason of the refusal", || {
            let port = client.port("link");
            let printed = port["waiting_reason"].as_str()?.to_owned();
            (port["state"] == "waiting" && printed.ends_with(reason)).then_some(())
        });
        assert!(client.table().contains(reason), "{}", client.table());
        assert_eq!(client.end(), Some(0));
        assert_eq!(guarded.switch.port("a")["state"], "waiting");
    }
    // The server logs after it has sent the reason.
    until("the refusal is logged", || {
        let line = "@quietwire: client refused: interface 0: wrong secret";
        guarded.switch.printed().contains(line).then_some(())
    });

    let ports = [0, 1].map(|id| guarded.client(id, Some("right")));
    lossless("clients with the secret", Carrier::SharedMemory, || {
        let mut command = guarded.namespace.command(quietwire());
        command.args(["generate", "--port", &ports[0], "--port", &ports[1]]);
        command.args(["--rate", "2000", "--duration", "500ms", "--warm-up", "0s"]);
        command.args([
            "--drain",
            "500ms",
            "--direction",
            "both",
            "--memory-mib",
            "96",
        ]);
        command.args(["--no-huge", "--isolation", "none", "--json"]);
        command
    });
    assert_eq!(guarded.switch.end(), Some(0));
}
