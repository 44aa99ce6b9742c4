// SPDX-License-Identifier: Apache-2.0
//! Ethernet ports and their queues.
//!
//! [`Port::open`] gives a configured port, [`Port::start`] turns it into a [`StartedPort`]: queues,
//! each owned by one thread at a time, and a [`PortHandle`] for counters. The port stops, and its
//! device and socket go, when the last of them is dropped.

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;
use std::{fs, mem, ptr};

use nix::sys::signal::{SigHandler, Signal, signal};

use crate::burst::Burst;
use crate::eal::Eal;
use crate::error::{self, Error};
use crate::gate::Gate;
use crate::interrupt;
use crate::mempool::Mempool;
use crate::promiscuity::Promiscuity;
use crate::uri::{DeviceSizes, PortUri, Role};
use crate::vhost::{self, Guest};
use crate::{place, sys, thread};

/// How a port is to be set up.
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// Name for people: in messages and tables.
    pub name: String,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Descriptors in each receive ring: a power of two, 32 to 16384.
    pub rx_ring_size: u16,
    /// Descriptors in each transmit ring: a power of two, 32 to 16384.
    pub tx_ring_size: u16,
    /// Largest frame with FCS, octets: 64 to 9216. Both sides of a shared-memory port need the same.
    pub frame_size_max: u16,
}

impl PortOptions {
    /// One queue each way, rings of 1024 descriptors.
    #[must_use]
    pub fn new(name: &str, frame_size_max: u16) -> Self {
        Self {
            name: name.to_owned(),
            rx_queues: 1,
            tx_queues: 1,
            rx_ring_size: 1024,
            tx_ring_size: 1024,
            frame_size_max,
        }
    }

    /// Octets that each buffer of the port's pool has to hold.
    #[must_use]
    pub fn data_room(&self) -> u16 {
        buffer_size(self)
    }
}

/// Counters of a port as its driver keeps them (`struct rte_eth_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Octets received.
    pub rx_octets: u64,
    /// Octets sent.
    pub tx_octets: u64,
    /// Frames lost since the receive ring was full.
    pub rx_missed: u64,
    /// Damaged frames received.
    pub rx_errors: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Frames lost for want of buffers.
    pub rx_no_buffers: u64,
}

/// Octets of an Ethernet header and FCS.
const ETHERNET_OVERHEAD: u16 = 18;

/// rte_ethdev.h, RTE_ETH_TX_OFFLOAD_MULTI_SEGS and RTE_ETH_RX_OFFLOAD_SCATTER: macros that bindgen cannot read.
const TX_OFFLOAD_MULTI_SEGS: u64 = 1 << 15;
const RX_OFFLOAD_SCATTER: u64 = 1 << 13;

#[derive(Debug)]
struct Device {
    id: u16,
    started: bool,
    device: *mut sys::rte_device,
    name: String,
    uri: PortUri,
    eal: Eal,
    // Buffers in the rings come from here.
    _pool: Mempool,
    promiscuity: Option<Promiscuity>,
}

// SAFETY: the pointer is only used in `drop`, by the thread that drops the last reference; DPDK's
// control calls on distinct ports may come from any thread.
unsafe impl Send for Device {}
// SAFETY: shared uses are counters, link and address, which DPDK lets any thread read.
unsafe impl Sync for Device {}

/// What is needed to stop and remove a port that has no queues left.
struct Removal {
    id: u16,
    started: bool,
    device: *mut sys::rte_device,
    name: String,
}

// SAFETY: the device is used by this value alone, wherever that is.
unsafe impl Send for Removal {}

