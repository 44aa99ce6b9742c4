// SPDX-License-Identifier: Apache-2.0
//! Ports with a DPDK driver: network cards, AF_XDP, capture files, null.

mod causes;
mod checksums;
mod flow_control;
mod flow_rules;
mod promiscuous;
mod properties;
mod redirection;
mod segmentation;
mod sender;

use std::ffi::CString;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{mem, ptr};

use quietwire_base::net_device;
use quietwire_packet::complete_partial_checksum;

use super::counters::{self, QueueCounters};
use super::flow_driver::PortDriver;
use super::flow_rules::FlowRules;
use super::function::created::CreatedFunction;
use super::function::{self, ConfiguredFunction};
use super::interrupts::{Interrupts, Watched};
use super::offload::ChecksumCard;
use super::options::{
    ETHERNET_OVERHEAD, PortOptions, XDP_FRAME_SIZE_MAX, length_max, no_interrupts, pairs,
};
use super::stats::PortStats;
use super::tags::{self, TagsInFrames};
use super::xdp_program::{self, RecordedProgram};
use super::xdp_sockets::{XdpMode, XdpSockets};
use crate::burst::Burst;
use crate::devices_max;
use crate::eal::Eal;
use crate::error::{self, Error};
use crate::library_log::Mark;
use crate::mempool::Mempool;
use crate::promiscuity::Promiscuity;
use crate::steer::offload::OffloadedRules;
use crate::steer::{Prepared, STEER_RULES_MAX, SteerHits, SteerRule, Steering};
use crate::sys;
use crate::uri::PortUri;
use causes::{hint, likely_cause};
use checksums::CardChecksums;
use segmentation::{CardSegmentation, TX_OFFLOAD_MULTI_SEGS};
pub(crate) use sender::Sender;

/// A device and the resources that it needs.
#[derive(Debug)]
pub(crate) struct Device {
    id: u16,
    is_started: bool,
    device: *mut sys::rte_device,
    name: String,
    uri: PortUri,
    // Restored when the driver of the function has ended.
    _function: Option<ConfiguredFunction>,
    // Deleted after that, if it was created for the port.
    _created: Option<CreatedFunction>,
    /// Flow rules of a card with a DPDK driver, once it was started. Removed before its stop.
    offloaded: Mutex<OffloadedRules<PortDriver>>,
    /// Those whose frames the card drops.
    dropping: Mutex<OffloadedRules<PortDriver>>,
    /// Flow rules of the card of an interface. Removed before the program ends. Locked after it.
    flow_rules: Mutex<FlowRules>,
    /// The program of this port that decides on frames, once it had rules. Ended before the driver.
    steering: Mutex<Option<Steering>>,
    // Removed when the driver has detached the program.
    xdp_program: Option<RecordedProgram>,
    // Frames have no receiver by then.
    _tags: TagsInFrames,
    // Released before the buffers that the kernel uses for them.
    xdp_sockets: XdpSockets,
    // Pool of the buffers in the rings.
    _pool: Mempool,
    _promiscuity: Option<Promiscuity>,
    /// True if the port has enabled promiscuous mode of a device without a kernel interface.
    is_made_promiscuous: bool,
    /// True if the port has enabled the receipt of all multicast frames instead.
    is_made_allmulticast: bool,
    /// True if the driver accepts frames in several buffers.
    takes_chains: bool,
    /// TCP segmentation of the card, if the port uses it.
    segmentation: Option<CardSegmentation>,
    /// Checksums of the card that the port uses.
    checksums: CardChecksums,
    _checksum_card: Option<ChecksumCard>,
    /// Former mode of flow control (`enum rte_eth_fc_mode`), if the port has changed it.
    former_flow_control: Option<i32>,
    /// When it began to be opened, for errors.
    mark: Mark,
    /// Counters of frames that are too long, and that never reached the driver, one for each queue.
    rx: Vec<Arc<QueueCounters>>,
    tx: Vec<Arc<QueueCounters>>,
}

