// SPDX-License-Identifier: Apache-2.0
//! `switch trace`: traces frames through the steps of a running switch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use quietwire_switch::observe::{TraceEvent, TraceStarted, Traced, WatchRequest};
use serde_json::Value;

use super::watch::{FilterArgs, PAUSE, UntilArgs, WATCH_LEFT, request};
use crate::exit::{CheckFailed, stop_on_signals};
use crate::text::{print, say};

/// Time after the last event after which a trace is complete.
const SETTLED: Duration = Duration::from_millis(300);

/// Trace the next frames through every step of a running switch.
///
/// Each line is an event: the number of the frame, milliseconds since the first event, the step, and its action. The command
/// ends when all requested frames have left the switch.
#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    /// Number of frames, up to 10000.
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: u32,
    /// Print each event as a line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    until: UntilArgs,
    // Last, because its help heading applies to all options behind it.
    #[command(flatten)]
    filter: FilterArgs,
}

pub(super) fn trace(args: &TraceArgs) -> Result<()> {
    let stop = stop_on_signals(WATCH_LEFT)?;
    let socket = &args.until.control_socket;
    let started: TraceStarted = request(
        socket,
        WatchRequest::StartTrace {
            filter: (&args.filter).into(),
            count: args.count,
        },
    )?;
    say("tracing the next frames; Ctrl-C stops");
    let outcome = follow(args, started.id, &stop);
    let stopped = request::<Value>(socket, WatchRequest::StopTrace { id: started.id });
    let (chosen, missed) = outcome?;
    stopped?;
    if missed > 0 {
        say(format!(
            "{missed} events are missing because the buffer was full"
        ));
    }
    if chosen == 0 {
        return Err(CheckFailed("no frame matched the filter".to_owned()).into());
    }
    Ok(())
}

/// Prints events. Returns the number of traced frames and of missed events.
fn follow(args: &TraceArgs, id: u64, stop: &AtomicBool) -> Result<(u32, u64)> {
    let deadline = args.until.deadline();
    let mut first = None;
    let mut quiet_since = Instant::now();
    loop {
        let is_over =
            stop.load(Ordering::Relaxed) || deadline.is_some_and(|deadline| deadline.has_passed());
        let news: Traced = request(&args.until.control_socket, WatchRequest::ReadTrace { id })?;
        for event in &news.events {
            let first = *first.get_or_insert(event.time_ns);
            print(if args.json {
                serde_json::to_string(event)?
            } else {
                line(event, first)
            })?;
        }
        if !news.events.is_empty() {
            quiet_since = Instant::now();
        }
        let has_all = news.chosen == args.count && quiet_since.elapsed() > SETTLED;
        if has_all || (is_over && news.events.is_empty()) {
            return Ok((news.chosen, news.missed));
        }
        std::thread::sleep(PAUSE);
    }
}

fn line(event: &TraceEvent, first_ns: u64) -> String {
    let since_ms = event.time_ns.saturating_sub(first_ns) as f64 / 1e6;
    let frame = event
        .frame
        .as_ref()
        .map_or_else(String::new, |frame| format!("; {frame}"));
    format!(
        "{:>5} {since_ms:>11.4} {:<8} {}{frame}",
        event.packet, event.step, event.what
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_frame_the_time_and_the_step() {
        let event = TraceEvent {
            packet: 3,
            time_ns: 2_500_000,
            thread: "qw-fwd-1".to_owned(),
            step: "bridge".to_owned(),
            what: "lan from port a: to port b".to_owned(),
            frame: Some("60 octets".to_owned()),
        };
        assert_eq!(
            line(&event, 1_000_000),
            "    3      1.5000 bridge   lan from port a: to port b; 60 octets"
        );
    }
}
