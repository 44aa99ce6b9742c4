// SPDX-License-Identifier: Apache-2.0
//! Ports and their queues.
//!
//! [`Port::open`] returns a port, [`Port::start`] turns it into a [`StartedPort`]: queues, each owned by one thread at a time,
//! and a [`PortHandle`] for counters. The port stops and releases its device and socket when the last of them is dropped.
//!
//! One file for each kind of port. This crate implements ports in shared memory ([`memif`], [`vhost`], [`virtio_user`]),
//! packet sockets ([`af_packet`]), also on pairs of interfaces that it creates ([`veth`]), and taps ([`tap`]); [`device`] is for all
//! ports with a DPDK driver. A queue has the data of its kind, and branches on the kind once per burst.

mod af_packet;
mod checksum;
mod closing;
pub(crate) mod counters;
mod device;
mod features;
mod flow_driver;
mod flow_rules;
mod function;
mod in_place;
mod interface_request;
mod interrupts;
mod kernel_forwarding;
mod memif;
mod offload;
mod options;
mod peer;
pub(crate) mod peers;
mod records;
mod stats;
mod tags;
mod tap;
mod transfer;
mod veth;
mod vhost;
mod virtio_user;
mod xdp_program;
mod xdp_sockets;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use quietwire_base::net_device;

use crate::burst::{Burst, Mbuf};
use crate::eal::Eal;
use crate::error::Error;
use crate::mempool::Mempool;
use crate::precheck;
use crate::segment::{HeaderLengths, LargeKind};
use crate::steer::{SteerHits, SteerMatch, SteerRule};
use crate::uri::{FlowControl, PortUri};
use interrupts::Interrupts;
use options::{buffer_size, check_options, check_pairs, no_interrupts};

pub use af_packet::stock::RingStock;
pub use flow_rules::remove_left_flow_rules;
pub use function::restore_left_functions;
pub use in_place::{
    FilledSlots, FrameReader, FrameSource, FramesTaken, FreeSlots, RowTaken, Scratch, SlotBuffer,
};
pub use options::PortOptions;
pub use peer::Guest;
pub use stats::PortStats;
pub use tags::{PeerNamespaces, restore_left_tag_features};
pub(crate) use tap::TUN_DEVICE;
pub use veth::remove_left_veth_pairs;
pub use xdp_program::remove_left_xdp_programs;
pub use xdp_sockets::XdpMode;

/// Implementation of a port, by kind.
#[derive(Debug)]
enum Backend {
    Device(Box<device::Device>),
    AfPacket(af_packet::Interface),
    Tap(tap::Interface),
    Peer(peer::PeerPort),
}

/// Data that queues and handle of a port share.
#[derive(Debug)]
struct Inner {
    backend: Backend,
    /// The interfaces of a veth port.
    pair: Option<veth::Pair>,
    name: String,
    uri: PortUri,
    eal: Eal,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Backend::Peer(port) = &mut self.backend {
            // The socket is closed before its name is removed.
            port.close();
        }
        if let Some(path) = self.uri.socket() {
            self.eal.forget_socket(path);
        }
        if let Backend::AfPacket(interface) = &mut self.backend
            && let Some(mut pair) = self.pair.take_if(|pair| pair.is_deleted())
        {
            let promiscuity = pair.take_promiscuity();
            // The kernel detaches the sockets of a deleted interface. A pair that is kept is free only after they are closed.
            drop(pair);
            closing::close((interface.take_sockets(), promiscuity));
        }
    }
}

/// An open port that is not started.
#[derive(Debug)]
pub struct Port {
    inner: Inner,
    ends: Ends,
    options: PortOptions,
}

/// The ends of a port's queues.
#[derive(Debug, Default)]
struct Ends {
    rx: Vec<Receiver>,
    tx: Vec<Sender>,
    /// Of the receive queues, if threads are to wait for them.
    interrupts: Vec<Interrupts>,
}

#[derive(Debug)]
enum Receiver {
    Device(device::Receiver),
    AfPacket(af_packet::AfPacketRx),
    Tap(Box<tap::Receiver>),
    Memif(memif::Receiver),
    Vhost(vhost::Receiver),
    VirtioUser(virtio_user::Receiver),
}

#[derive(Debug)]
enum Sender {
    Device(device::Sender),
    AfPacket(af_packet::AfPacketTx),
    Tap(tap::Sender),
    Memif(memif::Sender),
    Vhost(vhost::Sender),
    VirtioUser(virtio_user::Sender),
}