impl Removal {
    fn run(self) {
        // SAFETY: the port exists and no queue of it is left (each holds an Arc of its Device).
        unsafe {
            if self.started {
                let code = sys::rte_eth_dev_stop(self.id);
                if code != 0 {
                    tracing::warn!("port '{}' did not stop: {}", self.name, error::text(code));
                }
            }
            let code = sys::rte_dev_remove(self.device);
            if code != 0 {
                tracing::warn!(
                    "port '{}' was not removed: {}",
                    self.name,
                    error::text(code)
                );
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let remove = Removal {
            id: self.id,
            started: self.started,
            device: self.device,
            name: self.name.clone(),
        };
        if matches!(self.uri, PortUri::Memif { .. }) {
            // The driver answers its peer in the interrupt thread and has no lock against being removed meanwhile:
            // there, one comes after the other.
            interrupt::run(move || remove.run());
        } else {
            remove.run();
        }
        if let Some(path) = self.uri.socket() {
            self.eal.forget_socket(path);
        }
    }
}

/// A port that is open and configured and not started.
#[derive(Debug)]
pub struct Port {
    device: Device,
    options: PortOptions,
}

/// A started port: its queues, to be given to threads, and its handle.
#[derive(Debug)]
pub struct StartedPort {
    /// Receive queues, in order.
    pub rx: Vec<RxQueue>,
    /// Transmit queues, in order.
    pub tx: Vec<TxQueue>,
    /// Counters, link and address.
    pub handle: PortHandle,
}

/// One receive queue; one thread has it at a time.
#[derive(Debug)]
pub struct RxQueue {
    port: u16,
    queue: u16,
    gate: Arc<Gate>,
    _device: Arc<Device>,
}

/// One transmit queue; one thread has it at a time.
#[derive(Debug)]
pub struct TxQueue {
    port: u16,
    queue: u16,
    gate: Arc<Gate>,
    _device: Arc<Device>,
}

/// What may be asked of a started port from any thread.
#[derive(Clone, Debug)]
pub struct PortHandle {
    device: Arc<Device>,
}

impl RxQueue {
    /// Receives at most `most` frames into an empty burst; returns how many.
    #[inline(always)]
    pub fn receive(&mut self, burst: &mut Burst, most: usize) -> usize {
        let _inside = self.gate.enter();
        burst.fill_from(self.port, self.queue, most)
    }
}

impl TxQueue {
    /// Hands the burst's frames to the ring; returns how many it took. The others stay in the burst.
    #[inline(always)]
    pub fn send(&mut self, burst: &mut Burst) -> usize {
        let _inside = self.gate.enter();
        burst.hand_to(self.port, self.queue)
    }

    /// True while the port's peer takes frames with TCP data of any length, over this version of IP; see
    /// [`crate::Mbuf::request_segments`].
    #[must_use]
    pub fn takes_uncut(&self, is_ipv4: bool) -> bool {
        vhost::takes_uncut(self.port, is_ipv4)
    }
}

impl PortHandle {
    /// Name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// Where the port is.
    #[must_use]
    pub fn uri(&self) -> &PortUri {
        &self.device.uri
    }

    /// Counters of the driver.
    #[must_use]
    pub fn stats(&self) -> PortStats {
        // SAFETY: plain integers, for which zero is a value; the port exists.
        let stats = unsafe {
            let mut stats: sys::rte_eth_stats = mem::zeroed();
            sys::rte_eth_stats_get(self.device.id, &raw mut stats);
            stats
        };
        PortStats {
            rx_frames: stats.ipackets,
            tx_frames: stats.opackets,
            rx_octets: stats.ibytes,
            tx_octets: stats.obytes,
            rx_missed: stats.imissed,
            rx_errors: stats.ierrors,
            tx_errors: stats.oerrors,
            rx_no_buffers: stats.rx_nombuf,
        }
    }

    /// All counters of the driver that are not 0, by its own names (`rte_eth_xstats_get`). None while a vhost-user port
    /// has no guest, which its driver counts by.
    #[must_use]
    pub fn extended_stats(&self) -> Vec<(String, u64)> {
        if matches!(self.device.uri, PortUri::Vhost { .. }) && !self.link_is_up() {
            return Vec::new();
        }
        let id = self.device.id;
        // SAFETY: without a place, the call says how many there are; the port exists.
        let count = unsafe { sys::rte_eth_xstats_get(id, ptr::null_mut(), 0) };
        let Ok(count) = u32::try_from(count) else {
            return Vec::new();
        };
        let mut values = vec![sys::rte_eth_xstat::default(); count as usize];
        let mut names = vec![sys::rte_eth_xstat_name { name: [0; 64] }; count as usize];
        // SAFETY: both places have room for `count`.
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

    /// Descriptors of the first receive and the first transmit queue, where the driver says it.
    #[must_use]
    pub fn ring_sizes(&self) -> (Option<u16>, Option<u16>) {
        // SAFETY: plain integers and pointers, for which zero is a value; the port exists and has these queues.
        unsafe {
            let mut rx: sys::rte_eth_rxq_info = mem::zeroed();
            let mut tx: sys::rte_eth_txq_info = mem::zeroed();
            (
                (sys::rte_eth_rx_queue_info_get(self.device.id, 0, &raw mut rx) == 0)
                    .then_some(rx.nb_desc),
                (sys::rte_eth_tx_queue_info_get(self.device.id, 0, &raw mut tx) == 0)
                    .then_some(tx.nb_desc),
            )
        }
    }

    /// The guest of a vhost-user port, while there is one.
    #[must_use]
    pub fn guest(&self) -> Option<Guest> {
        match self.device.uri {
            PortUri::Vhost { .. } => vhost::guest(self.device.id),
            _ => None,
        }
    }

    /// Speed of the cable, Mbit/s; none where there is no cable or it is not known.
    #[must_use]
    pub fn speed_mbps(&self) -> Option<u32> {
        if !matches!(self.device.uri, PortUri::Pci { .. }) {
            return None;
        }
        // SAFETY: plain integers; the port exists.
        let speed = unsafe {
            let mut link: sys::rte_eth_link = mem::zeroed();
            sys::rte_eth_link_get_nowait(self.device.id, &raw mut link);
            link.link_speed
        };
        (speed != 0 && speed != u32::MAX).then_some(speed)
    }

    /// True while a peer is connected or the cable carries.
    #[must_use]
    pub fn link_is_up(&self) -> bool {
        // Drivers of the kernel's interfaces don't look again after they were opened.
        if let Some(interface) = self.device.uri.interface() {
            let carrier = Path::new("/sys/class/net").join(interface).join("carrier");
            return fs::read_to_string(carrier).is_ok_and(|text| text.trim() == "1");
        }
        // SAFETY: plain integers; the port exists.
        unsafe {
            let mut link: sys::rte_eth_link = mem::zeroed();
            sys::rte_eth_link_get_nowait(self.device.id, &raw mut link) == 0
                && link.link_status() == 1
        }
    }

    /// Memory node that the device is nearest to; none for a virtual device and where the machine does not say.
    #[must_use]
    pub fn node(&self) -> Option<u32> {
        // SAFETY: the port exists. Without a node the answer is negative.
        let node = unsafe { sys::rte_eth_dev_socket_id(self.device.id) };
        match self.device.uri {
            PortUri::Pci { .. } => u32::try_from(node).ok(),
            _ => None,
        }
    }

    /// The port's own MAC address.
    #[must_use]
    pub fn mac_address(&self) -> [u8; 6] {
        // SAFETY: plain octets; the port exists.
        unsafe {
            let mut address: sys::rte_ether_addr = mem::zeroed();
            sys::rte_eth_macaddr_get(self.device.id, &raw mut address);
            address.addr_bytes
        }
    }
}

impl Port {
    /// Opens and configures a port.
    ///
    /// # Errors
    /// What is wrong with the URI's socket or interface, with the options, or what DPDK said.
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
                    "frames of up to {} octets need pool buffers of {} octets, and they have {}",
                    options.frame_size_max,
                    buffer_size(options),
                    pool.data_room()
                ),
            });
        }
        check_pairs(uri, options)?;
        place::check(eal, uri, &options.name)?;
        let device = probe(eal, uri, options, pool)?;
        let port = Self {
            device,
            options: options.clone(),
        };
        vhost::prepare(port.device.id, uri)?;
        port.configure(pool)?;
        Ok(port)
    }

    /// Starts the port.
    ///
    /// # Errors
    /// What DPDK said.
    pub fn start(mut self) -> Result<StartedPort, Error> {
        // SAFETY: configured and not started (this type).
        let code = unsafe { sys::rte_eth_dev_start(self.device.id) };
        self.check(code, "rte_eth_dev_start")?;
        self.device.started = true;
        if let Some(path) = self.device.uri.own_socket() {
            place::restrict(path);
        }
        if matches!(self.device.uri, PortUri::Tap { .. }) {
            let mtu = self
                .options
                .frame_size_max
                .saturating_sub(ETHERNET_OVERHEAD);
            // SAFETY: started.
            let code = unsafe { sys::rte_eth_dev_set_mtu(self.device.id, mtu) };
            self.check(code, "rte_eth_dev_set_mtu")?;
        }
        self.receive_all()?;
        let id = self.device.id;
        let device = Arc::new(self.device);
        let rx = (0..self.options.rx_queues)
            .map(|queue| RxQueue {
                port: id,
                queue,
                gate: Gate::new(),
                _device: Arc::clone(&device),
            })
            .collect();
        let tx = (0..self.options.tx_queues)
            .map(|queue| TxQueue {
                port: id,
                queue,
                gate: Gate::new(),
                _device: Arc::clone(&device),
            })
            .collect();
        Ok(StartedPort {
            rx,
            tx,
            handle: PortHandle { device },
        })
    }

    /// Frames for any address are wanted.
    fn receive_all(&mut self) -> Result<(), Error> {
        let Some(interface) = self.device.uri.interface() else {
            // SAFETY: started. Not every virtual device knows of promiscuous mode; those that don't receive all.
            unsafe { sys::rte_eth_promiscuous_enable(self.device.id) };
            return Ok(());
        };
        let promiscuity = Promiscuity::of(interface).map_err(|error| Error::PortOpen {
            port: self.options.name.clone(),
            uri: self.device.uri.to_string(),
            step: "promiscuous mode",
            cause: error.to_string(),
        })?;
        self.device.promiscuity = Some(promiscuity);
        Ok(())
    }

    fn configure(&self, pool: &Mempool) -> Result<(), Error> {
        let id = self.device.id;
        let options = &self.options;
        // SAFETY: plain integers for which zero is a value, filled by DPDK or set below; the port
        // exists, the pool outlives it (Device holds it).
        unsafe {
            let mut info: sys::rte_eth_dev_info = mem::zeroed();
            self.check(
                sys::rte_eth_dev_info_get(id, &raw mut info),
                "rte_eth_dev_info_get",
            )?;
            self.check_queues(&info)?;
            let mut conf: sys::rte_eth_conf = mem::zeroed();
            conf.rxmode.mtu = mtu(options.frame_size_max, &info);
            conf.rxmode.offloads = info.rx_offload_capa & RX_OFFLOAD_SCATTER;
            conf.txmode.offloads = info.tx_offload_capa & TX_OFFLOAD_MULTI_SEGS;
            let tx_queues = match self.device.uri {
                PortUri::Tap { .. } => options.rx_queues,
                _ => options.tx_queues,
            };
            let code =
                sys::rte_eth_dev_configure(id, options.rx_queues, tx_queues, &raw const conf);
            self.check(code, "rte_eth_dev_configure")?;
            let (mut rx_size, mut tx_size) = (options.rx_ring_size, options.tx_ring_size);
            let code =
                sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &raw mut rx_size, &raw mut tx_size);
            self.check(code, "rte_eth_dev_adjust_nb_rx_tx_desc")?;
            let node = u32::try_from(sys::rte_eth_dev_socket_id(id)).unwrap_or(u32::MAX);
            for queue in 0..options.rx_queues {
                let code = sys::rte_eth_rx_queue_setup(
                    id,
                    queue,
                    rx_size,
                    node,
                    ptr::null(),
                    pool.as_ptr(),
                );
                self.check(code, "rte_eth_rx_queue_setup")?;
            }
            for queue in 0..tx_queues {
                let code = sys::rte_eth_tx_queue_setup(id, queue, tx_size, node, ptr::null());
                self.check(code, "rte_eth_tx_queue_setup")?;
            }
        }
        Ok(())
    }

    fn check_queues(&self, info: &sys::rte_eth_dev_info) -> Result<(), Error> {
        let options = &self.options;
        if options.rx_queues <= info.max_rx_queues && options.tx_queues <= info.max_tx_queues {
            return Ok(());
        }
        Err(Error::PortOptions {
            port: options.name.clone(),
            what: format!(
                "{} receive and {} transmit queues were asked for, and the device has {} and {}; use fewer forwarding CPUs",
                options.rx_queues, options.tx_queues, info.max_rx_queues, info.max_tx_queues
            ),
        })
    }

    fn check(&self, code: i32, step: &'static str) -> Result<(), Error> {
        if code >= 0 {
            return Ok(());
        }
        Err(Error::PortOpen {
            port: self.options.name.clone(),
            uri: self.device.uri.to_string(),
            step,
            cause: error::text(code),
        })
    }
}

