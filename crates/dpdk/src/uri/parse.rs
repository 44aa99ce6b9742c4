// SPDX-License-Identifier: Apache-2.0
//! Parser of port URIs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use quietwire_packet::MacAddress;

use super::{FlowControl, FunctionSettings, PortUri, Role, UriError, default_peer};

/// Longest path of a Unix socket: sun_path of unix(7), 108 octets with the terminating NUL.
pub(super) const SOCKET_PATH_MAX: usize = 107;

/// Longest name of a network interface: IFNAMSIZ of linux/if.h without the terminating NUL.
const INTERFACE_NAME_MAX: usize = 15;

/// Most queues of a port per direction.
const QUEUES_MAX: u16 = 64;

/// MTUs of a tap and of a pair: the kernel's smallest (ETH_MIN_MTU of linux/if_ether.h), and that of the largest frame, 9216 octets.
const MTU_MIN: u16 = 68;
const MTU_MAX: u16 = 9198;

/// Largest VLAN ID (IEEE 802.1Q, table 9-2), and the largest rate of a virtual function, Mbit/s.
const VLAN_MAX: u16 = 4094;
const RATE_MAX: u32 = 1_000_000;

/// Most virtual functions that a port creates.
const FUNCTIONS_MAX: u16 = 256;

/// Longest arguments of a driver, octets.
const DEVARGS_MAX: usize = 256;

/// Schemes that support `queues`.
const MULTI_QUEUE: &[&str] = &[
    "memif",
    "virtio-user",
    "vhost",
    "af-xdp",
    "af-packet",
    "veth",
    "tap",
    "pci",
];

/// Options and the schemes that support them.
const OPTIONS: &[(&str, &[&str])] = &[
    ("role", &["memif", "virtio-user", "vhost"]),
    ("id", &["memif"]),
    ("queues", MULTI_QUEUE),
    ("mergeable", &["virtio-user", "vhost"]),
    ("packed", &["virtio-user"]),
    ("checksum", &["virtio-user", "vhost", "pci"]),
    ("tso", &["virtio-user", "vhost", "pci"]),
    ("iommu", &["vhost"]),
    ("secret-file", &["memif"]),
    ("trust-memory", &["memif", "vhost"]),
    ("first-queue", &["af-xdp"]),
    ("copy", &["af-xdp"]),
    ("mac", &["tap", "veth", "pci"]),
    ("rss", &["pci"]),
    ("hw-offload", &["pci"]),
    ("flow-control", &["pci"]),
    ("devargs", &["pci"]),
    ("functions", &["pci"]),
    ("vlan", &["pci"]),
    ("trust", &["pci"]),
    ("spoof-check", &["pci"]),
    ("max-tx-rate", &["pci"]),
    ("netns", &["tap", "veth"]),
    ("persist", &["tap", "veth"]),
    ("gro", &["tap", "af-packet", "veth"]),
    ("peer", &["veth"]),
    ("peer-mac", &["veth"]),
    ("mtu", &["tap", "veth"]),
    ("rx", &["pcap"]),
    ("tx", &["pcap"]),
    ("loop", &["pcap"]),
];

/// Options after the question mark. Each occurs once and is supported by the scheme.
struct Options<'uri>(Vec<(&'uri str, &'uri str)>);