/// A started port: its queues for forwarding threads, and its handle.
#[derive(Debug)]
pub struct StartedPort {
    /// Receive queues, in order.
    pub rx: Vec<RxQueue>,
    /// Transmit queues, in order.
    pub tx: Vec<TxQueue>,
    /// Counters, link and address.
    pub handle: PortHandle,
}

/// One receive queue; one thread owns it at a time.
#[derive(Debug)]
pub struct RxQueue {
    end: Receiver,
    interrupts: Option<Interrupts>,
    _inner: Arc<Inner>,
}

/// One transmit queue; one thread owns it at a time.
#[derive(Debug)]
pub struct TxQueue {
    end: Sender,
    inner: Arc<Inner>,
}

/// Access to a started port's counters, link and address from any thread.
#[derive(Clone, Debug)]
pub struct PortHandle {
    inner: Arc<Inner>,
}

impl RxQueue {
    /// Receives at most `most` frames into an empty burst. Returns their number. Frames longer than the port's largest frame are
    /// dropped and counted ([`PortStats::rx_errors`]).
    #[inline(always)]
    pub fn receive(&mut self, burst: &mut Burst, most: usize) -> usize {
        match &mut self.end {
            Receiver::Memif(end) => end.receive(burst, most),
            Receiver::Vhost(end) => end.receive(burst, most),
            Receiver::VirtioUser(end) => end.receive(burst, most),
            Receiver::AfPacket(end) => end.receive(burst, most),
            Receiver::Tap(end) => end.receive(burst, most),
            Receiver::Device(end) => end.receive(burst, most),
        }
    }

    /// Returns true if frames can be read where they lie in the ring ([`Self::read_in_place`]): memif and virtio-user
    /// ports.
    #[must_use]
    pub fn is_readable_in_place(&self) -> bool {
        matches!(self.end, Receiver::Memif(_) | Receiver::VirtioUser(_))
    }

    /// Reads up to `most` frames without packet buffers; returns their number, 0 unless [`Self::is_readable_in_place`]. Frames longer
    /// than the port's largest frame are dropped and counted.
    #[inline(always)]
    pub fn read_in_place(
        &mut self,
        most: usize,
        scratch: &mut Scratch,
        reader: &mut impl FrameReader,
    ) -> usize {
        match &mut self.end {
            Receiver::Memif(end) => end.read(most, scratch, reader),
            Receiver::VirtioUser(end) => end.read(most, scratch, reader),
            _ => 0,
        }
    }

    /// The descriptor that epoll(7) signals, edge by edge, when frames come to the armed queue; none unless the port was opened with
    /// [`PortOptions::rx_interrupts`].
    #[must_use]
    pub fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.interrupts.as_ref().map(Interrupts::as_fd)
    }

    /// Returns true if the kernel of this machine signals each frame, and no peer has to connect first: frames are the only reason to end a
    /// wait.
    #[must_use]
    pub fn is_signalled_by_kernel(&self) -> bool {
        self.interrupts.is_some()
            && match &self.end {
                Receiver::AfPacket(_) | Receiver::Tap(_) => true,
                Receiver::Device(end) => end.is_signalled_by_kernel(),
                Receiver::Memif(_) | Receiver::Vhost(_) | Receiver::VirtioUser(_) => false,
            }
    }

    /// Has frames signal the queue's descriptor from now on. Those that came before do not: receive once more before waiting, and
    /// wait with a bound, since a peer that connects while the queue is armed does not signal.
    pub fn arm(&mut self) {
        match &mut self.end {
            Receiver::Memif(end) => end.arm(),
            Receiver::Vhost(end) => end.arm(),
            Receiver::Device(end) => end.arm(),
            Receiver::Tap(end) => end.read_at_once(),
            // The kernel always signals; the others have no interrupts.
            Receiver::AfPacket(_) | Receiver::VirtioUser(_) => {}
        }
    }

    /// Has frames signal no more: the queue is polled.
    pub fn disarm(&mut self) {
        match &mut self.end {
            Receiver::Memif(end) => end.disarm(),
            Receiver::Vhost(end) => end.disarm(),
            Receiver::Device(end) => end.disarm(),
            Receiver::Tap(end) => end.read_at_once(),
            Receiver::AfPacket(_) | Receiver::VirtioUser(_) => {}
        }
    }
}

