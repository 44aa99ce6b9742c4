// SPDX-License-Identifier: Apache-2.0
//! Forwarding of frames by the kernel, from one interface of this machine to another, by a table of stations.
//!
//! Two programs share the work, because the kernel passes a received frame to packet sockets before it passes it to the classifiers of the
//! interface (net/core/dev.c, `__netif_receive_skb_core`). The filter of the packet socket decides, notes the output in a value of its CPU,
//! and keeps the frame from the socket. The classifier, which runs next on the same CPU for the same frame, sends the frame to the noted
//! output. There is one decision for each frame, so that a change of the table neither duplicates nor loses a frame.
//!
//! The filter keeps a frame from the socket only if the table has both addresses of the frame: the source at the interface that the frame
//! comes from, and the destination at another one. All other frames go to the socket, as without these programs. If a source comes from
//! another interface than that of the table, the filter removes it from the table.
//!
//! The classifier belongs to a BPF link, and the filter to the socket: the kernel removes both with the process.
//!
//! This module knows interfaces by their indexes. It must not know ports.

mod program;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::libc;
use quietwire_packet::{MacAddress, VlanId};

use crate::ebpf::assembler::{AssemblerError, Instruction};
use crate::ebpf::bpf::{self, ProgramKind};
use crate::error::Error;
use program::Maps;

pub use program::KERNEL_ADDRESSES_MAX;

/// Names of the programs, as `bpftool` shows them.
const FILTER_NAME: &str = "qw_kernel_filt";
const CLASSIFIER_NAME: &str = "qw_kernel_fwd";

/// Frames that the kernel has forwarded. Octets are without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// Frames that came from the port.
    pub rx_frames: u64,
    /// Their octets.
    pub rx_octets: u64,
    /// Frames that went to the port.
    pub tx_frames: u64,
    /// Their octets.
    pub tx_octets: u64,
}

impl KernelCounts {
    /// Returns the counts since an earlier state.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            rx_frames: self.rx_frames.wrapping_sub(earlier.rx_frames),
            rx_octets: self.rx_octets.wrapping_sub(earlier.rx_octets),
            tx_frames: self.tx_frames.wrapping_sub(earlier.tx_frames),
            tx_octets: self.tx_octets.wrapping_sub(earlier.tx_octets),
        }
    }

    /// Returns the sums of both.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            rx_frames: self.rx_frames.wrapping_add(more.rx_frames),
            rx_octets: self.rx_octets.wrapping_add(more.rx_octets),
            tx_frames: self.tx_frames.wrapping_add(more.tx_frames),
            tx_octets: self.tx_octets.wrapping_add(more.tx_octets),
        }
    }
}

/// A station of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelStation {
    /// Its address.
    pub address: MacAddress,
    /// VLAN of its port; `None` in a bridge without VLANs.
    pub vlan: Option<VlanId>,
}

impl KernelStation {
    /// Returns its key in the table.
    fn key(self) -> [u8; 8] {
        let [a, b, c, d, e, f] = self.address.0;
        let [g, h] = number_of(self.vlan).to_ne_bytes();
        [a, b, c, d, e, f, g, h]
    }
}

/// Returns the number of a VLAN; 0 for none.
fn number_of(vlan: Option<VlanId>) -> u16 {
    vlan.map_or(0, VlanId::get)
}

/// The programs and the table of a bridge.
#[derive(Debug)]
pub struct KernelForwarding {
    maps: Arc<Maps>,
    filter: OwnedFd,
    classifier: OwnedFd,
}

/// A port whose frames the kernel may forward. When this value is dropped, all its frames go to its sockets.
#[derive(Debug)]
pub struct KernelPort {
    maps: Arc<Maps>,
    /// Index of its interface.
    interface: u32,
    number: u16,
    _link: OwnedFd,
}

impl Drop for KernelPort {
    fn drop(&mut self) {
        if let Err(error) = self.maps.ports.remove(self.interface.to_ne_bytes()) {
            let interface = self.interface;
            tracing::warn!("kernel forwarding of interface {interface} ends late: {error}");
        }
    }
}

fn failed(step: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::KernelForwarding {
        step,
        cause: error.to_string(),
    }
}