impl<'uri> Options<'uri> {
    fn read(scheme: &str, text: &'uri str) -> Result<Self, String> {
        let mut found: Vec<(&str, &str)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let unknown = || format!("unknown option '{pair}'");
            let (key, value) = pair.split_once('=').ok_or_else(unknown)?;
            let (_, schemes) = OPTIONS
                .iter()
                .find(|(known, _)| *known == key)
                .ok_or_else(unknown)?;
            if !schemes.contains(&scheme) {
                return Err(format!("{scheme} does not support {key}"));
            }
            if found.iter().any(|(other, _)| *other == key) {
                return Err(format!("option '{key}' is given twice"));
            }
            found.push((key, value));
        }
        Ok(Self(found))
    }

    fn get(&self, key: &str) -> Option<&'uri str> {
        self.0
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, value)| *value)
    }

    fn role(&self) -> Result<Option<Role>, String> {
        match self.get("role") {
            None => Ok(None),
            Some("server") => Ok(Some(Role::Server)),
            Some("client") => Ok(Some(Role::Client)),
            Some(other) => Err(format!("role must be 'server' or 'client', not '{other}'")),
        }
    }

    fn id(&self) -> Result<u32, String> {
        let Some(number) = self.get("id") else {
            return Ok(0);
        };
        number
            .parse()
            .map_err(|_| format!("id must be a number from 0 to 4294967295, not '{number}'"))
    }

    fn queues(&self) -> Result<u16, String> {
        let Some(number) = self.get("queues") else {
            return Ok(1);
        };
        number
            .parse()
            .ok()
            .filter(|queues| (1..=QUEUES_MAX).contains(queues))
            .ok_or_else(|| {
                format!("queues must be a number from 1 to {QUEUES_MAX}, not '{number}'")
            })
    }

    fn first_queue(&self) -> Result<u16, String> {
        let number = self.get("first-queue").unwrap_or("0");
        number
            .parse()
            .map_err(|_| format!("first-queue must be a number from 0 to 65535, not '{number}'"))
    }

    fn mtu(&self) -> Result<Option<u16>, String> {
        let Some(number) = self.get("mtu") else {
            return Ok(None);
        };
        match number.parse::<u16>() {
            Ok(mtu @ MTU_MIN..=MTU_MAX) => Ok(Some(mtu)),
            _ => Err(format!(
                "mtu must be a number from {MTU_MIN} to {MTU_MAX}, not '{number}'"
            )),
        }
    }

    fn mac(&self, key: &str) -> Result<Option<MacAddress>, String> {
        self.get(key)
            .map(|text| interface_address(key, text))
            .transpose()
    }

    fn netns(&self) -> Result<Option<String>, String> {
        self.get("netns").map(network_namespace).transpose()
    }

    fn switch(&self, key: &str, usual: bool) -> Result<bool, String> {
        match self.get(key) {
            None => Ok(usual),
            Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(other) => Err(format!("{key} must be 'on' or 'off', not '{other}'")),
        }
    }

    /// Returns a switch that has no default.
    fn optional_switch(&self, key: &str) -> Result<Option<bool>, String> {
        self.get(key).map(|_| self.switch(key, false)).transpose()
    }

    fn number<T: FromStr + PartialOrd + fmt::Display>(
        &self,
        key: &str,
        most: T,
    ) -> Result<Option<T>, String> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        match text.parse::<T>() {
            Ok(number) if number <= most => Ok(Some(number)),
            _ => Err(format!(
                "{key} must be a number from 0 to {most}, not '{text}'"
            )),
        }
    }

    /// Returns true for a symmetric hash key.
    fn symmetric_rss(&self) -> Result<bool, String> {
        match self.get("rss") {
            None | Some("default") => Ok(false),
            Some("symmetric") => Ok(true),
            Some(other) => Err(format!(
                "rss must be 'default' or 'symmetric', not '{other}'"
            )),
        }
    }

    fn flow_control(&self) -> Result<Option<FlowControl>, String> {
        let Some(text) = self.get("flow-control") else {
            return Ok(None);
        };
        let mut all = FlowControl::ALL.into_iter();
        match all.find(|mode| mode.name() == text) {
            Some(mode) => Ok(Some(mode)),
            None => Err(format!(
                "flow-control must be 'on', 'off', 'rx' or 'tx', not '{text}'"
            )),
        }
    }

    fn devargs(&self) -> Result<Option<String>, String> {
        self.get("devargs").map(driver_arguments).transpose()
    }

    fn functions(&self) -> Result<Option<u16>, String> {
        let Some(number) = self.get("functions") else {
            return Ok(None);
        };
        match number.parse::<u16>() {
            Ok(count @ 1..=FUNCTIONS_MAX) => Ok(Some(count)),
            _ => Err(format!(
                "functions must be a number from 1 to {FUNCTIONS_MAX}, not '{number}'"
            )),
        }
    }

    fn function(&self) -> Result<FunctionSettings, String> {
        Ok(FunctionSettings {
            mac: self.mac("mac")?,
            vlan: self.number("vlan", VLAN_MAX)?,
            trust: self.optional_switch("trust")?,
            spoof_check: self.optional_switch("spoof-check")?,
            max_tx_rate: self.number("max-tx-rate", RATE_MAX)?,
        })
    }

    fn file(&self, key: &str) -> Result<Option<PathBuf>, String> {
        self.get(key)
            .map(|text| argument_path(text, "file"))
            .transpose()
    }
}

/// Parses arguments of a DPDK driver: `name=value`, separated by commas. What a name means is up to the driver.
fn driver_arguments(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-.:/[]+".contains(c);
    let is_pair = |pair: &str| {
        pair.split_once('=').is_some_and(|(name, value)| {
            !name.is_empty()
                && !value.is_empty()
                && [name, value].iter().all(|one| one.chars().all(is_allowed))
        })
    };
    if text.len() <= DEVARGS_MAX && text.split(',').all(is_pair) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "devargs must be arguments of the driver, NAME=VALUE separated by commas, at most {DEVARGS_MAX} octets, not '{text}'"
    ))
}