impl TxQueue {
    /// Sends the burst's frames, in order. Returns the number of frames sent. Frames stay in the burst if the ring is full;
    /// frames that the port cannot send at all are dropped and counted ([`PortStats::tx_errors`]).
    #[inline(always)]
    pub fn send(&mut self, burst: &mut Burst) -> usize {
        match &mut self.end {
            Sender::Memif(end) => end.send(burst),
            Sender::Vhost(end) => end.send(burst),
            Sender::VirtioUser(end) => end.send(burst),
            Sender::AfPacket(end) => end.send(burst),
            Sender::Tap(end) => end.send(burst),
            Sender::Device(end) => end.send(burst),
        }
    }

    /// Returns true if frames can be written into the buffers of the ring ([`Self::write_in_place`]): memif and
    /// virtio-user ports.
    #[must_use]
    pub fn is_writable_in_place(&self) -> bool {
        matches!(self.end, Sender::Memif(_) | Sender::VirtioUser(_))
    }

    /// Writes up to `count` frames of a source without packet buffers: fewer if the ring is full or has no peer, none unless
    /// [`Self::is_writable_in_place`]. Unless another call is certain soon, call [`Self::settle_in_place`]: a peer that waits for an
    /// interrupt may not have got it.
    #[inline(always)]
    pub fn write_in_place(
        &mut self,
        count: usize,
        source: &mut impl FrameSource,
        scratch: &mut Scratch,
    ) -> FramesTaken {
        match &mut self.end {
            Sender::Memif(end) => end.write(count, source, scratch),
            Sender::VirtioUser(end) => end.write(count, source, scratch),
            _ => FramesTaken::default(),
        }
    }

    /// Returns true if TCP segments and UDP datagrams that leave in one burst must be merged, as far as the port accepts the frames
    /// ([`Self::accepts_whole`]): `gro=on` of the URI.
    #[must_use]
    pub fn merges_segments(&self) -> bool {
        self.inner.uri.merges_segments()
    }

    /// Interrupts a peer that waits for the frames of [`Self::write_in_place`].
    pub fn settle_in_place(&mut self) {
        match &mut self.end {
            Sender::Memif(end) => end.settle(),
            Sender::VirtioUser(end) => end.settle(),
            _ => {}
        }
    }

    /// Returns true while the port's peer accepts a frame of `length` octets of this kind, with data of any length; see
    /// [`crate::Mbuf::request_segments`].
    #[must_use]
    pub fn accepts_whole(&self, kind: LargeKind, length: u32) -> bool {
        match &self.end {
            // Guests have not negotiated to receive datagrams or CWR.
            Sender::Vhost(end) => kind.is_tcp && !kind.has_cwr && end.accepts_tso(kind.is_ipv4),
            Sender::VirtioUser(end) => end.accepts_whole(kind),
            Sender::Tap(end) => end.accepts_whole(kind),
            Sender::AfPacket(end) => end.accepts_whole(kind, length),
            Sender::Device(end) => end.accepts_whole(kind),
            _ => false,
        }
    }

    /// Returns true if a network card cuts the frames of [`Self::accepts_whole`] into the segments that it sends. The peer of any other
    /// port receives them whole.
    #[must_use]
    pub fn cuts_frames(&self) -> bool {
        matches!(&self.end, Sender::Device(end) if end.cuts_frames())
    }

    /// Prepares a frame with a request ([`crate::Mbuf::request_segments`]) for this queue, which may find that its card cannot cut the
    /// frame.
    ///
    /// # Errors
    /// The frame without the request.
    pub fn prepare<'eal>(&self, frame: Mbuf<'eal>) -> Result<Mbuf<'eal>, Mbuf<'eal>> {
        match &self.end {
            Sender::Device(end) => end.prepare(frame),
            _ => Ok(frame),
        }
    }

    /// Returns true if a network card computes the checksum of TCP or UDP of a frame of this kind.
    #[must_use]
    pub fn computes_checksum(&self, kind: LargeKind) -> bool {
        matches!(&self.end, Sender::Device(end) if end.computes_checksum(kind))
    }

    /// Leaves the checksum of TCP or UDP to the network card, which [`Self::computes_checksum`]. If the card refuses the frame, the checksum
    /// is computed here. The frame is exclusive ([`Mbuf::is_exclusive`]) and has these headers, and its checksum field has the sum of the
    /// pseudo header.
    #[must_use]
    pub fn leave_checksum<'eal>(
        &self,
        frame: Mbuf<'eal>,
        lengths: HeaderLengths,
        kind: LargeKind,
    ) -> Mbuf<'eal> {
        match &self.end {
            Sender::Device(end) => end.leave_checksum(frame, lengths, kind),
            _ => frame,
        }
    }
}