// SAFETY: the pointer is only used in `drop`, by the thread that drops the last reference; DPDK's
// control calls on distinct ports may come from any thread.
unsafe impl Send for Device {}
// SAFETY: shared uses are counters, link and address, which DPDK lets any thread read.
unsafe impl Sync for Device {}

impl Drop for Device {
    fn drop(&mut self) {
        let device = self.device_name();
        *self.flow_rules() = FlowRules::default();
        match self.is_removed() {
            true => self.forget_offloaded(),
            false => self.clear_offloaded(),
        }
        // From here on, the kernel gets all frames.
        drop(self.steering().take());
        self.restore_flow_control();
        self.disable_promiscuous_mode();
        // SAFETY: the port exists and no queue of it is left (each holds an Arc of it).
        unsafe {
            if self.is_started {
                if let Some(device) = &device {
                    sys::qw_end_watch(self.id, device.as_ptr());
                }
                let code = sys::rte_eth_dev_stop(self.id);
                if code != 0 {
                    tracing::warn!("port '{}': cannot stop: {}", self.name, error::text(code));
                }
            }
            let code = sys::rte_dev_remove(self.device);
            if code != 0 {
                tracing::warn!(
                    "port '{}': cannot remove its device: {}",
                    self.name,
                    error::text(code)
                );
            }
        }
    }
}

/// One receive queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    port: u16,
    queue: u16,
    /// Octets of the longest frame, without FCS.
    length_max: u32,
    /// True if frames may come from a kernel that leaves checksums to the device, and the driver does not show which.
    completes_checksums: bool,
    /// Whether the port uses what the driver of a card reports about checksums; none without a card.
    uses_reports: Option<bool>,
    counters: Arc<QueueCounters>,
    /// The driver's descriptor, while threads may wait for it.
    interrupt: Option<Watched>,
    /// True if the kernel signals each frame, so that a wait requires no preparation.
    is_signalled_by_kernel: bool,
}

impl Receiver {
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "those that are dropped are some of the received frames"
    )]
    #[inline(always)]
    pub(crate) fn receive(&mut self, burst: &mut Burst, most: usize) -> usize {
        let received = burst.fill_from(self.port, self.queue, most);
        let length_max = self.length_max;
        let (dropped, _) = burst.retain(|frame| frame.length() <= length_max);
        if dropped > 0 {
            self.counters.too_long.add(dropped as u64);
        }
        if self.completes_checksums {
            burst.change_each(|octets| {
                complete_partial_checksum(octets);
            });
        }
        let incomplete = match self.uses_reports {
            None => 0,
            Some(false) => {
                burst.forget_checksum_reports();
                0
            }
            Some(true) => burst.settle_checksum_reports(),
        };
        if incomplete > 0 {
            self.counters.malformed.add(incomplete as u64);
        }
        received - dropped - incomplete
    }

    /// Returns true if the kernel signals each frame.
    pub(crate) const fn is_signalled_by_kernel(&self) -> bool {
        self.is_signalled_by_kernel
    }

    /// Has the device interrupt for frames from now on.
    pub(crate) fn arm(&mut self) {
        if self.interrupt.is_none() || self.is_signalled_by_kernel {
            return;
        }
        // SAFETY: the port is started, and has the queue.
        let code = unsafe { sys::rte_eth_dev_rx_intr_enable(self.port, self.queue) };
        self.note(code);
    }

    pub(crate) fn disarm(&mut self) {
        if self.interrupt.is_none() || self.is_signalled_by_kernel {
            return;
        }
        // SAFETY: as above.
        let code = unsafe { sys::rte_eth_dev_rx_intr_disable(self.port, self.queue) };
        self.note(code);
    }

    /// Reports an error of arming or disarming an interrupt. It worked when the port was started: if it fails now, the thread polls after
    /// each short sleep.
    fn note(&self, code: i32) {
        if code != 0 {
            let (port, queue) = (self.port, self.queue);
            let cause = error::text(code);
            tracing::debug!("interrupts of queue {queue} of DPDK's port {port}: {cause}");
        }
    }
}

/// Frames that are dropped at once.
const BURST_OF_DROPS: u16 = 32;

