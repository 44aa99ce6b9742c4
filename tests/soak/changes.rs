// SPDX-License-Identifier: Apache-2.0
//! Random changes of a running switch, and what exists because of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::Shared;
use crate::network::VETHS;
use crate::rig::{Switch, quietwire};
use crate::rng::Rng;

/// Ports that come and go.
pub(crate) const PORTS: u64 = 50;
/// Bridges that come and go.
const BRIDGES: u64 = 4;
/// Further objects of each class.
const OBJECTS: u64 = 16;
/// Pause between two changes, milliseconds: on average more than 15,000 changes an hour.
const PAUSE_MS: (u64, u64) = (20, 200);

/// Kind of a port that comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memif,
    Vhost,
    Tap,
    AfPacket,
    Veth,
}

/// Returns the kind of the port with this number.
pub(crate) fn kind_of(port: u64) -> Kind {
    match port {
        _ if port < VETHS as u64 => Kind::AfPacket,
        _ if port % 10 == 9 => Kind::Tap,
        _ if port % 20 == 7 => Kind::Veth,
        _ if port.is_multiple_of(2) => Kind::Memif,
        _ => Kind::Vhost,
    }
}

/// Returns the socket of the port with this number, if its kind has one.
pub(crate) fn socket(directory: &Path, port: u64) -> PathBuf {
    directory.join(format!("p{port}.sock"))
}

/// Class of objects, in the order in which they can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Rule,
    Fdb,
    Neighbour,
    Route,
    Interface,
    Port,
    Bridge,
}

const CLASSES: [Class; 7] = [
    Class::Rule,
    Class::Fdb,
    Class::Neighbour,
    Class::Route,
    Class::Interface,
    Class::Port,
    Class::Bridge,
];

/// Makes changes, and knows how each object is removed.
pub(crate) struct Changer<'a> {
    switch: &'a Switch,
    directory: PathBuf,
    rng: Rng,
    /// The arguments that remove each object, by class and name.
    objects: BTreeMap<(Class, String), Vec<String>>,
    observed: BTreeSet<String>,
}

impl<'a> Changer<'a> {
    pub(crate) fn new(switch: &'a Switch, directory: &Path, seed: u64) -> Self {
        Self {
            switch,
            directory: directory.to_owned(),
            rng: Rng::of(seed),
            objects: BTreeMap::new(),
            observed: BTreeSet::new(),
        }
    }

    /// Changes the switch until the run ends. At rest and at the end, everything is undone.
    pub(crate) fn run(&mut self, shared: &Shared) {
        self.add_peers_ports();
        while !shared.ends() {
            if shared.stops() {
                self.undo_all();
                shared.pause();
                self.add_peers_ports();
                continue;
            }
            let is_made = self.step();
            let count = if is_made {
                &shared.changes
            } else {
                &shared.refused
            };
            count.fetch_add(1, Ordering::Relaxed);
            let pause = self.rng.between(PAUSE_MS.0, PAUSE_MS.1);
            std::thread::sleep(Duration::from_millis(pause));
        }
        self.undo_all();
    }

    /// Makes one change. Returns false if the switch refused it.
    fn step(&mut self) -> bool {
        match self.rng.between(0, 19) {
            0..=8 => self.add(),
            9..=13 => self.remove(),
            14 => self.show(),
            _ => self.set(),
        }
    }