impl PortHandle {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the URI.
    #[must_use]
    pub fn uri(&self) -> &PortUri {
        &self.inner.uri
    }

    /// Returns the counters of the port.
    #[must_use]
    pub fn stats(&self) -> PortStats {
        match &self.inner.backend {
            Backend::Device(device) => device.stats(),
            Backend::AfPacket(interface) => interface.stats(),
            Backend::Tap(interface) => interface.stats(),
            Backend::Peer(port) => port.stats(),
        }
    }

    /// Returns all further counters that are not 0: those of a DPDK driver with the driver's names (`rte_eth_xstats_get`), those
    /// of shared-memory ports in the same form (`rx_q0_malformed_buffers`).
    #[must_use]
    pub fn extended_stats(&self) -> Vec<(String, u64)> {
        match &self.inner.backend {
            Backend::Device(device) => device.extended_stats(),
            Backend::AfPacket(interface) => interface.extended_stats(),
            Backend::Tap(interface) => interface.extended_stats(),
            Backend::Peer(port) => port.extended_stats(),
        }
    }

    /// Returns true if the peer lost a frame that the port did not accept: the peer's receive queue, in shared memory or at the other end
    /// of a `veth` pair (veth(4)), was full. Returns false if a device, or another interface of this host's kernel, was busy.
    #[must_use]
    pub fn drops_when_full(&self) -> bool {
        match &self.inner.backend {
            Backend::AfPacket(interface) => interface.is_pair(),
            _ => self.inner.uri.is_shared_memory(),
        }
    }

    /// Returns the descriptors of the first receive and the first transmit queue, if the port knows them.
    #[must_use]
    pub fn ring_sizes(&self) -> (Option<u16>, Option<u16>) {
        match &self.inner.backend {
            Backend::Device(device) => device.ring_sizes(),
            Backend::AfPacket(interface) => interface.ring_sizes(),
            Backend::Tap(interface) => interface.ring_sizes(),
            Backend::Peer(port) => port.ring_sizes(),
        }
    }

    /// Returns the receive queue of each entry of a card's redirection table, which the hash of a flow selects; none for other ports and cards
    /// without a table.
    #[must_use]
    pub fn redirection_table(&self) -> Vec<u16> {
        match &self.inner.backend {
            Backend::Device(device) => device.redirection_table(),
            _ => Vec::new(),
        }
    }

