// SPDX-License-Identifier: Apache-2.0
//! ADD, DEL, CHECK, GC and STATUS (CNI specification, section 2).

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use quietwire_packet::MacAddress;
use quietwire_switch::config::AddPort;
use serde_json::Value;

use super::config::{Ipam, NetworkConfig, PortKind};
use super::environment::{Command, Environment};
use super::host_device::{DeviceAttachment, Moved};
use super::record::{self, Attached, AttachmentLock, DIRECTORY_MODE, Record};
use super::reply::{CniError, CniResult, ErrorCode, Interface, Ip};
use super::running::{Switch, SwitchInterface};
use super::{delegate, device_info, host_device, interface, of_agent, pod_device, port};

/// Time that DEL waits for an ADD of the same attachment to end. The runtime repeats a DEL that fails.
const ADD_ENDS: Duration = Duration::from_secs(5);

/// Executes a command other than VERSION. Returns the text for standard output.
///
/// # Errors
/// Those of the specification; see [`ErrorCode`].
pub(super) fn execute(
    environment: &Environment,
    config: &NetworkConfig,
    input: &str,
    switch: &impl Switch,
) -> Result<String, CniError> {
    let call = Call {
        environment,
        config,
        input,
    };
    let done = match environment.command {
        Command::Add => {
            let result = call.add(switch)?;
            return serde_json::to_string(&result)
                .map_err(|error| CniError::new(ErrorCode::Io, error.to_string()));
        }
        Command::Del => call.del(switch),
        Command::Check => call.check(switch),
        Command::Gc => call.gc(switch),
        Command::Status => call.status(switch),
        Command::Version => Ok(()),
    };
    done.map(|()| String::new())
}

/// A call of the plugin.
struct Call<'a> {
    environment: &'a Environment,
    config: &'a NetworkConfig,
    input: &'a str,
}

