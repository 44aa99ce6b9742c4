// SPDX-License-Identifier: Apache-2.0
//! Ports on tap interfaces, which this process creates: the kernel is the peer (Linux, Documentation/networking/tuntap.rst).
//!
//! Each queue is an open file of `/dev/net/tun`. A frame is one system call, which never blocks: readv(2) into packet buffers, or writev(2)
//! from them. The header of virtio stands before each frame (IFF_VNET_HDR), so that both sides may leave checksums and segmentation to the
//! other: up to 64 KiB of TCP data, or of UDP datagrams, are one frame and one call.

mod control;
mod file;
mod pace;
mod statistics;
mod stock;
#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::errno::Errno;

use self::control::Control;
use self::file::TapFile;
use self::pace::Pace;
use self::stock::{NoFrame, Stock};
use crate::BURST_MAX;
use crate::burst::Burst;
use crate::cycles;
use crate::eal::Eal;
use crate::error::Error;
use crate::mempool::Mempool;
use crate::port::counters::{self, QueueCounters};
use crate::port::interrupts::{Interrupts, Watched};
use crate::port::offload::{Offload, RECEIVED_OCTETS_MAX, header_of};
use crate::port::options::{PortOptions, length_max, requested_mtu};
use crate::port::stats::PortStats;
use crate::port::transfer::{self, Outcome, Outgoing, Sink};
use crate::segment::{LargeKind, MERGED_MAX};
use crate::sys::TO_CUT;
use crate::uri::PortUri;
pub(crate) use file::TUN_DEVICE;
use quietwire_base::netns::{self, Failure};

/// Most pieces of a frame to send: the header, 64 KiB in buffers of 2 KiB, and some with less.
const PIECES_MAX: usize = 48;
const _: () = assert!(PIECES_MAX > MERGED_MAX as usize);

/// State of the port for any thread.
#[derive(Debug)]
pub(crate) struct Interface {
    control: Control,
    rx: Vec<Arc<QueueCounters>>,
    tx: Vec<Arc<QueueCounters>>,
    queue_length: u16,
}

impl Interface {
    /// Returns the counters of all queues.
    pub(crate) fn stats(&self) -> PortStats {
        let (rx, tx) = (self.rx.iter(), self.tx.iter());
        PortStats {
            rx_missed: self.control.missed(),
            ..counters::sum(rx.map(Arc::as_ref), tx.map(Arc::as_ref))
        }
    }

    /// Returns further counters of each queue that are not 0, by name.
    pub(crate) fn extended_stats(&self) -> Vec<(String, u64)> {
        let mut all = counters::extended("rx", self.rx.iter().map(Arc::as_ref));
        all.extend(counters::extended("tx", self.tx.iter().map(Arc::as_ref)));
        all
    }

    /// Returns true while the interface exists, is up and has a carrier, in whichever network namespace it is.
    pub(crate) fn link_is_up(&self) -> bool {
        self.control.link_is_up()
    }

    /// Returns the interface's MAC address; zeroes if it is gone.
    pub(crate) fn mac_address(&self) -> [u8; 6] {
        self.control.address()
    }

    /// Returns the frames that the kernel holds for each queue of the port. The other way, it holds none.
    pub(crate) fn ring_sizes(&self) -> (Option<u16>, Option<u16>) {
        (Some(self.queue_length), None)
    }
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    file: Arc<TapFile>,
    stock: Stock,
    pace: Pace,
    /// Octets of the longest frame without segmentation, without FCS.
    limit: u32,
    counters: Arc<QueueCounters>,
    /// The file, while threads may wait for it. The kernel signals each frame.
    _interrupt: Option<Watched>,
}

