// SPDX-License-Identifier: Apache-2.0
//! Ports beside the one that is attacked: what goes over them may not be lost.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::rig::{Carrier, Namespace, Switch, lossless, quietwire};

/// A switch with two pairs of ports: `a` and `b`, which carry traffic, and `v` and `w`, which are attacked.
pub(crate) struct Scene {
    pub(crate) switch: Switch,
    pub(crate) namespace: Namespace,
    directory: tempfile::TempDir,
}

/// Traffic between `a` and `b` while this lives.
pub(crate) struct Bystander(Option<Child>);

impl Scene {
    /// `scheme` is that of the attacked ports, which make their sockets.
    pub(crate) fn new(kind: &str, scheme: &str, queues: u16) -> Self {
        let namespace = Namespace::new(kind);
        let directory = tempfile::TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let ports = [
            ("a", format!("memif:{}?role=server", path("a.sock"))),
            ("b", format!("memif:{}?role=server", path("b.sock"))),
            (
                "v",
                format!("{scheme}:{}?role=server&queues={queues}", path("v.sock")),
            ),
            ("w", format!("{scheme}:{}?role=server", path("w.sock"))),
        ];
        let switch = Switch::start(
            &namespace,
            directory.path(),
            &ports,
            &["--cross-connect", "a,b", "--cross-connect", "v,w"],
        );
        Self {
            switch,
            namespace,
            directory,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Arguments of the tester over two ports.
    pub(crate) fn generate(&self, ports: [String; 2], duration: &str) -> std::process::Command {
        let mut command = self.namespace.command(quietwire());
        command.args(["generate", "--port", &ports[0], "--port", &ports[1]]);
        command.args(["--rate", "2000", "--warm-up", "0s", "--drain", "2s"]);
        command.args(["--direction", "both", "--memory-mib", "96", "--no-huge"]);
        command.args(["--isolation", "none", "--json", "--duration", duration]);
        command
    }

    /// Has frames go between `a` and `b` for some seconds.
    pub(crate) fn bystander(&self, duration: &str) -> Bystander {
        let uri = |name: &str| format!("memif:{}?role=client", self.path(name).display());
        let mut command = self.generate([uri("a.sock"), uri("b.sock")], duration);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Bystander(Some(command.spawn().unwrap()))
    }

    /// Where the peers of `v` and `w` connect.
    pub(crate) fn attacked(&self, scheme: &str) -> [String; 2] {
        ["v.sock", "w.sock"]
            .map(|name| format!("{scheme}:{}?role=client", self.path(name).display()))
    }

    /// A peer that behaves finds the attacked ports as if nothing had been.
    pub(crate) fn serves(&self, scheme: &str) {
        lossless("a peer that behaves", Carrier::of(&[scheme]), || {
            self.generate(self.attacked(scheme), "500ms")
        });
    }

    /// The switch is there and answers.
    pub(crate) fn is_alive(&self, after: &str) {
        assert_eq!(self.switch.ports().len(), 4, "{after}");
    }
}

impl Bystander {
    /// Waits for the end: nothing was lost.
    pub(crate) fn lost_nothing(mut self) {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Whether the tester kept its schedule is not what is asked here.
        let result: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {said}"));
        assert_eq!(
            result["received_frames"], result["offered_frames"],
            "{result}"
        );
        assert!(result["received_frames"].as_u64() > Some(500), "{result}");
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
