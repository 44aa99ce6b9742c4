// SPDX-License-Identifier: Apache-2.0
//! `switch show stats`: all counters since the start, or those of an interval with rates.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use quietwire_base::Deadline;
use quietwire_switch::control::{Request, Subject, ask};
use quietwire_switch::report::{BridgeCounts, PortCounts, RouterCounts, StatsReport, ThreadCounts};
use serde::Serialize;

use super::table::table;
use crate::exit::stop_on_signals;
use crate::text::print;

/// Longest delay of the reaction to a signal.
const SIGNAL_PAUSE: Duration = Duration::from_millis(50);

/// Kind of object that a counter belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
enum Owner {
    Thread,
    Port,
    Bridge,
    Router,
}

impl Owner {
    const ALL: [Self; 4] = [Self::Thread, Self::Port, Self::Bridge, Self::Router];

    fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Port => "port",
            Self::Bridge => "bridge",
            Self::Router => "router",
        }
    }
}

/// Key of a counter: kind of its owner, name of its owner, name of the counter.
type Key = (Owner, String, String);

/// One counter.
#[derive(Clone, Debug)]
struct Counter {
    key: Key,
    count: u64,
    /// True for a level (gauge), which has no rate.
    is_level: bool,
    /// True if the counter is listed even at 0.
    is_always: bool,
}

fn sum(owner: Owner, of: &str, counter: impl Into<String>, count: u64) -> Counter {
    Counter {
        key: (owner, of.to_owned(), counter.into()),
        count,
        is_level: false,
        is_always: true,
    }
}

fn if_any(owner: Owner, of: &str, counter: impl Into<String>, count: u64) -> Counter {
    Counter {
        is_always: false,
        ..sum(owner, of, counter, count)
    }
}

fn level(owner: Owner, of: &str, counter: impl Into<String>, count: u64) -> Counter {
    Counter {
        is_level: true,
        ..sum(owner, of, counter, count)
    }
}

fn of_thread(thread: &ThreadCounts) -> impl Iterator<Item = Counter> {
    let name = format!("qw-fwd-{}", thread.cpu);
    [
        ("polls", thread.polls),
        ("empty polls", thread.empty_polls),
        ("bursts", thread.bursts),
        ("yields", thread.yields),
        ("rx frames", thread.rx_frames),
        ("tx frames", thread.tx_frames),
    ]
    .into_iter()
    .map(move |(counter, count)| sum(Owner::Thread, &name, counter, count))
}

/// Returns the traffic counters, and the drop counters above 0.
fn of_port(port: &PortCounts) -> impl Iterator<Item = Counter> {
    let traffic = [
        ("rx frames", port.rx_frames),
        ("rx octets", port.rx_octets),
        ("tx frames", port.tx_frames),
        ("tx octets", port.tx_octets),
    ]
    .map(|(counter, count)| sum(Owner::Port, &port.name, counter, count));
    let others = [
        ("sent for the peer to segment (TSO)", port.tx_tso_frames),
        ("segmented before sending", port.segmented),
        ("merged before sending", port.merged),
        ("rx forwarded by the kernel", port.kernel_forwarded),
    ]
    .map(|(counter, count)| if_any(Owner::Port, &port.name, counter, count));
    let drops = port.drops.iter().map(|(reason, count)| {
        let counter = format!("dropped: {}", reason.text());
        if_any(Owner::Port, &port.name, counter, count)
    });
    let effects = port.effects.iter().map(|(effect, count)| {
        let counter = format!("rules: {}", effect.text());
        if_any(Owner::Port, &port.name, counter, count)
    });
    traffic
        .into_iter()
        .chain(others)
        .chain(drops)
        .chain(effects)
}

fn of_bridge(bridge: &BridgeCounts) -> impl Iterator<Item = Counter> {
    let levels = [
        ("addresses known", u64::from(bridge.entries)),
        ("maximum", u64::from(bridge.max_entries)),
    ]
    .map(|(counter, count)| level(Owner::Bridge, &bridge.name, counter, count));
    let sums = [
        ("frames flooded", bridge.flooded),
        ("addresses learned", bridge.learned),
        ("addresses moved", bridge.moved),
        ("moves of flapping addresses", bridge.flapped),
        ("addresses not learned", bridge.not_learned),
        ("addresses static elsewhere", bridge.static_elsewhere),
        ("addresses aged", bridge.aged),
    ]
    .map(|(counter, count)| sum(Owner::Bridge, &bridge.name, counter, count));
    levels.into_iter().chain(sums)
}