impl Receiver {
    /// Receives at most `most` frames into an empty burst, fewer if they are long: the call returns after [`RECEIVED_OCTETS_MAX`]
    /// octets. Returns the number of frames in the burst.
    ///
    /// Frames wait in the kernel while a pool has no buffers.
    #[inline(never)]
    pub(crate) fn receive(&mut self, burst: &mut Burst, most: usize) -> usize {
        if !burst.is_empty() {
            return burst.len();
        }
        if !self.pace.is_due() {
            return 0;
        }
        let Self {
            file,
            stock,
            pace,
            limit,
            counters,
            ..
        } = self;
        let mut octets = 0_u64;
        for _ in 0..most.min(BURST_MAX) {
            if !stock.refill() {
                counters.no_buffers.add(1);
                break;
            }
            let mut arrival = match stock.read(file) {
                Ok(arrival) => arrival,
                Err(NoFrame::Nothing(Errno::EINTR)) => break,
                Err(NoFrame::Nothing(_)) => {
                    pace.pause();
                    break;
                }
                Err(NoFrame::Malformed) => {
                    counters.malformed.add(1);
                    continue;
                }
                Err(NoFrame::TooLong) => {
                    counters.too_long.add(1);
                    continue;
                }
            };
            pace.end();
            let length = arrival.frame.length();
            let offload = Offload::of_kernel(arrival.header);
            if length > *limit && length > offload.length_max(*limit) {
                counters.too_long.add(1);
                continue;
            }
            if !offload.is_none() && !offload.complete(&mut arrival.frame, *limit) {
                counters.malformed.add(1);
                continue;
            }
            // The burst has space for `most`.
            if burst.push(arrival.frame).is_ok() {
                octets = octets.wrapping_add(u64::from(length));
            }
            if octets >= RECEIVED_OCTETS_MAX {
                break;
            }
        }
        if !burst.is_empty() {
            counters.frames.add(burst.len() as u64);
            counters.octets.add(octets);
        }
        burst.len()
    }

    /// Has the next receive read the queue, before the thread waits or after it has waited.
    pub(crate) fn read_at_once(&mut self) {
        self.pace.end();
    }
}

/// A transmit queue.
#[derive(Debug)]
pub(crate) struct Sender {
    file: Arc<TapFile>,
    /// Octets of the longest frame without segmentation, without FCS.
    limit: u32,
    /// True if the kernel accepts several UDP datagrams in one frame.
    has_uso: bool,
    counters: Arc<QueueCounters>,
}

impl Sender {
    /// Returns true if the kernel accepts frames of a kind with data of any length. It cuts them if it has to.
    pub(crate) const fn accepts_whole(&self, kind: LargeKind) -> bool {
        kind.is_tcp || self.has_uso
    }

    /// Sends the frames of a burst. Frames stay in the burst while the kernel has no memory for them. Others that it does not accept, because
    /// the interface is down or gone, are dropped and counted.
    #[inline(always)]
    pub(crate) fn send(&mut self, burst: &mut Burst) -> usize {
        let mut sink = Writer {
            file: &self.file,
            limit: self.limit,
        };
        transfer::send(&mut sink, burst, &self.counters)
    }
}

/// A queue for the time of one burst.
struct Writer<'queue> {
    file: &'queue TapFile,
    limit: u32,
}

impl Sink for Writer<'_> {
    fn ready(&mut self, _: usize) {}

    #[inline]
    fn put(&mut self, frame: &Outgoing<'_>) -> Outcome {
        if frame.length() > self.limit && frame.flags() & TO_CUT == 0 {
            return Outcome::Refused;
        }
        let header = header_of(frame).octets();
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let Some(pieces) = frame.gather(&header, &mut pieces) else {
            return Outcome::Refused;
        };
        match self.file.write(pieces) {
            Ok(_) => Outcome::Accepted,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM) => Outcome::Full,
            Err(_) => Outcome::Refused,
        }
    }

    fn publish(&mut self) {}

    fn notify(&mut self) -> u64 {
        0
    }

    fn take_malformed(&mut self) -> u64 {
        0
    }
}

/// Interface that a port requires.
struct Request<'uri> {
    interface: &'uri str,
    mac: Option<[u8; 6]>,
    is_kept: bool,
    mtu: u16,
    queue_length: u16,
    queues: u16,
}

/// An open interface.
struct OpenedTap {
    files: Vec<Arc<TapFile>>,
    control: Control,
    has_uso: bool,
}