/// rte_ethdev.h, RTE_ETH_RX_OFFLOAD_SCATTER: a macro that bindgen cannot read.
const RX_OFFLOAD_SCATTER: u64 = 1 << 13;

impl Device {
    /// Opens a device, configures it and its queues.
    pub(crate) fn open(
        eal: &Eal,
        uri: &PortUri,
        options: &PortOptions,
        pool: &Mempool,
    ) -> Result<Self, Error> {
        if let PortUri::AfXdp { interface, .. } = uri {
            if options.frame_size_max > XDP_FRAME_SIZE_MAX {
                return Err(too_long_for_xdp(options));
            }
            xdp_program::remove_left_on(interface);
            super::flow_rules::remove_left_on(interface);
        }
        function::restore_left_on(uri);
        let created = CreatedFunction::open(uri, options)?;
        let function = ConfiguredFunction::open(uri, options)?;
        let mut device = probe(eal, uri, options, pool, function.is_some())?;
        (device._function, device._created) = (function, created);
        let options = &device.options(options)?;
        device.rx = (0..options.rx_queues).map(|_| Arc::default()).collect();
        device.tx = (0..options.tx_queues).map(|_| Arc::default()).collect();
        if let PortUri::AfXdp { interface, .. } = uri {
            // Loaded before the driver takes all frames from the kernel, because the kernel's check of a program takes milliseconds.
            let prepared = if options.steer.is_empty() {
                None
            } else {
                Some(device.prepare_steering(&options.steer)?)
            };
            device._tags = TagsInFrames::of(interface);
            let former = xdp_program::program_of(interface);
            device.configure(options, pool)?;
            tags::warn_of_mtu(interface, options.frame_size_max);
            device.xdp_program = RecordedProgram::of(interface, former);
            if let Some(prepared) = prepared {
                let begun = device.begin_steering(prepared)?;
                *device.steering() = Some(begun);
            }
        } else {
            device.configure(options, pool)?;
        }
        device.steer(&options.steer)?;
        Ok(device)
    }

    fn steering(&self) -> MutexGuard<'_, Option<Steering>> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the rules about the frames that the port receives. The first rules replace the driver's program by one of this port. The
    /// card's rules come first, so that the program counts no frame of before as misplaced.
    pub(crate) fn steer(&self, rules: &[SteerRule]) -> Result<(), Error> {
        let mut steering = self.steering();
        self.check_rules(rules)?;
        if let PortUri::Pci { .. } = self.uri {
            return self
                .offload(rules)
                .map_err(|cause| self.steering_error(cause));
        }
        let mut flow_rules = self.flow_rules();
        let former = flow_rules
            .replace(&self.uri, rules)
            .map_err(|cause| self.steering_error(cause))?;
        let replaced = match &mut *steering {
            Some(steering) => {
                let replaced = steering.replace(rules);
                replaced.map_err(|error| self.steering_error(error.to_string()))
            }
            None if rules.is_empty() => Ok(()),
            None => self
                .prepare_steering(rules)
                .and_then(|prepared| self.begin_steering(prepared))
                .map(|begun| *steering = Some(begun)),
        };
        replaced.inspect_err(|_| flow_rules.restore(&former))
    }

    fn steering_error(&self, cause: String) -> Error {
        Error::Steering {
            port: self.name.clone(),
            uri: self.uri.to_string(),
            cause,
        }
    }

    fn check_rules(&self, rules: &[SteerRule]) -> Result<(), Error> {
        if rules.len() <= STEER_RULES_MAX {
            return Ok(());
        }
        Err(self.steering_error(format!(
            "{} rules given (maximum: {STEER_RULES_MAX})",
            rules.len()
        )))
    }

    /// Returns the first queue of the interface that the port uses.
    fn first_queue(&self) -> Result<u32, Error> {
        match &self.uri {
            PortUri::AfXdp { first_queue, .. } => Ok(u32::from(*first_queue)),
            _ => Err(self.steering_error("only af-xdp ports steer frames".to_owned())),
        }
    }