/// Returns the router's counters, with all reasons for other actions than forwarding that are above 0.
fn of_router(counts: &RouterCounts) -> Vec<Counter> {
    if *counts == RouterCounts::default() {
        return Vec::new();
    }
    let by_reason = |what: &str, reasons: &BTreeMap<String, u64>| -> Vec<Counter> {
        let counter = |(reason, count): (&String, &u64)| {
            if_any(Owner::Router, "", format!("{what}: {reason}"), *count)
        };
        reasons.iter().map(counter).collect()
    };
    let others = [
        ("packets fragmented", counts.fragmented),
        ("TCP data segmented", counts.segmented),
        ("not sent", counts.not_sent),
        ("service thread full", counts.service_full),
        ("echo requests answered", counts.echoed),
        ("errors sent", counts.errors),
        ("for the router, not taken", counts.unknown_protocol),
        ("to the kernel", counts.to_kernel),
        ("not taken by the kernel", counts.kernel_refused),
        ("neighbour requests", counts.neighbour_requests),
        (
            "neighbour requests limited",
            counts.neighbour_requests_limited,
        ),
        ("neighbours evicted", counts.neighbours_evicted),
        ("neighbour table full", counts.neighbour_table_full),
        ("waiting packets dropped", counts.neighbour_queue_drops),
        ("address conflicts", counts.address_conflicts),
    ]
    .map(|(counter, count)| if_any(Owner::Router, "", counter, count));
    let mut all = vec![sum(
        Owner::Router,
        "",
        "packets forwarded",
        counts.forwarded,
    )];
    all.extend(by_reason("dropped", &counts.dropped));
    all.extend(by_reason("to the service thread", &counts.punted));
    all.extend(others);
    all
}

fn counters(stats: &StatsReport) -> Vec<Counter> {
    let threads = stats.threads.iter().flat_map(of_thread);
    let ports = stats.ports.iter().flat_map(of_port);
    let bridges = stats.bridges.iter().flat_map(of_bridge);
    threads
        .chain(ports)
        .chain(bridges)
        .chain(of_router(&stats.router))
        .collect()
}

/// One counter of an interval, as JSON.
#[derive(Debug, Serialize)]
struct Change {
    owner: Owner,
    name: String,
    counter: String,
    /// Increase in the interval, or the level at its end.
    count: u64,
    /// Absent for levels.
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
}

/// Counters of an interval.
#[derive(Debug, Serialize)]
struct Interval {
    seconds: f64,
    counters: Vec<Change>,
}

/// Returns the counters of `now` minus those of `before`. A counter that is missing in `before` started later, at 0.
fn interval(now: &StatsReport, before: &StatsReport) -> Interval {
    let seconds = now.uptime_s - before.uptime_s;
    let former = counters(before).into_iter();
    let former: HashMap<Key, u64> = former.map(|one| (one.key, one.count)).collect();
    let changes = counters(now).into_iter().filter_map(|counter| {
        let before = former.get(&counter.key).copied().unwrap_or_default();
        let count = match counter.is_level {
            true => counter.count,
            // Counters of a port restart at 0 if it is removed and added again.
            false if counter.count < before => counter.count,
            false => counter.count.saturating_sub(before),
        };
        let (owner, name, text) = counter.key;
        (counter.is_always || count > 0).then(|| Change {
            owner,
            name,
            counter: text,
            count,
            per_second: (!counter.is_level && seconds > 0.0).then(|| count as f64 / seconds),
        })
    });
    Interval {
        seconds,
        counters: changes.collect(),
    }
}