impl KernelForwarding {
    /// Loads the programs. The kernel forwards nothing before [`Self::set_active`]. Numbers of ports are below `ports_max`.
    ///
    /// # Errors
    /// [`Error::KernelForwarding`].
    pub fn new(ports_max: u16) -> Result<Self, Error> {
        let maps = Maps::new(ports_max).map_err(failed("BPF_MAP_CREATE"))?;
        let load = |kind, name, code: Result<Vec<Instruction>, AssemblerError>| {
            let code = code.map_err(io::Error::other);
            let loaded = code.and_then(|code| bpf::load_as(kind, name, &code));
            loaded.map_err(failed("BPF_PROG_LOAD"))
        };
        let filter = load(
            ProgramKind::SocketFilter,
            FILTER_NAME,
            program::filter(&maps),
        )?;
        let classifier = program::classifier(&maps);
        let classifier = load(ProgramKind::Classifier, CLASSIFIER_NAME, classifier)?;
        Ok(Self {
            maps: Arc::new(maps),
            filter,
            classifier,
        })
    }

    /// Starts or stops forwarding, from the next frame on.
    ///
    /// # Errors
    /// [`Error::KernelForwarding`].
    pub fn set_active(&self, is_active: bool) -> Result<(), Error> {
        let value = u32::from(is_active).to_ne_bytes();
        let set = self.maps.control.set([0; 4], value);
        set.map_err(failed("BPF_MAP_UPDATE_ELEM"))
    }

    /// Adds a station at a port, or moves it there. A frame of more than `length_max` octets, without FCS, goes to the sockets.
    ///
    /// # Errors
    /// [`Error::KernelForwarding`].
    pub fn set_station(
        &self,
        station: KernelStation,
        port: &KernelPort,
        length_max: u32,
    ) -> Result<(), Error> {
        let value = program::station(port.interface, port.number, length_max);
        let set = self.maps.stations.set(station.key(), value);
        set.map_err(failed("BPF_MAP_UPDATE_ELEM"))
    }

    /// Removes a station, if the table has it.
    ///
    /// # Errors
    /// [`Error::KernelForwarding`].
    pub fn remove_station(&self, station: KernelStation) -> Result<(), Error> {
        let removed = self.maps.stations.remove(station.key());
        removed.map(drop).map_err(failed("BPF_MAP_DELETE_ELEM"))
    }

    /// Returns when the kernel forwarded the last frame of a station, ns of its clock; 0 before the first one. `None` if the table does not
    /// have the station.
    ///
    /// # Errors
    /// [`Error::KernelForwarding`].
    pub fn last_frame(&self, station: KernelStation) -> Result<Option<u64>, Error> {
        let value = self.maps.stations.get(station.key());
        let value = value.map_err(failed("BPF_MAP_LOOKUP_ELEM"))?;
        Ok(value.map(program::last_frame))
    }

    /// Returns the frames that the kernel has forwarded for the port with this number since the programs were loaded.
    ///
    /// # Errors
    /// [`Error::KernelForwarding`].
    pub fn counts(&self, number: u16) -> Result<KernelCounts, Error> {
        let [rx, tx] = program::counters(number).map(|index| {
            let sums = self.maps.counters.sums(index);
            sums.map_err(failed("BPF_MAP_LOOKUP_ELEM"))
        });
        let ([rx_frames, rx_octets], [tx_frames, tx_octets]) = (rx?, tx?);
        Ok(KernelCounts {
            rx_frames,
            rx_octets,
            tx_frames,
            tx_octets,
        })
    }

    /// Returns the filter of the packet sockets of ports.
    pub(crate) fn filter(&self) -> BorrowedFd<'_> {
        self.filter.as_fd()
    }

    /// Attaches the classifier to an interface, that of the port with this number. Its packet sockets must get the filter next.
    ///
    /// # Errors
    /// [`Error::KernelForwarding`].
    pub(crate) fn attach(&self, interface: u32, number: u16) -> Result<KernelPort, Error> {
        let link = bpf::attach_ingress(self.classifier.as_fd(), interface);
        let link = link.map_err(|error| Error::KernelForwarding {
            step: "BPF_LINK_CREATE",
            cause: match error.raw_os_error() {
                Some(libc::EINVAL) => format!("{error} (TCX requires Linux 6.6)"),
                _ => error.to_string(),
            },
        })?;
        Ok(KernelPort {
            maps: Arc::clone(&self.maps),
            interface,
            number,
            _link: link,
        })
    }
}

impl KernelPort {
    /// Lets the filter decide on the frames of the port. With a VLAN, these are its untagged frames.
    ///
    /// # Errors
    /// [`Error::KernelForwarding`].
    pub(crate) fn start(&self, vlan: Option<VlanId>) -> Result<(), Error> {
        let value = program::port(number_of(vlan));
        let set = self.maps.ports.set(self.interface.to_ne_bytes(), value);
        set.map_err(failed("BPF_MAP_UPDATE_ELEM"))
    }
}