    /// Loads the program for the first rules. The sockets of the port need not be open yet.
    fn prepare_steering(&self, rules: &[SteerRule]) -> Result<Prepared, Error> {
        self.check_rules(rules)?;
        let queues = u32::try_from(self.rx.len()).unwrap_or(u32::MAX);
        let queues = self.first_queue()?.saturating_add(queues);
        Prepared::new(queues, rules).map_err(|error| self.steering_error(error.to_string()))
    }

    /// Replaces the driver's program.
    fn begin_steering(&self, prepared: Prepared) -> Result<Steering, Error> {
        let first_queue = self.first_queue()?;
        let program = self.xdp_program.as_ref().ok_or_else(|| {
            self.steering_error("the XDP program of the interface is that of another program, or could not be recorded (detach the other one with `ip link set IF xdp off`)".to_owned())
        })?;
        let sockets = self.xdp_sockets.files();
        let number = |queue: u16| first_queue.saturating_add(u32::from(queue));
        let sockets = sockets.map(|(queue, socket)| (number(queue), socket));
        let begun = prepared
            .set_sockets(sockets)
            .and_then(|()| program.hand_over(|interface, mode| prepared.attach(interface, mode)));
        begun.map_err(|error| self.steering_error(error.to_string()))
    }

    /// Returns the frames that rules have decided on; none before the first rule.
    pub(crate) fn steered(&self) -> Option<SteerHits> {
        match self.steering().as_ref()?.hits() {
            Ok(hits) => Some(hits),
            Err(error) => {
                tracing::warn!(
                    "port '{}': cannot read the counters of rules: {error}",
                    self.name
                );
                None
            }
        }
    }

    /// Drops the frames that came in before the rules were in force: the driver's own program gives the port all frames.
    fn drop_unsteered(&self, options: &PortOptions) {
        if self.steering().is_none() {
            return;
        }
        for queue in 0..options.rx_queues {
            // As many as a ring has, and no more: others come in meanwhile.
            for _ in 0..options.rx_ring_size.div_ceil(BURST_OF_DROPS) {
                let mut frames = [ptr::null_mut(); BURST_OF_DROPS as usize];
                // SAFETY: started; the queue exists, and no thread uses it yet; the array has space for as many frames. Those received
                // are this function's.
                let received = unsafe {
                    let received =
                        sys::qw_rx_burst(self.id, queue, frames.as_mut_ptr(), BURST_OF_DROPS);
                    sys::qw_free_bulk(frames.as_mut_ptr(), u32::from(received));
                    received
                };
                if received == 0 {
                    break;
                }
            }
        }
    }

    /// Starts it.
    pub(crate) fn start(&mut self, options: &PortOptions) -> Result<(), Error> {
        // SAFETY: configured and not started.
        let code = unsafe { sys::rte_eth_dev_start(self.id) };
        self.check(code, "starting the device")?;
        self.is_started = true;
        if let Some(device) = self.device_name() {
            // SAFETY: the port exists; the text is terminated.
            let code = unsafe { sys::qw_watch_removal(self.id, device.as_ptr()) };
            self.check(code, "watching for the removal of the device")?;
        }
        self.drop_unsteered(options);
        self.spread_flows(options.rx_queues)?;
        self.receive_all()?;
        self.set_flow_control()?;
        match self.uri {
            PortUri::Pci { .. } => self.steer(&options.steer),
            _ => Ok(()),
        }
    }

    /// Returns the receive queues for threads, with their interrupts from those given.
    pub(crate) fn receivers(
        &self,
        options: &PortOptions,
        interrupts: &[Interrupts],
    ) -> Result<Vec<Receiver>, Error> {
        let queues = 0..options.rx_queues;
        queues
            .map(|queue| {
                let interrupts = interrupts.get(usize::from(queue));
                let watched = interrupts.map(|one| self.watch(queue, one, options));
                Ok(self.receiver(queue, options, watched.transpose()?))
            })
            .collect()
    }

