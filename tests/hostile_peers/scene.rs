// SPDX-License-Identifier: Apache-2.0
//! A switch under attack, and traffic on other ports.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::Footprint;
use crate::rig::{Carrier, Namespace, Switch, is_testers_own_loss, lossless, quietwire, until};
use crate::rng::{attack_time, from_environment};

/// Time limit for the end of a switch.
const END: Duration = Duration::from_secs(10);
/// Time that traffic lasts beyond an attack, for the last round of it.
const BEYOND: Duration = Duration::from_millis(500);
/// Maximum number of invalid trials of the bystander.
const INVALID_TRIALS: usize = 4;
/// Frames per second of the bystander, both ways together. The tester's ring of 1,024 frames is full once the switch has
/// received nothing from it for 205 ms, and the next frame is lost. Twice the rate would be too close to 91 ms, the longest
/// delay of frames while other programs keep both CPUs of a machine busy.
const RATE: u32 = 10_000;

/// A switch with ports `a` and `b`, which carry traffic, and others, which are attacked; all on one forwarding CPU.
pub(crate) struct Scene {
    kind: String,
    pub(crate) switch: Switch,
    pub(crate) namespace: Namespace,
    directory: TempDir,
}

impl Scene {
    /// Starts the switch. `ports` are names and URIs, with DIR for the scene's directory; `pairs` are cross-connects in
    /// addition to that of `a` and `b`.
    pub(crate) fn new(kind: &str, ports: &[(&str, &str)], pairs: &[&str]) -> Self {
        Self::by(kind, ports, pairs, &[])
    }

    /// Starts a switch with connected ports `v` and `w` of one kind, which create their sockets.
    pub(crate) fn of(kind: &str, scheme: &str, options: &str) -> Self {
        Self::of_pair(kind, scheme, options, "sleep")
    }

    /// The same with a forwarding thread that polls all the time: for peers that change what it is about to use.
    pub(crate) fn polling(kind: &str, scheme: &str) -> Self {
        Self::of_pair(kind, scheme, "", "yield")
    }

    fn of_pair(kind: &str, scheme: &str, options: &str, idle: &str) -> Self {
        let uri = |name: &str| format!("{scheme}:DIR/{name}.sock?role=server{options}");
        let uris = ["v", "w"].map(uri);
        let ports = [("v", uris[0].as_str()), ("w", uris[1].as_str())];
        Self::begin(kind, &ports, &["v,w"], &[], idle)
    }

    /// As [`Self::new`], with a command that starts the switch.
    pub(crate) fn by(kind: &str, ports: &[(&str, &str)], pairs: &[&str], starter: &[&str]) -> Self {
        Self::begin(kind, ports, pairs, starter, "sleep")
    }

