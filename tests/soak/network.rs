// SPDX-License-Identifier: Apache-2.0
//! The switch's namespace and the router next to it, whose routes come and go through OSPF.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::bird::Bird;
use crate::rig::{Namespace, Switch, quietwire, run, until};
use crate::{PAUSE, Shared};

/// Routes that come and go.
const ROUTES: usize = 200;
/// Pause between two changes of them.
const FLAP_INTERVAL: Duration = Duration::from_secs(3);
/// Kernel interfaces for ports that come and go.
pub(crate) const VETHS: usize = 4;

/// Namespaces and the daemons in them.
pub(crate) struct Network {
    switch: Namespace,
    router: Namespace,
    directory: PathBuf,
    /// Daemons of the switch's namespace and of the router next to it.
    daemons: Option<[Bird; 2]>,
}

impl Network {
    pub(crate) fn new(directory: &Path) -> Self {
        let (switch, router) = (Namespace::new("soak-s"), Namespace::new("soak-r"));
        let end = ["type", "veth", "peer", "name", "r1", "netns"];
        let link = [&["link", "add", "r0"][..], &end, &[router.name()]].concat();
        switch.ip(&link);
        switch.ip(&["link", "set", "lo", "up"]);
        // The kernel must not process frames there: all of them are the switch's.
        let quiet = ["arp", "off", "addrgenmode", "none", "up"];
        switch.ip(&[&["link", "set", "r0"][..], &quiet].concat());
        for number in 0..VETHS {
            let names = [format!("x{number}"), format!("y{number}")];
            switch.ip(&[
                "link", "add", &names[0], "type", "veth", "peer", "name", &names[1],
            ]);
            for name in &names {
                switch.ip(&[&["link", "set", name][..], &quiet].concat());
            }
        }
        router.ip(&["link", "set", "lo", "up"]);
        router.ip(&["link", "set", "r1", "up"]);
        router.ip(&["addr", "add", "192.0.2.2/24", "dev", "r1"]);
        Self {
            switch,
            router,
            directory: directory.to_owned(),
            daemons: None,
        }
    }

    /// Starts the switch, and a routing daemon on each side.
    pub(crate) fn start_switch(&mut self) -> Switch {
        let socket =
            |name: &str| format!("memif:{}/{name}.sock?role=server", self.directory.display());
        let ports = [
            ("a", socket("a")),
            ("b", socket("b")),
            ("r", "af-packet:r0".to_owned()),
        ];
        let bridge = ["--bridge", "still=a,b", "--forwarding-cpus", "1"];
        // Every port that comes has 10 MiB of buffers.
        let memory = ["--memory-mib", "1024"];
        // The thread polls all the time while ports, peers and routes change.
        let arguments = [&bridge[..], &memory, &["--idle", "yield"]].concat();
        let switch = Switch::start(&self.switch, &self.directory, &ports, &arguments);
        switch.change(&["set", "vrf", "main", "--kernel-table", "254"]);
        let interface = ["add", "interface", "r-if", "--port", "r"];
        let rest = ["--address", "192.0.2.1/24", "--kernel", "qw-soak-r"];
        switch.change(&[&interface[..], &rest].concat());
        let ospf = |id: &str, interface: &str, export: &str| {
            format!(
                "router id {id};\nprotocol device {{ scan time 1; }}\n\
                 protocol ospf v2 {{ ipv4 {{ import all; export {export}; }}; area 0 {{\n\
                 interface \"{interface}\" {{ hello 1; dead 10; type ptp; }};\n}}; }}\n"
            )
        };
        let ours = ospf("192.0.2.1", "qw-soak-r", "none");
        let kernel = "protocol kernel { ipv4 { export all; }; }\n";
        let theirs = ospf("192.0.2.2", "r1", "where source = RTS_STATIC");
        let route = |number| {
            format!(
                "route 10.{}.{}.0/24 blackhole;\n",
                number / 256,
                number % 256
            )
        };
        let routes: String = (0..ROUTES).map(route).collect();
        let flapping = format!("protocol static flapping {{ ipv4;\n{routes}}}\n");
        let start = |place: &Namespace, name: &str, config: &str| {
            Bird::start(place, &self.directory, name, config)
        };
        self.daemons = Some([
            start(&self.switch, "ours", &format!("{ours}{kernel}")),
            start(&self.router, "theirs", &format!("{theirs}{flapping}")),
        ]);
        switch
    }

    /// Withdraws and announces the routes in turn. They are there at rest and at the end.
    pub(crate) fn flap(&self, shared: &Shared) {
        let mut is_there = true;
        while !shared.ends() {
            if shared.stops() {
                self.announce(true);
                is_there = true;
                shared.pause();
                continue;
            }
            is_there = !is_there;
            self.announce(is_there);
            let next = std::time::Instant::now() + FLAP_INTERVAL;
            while std::time::Instant::now() < next && !shared.stops() {
                std::thread::sleep(PAUSE);
            }
        }
        self.announce(true);
    }

    fn announce(&self, is_there: bool) {
        let action = if is_there { "enable" } else { "disable" };
        if let Some([_, theirs]) = &self.daemons {
            theirs.control(&[action, "flapping"]);
        }
    }

    /// Waits until the switch has all routes of the daemon.
    pub(crate) fn wait_for_routes(&self, switch: &Switch) {
        until("the routes of the daemon are the switch's", || {
            let mut command = Command::new(quietwire());
            command.args([
                "switch",
                "show",
                "routes",
                "--json",
                "--prefix",
                "10.0.0.0/8",
            ]);
            let shown = run(command.arg("--control-socket").arg(switch.control()));
            let report: Value = serde_json::from_str(&shown).unwrap();
            (report["total"].as_u64() == Some(ROUTES as u64)).then_some(())
        });
    }
}

/// Returns the configuration that runs.
pub(crate) fn configuration(switch: &Switch) -> String {
    let mut command = Command::new(quietwire());
    command.args(["switch", "show", "config", "--control-socket"]);
    run(command.arg(switch.control()))
}