impl Call<'_> {
    /// Returns the name of the attachment's port.
    fn port_name(&self) -> String {
        let environment = self.environment;
        port::name(
            &self.config.name,
            &environment.container_id,
            &environment.interface,
        )
    }

    /// Calls the IPAM plugin or the agent, if the network has one.
    fn ipam(&self, command: Command) -> Result<(), CniError> {
        match &self.config.ipam {
            Some(Ipam::Plugin(plugin)) => {
                delegate::other(plugin, self.environment, command, self.input)
            }
            Some(Ipam::Agent(agent)) => {
                let valid = self.config.valid_attachments.as_deref().unwrap_or_default();
                of_agent::other(agent, &self.config.name, self.environment, command, valid)
            }
            None => Ok(()),
        }
    }

    /// Asks for addresses and routes. Returns them and the MAC address that is reserved with them.
    fn request_addresses(&self) -> Result<(CniResult, Option<MacAddress>), CniError> {
        let requested = || self.config.requested_ips();
        match &self.config.ipam {
            Some(Ipam::Plugin(plugin)) => {
                let given = delegate::add(plugin, self.environment, self.input)?;
                Ok((given, None))
            }
            Some(Ipam::Agent(agent)) => {
                let requested = requested()?.iter().map(IpNet::addr).collect();
                of_agent::add(agent, &self.config.name, self.environment, requested)
            }
            None => {
                let ips = requested()?.into_iter().map(|address| Ip {
                    address,
                    gateway: None,
                    interface: None,
                });
                let given = CniResult {
                    ips: ips.collect(),
                    ..CniResult::default()
                };
                Ok((given, None))
            }
        }
    }

    fn is_host_device(&self) -> bool {
        self.config.port == PortKind::HostDevice
    }

    /// Acquires the lock of the attachment, at the latest after some time.
    fn lock(&self, wait: Duration) -> Result<AttachmentLock, CniError> {
        let directory = &self.config.socket_directory;
        let lock = AttachmentLock::acquire(directory, &self.port_name(), wait)?;
        lock.ok_or_else(|| {
            let what = format!(
                "another call for interface {} of container {} has not ended",
                self.environment.interface, self.environment.container_id
            );
            CniError::new(ErrorCode::TryAgain, what)
        })
    }

    fn add(&self, switch: &impl Switch) -> Result<CniResult, CniError> {
        // Until all steps are made or undone: a call that fails undoes only what it made itself, also if the reply of the switch is lost.
        let _lock = self.lock(Duration::ZERO)?;
        if self.is_host_device() {
            return self.add_device();
        }
        self.check_vrf(switch)?;
        if let Some(id) = self.config.socket_device() {
            return self.add_pod_device(switch, id);
        }
        let name = self.port_name();
        if switch.has_port(&name)? {
            return Err(self.is_attached());
        }
        if self.config.port == PortKind::Tap {
            // The switch would use a tap of the container with this name.
            let namespace = self.environment.netns.as_deref().unwrap_or_default();
            host_device::check_free(namespace, &self.environment.interface)?;
        }
        let mac = self.config.mac(self.environment)?;
        let (given, reserved) = self.request_addresses()?;
        self.attach(switch, mac.or(reserved), given)
    }

    /// Checks that the VRF of the network has an interface on the bridge and the VLAN: without it, frames of the container reach no router, or
    /// that of another VRF.
    fn check_vrf(&self, switch: &impl Switch) -> Result<(), CniError> {
        let Some(vrf) = &self.config.vrf else {
            return Ok(());
        };
        let (bridge, vlan) = (&self.config.bridge, self.config.vlan);
        let is_on = |one: &SwitchInterface| {
            one.vrf == *vrf && one.bridge.as_ref() == Some(bridge) && one.vlan == vlan
        };
        if switch.interfaces()?.iter().any(is_on) {
            return Ok(());
        }
        let of_vlan = vlan.map(|vlan| format!(" in VLAN {vlan}"));
        let what = format!(
            "no interface of VRF '{vrf}' is on bridge '{bridge}'{} (add one to the DataPlane)",
            of_vlan.unwrap_or_default()
        );
        Err(CniError::new(ErrorCode::TryAgain, what))
    }

    /// Returns the error of a second ADD.
    fn is_attached(&self) -> CniError {
        let what = format!(
            "container {} has interface {} in network {} already",
            self.environment.container_id, self.environment.interface, self.config.name
        );
        CniError::new(ErrorCode::InvalidConfig, what)
    }

    /// Returns the port of the device of the pod that the attachment has, if it has one.
    fn recorded_device(&self, name: &str) -> Option<AddPort> {
        Record::read(&port::record(self.config, name))?.device
    }

    /// Puts the port of a device of the pod into the network. A failure leaves neither record nor addresses. DEL does not close the port,
    /// because kubelet may have given the device to another pod by then: the device plugin does.
    fn add_pod_device(&self, switch: &impl Switch, id: &str) -> Result<CniResult, CniError> {
        let name = self.port_name();
        if self.recorded_device(&name).is_some() {
            return Err(self.is_attached());
        }
        let port = pod_device::port_in_network(self.config, id, switch)?;
        let (given, _) = self.request_addresses()?;
        let record = Record {
            device: Some(port.clone()),
            ..self.record()
        };
        let socket = pod_device::socket_inside(self.config.port, id).unwrap_or_default();
        let done = self
            .write_record(&name, &record)
            .and_then(|()| self.write_device_info(device_info::describe(self.config.port, &socket)))
            .and_then(|()| pod_device::replace(switch, &port));
        match done {
            Ok(()) => Ok(self.complete(self.begin(), self.of_socket(&socket), given)),
            Err(error) => Err(self.remove(switch, &name, error)),
        }
    }

    /// Gives addresses back after a failure.
    fn release(&self, error: CniError) -> CniError {
        match self.ipam(Command::Del) {
            Ok(()) => error,
            Err(left) => {
                let both = format!("{error}; the addresses are not released: {left}");
                error.with_details(both)
            }
        }
    }

    /// Adds the port, and configures its interface. A failure leaves neither port nor addresses.
    fn attach(
        &self,
        switch: &impl Switch,
        mac: Option<MacAddress>,
        given: CniResult,
    ) -> Result<CniResult, CniError> {
        let name = self.port_name();
        self.make_files(&name)
            .map_err(|error| self.release(error))?;
        if let Err(error) = switch.add_port(port::port(self.config, self.environment, mac)) {
            let is_refused = error.code() == ErrorCode::Refused as u64;
            let has_port = || switch.has_port(&name).unwrap_or(false);
            // The port is not of this call, and may be in use with its socket and addresses.
            if is_refused && has_port() {
                return Err(error);
            }
            return Err(self.remove(switch, &name, error));
        }
        self.finish(&name, given)
            .map_err(|error| self.remove(switch, &name, error))
    }

    /// Removes a port and releases its addresses after a failure. If the reply to the addition was lost, the switch may have the port.
    fn remove(&self, switch: &impl Switch, name: &str, error: CniError) -> CniError {
        let removed = switch
            .delete_port(name)
            .and_then(|_| self.remove_files(name));
        let error = match removed {
            Ok(()) => error,
            Err(left) => {
                let both = format!("{error}; port {name} is not removed: {left}");
                error.with_details(both)
            }
        };
        self.release(error)
    }

    /// Moves an interface of the node into the container, and configures it. A failure leaves nothing.
    fn add_device(&self) -> Result<CniResult, CniError> {
        let (environment, attachment) = (self.environment, self.port_name());
        let namespace = environment.netns.as_deref().unwrap_or_default();
        let device = self.config.host_device()?;
        let pci = host_device::is_pci(device).then_some(device);
        let requested = self.config.mac(environment)?;
        host_device::check_free(namespace, &environment.interface)?;
        // This attachment may have one, whose interface has returned from an earlier call.
        let recorded = self.recorded_interfaces()?;
        let (given, reserved) = self.request_addresses()?;
        let done = self
            .make_files(&attachment)
            .and_then(|()| self.move_interface(namespace, device, &recorded))
            .and_then(|()| self.configure(&given))
            .and_then(|own| with_mac(own, requested.or(reserved)))
            .and_then(|own| {
                self.write_device_info(pci.map(device_info::describe_pci))?;
                Ok(own)
            });
        let own = done.map_err(|error| {
            let moved = self
                .give_back(&attachment)
                .and_then(|()| self.remove_files(&attachment));
            let error = match moved {
                Ok(()) => error,
                Err(left) => {
                    let both = format!("{error}; the interface is not moved back: {left}");
                    error.with_details(both)
                }
            };
            self.release(error)
        })?;
        let own = Interface {
            pci_id: pci.filter(|_| self.config.is_1_1()).map(str::to_owned),
            ..own
        };
        Ok(self.complete(self.begin(), own, given))
    }

    /// Returns the attachments with an interface of the node, and the interface as it was.
    fn recorded_interfaces(&self) -> Result<Vec<(String, Option<Moved>)>, CniError> {
        let names = record::names(&self.config.socket_directory)?.into_iter();
        let recorded = names.filter_map(|name| {
            let record = Record::read(&port::record(self.config, &name))?;
            (record.port == PortKind::HostDevice).then_some((name, record.moved))
        });
        Ok(recorded.collect())
    }

    /// Moves an interface of the node into the container, and records it before.
    fn move_interface(
        &self,
        namespace: &str,
        device: &str,
        recorded: &[(String, Option<Moved>)],
    ) -> Result<(), CniError> {
        let name = self.port_name();
        let recorded = recorded.iter().map(|(name, moved)| DeviceAttachment {
            name,
            moved: moved.as_ref(),
        });
        let found = host_device::find(device, &recorded.collect::<Vec<_>>())?;
        let record = Record {
            moved: Some(found.moved.clone()),
            ..self.record()
        };
        self.write_record(&name, &record)?;
        host_device::take(namespace, &found, &self.environment.interface, &name)
    }

    /// Returns the interface of an attachment as its record has it.
    fn moved(&self, name: &str) -> Option<Moved> {
        Record::read(&port::record(self.config, name))?.moved
    }

    /// Moves the interface of the attachment back to the node.
    fn give_back(&self, name: &str) -> Result<(), CniError> {
        let moved = self.moved(name);
        let moved = moved.as_ref();
        let namespace = self.environment.netns.as_deref();
        host_device::give_back(namespace, DeviceAttachment { name, moved })
    }

    /// Returns the result of the plugins before this one.
    fn begin(&self) -> CniResult {
        let mut result = self.config.prev_result.clone().unwrap_or_default();
        result.cni_version.clone_from(&self.config.cni_version);
        result
    }

    /// Adds the interface in the container, its addresses and routes to a result.
    fn complete(&self, mut result: CniResult, own: Interface, given: CniResult) -> CniResult {
        let index = result.interfaces.len();
        result.interfaces.push(own);
        let ips = given.ips.into_iter().map(|ip| Ip {
            interface: Some(index),
            ..ip
        });
        result.ips.extend(ips);
        result.routes.extend(given.routes);
        result.dns = self.config.dns.clone().or(given.dns).or(result.dns);
        result
    }

    /// Configures the interface of a port that was added, and returns the result.
    fn finish(&self, name: &str, given: CniResult) -> Result<CniResult, CniError> {
        let config = self.config;
        let mut result = self.begin();
        let own = match port::socket(config, name) {
            None => {
                // A tap has no end on the node.
                if config.port == PortKind::Veth {
                    result.interfaces.push(Interface {
                        name: name.to_owned(),
                        ..Interface::default()
                    });
                }
                self.configure(&given)?
            }
            Some(socket) => {
                self.write_device_info(device_info::describe(config.port, &socket))?;
                self.of_socket(&socket)
            }
        };
        self.record_port(name, &own, &given)?;
        Ok(self.complete(result, own, given))
    }

    /// Returns the interface of the result that stands for a socket.
    fn of_socket(&self, socket: &Path) -> Interface {
        let path = socket.display().to_string();
        Interface {
            name: self.environment.interface.clone(),
            sandbox: self.environment.netns.clone(),
            socket_path: self.config.is_1_1().then_some(path),
            ..Interface::default()
        }
    }

    /// Records the port and the settings of its interface: the agent attaches the container again if the switch is started again.
    fn record_port(&self, name: &str, own: &Interface, given: &CniResult) -> Result<(), CniError> {
        let has_interface = self.config.port.creates_interface();
        let mac = own.mac.as_deref().and_then(|mac| mac.parse().ok());
        let record = Record {
            attached: Some(Attached {
                port: port::port(self.config, self.environment, mac),
                interface: has_interface.then(|| own.name.clone()),
                ips: given.ips.clone(),
                routes: given.routes.clone(),
            }),
            ..self.record()
        };
        self.write_record(name, &record)
    }

    fn write_record(&self, name: &str, record: &Record) -> Result<(), CniError> {
        let path = port::record(self.config, name);
        record.write(&path).map_err(|error| {
            let what = format!("writing {}: {error}", path.display());
            CniError::new(ErrorCode::Io, what)
        })
    }

    /// Returns the record of an attachment that is being made.
    fn record(&self) -> Record {
        let netns = self.environment.netns.as_deref().unwrap_or_default();
        Record::new(self.config, Path::new(netns))
    }

    /// Configures the interface in the container.
    fn configure(&self, given: &CniResult) -> Result<Interface, CniError> {
        let environment = self.environment;
        let namespace = environment.netns.as_deref().unwrap_or_default();
        let name = &environment.interface;
        let state = interface::configure(namespace, name, &given.ips, &given.routes)?;
        let mtu = self.config.mtu.map(u32::from);
        Ok(Interface {
            name: name.clone(),
            mac: state.mac.map(|mac| mac.to_string()),
            mtu: mtu.filter(|_| self.config.is_1_1()),
            sandbox: environment.netns.clone(),
            ..Interface::default()
        })
    }

    /// Describes the device of the attachment in the file that the runtime names.
    fn write_device_info(&self, description: Option<Value>) -> Result<(), CniError> {
        let file = self.config.runtime_config.device_info_file.as_deref();
        match file.zip(description) {
            // A file that is there comes from a device plugin, and stays.
            Some((file, description)) if !file.exists() => device_info::write(file, &description),
            _ => Ok(()),
        }
    }

    /// Records an attachment, and creates the directory of its socket, if its kind has one.
    fn make_files(&self, name: &str) -> Result<(), CniError> {
        let config = self.config;
        let of_socket = port::socket_directory(config, name);
        let directory = of_socket.unwrap_or_else(|| config.socket_directory.clone());
        let record = self.record();
        let mut builder = DirBuilder::new();
        let made = builder
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&directory)
            .and_then(|()| record.write(&port::record(config, name)));
        made.map_err(|error| {
            let what = format!("creating files in {}: {error}", directory.display());
            CniError::new(ErrorCode::Io, what)
        })
    }

    /// Removes the socket of a port and its record, if they exist.
    fn remove_files(&self, name: &str) -> Result<(), CniError> {
        record::remove_files(&self.config.socket_directory, self.config.port, name)
    }

    /// Returns true if a port is of this network, and not only of one with the same prefix.
    fn is_recorded(&self, name: &str) -> bool {
        let record = Record::read(&port::record(self.config, name));
        record.is_some_and(|record| record.network == self.config.name)
    }

    fn del(&self, switch: &impl Switch) -> Result<(), CniError> {
        let _lock = self.lock(ADD_ENDS)?;
        let name = self.port_name();
        if self.is_host_device() {
            self.give_back(&name)?;
            self.remove_files(&name)?;
            return self.ipam(Command::Del);
        }
        switch.delete_port(&name)?;
        self.remove_files(&name)?;
        self.ipam(Command::Del)
    }

    fn check(&self, switch: &impl Switch) -> Result<(), CniError> {
        let changed = |what: String| Err(CniError::new(ErrorCode::Changed, what));
        let Some(made) = &self.config.prev_result else {
            let what = "prevResult: required by CHECK but absent";
            return Err(CniError::new(ErrorCode::InvalidConfig, what));
        };
        if self.is_host_device() {
            self.check_interface(made)?;
            return self.ipam(Command::Check);
        }
        let name = self.port_name();
        let device = self.recorded_device(&name);
        let name = device.map_or(name, |port| port.name);
        let ports = switch.ports()?;
        let Some(port) = ports.iter().find(|port| port.name == name) else {
            return changed(format!("the switch has no port {name}"));
        };
        if port.group != self.config.bridge {
            return changed(format!(
                "port {name} is not in bridge {}",
                self.config.bridge
            ));
        }
        if self.config.port.creates_interface() {
            self.check_interface(made)?;
        }
        self.ipam(Command::Check)
    }

    /// Checks that the interface in the container has the MAC address and the IP addresses of the result of ADD.
    fn check_interface(&self, made: &CniResult) -> Result<(), CniError> {
        let changed = |what: String| Err(CniError::new(ErrorCode::Changed, what));
        let environment = self.environment;
        let namespace = environment.netns.as_deref().unwrap_or_default();
        let name = &environment.interface;
        let state = interface::state(namespace, name)?;
        if !state.is_up {
            return changed(format!("interface {name} is down"));
        }
        let is_own = |it: &Interface| it.name == *name && it.sandbox == environment.netns;
        let Some(index) = made.interfaces.iter().position(is_own) else {
            return changed(format!(
                "prevResult has no interface {name} in this container"
            ));
        };
        let mac = made.interfaces.get(index).and_then(|it| it.mac.as_deref());
        let own = state.mac.map(|mac| mac.to_string());
        if mac.is_some() && mac != own.as_deref() {
            let own = own.unwrap_or_default();
            return changed(format!("interface {name} has MAC address {own}"));
        }
        let ips = made.ips.iter().filter(|ip| ip.interface == Some(index));
        let mut missing = ips.filter(|ip| !state.addresses.contains(&ip.address.addr()));
        match missing.next() {
            Some(ip) => changed(format!("interface {name} lacks address {}", ip.address)),
            None => Ok(()),
        }
    }

    fn gc(&self, switch: &impl Switch) -> Result<(), CniError> {
        let Some(valid) = &self.config.valid_attachments else {
            let what = "cni.dev/valid-attachments: required by GC but absent";
            return Err(CniError::new(ErrorCode::InvalidConfig, what));
        };
        let network = &self.config.name;
        let valid: BTreeSet<String> = valid
            .iter()
            .map(|it| port::name(network, &it.container_id, &it.ifname))
            .collect();
        let prefix = port::prefix(network);
        let is_left = |name: &str| {
            name.starts_with(&prefix) && !valid.contains(name) && self.is_recorded(name)
        };
        // Records can remain without ports: the switch has ended meanwhile.
        let mut names = record::names(&self.config.socket_directory)?;
        if !self.is_host_device() {
            names.extend(switch.ports()?.into_iter().map(|port| port.name));
        }
        let mut failed = Vec::new();
        for name in names.iter().filter(|name| is_left(name)) {
            if let Err(error) = self.remove_left(switch, name) {
                failed.push(error.to_string());
            }
        }
        if !failed.is_empty() {
            let what = "not all attachments could be removed";
            return Err(CniError::new(ErrorCode::Io, what).with_details(failed.join("; ")));
        }
        self.ipam(Command::Gc)
    }

    /// Removes an attachment that is not valid. One whose ADD has not ended stays.
    fn remove_left(&self, switch: &impl Switch, name: &str) -> Result<(), CniError> {
        let directory = &self.config.socket_directory;
        let Some(_lock) = AttachmentLock::acquire(directory, name, Duration::ZERO)? else {
            return Ok(());
        };
        if !self.is_host_device() {
            switch.delete_port(name)?;
            return self.remove_files(name);
        }
        // Interfaces of living containers are not on the node.
        let node = Path::new(host_device::OWN);
        let moved = self.moved(name);
        let moved = moved.as_ref();
        match host_device::restore_in(node, DeviceAttachment { name, moved })? {
            true => self.remove_files(name),
            false => Ok(()),
        }
    }

    fn status(&self, switch: &impl Switch) -> Result<(), CniError> {
        if self.is_host_device() {
            return self.ipam(Command::Status);
        }
        let unavailable = |what: String| CniError::new(ErrorCode::NotAvailable, what);
        let bridges = switch.bridges();
        let bridges = bridges.map_err(|error| unavailable(error.to_string()))?;
        if !bridges.contains(&self.config.bridge) {
            let what = format!(
                "the switch has no bridge {} (add it with `quietwire switch add bridge`)",
                self.config.bridge
            );
            return Err(unavailable(what));
        }
        self.ipam(Command::Status)
    }
}

/// Returns a moved interface, which keeps its MAC address, if that is the requested one.
fn with_mac(own: Interface, requested: Option<MacAddress>) -> Result<Interface, CniError> {
    let requested = requested.map(|mac| mac.to_string());
    if requested.is_none() || requested == own.mac {
        return Ok(own);
    }
    let what = format!(
        "interface {} keeps its MAC address {}, but another one is requested",
        own.name,
        own.mac.unwrap_or_default()
    );
    Err(CniError::new(ErrorCode::UnsupportedField, what))
}