fn in_owners(rows: &[(Owner, Vec<String>)], columns: &[&'static str]) -> String {
    let tables = Owner::ALL.into_iter().filter_map(|owner| {
        let name = owner.name();
        let header: Vec<&str> = [name, "counter"].iter().chain(columns).copied().collect();
        let mut table = table(header, 2);
        for (_, row) in rows.iter().filter(|(of, _)| *of == owner) {
            table.add_row(row);
        }
        (!table.is_empty()).then(|| table.to_string())
    });
    tables.collect::<Vec<_>>().join("\n\n")
}

/// Formats the counters since the start.
pub(super) fn render(stats: &StatsReport) -> String {
    let listed = counters(stats).into_iter();
    let rows: Vec<(Owner, Vec<String>)> = listed
        .filter(|one| one.is_always || one.count > 0)
        .map(|Counter { key, count, .. }| (key.0, vec![key.1, key.2, count.to_string()]))
        .collect();
    let tables = in_owners(&rows, &["count"]);
    format!("up for {:.1} s\n\n{tables}", stats.uptime_s)
}

fn render_interval(interval: &Interval) -> String {
    let per_second =
        |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
    let row = |one: &Change| {
        let (count, rate) = (one.count.to_string(), per_second(one.per_second));
        (
            one.owner,
            vec![one.name.clone(), one.counter.clone(), count, rate],
        )
    };
    let rows: Vec<(Owner, Vec<String>)> = interval.counters.iter().map(row).collect();
    let tables = in_owners(&rows, &["count", "per second"]);
    format!("in {:.2} s\n\n{tables}", interval.seconds)
}

fn ask_stats(socket: &Path) -> Result<StatsReport> {
    Ok(ask(socket, &Request::Show(Subject::Stats))?)
}

/// Prints the counters of an interval of `length`, once or repeatedly until a signal.
pub(super) fn watch(socket: &Path, length: Duration, is_endless: bool, json: bool) -> Result<()> {
    let stop = stop_on_signals("")?;
    let is_over = || stop.load(Ordering::Relaxed).then_some(());
    let mut before = ask_stats(socket)?;
    while Deadline::after(length)
        .poll(SIGNAL_PAUSE, is_over)
        .is_none()
    {
        let now = ask_stats(socket)?;
        let counted = interval(&now, &before);
        print(match json {
            true => serde_json::to_string(&counted)?,
            false => render_interval(&counted),
        })?;
        if !is_endless {
            return Ok(());
        }
        if !json {
            print("")?;
        }
        before = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quietwire_switch::report::{PortDrop, PortDrops};

    use super::*;

    fn report(uptime_s: f64, rx_frames: u64, filtered: u64, entries: u32) -> StatsReport {
        StatsReport {
            uptime_s,
            ports: vec![PortCounts {
                name: "p0".to_owned(),
                rx_frames,
                drops: PortDrops::of(|reason| match reason {
                    PortDrop::Filtered => filtered,
                    _ => 0,
                }),
                ..PortCounts::default()
            }],
            threads: Vec::new(),
            bridges: vec![BridgeCounts {
                name: "br0".to_owned(),
                entries,
                ..BridgeCounts::default()
            }],
            router: RouterCounts::default(),
        }
    }

    fn found<'a>(interval: &'a Interval, counter: &str) -> Option<&'a Change> {
        let mut counters = interval.counters.iter();
        counters.find(|one| one.counter.contains(counter))
    }

    #[test]
    fn an_interval_has_differences_and_rates() {
        let counted = interval(&report(12.0, 700, 3, 5), &report(10.0, 500, 3, 9));
        let frames = found(&counted, "rx frames").unwrap();
        assert_eq!((frames.count, frames.per_second), (200, Some(100.0)));
        // The counter did not change in the interval, but was above 0 before.
        assert!(found(&counted, "hairpin").is_none());
        let known = found(&counted, "addresses known").unwrap();
        assert_eq!((known.count, known.per_second), (5, None));
    }

    #[test]
    fn a_counter_that_began_again_counts_from_0() {
        let counted = interval(&report(12.0, 40, 0, 5), &report(10.0, 500, 0, 5));
        assert_eq!(found(&counted, "rx frames").unwrap().count, 40);
    }

    #[test]
    fn tables_have_an_owner_each() {
        let text = render(&report(10.0, 500, 3, 5));
        assert!(text.starts_with("up for 10.0 s\n\n"), "{text}");
        assert!(
            text.contains("hairpin") && text.contains("bridge"),
            "{text}"
        );
        assert!(
            !text.contains("router") && !text.contains("thread"),
            "{text}"
        );
        let counted = interval(&report(12.0, 700, 3, 5), &report(10.0, 500, 3, 9));
        let text = render_interval(&counted);
        assert!(
            text.contains("per second") && text.contains("100.0"),
            "{text}"
        );
    }
}