    /// Has the driver's descriptor of a queue signal its interrupts.
    fn watch(
        &self,
        queue: u16,
        interrupts: &Interrupts,
        options: &PortOptions,
    ) -> Result<Watched, Error> {
        let fail = |error: io::Error| Error::PortOpen {
            port: self.name.clone(),
            uri: self.uri.to_string(),
            step: "receive interrupts",
            cause: error.to_string(),
        };
        if self.uri.is_signalled_by_kernel() {
            let socket = self.xdp_sockets.duplicate(queue);
            return socket.and_then(|file| interrupts.watch(file)).map_err(fail);
        }
        // SAFETY: started; the queue exists.
        let (file, codes) = unsafe {
            let file = sys::rte_eth_dev_rx_intr_ctl_q_get_fd(self.id, queue);
            let enabled = sys::rte_eth_dev_rx_intr_enable(self.id, queue);
            let disabled = sys::rte_eth_dev_rx_intr_disable(self.id, queue);
            (file, [enabled, disabled])
        };
        if file < 0 || codes != [0, 0] {
            return Err(no_interrupts(&self.uri, options));
        }
        // SAFETY: the driver keeps its descriptor open while the port is started.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        file.try_clone_to_owned()
            .and_then(|file| interrupts.watch(file))
            .map_err(fail)
    }

    fn receiver(&self, queue: u16, options: &PortOptions, watched: Option<Watched>) -> Receiver {
        Receiver {
            completes_checksums: self.completes_checksums(),
            uses_reports: matches!(self.uri, PortUri::Pci { .. }).then_some(self.checksums.rx != 0),
            is_signalled_by_kernel: watched.is_some() && self.uri.is_signalled_by_kernel(),
            interrupt: watched,
            port: self.id,
            queue,
            length_max: length_max(options),
            counters: self
                .rx
                .get(usize::from(queue))
                .map_or_else(Arc::default, Arc::clone),
        }
    }

    /// Returns true for AF_XDP on an interface without a device of its own, such as a veth pair: its frames come from kernels, which may
    /// leave checksums to the device. AF_XDP has no field for that in Linux 6.1 and DPDK 22.11.
    fn completes_checksums(&self) -> bool {
        let PortUri::AfXdp { interface, .. } = &self.uri else {
            return false;
        };
        !net_device::path(interface, "device").exists()
    }

    /// Returns whether the kernel copies frames; none for other ports than AF_XDP.
    pub(crate) fn xdp_mode(&self) -> Option<XdpMode> {
        self.xdp_sockets.mode()
    }

    /// Returns the end of a transmit queue for a forwarding thread.
    pub(crate) fn sender(&self, queue: u16, options: &PortOptions) -> Sender {
        Sender {
            port: self.id,
            queue,
            takes_chains: self.takes_chains,
            segmentation: self.segmentation,
            checksums: self.checksums,
            pool: self._pool.clone(),
            length_max: length_max(options),
            counters: self
                .tx
                .get(usize::from(queue))
                .map_or_else(Arc::default, Arc::clone),
        }
    }

    /// Returns the counters of the driver.
    pub(crate) fn stats(&self) -> PortStats {
        // SAFETY: plain integers, for which zero is a value; the port exists.
        let stats = unsafe {
            let mut stats: sys::rte_eth_stats = mem::zeroed();
            sys::rte_eth_stats_get(self.id, &raw mut stats);
            stats
        };
        let own = counters::sum(
            self.rx.iter().map(Arc::as_ref),
            self.tx.iter().map(Arc::as_ref),
        );
        PortStats {
            rx_frames: stats.ipackets.saturating_sub(own.rx_errors),
            tx_frames: stats.opackets,
            rx_octets: stats.ibytes,
            tx_octets: stats.obytes,
            rx_missed: stats.imissed,
            rx_errors: stats.ierrors.saturating_add(own.rx_errors),
            tx_errors: stats.oerrors.saturating_add(own.tx_errors),
            rx_no_buffers: stats.rx_nombuf,
        }
    }