    /// Sets the receive queue of each entry of a card's redirection table.
    ///
    /// # Errors
    /// [`Error::Steering`]: the port has no table, the driver's error, or a table of another length or with a queue that the port does not
    /// have. The former table stays.
    pub fn set_redirection_table(&self, table: &[u16]) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Device(device) => device.set_redirection_table(table),
            _ => Err(self.cannot_steer("only cards have a redirection table")),
        }
    }

    /// Returns the guest of a vhost-user port while it is connected.
    #[must_use]
    pub fn guest(&self) -> Option<Guest> {
        match (&self.inner.backend, &self.inner.uri) {
            (Backend::Peer(port), PortUri::Vhost { .. }) => port.guest(),
            _ => None,
        }
    }

    /// Returns the process ID of the peer of a shared-memory port while it is connected, if known.
    #[must_use]
    pub fn peer_process(&self) -> Option<i32> {
        match &self.inner.backend {
            Backend::Peer(port) => port.process(),
            _ => None,
        }
    }

    /// Returns the reason why a port with a peer is down, if known.
    #[must_use]
    pub fn down_reason(&self) -> Option<String> {
        match &self.inner.backend {
            Backend::Peer(port) => port.down_reason(),
            _ => None,
        }
    }

    /// Returns whether the kernel copies the frames of an AF_XDP port; none for other ports.
    #[must_use]
    pub fn xdp_mode(&self) -> Option<XdpMode> {
        match &self.inner.backend {
            Backend::Device(device) => device.xdp_mode(),
            _ => None,
        }
    }

    fn cannot_steer(&self, cause: &str) -> Error {
        Error::Steering {
            port: self.inner.name.clone(),
            uri: self.inner.uri.to_string(),
            cause: cause.to_owned(),
        }
    }

    /// Replaces the rules about the frames that an `af-xdp` port receives, in one step. The first rule that matches a frame decides; without
    /// a match, the kernel gets it. Without rules, the port receives all frames. Equal rules keep their counters.
    ///
    /// The card of a `pci` port gets the rules as flow rules of its driver. They have no order, and each selects a queue or a function.
    ///
    /// # Errors
    /// [`Error::Steering`]: another kind of port, too many rules, a rule that the card refuses, or the kernel's error. The former rules
    /// stay.
    pub fn steer(&self, rules: &[SteerRule]) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Device(device) => device.steer(rules),
            _ if rules.is_empty() => Ok(()),
            _ => Err(self.cannot_steer("only af-xdp and pci ports steer frames")),
        }
    }

    /// Returns the frames that the card of a `pci` port has counted for each rule of [`Self::steer`]; none for a rule that it does not
    /// count.
    #[must_use]
    pub fn offloaded(&self) -> Vec<Option<u64>> {
        match &self.inner.backend {
            Backend::Device(device) => device.offloaded(),
            _ => Vec::new(),
        }
    }

    /// Replaces the matches of which the card of a `pci` port drops and counts the frames, by flow rules of its driver.
    ///
    /// # Errors
    /// [`Error::Steering`]: another kind of port, or a match that the card refuses or does not count. The former ones stay.
    pub fn drop_on_card(&self, matches: &[SteerMatch]) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Device(device) if matches!(self.inner.uri, PortUri::Pci { .. }) => {
                device.drop_on_card(matches)
            }
            _ if matches.is_empty() => Ok(()),
            _ => Err(self.cannot_steer("only the cards of pci ports drop frames")),
        }
    }

    /// Removes the matches of [`Self::drop_on_card`] from the card, all that its driver removes.
    ///
    /// # Errors
    /// [`Error::Steering`]: the driver did not remove those of [`Self::kept_by_card`], and the card drops their frames.
    pub fn withdraw_from_card(&self) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Device(device) => device.withdraw_from_card(),
            _ => Ok(()),
        }
    }

    /// Returns the places of the matches, in the list before [`Self::withdraw_from_card`], that the driver did not remove. A match of both
    /// versions of IP may be there twice, and a match that was in no list is `None`.
    #[must_use]
    pub fn kept_by_card(&self) -> Vec<Option<usize>> {
        match &self.inner.backend {
            Backend::Device(device) => device.kept_by_card(),
            _ => Vec::new(),
        }
    }

    /// Returns the frames that the card has dropped by each match of [`Self::drop_on_card`]; none if its driver does not report them.
    #[must_use]
    pub fn dropped_by_card(&self) -> Vec<Option<u64>> {
        match &self.inner.backend {
            Backend::Device(device) => device.dropped_by_card(),
            _ => Vec::new(),
        }
    }

    /// Returns the frames that the rules of [`Self::steer`] have decided on; none before the first rule.
    #[must_use]
    pub fn steered(&self) -> Option<SteerHits> {
        match &self.inner.backend {
            Backend::Device(device) => device.steered(),
            _ => None,
        }
    }

    /// Returns true if rules of [`Self::steer`] select queues or functions by flow rules of the card.
    #[must_use]
    pub fn has_flow_rules(&self) -> bool {
        match &self.inner.backend {
            Backend::Device(device) => device.has_flow_rules(),
            _ => false,
        }
    }

    /// Adds the flow rules again that the driver of the card has lost, such as by a reset. Returns their number.
    ///
    /// # Errors
    /// [`Error::Steering`]: the driver's error, or a rule that it refuses now.
    pub fn renew_flow_rules(&self) -> Result<usize, Error> {
        match &self.inner.backend {
            Backend::Device(device) => device.renew_flow_rules(),
            _ => Ok(0),
        }
    }

    /// Returns the link speed, Mbit/s; none without a link or if it is unknown.
    #[must_use]
    pub fn speed_mbps(&self) -> Option<u32> {
        match &self.inner.backend {
            Backend::Device(device) => device.speed_mbps(),
            _ => None,
        }
    }

    /// Returns the flow control that the driver of a card reports; none for other ports, or if the driver has none. Most drivers report
    /// the mode in effect, which is [`FlowControl::Off`] without a link.
    #[must_use]
    pub fn flow_control(&self) -> Option<FlowControl> {
        match &self.inner.backend {
            Backend::Device(device) => device.flow_control(),
            _ => None,
        }
    }

    /// Returns true while a peer is connected or the link is up.
    #[must_use]
    pub fn link_is_up(&self) -> bool {
        if let Backend::AfPacket(interface) = &self.inner.backend {
            return interface.link_is_up();
        }
        // DPDK's drivers of kernel interfaces read the link state only when the port is opened.
        if let Some(interface) = self.inner.uri.interface() {
            return net_device::value::<u8>(interface, "carrier") == Some(1);
        }
        match &self.inner.backend {
            Backend::Device(device) => device.link_is_up(),
            Backend::AfPacket(interface) => interface.link_is_up(),
            Backend::Tap(interface) => interface.link_is_up(),
            Backend::Peer(port) => port.link_is_up(),
        }
    }

    /// Returns true once the device of a `pci` port was removed from the machine, or the kernel has asked for it. It does not come back:
    /// close the port, for which the kernel may be waiting.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        match &self.inner.backend {
            Backend::Device(device) => device.is_removed(),
            _ => false,
        }
    }

    /// Returns true once after the driver of a `pci` port has reported that its device was reset by its physical function or its firmware
    /// (`RTE_ETH_EVENT_INTR_RESET`). The device may forward nothing until the port is opened again.
    #[must_use]
    pub fn take_reset(&self) -> bool {
        match &self.inner.backend {
            Backend::Device(device) => device.take_reset(),
            _ => false,
        }
    }

    /// Returns the nearest NUMA node of the device; none for a virtual device or if the machine does not report it.
    #[must_use]
    pub fn node(&self) -> Option<u32> {
        match &self.inner.backend {
            Backend::Device(device) => device.node(),
            _ => None,
        }
    }

    /// Returns the octets of the memory of a port by NUMA node, estimated from some of its pages: the rings and buffers that a port shares
    /// with its peer, or the memory of its guest; for a device, the pool of its receive buffers. Empty without a peer, for other ports, or
    /// if the kernel does not report nodes.
    #[must_use]
    pub fn memory_by_node(&self) -> BTreeMap<u32, u64> {
        match &self.inner.backend {
            Backend::Peer(port) => port.memory_by_node(),
            Backend::Device(device) => device.pool().octets_by_node(),
            _ => BTreeMap::new(),
        }
    }

    /// Returns the port's MAC address.
    #[must_use]
    pub fn mac_address(&self) -> [u8; 6] {
        match &self.inner.backend {
            Backend::Device(device) => device.mac_address(),
            Backend::AfPacket(interface) => interface.mac_address(),
            Backend::Tap(interface) => interface.mac_address(),
            Backend::Peer(port) => port.mac_address(),
        }
    }
}