/// Parses a path that can be an argument of a driver.
fn argument_path(text: &str, what: &str) -> Result<PathBuf, String> {
    if !text.starts_with('/') {
        return Err(format!("the path of the {what} must be absolute"));
    }
    // DPDK's device arguments are separated by commas and cannot quote them.
    if text.contains([',', '=', '[', ']', '"']) || text.chars().any(char::is_control) {
        return Err(format!(
            "the path of the {what} must not contain , = [ ] \" or control characters"
        ));
    }
    Ok(PathBuf::from(text))
}

fn socket_path(text: &str) -> Result<PathBuf, String> {
    let path = argument_path(text, "socket")?;
    if text.len() > SOCKET_PATH_MAX {
        return Err(format!(
            "the path of the socket has {} octets, but the kernel allows {SOCKET_PATH_MAX}",
            text.len()
        ));
    }
    Ok(path)
}

/// Parses a path, or a name in the abstract namespace after '@' (unix(7)).
fn memif_socket(text: &str) -> Result<PathBuf, String> {
    let Some(name) = text.strip_prefix('@') else {
        return socket_path(text);
    };
    if name.is_empty() || text.len() > SOCKET_PATH_MAX || name.chars().any(char::is_control) {
        return Err(format!(
            "'{text}' is not a name of an abstract socket (use 1 to {} octets without control characters)",
            SOCKET_PATH_MAX - 1
        ));
    }
    Ok(PathBuf::from(text))
}

fn interface_name(text: &str) -> Result<String, String> {
    let good = !text.is_empty()
        && text.len() <= INTERFACE_NAME_MAX
        && !text.contains(['/', ',', '=', ':', '[', ']', '"'])
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
        && text != "."
        && text != "..";
    if good {
        Ok(text.to_owned())
    } else {
        Err(format!("'{text}' is not a name of a network interface"))
    }
}

/// Parses the name of a new interface. The kernel would replace a '%' by a number.
fn new_interface_name(text: &str) -> Result<String, String> {
    let name = interface_name(text)?;
    if name.contains('%') || !name.is_ascii() {
        return Err(format!(
            "'{text}' is not a name for a new network interface (use letters, digits, - and _)"
        ));
    }
    Ok(name)
}

/// Parses the MAC address of an interface, which is the value of the option `key`.
fn interface_address(key: &str, text: &str) -> Result<MacAddress, String> {
    let address: MacAddress = text.parse().map_err(|_| {
        format!("{key} must be a MAC address such as 02:00:00:00:00:01, not '{text}'")
    })?;
    if address.is_multicast() || address == MacAddress::default() {
        return Err(format!("{key} must be a unicast address, not '{text}'"));
    }
    Ok(address)
}

/// Parses a network namespace: a name (ip-netns(8)) or an absolute path.
fn network_namespace(text: &str) -> Result<String, String> {
    const NAME_MAX: usize = 255;
    let is_name = !text.is_empty() && text.len() <= NAME_MAX && !matches!(text, "." | "..");
    let is_path = text.starts_with('/');
    let is_good = is_path || is_name && !text.contains('/');
    if is_good && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "netns must be the name of a network namespace or an absolute path, not '{text}'"
    ))
}

fn pci_address(text: &str) -> Result<String, String> {
    let whole = if text.matches(':').count() == 1 {
        format!("0000:{text}")
    } else {
        text.to_owned()
    };
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.chars().all(|c| c.is_ascii_hexdigit())
    };
    let parts: Vec<&str> = whole.split([':', '.']).collect();
    match parts.as_slice() {
        [domain, bus, device, function]
            if hex(domain, 4)
                && hex(bus, 2)
                && hex(device, 2)
                && matches!(function.as_bytes(), [b'0'..=b'7']) =>
        {
            Ok(whole.to_lowercase())
        }
        _ => Err(format!("'{text}' is not a PCI address like 0000:17:00.0")),
    }
}

fn pcap(place: &str, options: &Options) -> Result<PortUri, String> {
    if !place.is_empty() {
        return Err(
            "the files of a pcap port are options (use pcap:?rx=FILE, pcap:?tx=FILE or both)"
                .to_owned(),
        );
    }
    let (rx, tx) = (options.file("rx")?, options.file("tx")?);
    let repeat = options.switch("loop", false)?;
    if rx.is_none() && tx.is_none() {
        return Err("pcap requires rx=FILE, tx=FILE or both".to_owned());
    }
    if rx == tx {
        return Err("pcap cannot read from the file that it writes to".to_owned());
    }
    if repeat && rx.is_none() {
        return Err("loop requires rx=FILE".to_owned());
    }
    Ok(PortUri::Pcap { rx, tx, repeat })
}