    /// Returns all counters of the driver that are not 0, with the driver's names (`rte_eth_xstats_get`).
    pub(crate) fn extended_stats(&self) -> Vec<(String, u64)> {
        let id = self.id;
        // SAFETY: without an array, the call returns the number of counters; the port exists.
        let count = unsafe { sys::rte_eth_xstats_get(id, ptr::null_mut(), 0) };
        let Ok(count) = u32::try_from(count) else {
            return Vec::new();
        };
        let mut values = vec![sys::rte_eth_xstat::default(); count as usize];
        let mut names = vec![sys::rte_eth_xstat_name { name: [0; 64] }; count as usize];
        // SAFETY: both arrays have space for `count`.
        let counts = unsafe {
            [
                sys::rte_eth_xstats_get(id, values.as_mut_ptr(), count),
                sys::rte_eth_xstats_get_names(id, names.as_mut_ptr(), count),
            ]
        };
        if counts.iter().any(|got| u32::try_from(*got) != Ok(count)) {
            return Vec::new();
        }
        let named = |value: &sys::rte_eth_xstat| {
            let name = names.get(usize::try_from(value.id).ok()?)?;
            let octets: Vec<u8> = name
                .name
                .iter()
                .map(|octet| octet.cast_unsigned())
                .take_while(|octet| *octet != 0)
                .collect();
            (value.value > 0).then(|| (String::from_utf8_lossy(&octets).into_owned(), value.value))
        };
        values.iter().filter_map(named).collect()
    }

    /// Returns the name of a PCI device, which DPDK reports if the device is removed.
    fn device_name(&self) -> Option<CString> {
        match &self.uri {
            PortUri::Pci { address, .. } => CString::new(address.as_str()).ok(),
            _ => None,
        }
    }

    /// Returns true once the device was removed, or its driver was requested to release it. It does not come back.
    pub(crate) fn is_removed(&self) -> bool {
        // Marks of other devices are those of former ports with this number.
        // SAFETY: a call without preconditions.
        matches!(self.uri, PortUri::Pci { .. }) && unsafe { sys::qw_is_removed(self.id) == 1 }
    }

    /// Enables promiscuous mode.
    fn receive_all(&mut self) -> Result<(), Error> {
        let Some(interface) = self.uri.interface() else {
            self.enable_promiscuous_mode();
            return Ok(());
        };
        let promiscuity = Promiscuity::of(interface).map_err(|error| Error::PortOpen {
            port: self.name.clone(),
            uri: self.uri.to_string(),
            step: "promiscuous mode",
            cause: error.to_string(),
        })?;
        self._promiscuity = Some(promiscuity);
        Ok(())
    }

    /// Returns the options for this device, which may have fewer transmit queues than threads.
    fn options(&self, options: &PortOptions) -> Result<PortOptions, Error> {
        let mut options = options.clone();
        if options.fewer_tx_queues {
            options.tx_queues = options.tx_queues.min(self.info()?.max_tx_queues);
        }
        Ok(options)
    }

    /// Returns the properties of the device.
    fn info(&self) -> Result<sys::rte_eth_dev_info, Error> {
        // SAFETY: plain integers and pointers, for which zero is a value, filled by DPDK; the port exists.
        let (code, info) = unsafe {
            let mut info: sys::rte_eth_dev_info = mem::zeroed();
            (sys::rte_eth_dev_info_get(self.id, &raw mut info), info)
        };
        self.check(code, "asking the driver for its limits")?;
        Ok(info)
    }

    /// Returns the number of transmit queues.
    pub(crate) fn tx_queues(&self) -> u16 {
        u16::try_from(self.tx.len()).unwrap_or(u16::MAX)
    }