impl Port {
    /// Opens and configures a port.
    ///
    /// # Errors
    /// A problem with the URI's socket or interface or with the options, or an error of DPDK or the kernel.
    pub fn open(
        eal: &Eal,
        uri: &PortUri,
        options: &PortOptions,
        pool: &Mempool,
    ) -> Result<Self, Error> {
        check_options(options)?;
        if pool.data_room() < buffer_size(options) {
            return Err(Error::PortOptions {
                port: options.name.clone(),
                what: format!(
                    "frames of up to {} octets require pool buffers of {} octets, but they have {}",
                    options.frame_size_max,
                    buffer_size(options),
                    pool.data_room()
                ),
            });
        }
        check_pairs(uri, options)?;
        if options.rx_interrupts && !uri.may_have_interrupts() {
            return Err(no_interrupts(uri, options));
        }
        precheck::check(eal, uri, &options.name)?;
        let mut pair = veth::open(uri, options)?;
        let opened = Self::open_backend(eal, uri, options, pool);
        let (backend, ends) = opened.inspect_err(|_| {
            if let Some(path) = uri.socket() {
                eal.forget_socket(path);
            }
        })?;
        if let Some(pair) = &mut pair {
            pair.settle();
        }
        Ok(Self {
            inner: Inner {
                backend,
                pair,
                name: options.name.clone(),
                uri: uri.clone(),
                eal: eal.clone(),
            },
            ends,
            options: options.clone(),
        })
    }