/// MTU for frames of a size, as far as the driver goes. Drivers of shared-memory ports name the smallest
/// limits and carry larger frames all the same, in several buffers.
fn mtu(frame_size: u16, info: &sys::rte_eth_dev_info) -> u32 {
    u32::from(frame_size.saturating_sub(ETHERNET_OVERHEAD))
        .min(
            info.max_rx_pktlen
                .saturating_sub(u32::from(ETHERNET_OVERHEAD)),
        )
        .min(u32::from(info.max_mtu))
        .max(u32::from(info.min_mtu))
}

/// Size of a shared-memory buffer that holds the largest frame whole. DPDK's memif driver leaves the 'more
/// follows' mark on a descriptor that once began a frame of several buffers, so a later small frame there
/// would be taken for the head of another: frames never may need several buffers.
fn buffer_size(options: &PortOptions) -> u16 {
    const LINE: u16 = 64;
    const BUFFER_SIZE_MIN: u16 = 2048;
    options
        .frame_size_max
        .next_multiple_of(LINE)
        .max(BUFFER_SIZE_MIN)
}

fn check_options(options: &PortOptions) -> Result<(), Error> {
    const RING: std::ops::RangeInclusive<u16> = 32..=16384;
    const FRAME: std::ops::RangeInclusive<u16> = 64..=9216;
    let wrong = |what: String| {
        Err(Error::PortOptions {
            port: options.name.clone(),
            what,
        })
    };
    for (which, size) in [
        ("receive", options.rx_ring_size),
        ("transmit", options.tx_ring_size),
    ] {
        if !size.is_power_of_two() || !RING.contains(&size) {
            return wrong(format!(
                "the {which} ring size {size} is not a power of two from 32 to 16384"
            ));
        }
    }
    if options.rx_queues == 0 || options.tx_queues == 0 {
        return wrong("a port needs a receive and a transmit queue at least".to_owned());
    }
    if !FRAME.contains(&options.frame_size_max) {
        return wrong(format!(
            "the largest frame of {} octets is not within 64 to 9216",
            options.frame_size_max
        ));
    }
    Ok(())
}