    fn configure(&mut self, options: &PortOptions, pool: &Mempool) -> Result<(), Error> {
        let id = self.id;
        let info = self.info()?;
        check_queues(options, &info)?;
        // SAFETY: plain integers for which zero is a value, filled by DPDK or set below; the port
        // exists, the pool outlives it (Device holds it).
        unsafe {
            let mut conf: sys::rte_eth_conf = mem::zeroed();
            conf.rxmode.mtu = mtu(options.frame_size_max, &info);
            let (segmentation, checksums) = if options.uses_card_offloads {
                let segmentation = CardSegmentation::of(&self.uri, &info);
                (segmentation, CardChecksums::of(&self.uri, &info))
            } else {
                (None, CardChecksums::default())
            };
            conf.rxmode.offloads = info.rx_offload_capa & RX_OFFLOAD_SCATTER | checksums.rx;
            conf.txmode.offloads = info.tx_offload_capa & TX_OFFLOAD_MULTI_SEGS
                | segmentation.map_or(0, CardSegmentation::offloads)
                | checksums.tx;
            self.checksums = checksums;
            self._checksum_card = (checksums.tx != 0).then(ChecksumCard::open);
            if options.rx_interrupts && !self.uri.is_signalled_by_kernel() {
                sys::qw_interrupt_receivers(&raw mut conf);
            }
            if options.rx_queues > 1 {
                let is_symmetric = matches!(
                    self.uri,
                    PortUri::Pci {
                        symmetric_rss: true,
                        ..
                    }
                );
                let code =
                    sys::qw_hash_flows(&raw mut conf, &raw const info, i32::from(is_symmetric));
                self.check(
                    code,
                    "setting a symmetric hash key (the card does not support it; remove rss=symmetric)",
                )?;
            }
            let code = sys::rte_eth_dev_configure(
                id,
                options.rx_queues,
                options.tx_queues,
                &raw const conf,
            );
            self.check(code, "configuring the device")?;
            let (mut rx_size, mut tx_size) = (options.rx_ring_size, options.tx_ring_size);
            let code =
                sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &raw mut rx_size, &raw mut tx_size);
            self.check(code, "choosing the ring sizes")?;
            self.segmentation = segmentation.map(|card| card.in_ring(tx_size));
            let node = u32::try_from(sys::rte_eth_dev_socket_id(id)).unwrap_or(u32::MAX);
            for queue in 0..options.rx_queues {
                let setup = || {
                    sys::rte_eth_rx_queue_setup(
                        id,
                        queue,
                        rx_size,
                        node,
                        ptr::null(),
                        pool.as_ptr(),
                    )
                };
                let code = if matches!(self.uri, PortUri::AfXdp { .. }) {
                    self.xdp_sockets.add_opened_by(queue, setup)
                } else {
                    setup()
                };
                self.check(code, "setting up a receive queue")?;
            }
            for queue in 0..options.tx_queues {
                let code = sys::rte_eth_tx_queue_setup(id, queue, tx_size, node, ptr::null());
                self.check(code, "setting up a transmit queue")?;
            }
        }
        Ok(())
    }

    fn check(&self, code: i32, step: &'static str) -> Result<(), Error> {
        if code >= 0 {
            return Ok(());
        }
        Err(Error::PortOpen {
            port: self.name.clone(),
            uri: self.uri.to_string(),
            step,
            cause: error::text(code) + &likely_cause(&self.uri) + &self.mark.message(),
        })
    }
}

fn too_long_for_xdp(options: &PortOptions) -> Error {
    Error::PortOptions {
        port: options.name.clone(),
        what: format!(
            "frames of {} octets are too long for AF_XDP (set frame-size-max to at most {XDP_FRAME_SIZE_MAX}, or use af-packet)",
            options.frame_size_max
        ),
    }
}

fn check_queues(options: &PortOptions, info: &sys::rte_eth_dev_info) -> Result<(), Error> {
    if options.rx_queues <= info.max_rx_queues && options.tx_queues <= info.max_tx_queues {
        return Ok(());
    }
    Err(Error::PortOptions {
        port: options.name.clone(),
        what: format!(
            "{} receive and {} transmit queues requested, but the device has {} and {} (use fewer forwarding CPUs)",
            options.rx_queues, options.tx_queues, info.max_rx_queues, info.max_tx_queues
        ),
    })
}

/// Returns the MTU for a frame size, within the driver's limits. Drivers of shared-memory ports report the smallest
/// limits, but carry larger frames in several buffers.
fn mtu(frame_size: u16, info: &sys::rte_eth_dev_info) -> u32 {
    u32::from(frame_size.saturating_sub(ETHERNET_OVERHEAD))
        .min(
            info.max_rx_pktlen
                .saturating_sub(u32::from(ETHERNET_OVERHEAD)),
        )
        .min(u32::from(info.max_mtu))
        .max(u32::from(info.min_mtu))
}

