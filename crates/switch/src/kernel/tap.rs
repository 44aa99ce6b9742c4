// SPDX-License-Identifier: Apache-2.0
//! A tap: an interface of the kernel's whose frames are read and written here (Linux, Documentation/networking/tuntap.rst).

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use quietwire_tables::neighbour::Facts;

/// Longest name of an interface (IFNAMSIZ without the end).
const NAME_MAX: usize = 15;
/// Frames read in one turn.
const FRAMES_A_TURN: usize = 64;
const FRAME_MAX: usize = 9216 + 18;

/// A tap that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the kernel interface '{name}' {what}")]
pub(crate) struct TapError {
    name: String,
    what: String,
}

/// A tap. It goes when this is dropped.
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
    /// Makes a tap, up and without addresses.
    ///
    /// # Errors
    /// [`TapError`] when there is an interface of that name, or the kernel refuses.
    pub(crate) fn new(name: &str) -> Result<Self, TapError> {
        let wrong = |what: String| TapError {
            name: name.to_owned(),
            what,
        };
        if name.is_empty() || name.len() > NAME_MAX || name.contains(['/', ' ', ':']) {
            return Err(wrong(format!(
                "has no name that the kernel takes: 1 to {NAME_MAX} characters without '/', ':' and blanks"
            )));
        }
        // Somebody else's is not taken over.
        if PathBuf::from("/sys/class/net").join(name).exists() {
            return Err(wrong(
                "is there already; choose another name, or remove it".to_owned(),
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
            made().map_err(|error| wrong(format!("could not be made: {error}")))?;
        Ok(Self {
            device,
            name: name.to_owned(),
            index,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number of it.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Gives it the addresses of an interface of the router's.
    ///
    /// # Errors
    /// [`TapError`] when the kernel refuses.
    pub(crate) fn dress(&self, facts: &Facts, mtu: u16) -> Result<(), TapError> {
        let wrong = |what: &str, error: std::io::Error| TapError {
            name: self.name.clone(),
            what: format!("could not be given {what}: {error}"),
        };
        let [_, _, mac @ ..] = facts.mac.to_u64().to_be_bytes();
        self.device
            .set_mac_address(mac)
            .map_err(|error| wrong("its MAC address", error))?;
        self.device
            .set_mtu(mtu)
            .map_err(|error| wrong("its MTU", error))?;
        let had = self.device.addresses().unwrap_or_default();
        let wanted: Vec<IpAddr> = facts.addresses.iter().map(IpNet::addr).collect();
        for address in had {
            let is_link_local =
                matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
            if !wanted.contains(&address) && !is_link_local {
                self.device
                    .remove_address(address)
                    .map_err(|error| wrong("other addresses", error))?;
            }
        }
        let had = self.device.addresses().unwrap_or_default();
        for net in facts
            .addresses
            .iter()
            .filter(|net| !had.contains(&net.addr()))
        {
            let given = match net {
                IpNet::V4(net) => self.device.add_address_v4(net.addr(), net.prefix_len()),
                IpNet::V6(net) => self.device.add_address_v6(net.addr(), net.prefix_len()),
            };
            given.map_err(|error| wrong(&net.to_string(), error))?;
        }
        Ok(())
    }

    /// Frames that the kernel sent, as many as are there now, up to a bound.
    pub(crate) fn receive(&self, mut take: impl FnMut(&[u8])) {
        let mut frame = [0; FRAME_MAX];
        for _ in 0..FRAMES_A_TURN {
            match self.device.recv(&mut frame) {
                Ok(length) => take(frame.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Down: the kernel's owner did that.
                    tracing::debug!("reading {}: {error}", self.name);
                    return;
                }
            }
        }
    }

    /// Gives the kernel a frame; false when it does not take it: the tap is down, or its queue is full.
    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        self.device.send(frame).is_ok()
    }
}