/// Queue pairs that a device is made with.
fn pairs(uri: &PortUri, options: &PortOptions) -> u16 {
    match uri {
        // Rings each way are counted by themselves.
        PortUri::Memif { .. } => 1,
        _ => options.rx_queues.max(options.tx_queues),
    }
}

/// A device that has its queues in pairs receives on all of them: none may be left unread, or its frames were lost.
fn check_pairs(uri: &PortUri, options: &PortOptions) -> Result<(), Error> {
    let (rx, tx) = (options.rx_queues, options.tx_queues);
    let wrong = |what: String| {
        Err(Error::PortOptions {
            port: options.name.clone(),
            what,
        })
    };
    if uri.queues() != 1 && uri.queues() != rx {
        return wrong(format!(
            "{uri} has {} queues, and {rx} of them would be read: frames of the others were lost",
            uri.queues()
        ));
    }
    let in_pairs = matches!(
        uri,
        PortUri::VirtioUser { .. }
            | PortUri::Vhost { .. }
            | PortUri::AfXdp { .. }
            | PortUri::AfPacket { .. }
            | PortUri::Tap { .. }
    );
    if in_pairs && tx > rx {
        return wrong(format!(
            "{tx} transmit and {rx} receive queues were asked for, and {uri} has them in pairs: ask for as many receive queues"
        ));
    }
    Ok(())
}