    fn add(&mut self) -> bool {
        let class = match self.rng.between(0, 15) {
            0..=6 => Class::Port,
            7..=8 => Class::Bridge,
            9..=10 => Class::Interface,
            11 => Class::Route,
            12 => Class::Neighbour,
            13 => Class::Fdb,
            _ => Class::Rule,
        };
        let number = self.rng.between(0, OBJECTS - 1);
        let (name, add, remove) = match class {
            Class::Port => {
                let number = self.rng.between(0, PORTS - 1);
                self.port(number)
            }
            Class::Bridge => {
                let name = format!("br{}", self.rng.between(0, BRIDGES - 1));
                let add = format!("bridge {name} --ageing-s 60");
                (name.clone(), add, format!("bridge {name}"))
            }
            Class::Interface => self.interface(number),
            Class::Route => {
                let prefix = format!("172.16.{number}.0/24");
                let target = self.one_of(&["--via 192.0.2.2", "--kind blackhole"]);
                (
                    prefix.clone(),
                    format!("route {prefix} {target}"),
                    format!("route {prefix}"),
                )
            }
            Class::Neighbour => {
                let address = format!("192.0.2.{}", 10 + number);
                let add = format!("neighbour r-if {address} 02:00:00:00:02:{number:02x}");
                (address.clone(), add, format!("neighbour r-if {address}"))
            }
            Class::Fdb => {
                let (bridge, mac) = (self.bridge(), format!("02:00:00:00:01:{number:02x}"));
                let add = format!("fdb {bridge} {mac} {}", self.any_port());
                (
                    format!("{bridge} {mac}"),
                    add,
                    format!("fdb {bridge} {mac}"),
                )
            }
            Class::Rule => {
                let name = format!("rule{number}");
                let port = self.any_port();
                let add = format!(
                    "rule {name} --action drop --port {port} --protocol udp --destination-port {number}"
                );
                (name.clone(), add, format!("rule {name}"))
            }
        };
        self.make((class, name), &add, &remove)
    }

    /// Adds an object. Returns false if the switch refused it.
    fn make(&mut self, object: (Class, String), add: &str, remove: &str) -> bool {
        let is_made = self.change("add", add);
        if is_made {
            self.objects.insert(object, words("del", remove));
        }
        is_made
    }

    /// Adds two ports with sockets. Without them, a short period between two rests may have no peer to kill.
    fn add_peers_ports(&mut self) {
        let numbers = (0..PORTS).filter(|port| kind_of(*port) == Kind::Memif);
        for number in numbers.take(2) {
            let (name, add, remove) = self.port(number);
            self.make((Class::Port, name), &add, &remove);
        }
    }

    fn port(&mut self, number: u64) -> (String, String, String) {
        let name = format!("p{number}");
        let path = socket(&self.directory, number);
        let uri = match kind_of(number) {
            Kind::Memif => format!("memif:{}?role=server", path.display()),
            Kind::Vhost => format!("vhost:{}?role=server", path.display()),
            Kind::Tap => format!("tap:qw-soak{number}"),
            Kind::AfPacket => format!("af-packet:x{number}"),
            Kind::Veth => format!("veth:qw-soak{number}"),
        };
        let bridge = match self.rng.between(0, 2) {
            0 => String::new(),
            _ => format!(" --bridge {}", self.bridge()),
        };
        (
            name.clone(),
            format!("port {name} {uri}{bridge}"),
            format!("port {name}"),
        )
    }

    fn interface(&mut self, number: u64) -> (String, String, String) {
        let name = format!("if{number}");
        let place = match self.rng.between(0, 1) {
            0 => format!("--port {}", self.any_port()),
            _ => format!("--bridge {}", self.bridge()),
        };
        let vlan = match self.rng.between(0, 1) {
            0 => String::new(),
            _ => format!(" --vlan {}", self.rng.between(1, 4)),
        };
        let kernel = match self.rng.between(0, 3) {
            0 => format!(" --kernel qw-soakif{number}"),
            _ => String::new(),
        };
        let add = format!("interface {name} {place}{vlan} --address 10.200.{number}.1/24{kernel}");
        (name.clone(), add, format!("interface {name}"))
    }

    fn remove(&mut self) -> bool {
        let Some(last) = (self.objects.len() as u64).checked_sub(1) else {
            return self.add();
        };
        let place = self.rng.between(0, last) as usize;
        let (key, remove) = self.objects.iter().nth(place).unwrap();
        let (key, remove) = (key.clone(), remove.clone());
        let is_made = self.run_switch(&remove);
        if is_made {
            self.objects.remove(&key);
        }
        is_made
    }