    fn open_backend(
        eal: &Eal,
        uri: &PortUri,
        options: &PortOptions,
        pool: &Mempool,
    ) -> Result<(Backend, Ends), Error> {
        let mut ends = Ends {
            interrupts: interrupts_of(uri, options)?,
            ..Ends::default()
        };
        let interrupts = &ends.interrupts;
        let backend = match uri {
            PortUri::Memif { .. } => {
                let (port, rx, tx) = memif::open(eal, uri, options, pool, interrupts)?;
                ends.rx.extend(rx.into_iter().map(Receiver::Memif));
                ends.tx.extend(tx.into_iter().map(Sender::Memif));
                Backend::Peer(port)
            }
            PortUri::Vhost { .. } => {
                let (port, rx, tx) = vhost::open(eal, uri, options, pool, interrupts)?;
                ends.rx.extend(rx.into_iter().map(Receiver::Vhost));
                ends.tx.extend(tx.into_iter().map(Sender::Vhost));
                Backend::Peer(port)
            }
            PortUri::VirtioUser { .. } => {
                let (port, rx, tx) = virtio_user::open(eal, uri, options, pool)?;
                ends.rx.extend(rx.into_iter().map(Receiver::VirtioUser));
                ends.tx.extend(tx.into_iter().map(Sender::VirtioUser));
                Backend::Peer(port)
            }
            PortUri::AfPacket {
                interface, queues, ..
            }
            | PortUri::Veth {
                interface, queues, ..
            } => {
                // The pair of a veth port holds its interface in promiscuous mode.
                let is_promiscuous = matches!(uri, PortUri::Veth { .. });
                let on = (interface.as_str(), is_promiscuous);
                let opened = af_packet::open(on, *queues, options, pool, interrupts);
                let (rx, tx, opened) = opened.map_err(|error| error.of_uri(uri))?;
                ends.rx.extend(rx.into_iter().map(Receiver::AfPacket));
                ends.tx.extend(tx.into_iter().map(Sender::AfPacket));
                Backend::AfPacket(opened)
            }
            PortUri::Tap { .. } => {
                let (opened, rx, tx) = tap::open(eal, uri, options, pool, interrupts)?;
                ends.rx
                    .extend(rx.into_iter().map(Box::new).map(Receiver::Tap));
                ends.tx.extend(tx.into_iter().map(Sender::Tap));
                Backend::Tap(opened)
            }
            _ => Backend::Device(Box::new(device::Device::open(eal, uri, options, pool)?)),
        };
        Ok((backend, ends))
    }

    /// Starts the port.
    ///
    /// # Errors
    /// The error of DPDK or the kernel.
    pub fn start(mut self) -> Result<StartedPort, Error> {
        match &mut self.inner.backend {
            Backend::Device(device) => {
                device.start(&self.options)?;
                let receivers = device.receivers(&self.options, &self.ends.interrupts)?;
                self.ends.rx = receivers.into_iter().map(Receiver::Device).collect();
                self.ends.tx = (0..device.tx_queues())
                    .map(|queue| Sender::Device(device.sender(queue, &self.options)))
                    .collect();
            }
            Backend::AfPacket(_) | Backend::Tap(_) => {}
            Backend::Peer(port) => port.start().map_err(|cause| Error::PortOpen {
                port: self.inner.name.clone(),
                uri: self.inner.uri.to_string(),
                step: "listening on the socket",
                cause,
            })?,
        }
        let inner = Arc::new(self.inner);
        let mut interrupts = self.ends.interrupts.into_iter();
        let rx = self
            .ends
            .rx
            .into_iter()
            .map(|end| RxQueue {
                end,
                interrupts: interrupts.next(),
                _inner: Arc::clone(&inner),
            })
            .collect();
        let tx = self
            .ends
            .tx
            .into_iter()
            .map(|end| TxQueue {
                end,
                inner: Arc::clone(&inner),
            })
            .collect();
        Ok(StartedPort {
            rx,
            tx,
            handle: PortHandle { inner },
        })
    }
}

/// Interrupts of the receive queues, if threads are to wait for them.
fn interrupts_of(uri: &PortUri, options: &PortOptions) -> Result<Vec<Interrupts>, Error> {
    let queues = if options.rx_interrupts {
        options.rx_queues
    } else {
        0
    };
    let made = (0..queues).map(|_| Interrupts::new());
    made.collect::<Result<_, _>>()
        .map_err(|error| Error::PortOpen {
            port: options.name.clone(),
            uri: uri.to_string(),
            step: "epoll_create",
            cause: error.to_string(),
        })
}