/// Has a SIGIO end nobody. The tap driver asks the kernel for a real-time signal when a frame comes; where too many of
/// them wait, the kernel sends SIGIO instead, which ends a process that has not said otherwise (fcntl(2), F_SETSIG).
fn ignore_sigio() {
    // SAFETY: no handler is installed, and the disposition of SIGIO is nobody else's in this process.
    if let Err(error) = unsafe { signal(Signal::SIGIO, SigHandler::SigIgn) } {
        tracing::warn!("SIGIO could not be ignored: {error}");
    }
}

/// What most likely went wrong where a driver's own word says nothing.
fn hint(uri: &PortUri) -> &'static str {
    match uri {
        // PEER_PATIENCE_MS of the shim.
        PortUri::VirtioUser {
            role: Role::Server, ..
        } => "; the other side has to connect within 30 seconds",
        PortUri::VirtioUser { .. } => "; the other side did not answer as a vhost-user back end",
        PortUri::Pci { .. } => {
            "; none of DPDK's drivers knows this card, or the program was started without PCI ports and so without the bus"
        }
        PortUri::Tap { .. } => "; is the interface in use by another process?",
        _ => "",
    }
}

fn probe(eal: &Eal, uri: &PortUri, options: &PortOptions, pool: &Mempool) -> Result<Device, Error> {
    let sizes = DeviceSizes {
        rx_ring_size: options.rx_ring_size,
        buffer_size: buffer_size(options),
        frame_size: options.frame_size_max,
        queues: pairs(uri, options),
    };
    let arguments = uri.device_arguments(eal.next_device(), sizes);
    let fail = |step: &'static str, cause: String| {
        if let Some(path) = uri.socket() {
            eal.forget_socket(path);
        }
        Error::PortOpen {
            port: options.name.clone(),
            uri: uri.to_string(),
            step,
            cause,
        }
    };
    let is_pci = matches!(uri, PortUri::Pci { .. });
    let name = arguments.split(',').next().unwrap_or(&arguments).to_owned();
    let (Ok(c_arguments), Ok(c_name)) = (CString::new(arguments), CString::new(name)) else {
        return Err(fail("reading the URI", "it holds a zero octet".to_owned()));
    };
    if matches!(uri, PortUri::Tap { .. }) {
        ignore_sigio();
        thread::take_realtime_signals()?;
    }
    // SAFETY: the EAL is started; strings are terminated; the structures are plain integers and
    // pointers for which zero is a value.
    unsafe {
        let mut id = 0;
        let mut find = || sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &raw mut id);
        // PCI devices that were named when the EAL started (`-a`) were probed then.
        if !is_pci || find() != 0 {
            let code = sys::rte_dev_probe(c_arguments.as_ptr());
            if code != 0 {
                return Err(fail("rte_dev_probe", error::text(code) + hint(uri)));
            }
        }
        let code = find();
        if code != 0 {
            return Err(fail(
                "rte_eth_dev_get_port_by_name",
                error::text(code) + hint(uri),
            ));
        }
        let mut info: sys::rte_eth_dev_info = mem::zeroed();
        let code = sys::rte_eth_dev_info_get(id, &raw mut info);
        if code != 0 {
            return Err(fail("rte_eth_dev_info_get", error::text(code)));
        }
        Ok(Device {
            id,
            started: false,
            device: info.device,
            name: options.name.clone(),
            uri: uri.clone(),
            eal: eal.clone(),
            _pool: pool.clone(),
            promiscuity: None,
        })
    }
}