/// Finds a device, or starts its driver. With `again`, a driver that runs already is started again, to read changed settings of its device.
fn probe(
    eal: &Eal,
    uri: &PortUri,
    options: &PortOptions,
    pool: &Mempool,
    again: bool,
) -> Result<Device, Error> {
    let arguments = uri.device_arguments(eal.next_device(), pairs(options));
    let fail = |step: &'static str, cause: String| Error::PortOpen {
        port: options.name.clone(),
        uri: uri.to_string(),
        step,
        cause,
    };
    let mark = Mark::now();
    let is_pci = matches!(uri, PortUri::Pci { .. });
    let name = arguments.split(',').next().unwrap_or(&arguments).to_owned();
    let (Ok(c_arguments), Ok(c_name)) = (CString::new(arguments), CString::new(name)) else {
        return Err(fail(
            "reading the URI",
            "it contains a NUL character".to_owned(),
        ));
    };
    // SAFETY: the EAL is started; strings are terminated; the structures are plain integers and
    // pointers for which zero is a value.
    unsafe {
        let mut id = 0;
        let find = |id: &mut u16| {
            sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), std::ptr::from_mut(id))
        };
        // The EAL probes PCI devices in its arguments (`-a`) at its start.
        let is_found = is_pci && find(&mut id) == 0;
        if is_found && again {
            let mut info: sys::rte_eth_dev_info = mem::zeroed();
            let mut code = sys::rte_eth_dev_info_get(id, &raw mut info);
            if code == 0 {
                code = sys::rte_dev_remove(info.device);
            }
            if code != 0 {
                let cause = error::text(code) + &mark.message();
                return Err(fail(
                    "starting the driver of the virtual function again",
                    cause,
                ));
            }
        }
        if !is_found && devices_max::is_full() {
            return Err(Error::PortOptions {
                port: options.name.clone(),
                what: devices_max::too_many_devices(),
            });
        }
        if !is_found || again {
            let code = sys::rte_dev_probe(c_arguments.as_ptr());
            if code != 0 {
                return Err(fail(
                    "probing the device",
                    error::text(code) + hint(uri) + &mark.message(),
                ));
            }
        }
        let code = find(&mut id);
        if code != 0 {
            return Err(fail(
                "finding the device",
                error::text(code) + hint(uri) + &mark.message(),
            ));
        }
        let mut info: sys::rte_eth_dev_info = mem::zeroed();
        let code = sys::rte_eth_dev_info_get(id, &raw mut info);
        if code != 0 {
            return Err(fail("asking the driver for its limits", error::text(code)));
        }
        Ok(opened(id, &info, uri, options, pool, mark))
    }
}

/// Returns a device that its driver has opened, and that is not configured yet.
fn opened(
    id: u16,
    info: &sys::rte_eth_dev_info,
    uri: &PortUri,
    options: &PortOptions,
    pool: &Mempool,
    mark: Mark,
) -> Device {
    Device {
        id,
        is_started: false,
        device: info.device,
        name: options.name.clone(),
        uri: uri.clone(),
        _function: None,
        _created: None,
        offloaded: Mutex::new(OffloadedRules::new(PortDriver::new(id))),
        dropping: Mutex::new(OffloadedRules::counted(PortDriver::new(id))),
        flow_rules: Mutex::default(),
        steering: Mutex::default(),
        xdp_program: None,
        _tags: TagsInFrames::default(),
        xdp_sockets: XdpSockets::default(),
        _pool: pool.clone(),
        _promiscuity: None,
        is_made_promiscuous: false,
        is_made_allmulticast: false,
        mark,
        takes_chains: info.tx_offload_capa & TX_OFFLOAD_MULTI_SEGS != 0,
        segmentation: None,
        checksums: CardChecksums::default(),
        _checksum_card: None,
        former_flow_control: None,
        rx: Vec::new(),
        tx: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