/// Returns `checksum` and `tso` of a port with a vhost-user socket. The default of `checksum` is `usual`, but `on` with `tso=on`.
fn offloads(options: &Options, usual: bool) -> Result<(bool, bool), String> {
    let tso = options.switch("tso", false)?;
    let checksum = options.switch("checksum", usual || tso)?;
    if tso && !checksum {
        return Err("tso=on requires checksum=on because segments need new checksums".to_owned());
    }
    Ok((checksum, tso))
}

fn virtio_user(place: &str, options: &Options) -> Result<PortUri, String> {
    let (checksum, tso) = offloads(options, false)?;
    let mergeable = options.switch("mergeable", tso)?;
    if tso && !mergeable {
        return Err(
            "tso=on requires mergeable=on because a received frame may be longer than a buffer"
                .to_owned(),
        );
    }
    Ok(PortUri::VirtioUser {
        path: socket_path(place)?,
        role: options.role()?.unwrap_or(Role::Client),
        queues: options.queues()?,
        mergeable,
        packed: options.switch("packed", false)?,
        checksum,
        tso,
    })
}

fn vhost(place: &str, options: &Options) -> Result<PortUri, String> {
    let (checksum, tso) = offloads(options, true)?;
    Ok(PortUri::Vhost {
        path: socket_path(place)?,
        role: options.role()?.unwrap_or(Role::Server),
        queues: options.queues()?,
        mergeable: options.switch("mergeable", true)?,
        checksum,
        tso,
        iommu: options.switch("iommu", false)?,
        trust_memory: options.switch("trust-memory", false)?,
    })
}

fn veth(place: &str, options: &Options) -> Result<PortUri, String> {
    let interface = new_interface_name(place)?;
    let netns = options.netns()?;
    let peer = match options.get("peer") {
        Some(name) => new_interface_name(name)?,
        None => default_peer(&interface, netns.as_deref()),
    };
    if peer.len() > INTERFACE_NAME_MAX {
        return Err(format!(
            "veth requires peer=NAME because '{peer}' has more than {INTERFACE_NAME_MAX} octets"
        ));
    }
    if netns.is_none() && peer == interface {
        return Err(format!(
            "both ends of the pair have the name '{peer}' (use another name with peer=NAME)"
        ));
    }
    Ok(PortUri::Veth {
        interface,
        peer,
        netns,
        queues: options.queues()?,
        mtu: options.mtu()?,
        mac: options.mac("mac")?,
        peer_mac: options.mac("peer-mac")?,
        persist: options.switch("persist", false)?,
        gro: options.switch("gro", false)?,
    })
}

fn parse(text: &str) -> Result<PortUri, String> {
    let (scheme, rest) = text
        .split_once(':')
        .ok_or("it has no scheme with a colon")?;
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let known = MULTI_QUEUE.contains(&scheme) || matches!(scheme, "pcap" | "null");
    if !known {
        return Err(format!("unknown scheme '{scheme}'"));
    }
    let options = Options::read(scheme, options)?;
    let queues = options.queues()?;
    match scheme {
        "memif" => Ok(PortUri::Memif {
            path: memif_socket(place)?,
            role: options
                .role()?
                .ok_or("memif requires role=server or role=client")?,
            id: options.id()?,
            queues,
            secret_file: options.file("secret-file")?,
            trust_memory: options.switch("trust-memory", false)?,
        }),
        "virtio-user" => virtio_user(place, &options),
        "vhost" => vhost(place, &options),
        "af-xdp" => Ok(PortUri::AfXdp {
            interface: interface_name(place)?,
            queues,
            first_queue: options.first_queue()?,
            copy: options.switch("copy", false)?,
        }),
        "af-packet" => Ok(PortUri::AfPacket {
            interface: interface_name(place)?,
            queues,
            gro: options.switch("gro", false)?,
        }),
        "veth" => veth(place, &options),
        "tap" => Ok(PortUri::Tap {
            interface: new_interface_name(place)?,
            queues,
            mtu: options.mtu()?,
            mac: options.mac("mac")?,
            netns: options.netns()?,
            persist: options.switch("persist", false)?,
            gro: options.switch("gro", false)?,
        }),
        "pcap" => pcap(place, &options),
        "pci" => Ok(PortUri::Pci {
            address: pci_address(place)?,
            queues,
            symmetric_rss: options.symmetric_rss()?,
            checksum: options.switch("checksum", true)?,
            tso: options.switch("tso", true)?,
            hw_offload: options.switch("hw-offload", false)?,
            flow_control: options.flow_control()?,
            devargs: options.devargs()?,
            functions: options.functions()?,
            function: options.function()?,
        }),
        _ if place.is_empty() => Ok(PortUri::Null),
        _ => Err("null: supports nothing after the colon".to_owned()),
    }
}

impl FromStr for PortUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        parse(text).map_err(|what| UriError {
            uri: text.to_owned(),
            what,
        })
    }
}