    fn set(&mut self) -> bool {
        let (port, bridge) = (self.any_port(), self.bridge());
        let vlan = self.rng.between(1, 4);
        let arguments = match self.rng.between(0, 10) {
            0 => format!("set port {port} --access {vlan}"),
            1 => format!("set port {port} --trunk 1,2,{}", vlan + 2),
            2 => format!("set port {port} --learning-limit 100 --over-limit drop"),
            3 => format!("set port {port} --storm-broadcast 1k"),
            4 => format!("set port {port} --reset"),
            5 => format!("set bridge {bridge} --add-port {port}"),
            6 => format!("set bridge {bridge} --del-port {port}"),
            7 => format!("set bridge {bridge} --ageing-s {}", 10 * vlan),
            8 => format!("flush {bridge}"),
            9 => "rebalance".to_owned(),
            _ => format!("set queue a 0 --cpu {}", vlan % 2),
        };
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        self.run_switch(&arguments)
    }

    fn show(&mut self) -> bool {
        let subjects = [
            "ports",
            "fdb",
            "stats",
            "threads",
            "interfaces",
            "neighbours",
            "routes",
            "config",
            "rules",
        ];
        let subject = self.one_of(&subjects);
        assert!(
            self.change("show", &format!("{subject} --json")),
            "show {subject}"
        );
        // No change, but no refusal either.
        true
    }

    /// Removes all objects, and what belongs to fixed ones.
    fn undo_all(&mut self) {
        for class in CLASSES {
            let keys: Vec<_> = self
                .objects
                .keys()
                .filter(|key| key.0 == class)
                .cloned()
                .collect();
            for key in keys {
                let remove = self.objects.remove(&key).unwrap();
                // The object may have gone together with its port or bridge. The configuration shows what remains.
                let _ = self.run_switch(&remove);
            }
        }
    }

    fn change(&mut self, verb: &str, rest: &str) -> bool {
        self.run_switch(&words(verb, rest))
    }

    /// Runs `quietwire switch`. Returns false if the switch refused the change.
    fn run_switch(&mut self, arguments: &[String]) -> bool {
        let mut command = Command::new(quietwire());
        command
            .arg("switch")
            .args(arguments)
            .arg("--control-socket");
        let output = command.arg(self.switch.control()).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => true,
            // Refused with a reason, which is printed once.
            Some(1 | 2) if !printed.trim().is_empty() => {
                let is_lost = ["no switch is listening", "no reply", "invalid reply"];
                assert!(
                    !is_lost.iter().any(|words| printed.contains(words)),
                    "{arguments:?}: {printed}"
                );
                let kind: String = printed
                    .chars()
                    .filter(|letter| !letter.is_ascii_digit())
                    .collect();
                if self.observed.insert(kind) {
                    println!("refused: {arguments:?}: {}", printed.trim());
                }
                false
            }
            code => panic!("{arguments:?} ended with {code:?}: {printed}"),
        }
    }

    /// Returns the name of a bridge, which exists in most cases.
    fn bridge(&mut self) -> String {
        let number = self.rng.between(0, BRIDGES - 1);
        match self.rng.between(0, 4) {
            0 => format!("br{number}"),
            _ => self.existing(Class::Bridge, "br0"),
        }
    }

    /// Returns the name of a port, which exists in most cases.
    fn any_port(&mut self) -> String {
        self.existing(Class::Port, "p0")
    }

    /// Returns the name of an object of a class that exists; `otherwise` if there is none.
    fn existing(&mut self, class: Class, otherwise: &str) -> String {
        let of_class = self.objects.keys().filter(|key| key.0 == class);
        let names: Vec<&String> = of_class.map(|key| &key.1).collect();
        match names.len() as u64 {
            0 => otherwise.to_owned(),
            count => names[self.rng.between(0, count - 1) as usize].clone(),
        }
    }

    fn one_of<'b>(&mut self, values: &[&'b str]) -> &'b str {
        values[self.rng.between(0, values.len() as u64 - 1) as usize]
    }
}

fn words(verb: &str, rest: &str) -> Vec<String> {
    std::iter::once(verb)
        .chain(rest.split(' '))
        .map(str::to_owned)
        .collect()
}
