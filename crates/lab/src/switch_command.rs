// SPDX-License-Identifier: Apache-2.0
//! The command line of `quietwire switch run`.

use std::fmt::Display;
use std::path::PathBuf;

use quietwire_base::Idle;
use quietwire_dpdk::HugePages;
use quietwire_host::CpuList;

/// A command that runs quietwire's switch in the foreground until SIGTERM. An option that is `None` has the switch's default.
#[derive(Clone, Debug, Default)]
pub(crate) struct SwitchCommand {
    /// The `quietwire` program.
    pub(crate) program: PathBuf,
    /// Its control socket.
    pub(crate) control_socket: PathBuf,
    /// Names and URIs of ports.
    pub(crate) ports: Vec<(String, String)>,
    /// Pairs of names of ports that are joined.
    pub(crate) cross_connects: Vec<Vec<String>>,
    /// Names of bridges, and of their ports.
    pub(crate) bridges: Vec<(String, Vec<String>)>,
    /// A configuration file.
    pub(crate) config: Option<PathBuf>,
    /// A file of filter rules.
    pub(crate) rules: Option<PathBuf>,
    /// CPUs of forwarding threads.
    pub(crate) forwarding_cpus: CpuList,
    /// CPUs of the service thread.
    pub(crate) service_cpus: Option<CpuList>,
    /// CPUs of the control thread and of the library's own threads.
    pub(crate) control_cpus: Option<CpuList>,
    /// True if threads are pinned to the CPUs of their roles.
    pub(crate) is_pinned: Option<bool>,
    /// Behaviour of an idle forwarding thread.
    pub(crate) idle: Option<Idle>,
    /// Use of huge pages.
    pub(crate) huge_pages: Option<HugePages>,
    /// Memory for frames, MiB.
    pub(crate) memory_mib: Option<u32>,
    /// Largest frame with FCS, octets.
    pub(crate) frame_size_max: Option<u16>,
    /// Addresses that each bridge can learn.
    pub(crate) max_entries: Option<u32>,
    /// Descriptors of each receive queue.
    pub(crate) rx_ring_size: Option<u16>,
    /// Descriptors of each transmit queue.
    pub(crate) tx_ring_size: Option<u16>,
}

impl SwitchCommand {
    /// Returns the command, as arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![
            self.program.display().to_string(),
            "switch".to_owned(),
            "run".to_owned(),
        ];
        for (name, value) in self.options() {
            words.extend([name.to_owned(), value]);
        }
        words
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        let socket = self.control_socket.display();
        let mut options = vec![("--control-socket", socket.to_string())];
        options.extend(self.forwarding());
        options.extend(self.threads());
        let numbers = [
            ("--memory-mib", self.memory_mib),
            ("--frame-size-max", self.frame_size_max.map(u32::from)),
            ("--max-entries", self.max_entries),
            ("--rx-ring-size", self.rx_ring_size.map(u32::from)),
            ("--tx-ring-size", self.tx_ring_size.map(u32::from)),
        ];
        options.extend(
            numbers
                .into_iter()
                .filter_map(|(name, it)| printed(name, it)),
        );
        options
    }

    /// Returns the options of ports and their joins.
    fn forwarding(&self) -> Vec<(&'static str, String)> {
        let mut options = Vec::new();
        for (name, uri) in &self.ports {
            options.push(("--port", format!("{name}={uri}")));
        }
        for pair in &self.cross_connects {
            options.push(("--cross-connect", pair.join(",")));
        }
        for (name, ports) in &self.bridges {
            options.push(("--bridge", format!("{name}={}", ports.join(","))));
        }
        let files = [("--config", &self.config), ("--rules", &self.rules)];
        let files = files
            .into_iter()
            .filter_map(|(name, path)| printed(name, path.as_ref().map(|path| path.display())));
        options.extend(files);
        options
    }

    /// Returns the options of CPUs and memory.
    fn threads(&self) -> Vec<(&'static str, String)> {
        let pinning = self.is_pinned.map(|it| if it { "roles" } else { "none" });
        let huge_pages = self.huge_pages.map(|huge_pages| match huge_pages {
            HugePages::Auto => "auto",
            HugePages::Never => "never",
            HugePages::Require => "require",
        });
        let options = [
            printed("--forwarding-cpus", Some(&self.forwarding_cpus)),
            printed("--service-cpus", self.service_cpus.as_ref()),
            printed("--control-cpus", self.control_cpus.as_ref()),
            printed("--pinning", pinning),
            printed("--idle", self.idle.map(Idle::name)),
            printed("--huge-pages", huge_pages),
        ];
        options.into_iter().flatten().collect()
    }
}

fn printed(name: &'static str, value: Option<impl Display>) -> Option<(&'static str, String)> {
    Some((name, value?.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &str) -> CpuList {
        list.parse().unwrap()
    }

    /// Returns a command with the fewest options.
    fn least() -> SwitchCommand {
        SwitchCommand {
            program: "/bin/quietwire".into(),
            control_socket: "/run/s.sock".into(),
            forwarding_cpus: cpus("1,3"),
            ..SwitchCommand::default()
        }
    }

    #[test]
    fn absent_settings_give_no_options() {
        assert_eq!(
            least().words().join(" "),
            "/bin/quietwire switch run --control-socket /run/s.sock --forwarding-cpus 1,3"
        );
    }

    #[test]
    fn each_option_has_its_words() {
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let all = SwitchCommand {
            ports: vec![
                ("p0".to_owned(), "memif:/a?role=server".to_owned()),
                ("p1".to_owned(), "tap:t".to_owned()),
            ],
            cross_connects: vec![names(&["p0", "p1"])],
            bridges: vec![("b0".to_owned(), names(&["p0", "p1", "p2"]))],
            config: Some("/c.toml".into()),
            rules: Some("/r.toml".into()),
            service_cpus: Some(cpus("0")),
            control_cpus: Some(cpus("2")),
            is_pinned: Some(false),
            idle: Some(Idle::Sleep),
            huge_pages: Some(HugePages::Require),
            memory_mib: Some(64),
            frame_size_max: Some(1518),
            max_entries: Some(65_536),
            rx_ring_size: Some(512),
            tx_ring_size: Some(1024),
            ..least()
        };
        let words = all.words();
        let options: Vec<String> = words[3..].chunks(2).map(|pair| pair.join(" ")).collect();
        assert_eq!(
            options,
            [
                "--control-socket /run/s.sock",
                "--port p0=memif:/a?role=server",
                "--port p1=tap:t",
                "--cross-connect p0,p1",
                "--bridge b0=p0,p1,p2",
                "--config /c.toml",
                "--rules /r.toml",
                "--forwarding-cpus 1,3",
                "--service-cpus 0",
                "--control-cpus 2",
                "--pinning none",
                "--idle sleep",
                "--huge-pages require",
                "--memory-mib 64",
                "--frame-size-max 1518",
                "--max-entries 65536",
                "--rx-ring-size 512",
                "--tx-ring-size 1024",
            ]
        );
    }
}
