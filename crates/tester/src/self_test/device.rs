// SPDX-License-Identifier: Apache-2.0
//! The self-test's device: a separate process that forwards frames between two ports and misbehaves by a script.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::Builder;

use quietwire_dpdk::Registered;
use quietwire_dpdk::thread::pin;
use quietwire_dpdk::{
    Burst, Eal, EalOptions, HugePages, Mempool, Port, PortOptions, PortUri, StartedPort, cycles,
    file_prefix,
};
use serde::{Deserialize, Serialize};

use super::link::{Reply, Request};
use super::processor::FrameProcessor;
use crate::clock::{begin_clock, ticks_per_second};
use crate::error::TesterError;

/// Options of the device process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DeviceOptions {
    /// URIs of its two ports.
    pub ports: [String; 2],
    /// CPU of the device.
    pub cpu: u32,
    /// Descriptors in each ring of each port: a power of two.
    pub ring_size: u16,
    /// Largest frame with FCS, octets.
    pub frame_size_max: u16,
    /// Memory for frames, MiB.
    pub memory_mib: u32,
    /// Whether huge pages are used if enough are free.
    pub uses_huge_pages: bool,
}

/// Largest number of frames in a receive burst.
const RX_BURST: usize = 32;
/// Turns between two checks for requests while frames are received.
const TURNS: u64 = 1024;
/// Turns without frames before the device yields its CPU.
const IDLE_TURNS: u64 = 64;
/// Largest number of turns after the end of a trial, enough to empty the largest ring.
const FINAL_TURNS: usize = 1024;
/// Smallest and largest number of buffers.
const BUFFERS: std::ops::RangeInclusive<u64> = 8_192..=65_000;
/// Octets of a buffer in addition to its data: headroom and header.
const BUFFER_OVERHEAD: u64 = 320;

fn failed(text: impl ToString) -> TesterError {
    TesterError::SelfTestDevice(text.to_string())
}

/// Forwards frames until `input` ends. Each line of `input` is a request, each line of `output` a reply.
///
/// # Errors
/// [`TesterError`] if a port cannot be opened, the CPU is not available, or a request is malformed.
pub fn serve_device(
    options: &DeviceOptions,
    input: impl Read + Send + 'static,
    mut output: impl Write,
) -> Result<(), TesterError> {
    pin(&[options.cpu])?;
    begin_clock();
    let eal = Eal::start(&EalOptions {
        control_cpus: vec![options.cpu],
        memory_mib: options.memory_mib,
        huge_pages: if options.uses_huge_pages {
            HugePages::Auto
        } else {
            HugePages::Never
        },
        pci_devices: Vec::new(),
        file_prefix: file_prefix("self-test"),
    })?;
    // The measurement of the clock must not delay the first trial.
    ticks_per_second();
    let port_options = |name: &str| PortOptions {
        rx_ring_size: options.ring_size,
        tx_ring_size: options.ring_size,
        ..PortOptions::new(name, options.frame_size_max)
    };
    let data_room = port_options("").data_room();
    let pool = Mempool::new(&eal, "device", buffers(options, data_room), data_room)?;
    let _registered = Registered::new(&eal)?;
    let open = |name: &str, uri: &str| -> Result<StartedPort, TesterError> {
        let uri: PortUri = uri.parse().map_err(failed)?;
        Ok(Port::open(&eal, &uri, &port_options(name), &pool)?.start()?)
    };
    let [left, right] = &options.ports;
    let mut ports = [open("left", left)?, open("right", right)?];
    let requests = listen(input)?;
    reply(&mut output, &Reply::Ready)?;

    let mut processor = FrameProcessor::new(&eal, &pool);
    let mut received = Burst::new(&eal);
    let (mut turns, mut idle) = (0u64, 0u64);
    loop {
        turns = turns.wrapping_add(1);
        processor.note_turn();
        let is_busy = turn(&mut ports, &mut received, &mut processor);
        idle = if is_busy { 0 } else { idle.saturating_add(1) };
        if is_busy && !turns.is_multiple_of(TURNS) {
            continue;
        }
        match requests.try_recv() {
            Ok(Ok(request)) => {
                let ports = (&mut ports, &mut received);
                carry_out(request, &mut processor, ports, &mut output)?;
            }
            Ok(Err(text)) => return Err(failed(text)),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        if idle > IDLE_TURNS {
            processor.release_idle();
            std::thread::yield_now();
        }
    }
}

/// Carries out a request, and replies.
fn carry_out(
    request: Request,
    processor: &mut FrameProcessor<'_>,
    (ports, received): (&mut [StartedPort; 2], &mut Burst),
    output: &mut impl Write,
) -> Result<(), TesterError> {
    match request {
        Request::Begin(orders) => {
            processor.begin(&orders);
            reply(output, &Reply::Ready)
        }
        Request::BeginConnections(script) => {
            processor.begin_connections(script);
            reply(output, &Reply::Ready)
        }
        Request::FinishConnections => {
            let ledger = processor.finish_connections();
            reply(output, &Reply::Connections(Box::new(ledger)))
        }
        Request::Finish => {
            // The frames left in the rings were offered as well.
            for _ in 0..FINAL_TURNS {
                if !turn(ports, received, processor) {
                    break;
                }
            }
            let ledger = Reply::Ledger(Box::new(processor.finish()));
            reply(output, &ledger)
        }
    }
}

/// Receives and sends once on each port. Returns true if frames were received.
#[inline(always)]
fn turn(
    ports: &mut [StartedPort; 2],
    received: &mut Burst,
    processor: &mut FrameProcessor<'_>,
) -> bool {
    let mut is_busy = false;
    for (side, port) in ports.iter_mut().enumerate() {
        if let Some(rx) = port.rx.first_mut()
            && rx.receive(received, RX_BURST) > 0
        {
            is_busy = true;
            let now = cycles::now();
            for frame in received.drain() {
                processor.take(side, frame, now);
            }
        }
    }
    for (side, port) in ports.iter_mut().enumerate() {
        if let Some(tx) = port.tx.first_mut() {
            processor.send(side, tx);
        }
    }
    is_busy
}

/// Returns the number of buffers that fit three quarters of the memory, within [`BUFFERS`].
fn buffers(options: &DeviceOptions, data_room: u16) -> u32 {
    let octets = ((u64::from(options.memory_mib) << 20) / 4).saturating_mul(3);
    let buffer = u64::from(data_room).saturating_add(BUFFER_OVERHEAD);
    let count = octets.checked_div(buffer).unwrap_or(0);
    let count = count.clamp(*BUFFERS.start(), *BUFFERS.end());
    u32::try_from(count).unwrap_or(u32::MAX)
}

type Requests = Receiver<Result<Request, String>>;

/// Starts a thread that reads requests.
fn listen(input: impl Read + Send + 'static) -> Result<Requests, TesterError> {
    let (sender, requests) = channel();
    let read = move || {
        for line in BufReader::new(input).lines() {
            let request = line
                .map_err(|error| error.to_string())
                .and_then(|line| serde_json::from_str(&line).map_err(|error| error.to_string()));
            if sender.send(request).is_err() {
                return;
            }
        }
    };
    Builder::new()
        .name("qw-requests".to_owned())
        .spawn(read)
        .map_err(failed)?;
    Ok(requests)
}

fn reply(output: &mut impl Write, reply: &Reply) -> Result<(), TesterError> {
    let text = serde_json::to_string(reply).map_err(failed)?;
    writeln!(output, "{text}")
        .and_then(|()| output.flush())
        .map_err(failed)
}
