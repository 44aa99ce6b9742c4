// SPDX-License-Identifier: Apache-2.0
//! Tap: a kernel interface whose frames this process reads and writes (Linux, Documentation/networking/tuntap.rst).

use std::io::ErrorKind;
use std::net::IpAddr;

use ipnet::IpNet;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use quietwire_base::net_device;
use quietwire_packet::MacAddress;

/// Maximum length of an interface name (IFNAMSIZ without the terminator).
const NAME_MAX: usize = 15;
/// Maximum number of frames read per turn.
const FRAMES_A_TURN: usize = 64;
const FRAME_MAX: usize = 9216 + 18;

/// A tap error.
#[derive(Debug, thiserror::Error)]
#[error("kernel interface '{name}': {what}")]
pub(crate) struct TapError {
    name: String,
    what: String,
}

/// A tap. Removed on drop.
pub(crate) struct Tap {
    device: SyncDevice,
    name: String,
    index: u32,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tap({}, {})", self.name, self.index)
    }
}

impl Tap {
    /// Creates a tap that is up and has no addresses.
    ///
    /// # Errors
    /// [`TapError`] if an interface of that name exists, or if the kernel refuses.
    pub(crate) fn new(name: &str) -> Result<Self, TapError> {
        let wrong = |what: String| TapError {
            name: name.to_owned(),
            what,
        };
        if name.is_empty() || name.len() > NAME_MAX || name.contains(['/', ' ', ':']) {
            return Err(wrong(format!(
                "invalid interface name (use 1 to {NAME_MAX} characters without '/', ':' and blanks)"
            )));
        }
        // An existing interface may belong to another program.
        if net_device::exists(name) {
            return Err(wrong(
                "the interface exists (use another name, or remove it)".to_owned(),
            ));
        }
        let made = || {
            let device = DeviceBuilder::new()
                .name(name)
                .layer(Layer::L2)
                .build_sync()?;
            device.set_nonblocking(true)?;
            let index = nix::net::if_::if_nametoindex(name)?;
            Ok::<_, std::io::Error>((device, index))
        };
        let (device, index) =
            made().map_err(|error| wrong(format!("cannot create the tap: {error}")))?;
        Ok(Self {
            device,
            name: name.to_owned(),
            index,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns its interface index in the kernel.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Sets the addresses of a router interface.
    ///
    /// # Errors
    /// [`TapError`] if the kernel refuses.
    pub(crate) fn configure(
        &self,
        addresses: &[IpNet],
        mac: MacAddress,
        mtu: u16,
    ) -> Result<(), TapError> {
        let wrong = |what: &str, error: std::io::Error| TapError {
            name: self.name.clone(),
            what: format!("cannot set {what}: {error}"),
        };
        let [_, _, mac @ ..] = mac.to_u64().to_be_bytes();
        self.device
            .set_mac_address(mac)
            .map_err(|error| wrong("its MAC address", error))?;
        self.device
            .set_mtu(mtu)
            .map_err(|error| wrong("its MTU", error))?;
        let had = self.device.addresses().unwrap_or_default();
        let wanted: Vec<IpAddr> = addresses.iter().map(IpNet::addr).collect();
        for address in had {
            let is_link_local =
                matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
            if !wanted.contains(&address) && !is_link_local {
                self.device
                    .remove_address(address)
                    .map_err(|error| wrong("its IP addresses", error))?;
            }
        }
        let had = self.device.addresses().unwrap_or_default();
        for net in addresses.iter().filter(|net| !had.contains(&net.addr())) {
            let given = match net {
                IpNet::V4(net) => self.device.add_address_v4(net.addr(), net.prefix_len()),
                IpNet::V6(net) => self.device.add_address_v6(net.addr(), net.prefix_len()),
            };
            given.map_err(|error| wrong(&net.to_string(), error))?;
        }
        Ok(())
    }

    /// Receives the frames sent by the kernel that are pending, up to a limit.
    pub(crate) fn receive(&self, mut take: impl FnMut(&[u8])) {
        let mut frame = [0; FRAME_MAX];
        for _ in 0..FRAMES_A_TURN {
            match self.device.recv(&mut frame) {
                Ok(length) => take(frame.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    // The tap was set down in the kernel.
                    tracing::debug!("cannot read from {}: {error}", self.name);
                    return;
                }
            }
        }
    }

    /// Passes a frame to the kernel. Returns false if the kernel refuses it: the tap is down, or its queue is full.
    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        self.device.send(frame).is_ok()
    }
}
