// SPDX-License-Identifier: Apache-2.0
//! `switch capture`: captures frames of a running switch to a pcapng file (draft-ietf-opsawg-pcapng).

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{Args, ValueEnum};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, PcapError};
use quietwire_switch::observe::{
    CaptureStarted, Captured, CapturedFrame, Directions, WatchRequest,
};
use serde_json::Value;

use super::answers::OTHER_VERSION;
use super::watch::{FilterArgs, PAUSE, UntilArgs, WATCH_LEFT, request};
use crate::exit::stop_on_signals;
use crate::output::unwritable;
use crate::text::say;

/// Capture frames of a running switch to a pcapng file for Wireshark or tcpdump.
///
/// Transmitted frames are captured if the port accepted them, with the tags that they have on the wire. Frames that arrive
/// faster than they can be written are counted as missed; forwarding never waits.
#[derive(Debug, Args)]
pub(super) struct CaptureArgs {
    /// Output file, readable by its owner only; - for standard output.
    #[arg(long, value_name = "FILE")]
    write: PathBuf,
    /// Direction of the frames.
    #[arg(long, value_enum, default_value_t = DirectionArg::Both)]
    direction: DirectionArg,
    /// Stop after this number of frames.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Octets to keep of each frame.
    #[arg(long, value_name = "N", default_value_t = 16384)]
    snap_length: u32,
    #[command(flatten)]
    until: UntilArgs,
    // Last, because its help heading applies to all options behind it.
    #[command(flatten)]
    filter: FilterArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DirectionArg {
    /// Received frames.
    In,
    /// Transmitted frames.
    Out,
    /// Received and transmitted frames.
    Both,
}

type Output = BufWriter<Box<dyn Write>>;

/// The output file, and the ports that have an interface description in it.
struct File {
    writer: PcapNgWriter<Output>,
    snap_length: u32,
    ports: Vec<String>,
}

pub(super) fn capture(args: &CaptureArgs) -> Result<()> {
    let stop = stop_on_signals(WATCH_LEFT)?;
    let socket = &args.until.control_socket;
    let started: CaptureStarted = request(
        socket,
        WatchRequest::StartCapture {
            filter: (&args.filter).into(),
            directions: match args.direction {
                DirectionArg::In => Directions::In,
                DirectionArg::Out => Directions::Out,
                DirectionArg::Both => Directions::Both,
            },
            snap_length: args.snap_length,
        },
    )?;
    let outcome = copy(args, &started, &stop);
    // Stop the capture even if the file could not be written, so that the switch copies no more frames.
    let stopped = request::<Value>(socket, WatchRequest::StopCapture { id: started.id });
    let (frames, missed) = outcome?;
    stopped?;
    say(format!("{frames} frames captured, {missed} missed"));
    Ok(())
}

/// Writes frames until the count, the deadline or a signal. Returns the numbers of written and missed frames.
fn copy(args: &CaptureArgs, started: &CaptureStarted, stop: &AtomicBool) -> Result<(u64, u64)> {
    let output = open(args)?;
    let mut file = begin(output, started).with_context(|| args.write.display().to_string())?;
    let deadline = args.until.deadline();
    let wanted = args.count.unwrap_or(u64::MAX);
    let mut frames = 0_u64;
    loop {
        // Evaluated before the request, so that frames captured until the end are still read.
        let is_over =
            stop.load(Ordering::Relaxed) || deadline.is_some_and(|deadline| deadline.has_passed());
        let id = started.id;
        let news: Captured = request(&args.until.control_socket, WatchRequest::ReadCapture { id })?;
        let space = usize::try_from(wanted.saturating_sub(frames)).unwrap_or(usize::MAX);
        let taken = news.frames.get(..space).unwrap_or(&news.frames);
        frames = frames.saturating_add(taken.len() as u64);
        match write(&mut file, taken) {
            // The reader has closed the pipe, which ends the capture.
            Err(error) if is_broken_pipe(&error) => return Ok((frames, news.missed)),
            written => written.with_context(|| args.write.display().to_string())?,
        }
        if frames == wanted || (is_over && !news.more) {
            return Ok((frames, news.missed));
        }
        if !news.more {
            std::thread::sleep(PAUSE);
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error
        .chain()
        .any(|cause| match cause.downcast_ref::<PcapError>() {
            Some(PcapError::IoError(error)) => is_pipe(error),
            _ => cause.downcast_ref::<io::Error>().is_some_and(is_pipe),
        })
}

fn open(args: &CaptureArgs) -> Result<Box<dyn Write>> {
    if args.write.as_os_str() == "-" {
        return Ok(Box::new(io::stdout()));
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(&args.write);
    Ok(Box::new(file.map_err(|error| {
        unwritable("--write", &args.write, &error)
    })?))
}

/// Writes the start of the file: the descriptions of the program and of the ports.
fn begin(output: Box<dyn Write>, started: &CaptureStarted) -> Result<File> {
    let application = format!("quietwire {}", env!("CARGO_PKG_VERSION"));
    let section = SectionHeaderBlock {
        options: vec![SectionHeaderOption::UserApplication(Cow::Owned(
            application,
        ))],
        ..SectionHeaderBlock::default()
    };
    let mut file = File {
        writer: PcapNgWriter::with_section_header(BufWriter::new(output), section)?,
        snap_length: started.snap_length,
        ports: Vec::new(),
    };
    for port in &started.ports {
        file.interface(port)?;
    }
    file.writer.get_mut().flush()?;
    Ok(file)
}

fn write(file: &mut File, frames: &[CapturedFrame]) -> Result<()> {
    for frame in frames {
        file.frame(frame)?;
    }
    // Readers that follow the file see complete frames, and a kill loses none.
    file.writer.get_mut().flush()?;
    Ok(())
}

impl File {
    /// Returns the number of a port's interface. Writes a description first if the port is new.
    fn interface(&mut self, port: &str) -> Result<u32> {
        let known = self.ports.iter().position(|one| one == port);
        let number = match known {
            Some(number) => number,
            None => {
                self.writer.write_pcapng_block(InterfaceDescriptionBlock {
                    linktype: DataLink::ETHERNET,
                    snaplen: self.snap_length,
                    options: vec![
                        InterfaceDescriptionOption::IfName(Cow::Borrowed(port)),
                        // Time stamps in nanoseconds.
                        InterfaceDescriptionOption::IfTsResol(9),
                    ],
                })?;
                let number = self.ports.len();
                self.ports.push(port.to_owned());
                number
            }
        };
        Ok(u32::try_from(number)?)
    }

    fn frame(&mut self, frame: &CapturedFrame) -> Result<()> {
        let octets = BASE64.decode(&frame.octets).context(OTHER_VERSION)?;
        // Bits 0 and 1 of the flags: 1 is inbound, 2 is outbound.
        let flags = if frame.is_outward { 2 } else { 1 };
        let block = EnhancedPacketBlock {
            interface_id: self.interface(&frame.port)?,
            timestamp: Duration::from_nanos(frame.time_ns),
            original_len: frame.length,
            data: Cow::Owned(octets),
            options: vec![EnhancedPacketOption::Flags(flags)],
        };
        self.writer.write_pcapng_block(block)?;
        Ok(())
    }
}
