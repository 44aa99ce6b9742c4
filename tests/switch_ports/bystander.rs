// SPDX-License-Identifier: Apache-2.0
//! Traffic on ports beside the attacked one, which must lose no frame.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::rig::{Carrier, Namespace, Switch, lossless, quietwire, until};

/// A switch with two pairs of ports: `a` and `b`, which carry traffic, and `v` and `w`, which are attacked.
pub(crate) struct Scene {
    pub(crate) switch: Switch,
    pub(crate) namespace: Namespace,
    directory: tempfile::TempDir,
    /// Number of ports of the switch.
    ports: usize,
}

/// Traffic between `a` and `b` while this lives.
pub(crate) struct Bystander(Option<Child>);

impl Scene {
    /// Starts the switch. `scheme` is that of the attacked ports, which create their sockets.
    pub(crate) fn new(kind: &str, scheme: &str, queues: u16) -> Self {
        Self::with_more_victims(kind, scheme, queues, 0)
    }

    /// As [`Self::new`], with this number of attacked pairs in addition: `v1` and `w1`, and so on. A port accepts ten connections per
    /// second, so an attack of many connections takes less time on several ports.
    pub(crate) fn with_more_victims(kind: &str, scheme: &str, queues: u16, more: usize) -> Self {
        let namespace = Namespace::new(kind);
        let directory = tempfile::TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let uri = |scheme: &str, name: &str, options: &str| {
            let path = path(&format!("{name}.sock"));
            format!("{scheme}:{path}?role=server{options}")
        };
        let mut ports = vec![
            ("a".to_owned(), uri("memif", "a", "")),
            ("b".to_owned(), uri("memif", "b", "")),
        ];
        let mut pairs = vec!["a,b".to_owned()];
        for number in 0..=more {
            let suffix = if number == 0 {
                String::new()
            } else {
                number.to_string()
            };
            let [v, w] = ["v", "w"].map(|end| format!("{end}{suffix}"));
            pairs.push(format!("{v},{w}"));
            let queues = format!("&queues={queues}");
            let uris = [uri(scheme, &v, &queues), uri(scheme, &w, "")];
            ports.extend([v, w].into_iter().zip(uris));
        }
        let ports: Vec<(&str, String)> = ports
            .iter()
            .map(|(name, uri)| (name.as_str(), uri.clone()))
            .collect();
        let arguments: Vec<&str> = pairs
            .iter()
            .flat_map(|pair| ["--cross-connect", pair.as_str()])
            .collect();
        let switch = Switch::start(&namespace, directory.path(), &ports, &arguments);
        Self {
            switch,
            namespace,
            directory,
            ports: ports.len(),
        }
    }

    /// Returns the sockets of `v`, `v1` and so on, over and over.
    pub(crate) fn victims(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let more = self.ports / 2 - 2;
        let names = (1..=more).map(|number| format!("v{number}.sock"));
        let paths: Vec<PathBuf> = std::iter::once("v.sock".to_owned())
            .chain(names)
            .map(|name| self.path(&name))
            .collect();
        paths.into_iter().cycle()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a tester command over two ports.
    pub(crate) fn generate(&self, ports: [String; 2], duration: &str) -> std::process::Command {
        let mut command = self.namespace.command(quietwire());
        command.args(["generate", "--port", &ports[0], "--port", &ports[1]]);
        command.args(["--rate", "2000", "--warm-up", "0s", "--drain", "500ms"]);
        command.args(["--direction", "both", "--memory-mib", "96", "--no-huge"]);
        command.args(["--isolation", "none", "--json", "--duration", duration]);
        command
    }

    /// Sends frames between `a` and `b` for some seconds. Returns once frames flow in both directions.
    pub(crate) fn bystander(&self, duration: &str) -> Bystander {
        let uri = |name: &str| format!("memif:{}?role=client", self.path(name).display());
        let mut command = self.generate([uri("a.sock"), uri("b.sock")], duration);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let received = |port: &str| self.switch.port(port)["rx_frames"].as_u64().unwrap();
        let before = ["a", "b"].map(received);
        let bystander = Bystander(Some(command.spawn().unwrap()));
        // More than those of the preparation.
        until("frames flow beside the attack", || {
            let flow = |port: &str, before: u64| received(port) > before + 100;
            (flow("a", before[0]) && flow("b", before[1])).then_some(())
        });
        bystander
    }

    /// Returns the URIs by which the peers of `v` and `w` connect.
    pub(crate) fn attacked(&self, scheme: &str) -> [String; 2] {
        ["v.sock", "w.sock"]
            .map(|name| format!("{scheme}:{}?role=client", self.path(name).display()))
    }

    /// Checks that a well-behaved peer can use the attacked ports after an attack.
    pub(crate) fn serves(&self, scheme: &str) {
        lossless("a peer that behaves", Carrier::of(&[scheme]), || {
            self.generate(self.attacked(scheme), "500ms")
        });
    }

    /// Checks that the switch runs and answers.
    pub(crate) fn is_alive(&self, after: &str) {
        assert_eq!(self.switch.ports().len(), self.ports, "{after}");
    }
}

impl Bystander {
    /// Waits for the end and checks that no frame was lost.
    pub(crate) fn lost_nothing(mut self) {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        // The tester's schedule is not checked here.
        let result: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {printed}"));
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