/// Opens the interface in the network namespace of the thread: creates it, or uses a tap that exists.
fn make(request: &Request<'_>) -> Result<OpenedTap, Failure> {
    let name = request.interface;
    let has_queues = request.queues > 1;
    let (first, has_queues) = match TapFile::attach(name, has_queues) {
        // A tap that exists may have several queues though the port has one.
        Err((_, Errno::EINVAL)) if !has_queues => (TapFile::attach(name, true)?, true),
        other => (other?, has_queues),
    };
    first.set_header()?;
    let has_uso = first.accept_offloads()?;
    if request.is_kept {
        first.keep()?;
    }
    if let Some(address) = request.mac {
        first.set_address(address)?;
    }
    let mut files = vec![Arc::new(first)];
    for _ in 1..request.queues {
        files.push(Arc::new(TapFile::attach(name, has_queues)?));
    }
    let first = files.first().ok_or(("queues", Errno::EINVAL))?;
    let control = Control::new(first)?;
    control.set_mtu(request.mtu)?;
    control.set_queue_length(request.queue_length)?;
    control.set_up()?;
    Ok(OpenedTap {
        files,
        control,
        has_uso,
    })
}

/// Opens a port on an interface, in another network namespace if the URI has one.
///
/// # Errors
/// The kernel's error: the namespace does not exist, the interface exists and is no tap, or another process uses it, or the process lacks
/// the privilege. [`Error::PortOptions`] if the MTU is larger than the largest frame allows. [`Error::Mempool`] if there is too little
/// memory for large frames.
pub(crate) fn open(
    eal: &Eal,
    uri: &PortUri,
    options: &PortOptions,
    pool: &Mempool,
    interrupts: &[Interrupts],
) -> Result<(Interface, Vec<Receiver>, Vec<Sender>), Error> {
    let fail = |step: &'static str, cause: String| Error::PortOpen {
        port: options.name.clone(),
        uri: uri.to_string(),
        step,
        cause,
    };
    let PortUri::Tap {
        interface,
        mtu,
        mac,
        netns,
        persist,
        ..
    } = uri
    else {
        return Err(fail(
            "reading the URI",
            "it is not the URI of a tap".to_owned(),
        ));
    };
    let mtu = requested_mtu(*mtu, options)?;
    let opened = netns.as_deref().map(netns::open).transpose();
    let opened = opened.map_err(|cause| fail("the network namespace", cause))?;
    let large_pool = stock::large_pool(eal, options.rx_queues)?;
    let request = Request {
        interface,
        mac: mac.map(|mac| mac.0),
        is_kept: *persist,
        mtu,
        queue_length: options.rx_ring_size,
        queues: options.rx_queues.max(options.tx_queues),
    };
    let made = netns::within(opened.as_ref(), || make(&request))
        .map_err(|(step, error)| fail(step, format!("{}{}", error.desc(), hint(step, error))))?;
    let OpenedTap {
        files,
        control,
        has_uso,
    } = made;
    let limit = length_max(options);
    let mut receivers = Vec::new();
    for (number, file) in files.iter().take(options.rx_queues.into()).enumerate() {
        let interrupt = interrupts.get(number).map(|interrupts| {
            let file = file.as_fd().try_clone_to_owned()?;
            interrupts.watch(file)
        });
        receivers.push(Receiver {
            file: Arc::clone(file),
            stock: Stock::new(pool, &large_pool),
            pace: Pace::new(cycles::hz()),
            limit,
            counters: Arc::default(),
            _interrupt: interrupt
                .transpose()
                .map_err(|error| fail("receive interrupts", error.to_string()))?,
        });
    }
    let senders: Vec<Sender> = files
        .iter()
        .take(options.tx_queues.into())
        .map(|file| Sender {
            file: Arc::clone(file),
            limit,
            has_uso,
            counters: Arc::default(),
        })
        .collect();
    let interface = Interface {
        control,
        rx: receivers
            .iter()
            .map(|end| Arc::clone(&end.counters))
            .collect(),
        tx: senders
            .iter()
            .map(|end| Arc::clone(&end.counters))
            .collect(),
        queue_length: options.rx_ring_size,
    };
    Ok((interface, receivers, senders))
}

/// Returns the most likely cause and the remedy of an error, if it is not specific.
fn hint(step: &str, error: Errno) -> &'static str {
    match (step, error) {
        ("TUNSETIFF", Errno::EBUSY) => {
            " (another process uses the interface: stop it, or use another name)"
        }
        ("TUNSETIFF", Errno::EINVAL) => {
            " (an interface of this name exists, and is not a tap or has fewer queues: use another name)"
        }
        ("TUNSETIFF", Errno::E2BIG) => " (the interface has no queue left: use fewer queues)",
        ("setns", Errno::EINVAL) => " (the file is not a network namespace)",
        (_, Errno::EPERM | Errno::EACCES) => " (run as root)",
        _ => "",
    }
}