    fn begin(
        kind: &str,
        ports: &[(&str, &str)],
        pairs: &[&str],
        starter: &[&str],
        idle: &str,
    ) -> Self {
        let has_interfaces = ports.iter().any(|(_, uri)| uri.starts_with("af-"));
        let namespace = match has_interfaces {
            true => Namespace::with_pairs(kind),
            false => Namespace::new(kind),
        };
        let directory = TempDir::new().unwrap();
        let beside = [
            ("a", "memif:DIR/a.sock?role=server"),
            ("b", "memif:DIR/b.sock?role=server"),
        ];
        let place = directory.path().display().to_string();
        let all: Vec<(&str, String)> = beside
            .iter()
            .chain(ports)
            .map(|(name, uri)| (*name, uri.replace("DIR", &place)))
            .collect();
        let arguments: Vec<&str> = ["a,b"]
            .iter()
            .chain(pairs)
            .flat_map(|pair| ["--cross-connect", pair])
            .chain(["--idle", idle])
            .collect();
        let command = match starter {
            [] => namespace.command(quietwire()),
            [program, arguments @ ..] => {
                let mut command = namespace.command(program);
                command.args(arguments).arg(quietwire());
                command
            }
        };
        let switch = Switch::start_by(command, directory.path(), &all, &arguments);
        Self {
            kind: kind.to_owned(),
            switch,
            namespace,
            directory,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Opens a port while the switch runs.
    pub(crate) fn add_port(&self, name: &str, uri: &str) {
        let uri = uri.replace("DIR", &self.directory().display().to_string());
        self.switch.change(&["add", "port", name, &uri]);
    }

    /// Attacks in rounds for the duration of an attack, beside traffic in both directions between `a` and `b`. No frame of
    /// that is lost, and from the second round on the switch uses no additional memory, mapping or descriptor.
    pub(crate) fn withstands(&self, mut round: impl FnMut()) {
        for _ in 0..INVALID_TRIALS {
            let bystander = Bystander::start(self, attack_time() + BEYOND, RATE);
            let began = Instant::now();
            round();
            let before = Footprint::of(self.switch.pid()).expect("the switch runs");
            loop {
                round();
                if began.elapsed() >= attack_time() {
                    break;
                }
            }
            if bystander.lost_nothing(&self.kind) {
                before.assert_restored(self.switch.pid());
                return;
            }
        }
        panic!("the tester had no time for a valid trial in {INVALID_TRIALS}");
    }

    /// Checks that the bystander loses frames while `stall` holds the switch.
    pub(crate) fn notices(&self, stall: impl Fn()) {
        for _ in 0..INVALID_TRIALS {
            // The tester's rings are full after 0.2 s.
            let bystander = Bystander::start(self, Duration::from_millis(1500), 4 * RATE);
            stall();
            let result = bystander.result(&self.kind);
            if lost_frames(&result) > 0 && !is_testers_own_loss(&result) {
                return;
            }
        }
        panic!("no loss in {INVALID_TRIALS} trials");
    }

    /// Returns the receive error counter of `port`.
    pub(crate) fn errors(&self, port: &str) -> u64 {
        self.switch.port(port)["drops"]["rx_errors"]
            .as_u64()
            .unwrap()
    }

    /// Waits until a port is in a state.
    pub(crate) fn comes_to(&self, port: &str, state: &str) {
        until(&format!("{port} is {state}"), || {
            (self.switch.port(port)["state"] == state).then_some(())
        });
    }

    /// Checks that well-behaved peers exchange frames over two ports without loss. `uris` are the tester's, with DIR.
    pub(crate) fn serves(&self, uris: [&str; 2], rate: u32) {
        self.serves_for(Duration::from_millis(400), uris, rate);
    }

    fn serves_for(&self, time: Duration, uris: [&str; 2], rate: u32) {
        lossless("a peer that behaves", Carrier::of(&uris), || {
            self.generate(uris, rate, time)
        });
    }

    /// Checks that well-behaved peers can use `v` and `w` after an attack.
    pub(crate) fn serves_next(&self, client: &str) {
        let uri = |name: &str| format!("{client}:DIR/{name}.sock?role=client");
        self.serves_for(Duration::from_millis(200), [&uri("v"), &uri("w")], 4000);
    }

    /// Ends the switch like a user, within seconds.
    pub(crate) fn ends(self) {
        let began = Instant::now();
        assert_eq!(self.switch.end(), Some(0));
        assert!(began.elapsed() < END, "{:?}", began.elapsed());
    }

    fn generate(&self, uris: [&str; 2], rate: u32, time: Duration) -> Command {
        let directory = self.directory().display().to_string();
        let mut command = self.namespace.command(quietwire());
        command.arg("generate");
        for uri in uris {
            command.args(["--port", &uri.replace("DIR", &directory)]);
        }
        command.args(["--rate", &rate.to_string(), "--warm-up", "0s"]);
        command.args(["--direction", "both", "--drain", "300ms"]);
        // Frames of 0.8 s fit in a ring: other tests may take the CPU from the switch.
        command.args(["--ring-size", "4096", "--memory-mib", "128", "--no-huge"]);
        command.args(["--isolation", "none", "--json"]);
        command.args(["--duration", &format!("{}ms", time.as_millis())]);
        command
    }
}

/// Traffic between `a` and `b`.
struct Bystander(Option<Child>);

impl Bystander {
    /// Returns once frames flow in both directions.
    fn start(scene: &Scene, time: Duration, rate: u32) -> Self {
        let uris = ["a", "b"].map(|name| format!("memif:DIR/{name}.sock?role=client"));
        let chosen = from_environment("QUIETWIRE_HOSTILE_RATE");
        let rate = chosen.map_or(rate, |chosen| u32::try_from(chosen).unwrap());
        let mut command = scene.generate([&uris[0], &uris[1]], rate, time);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let received = |port: &str| scene.switch.port(port)["rx_frames"].as_u64().unwrap();
        let before = ["a", "b"].map(received);
        let bystander = Self(Some(command.spawn().unwrap()));
        until("frames flow beside the attack", || {
            (received("a") > before[0] && received("b") > before[1]).then_some(())
        });
        bystander
    }

    /// Waits for the end, and prints the latency of frames.
    fn result(mut self, kind: &str) -> Value {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let result: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {printed}"));
        let latency = |name: &str| result["latency"][name].as_u64();
        println!(
            "{kind}: beside the attack {} of {} frames arrived; latency, ns: {:?} (50 %), {:?} (99 %), {:?} (99.99 %), {:?} \
             at most",
            result["received_frames"],
            result["offered_frames"],
            latency("p50_ns"),
            latency("p99_ns"),
            // None for fewer than 100,000 frames.
            latency("p99_99_ns"),
            latency("max_ns"),
        );
        result
    }

    /// Checks at the end that no frame was lost. Returns false if the trial is invalid: the tester sent too little, or lost
    /// frames.
    fn lost_nothing(self, kind: &str) -> bool {
        let result = self.result(kind);
        let lost = lost_frames(&result);
        assert!(
            lost == 0 || is_testers_own_loss(&result),
            "beside the attack {lost} frames were lost or not taken: {result}"
        );
        if lost == 0 && result["received_frames"].as_u64() > Some(500) {
            return true;
        }
        let validity = &result["validity"];
        assert!(validity["state"] != "valid", "{result}");
        println!("the tester itself failed: {validity}");
        false
    }
}

/// Returns the number of frames of a trial that did not arrive. Frames that the tester cannot send because the switch's
/// rings are full are offered frames too.
fn lost_frames(result: &Value) -> u64 {
    let frames = |name: &str| result[name].as_u64().unwrap();
    frames("offered_frames") - frames("received_frames")
}

impl Drop for Bystander {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
