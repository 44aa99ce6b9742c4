// SPDX-License-Identifier: Apache-2.0
//! Tests with events made by hand, and of 100,000 routes of the kernel that change while they are dumped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

use super::super::dump::DumpEvent;
use super::*;

const MAIN: u32 = 254;
const DEADLINE: Duration = Duration::from_secs(60);

fn monitor() -> RouteMonitor {
    RouteMonitor::new(BTreeSet::from([MAIN])).unwrap()
}

fn prefix(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// Returns the message of a route through interface 7, as the kernel sends it.
fn route(text: &str) -> RouteMessage {
    let net = prefix(text);
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    route.header.destination_prefix_length = net.prefix_len();
    route.header.table = 254;
    route.header.protocol = RouteProtocol::Static;
    route.header.kind = RouteType::Unicast;
    let IpAddr::V4(address) = net.addr() else {
        panic!("{text} is no IPv4 prefix");
    };
    route.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet(address)),
        RouteAttribute::Oif(7),
    ];
    route
}

/// A part of a dump.
fn new_route(text: &str) -> NetlinkEvent {
    NetlinkEvent::Message(Kind::Dumped, RouteNetlinkMessage::NewRoute(route(text)))
}

fn notification(message: RouteNetlinkMessage) -> NetlinkEvent {
    NetlinkEvent::Message(Kind::Notification, message)
}

/// Returns the octets of a route's message after the netlink header, with an attribute that cannot be parsed.
fn unparsed(kind: u16, net: [u8; 4], length: u8) -> NetlinkEvent {
    let mut octets = vec![2, length, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    octets.extend([8, 0, 1, 0]);
    octets.extend(net);
    octets.extend([6, 0, 9, 0, 1, 2, 0, 0]);
    NetlinkEvent::Unparsed(Kind::Notification, kind, octets)
}

/// Lets the monitor handle these events; returns the prefixes with a route (true) or without one (false).
fn handle(monitor: &mut RouteMonitor, events: Vec<NetlinkEvent>) -> Vec<(IpNet, bool)> {
    let mut reported = Vec::new();
    for event in events {
        monitor.handle(event, &mut |event| {
            reported.push((event.prefix, event.route.is_some()));
        });
    }
    reported
}

/// Requests the next dump, without sending it. Returns its family.
fn request(monitor: &mut RouteMonitor, now: Instant) -> Option<AddressFamily> {
    let family = monitor.dumps.next(now)?;
    forget(&mut monitor.named, &mut monitor.notified, family);
    Some(family)
}

/// Returns a monitor that knows two routes after a complete dump of both families.
fn with_two_routes() -> RouteMonitor {
    let mut monitor = monitor();
    let now = Instant::now();
    assert!(request(&mut monitor, now).is_some());
    let events = vec![
        new_route("10.1.0.0/16"),
        new_route("10.2.0.0/16"),
        NetlinkEvent::Dump(DumpEvent::Done),
    ];
    assert_eq!(handle(&mut monitor, events).len(), 2);
    assert!(request(&mut monitor, now).is_some());
    assert!(handle(&mut monitor, vec![NetlinkEvent::Dump(DumpEvent::Done)]).is_empty());
    monitor.ask_for_all();
    assert!(request(&mut monitor, now).is_some());
    monitor
}

#[test]
fn a_complete_dump_withdraws_routes_that_it_does_not_contain() {
    let mut monitor = with_two_routes();
    let events = vec![
        new_route("10.1.0.0/16"),
        NetlinkEvent::Dump(DumpEvent::Done),
    ];
    let expected = [(prefix("10.2.0.0/16"), false)];
    assert_eq!(handle(&mut monitor, events), expected);
}

#[test]
fn routes_of_router_advertisements_and_redirects_are_not_followed() {
    let mut monitor = with_two_routes();
    let events: Vec<NetlinkEvent> = [RouteProtocol::Ra, RouteProtocol::IcmpRedirect]
        .into_iter()
        .map(|protocol| {
            let mut route = route("0.0.0.0/0");
            route.header.protocol = protocol;
            notification(RouteNetlinkMessage::NewRoute(route))
        })
        .collect();
    assert!(handle(&mut monitor, events).is_empty());
    assert_eq!(monitor.known.len(), 2);
}

#[test]
fn an_interrupted_dump_withdraws_nothing() {
    let mut monitor = with_two_routes();
    let events = vec![
        new_route("10.1.0.0/16"),
        NetlinkEvent::Dump(DumpEvent::Progress(true)),
        NetlinkEvent::Dump(DumpEvent::Done),
    ];
    assert!(handle(&mut monitor, events).is_empty());
    let later = Instant::now() + Duration::from_secs(1);
    assert_eq!(
        monitor.dumps.next(later),
        Some(AddressFamily::Inet),
        "again"
    );
}

#[test]
fn a_notification_is_newer_than_a_dump_that_arrives_after_it() {
    let mut monitor = with_two_routes();
    let events = vec![
        notification(RouteNetlinkMessage::DelRoute(route("10.2.0.0/16"))),
        new_route("10.1.0.0/16"),
        new_route("10.2.0.0/16"),
        NetlinkEvent::Dump(DumpEvent::Done),
    ];
    let expected = [(prefix("10.2.0.0/16"), false)];
    assert_eq!(handle(&mut monitor, events), expected);
    assert_eq!(monitor.known.len(), 1);
}

#[test]
fn routes_of_an_invalid_dump_are_not_routes_of_the_next_dump() {
    let mut monitor = with_two_routes();
    let both = || vec![new_route("10.1.0.0/16"), new_route("10.2.0.0/16")];
    assert!(handle(&mut monitor, vec![NetlinkEvent::Missed]).is_empty());
    assert!(handle(&mut monitor, both()).is_empty());
    let done = || NetlinkEvent::Dump(DumpEvent::Done);
    assert!(handle(&mut monitor, vec![done()]).is_empty(), "overtaken");
    // The notification of a removal was among those that were lost.
    let now = Instant::now();
    assert_eq!(request(&mut monitor, now), Some(AddressFamily::Inet));
    let expected = [(prefix("10.2.0.0/16"), false)];
    let events = vec![new_route("10.1.0.0/16"), done()];
    assert_eq!(handle(&mut monitor, events), expected);
}

#[test]
fn a_dump_of_ipv6_routes_that_change_meanwhile_is_requested_again() {
    let mut monitor = with_two_routes();
    let done = || NetlinkEvent::Dump(DumpEvent::Done);
    let both = vec![new_route("10.1.0.0/16"), new_route("10.2.0.0/16"), done()];
    assert!(handle(&mut monitor, both).is_empty());
    let now = Instant::now();
    assert_eq!(request(&mut monitor, now), Some(AddressFamily::Inet6));
    let mut changed = RouteMessage::default();
    changed.header.address_family = AddressFamily::Inet6;
    let change = notification(RouteNetlinkMessage::NewRoute(changed));
    assert!(handle(&mut monitor, vec![change, done()]).is_empty());
    let later = Instant::now() + Duration::from_secs(1);
    assert_eq!(request(&mut monitor, later), Some(AddressFamily::Inet6));
}

#[test]
fn a_failed_dump_withdraws_nothing() {
    let mut monitor = with_two_routes();
    let events = vec![
        new_route("10.1.0.0/16"),
        NetlinkEvent::Dump(DumpEvent::Refused(-4)),
    ];
    assert!(handle(&mut monitor, events).is_empty());
    assert_eq!(monitor.known.len(), 2);
}

#[test]
fn a_route_that_does_not_parse_stays_until_it_is_removed() {
    let mut monitor = with_two_routes();
    let events = vec![
        new_route("10.1.0.0/16"),
        unparsed(RTM_NEWROUTE, [10, 2, 0, 0], 16),
        NetlinkEvent::Dump(DumpEvent::Done),
    ];
    assert!(handle(&mut monitor, events).is_empty());
    let events = vec![unparsed(RTM_DELROUTE, [10, 2, 0, 0], 16)];
    let expected = [(prefix("10.2.0.0/16"), false)];
    assert_eq!(handle(&mut monitor, events), expected);
}

#[test]
fn octets_of_any_message_are_safe_to_read() {
    let NetlinkEvent::Unparsed(_, _, octets) = unparsed(RTM_NEWROUTE, [10, 2, 0, 0], 16) else {
        unreachable!()
    };
    let key = (MAIN, prefix("10.2.0.0/16"), 0);
    assert_eq!(key_of(&octets), Some(key));
    for length in 0..octets.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = octets.clone();
            changed[length] = value;
            let _ = key_of(&changed);
            let _ = key_of(&changed[..length]);
        }
    }
}

/// Runs commands of ip(8) in the namespace of this thread.
fn ip(commands: &str) {
    let mut child = Command::new("ip")
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(commands.as_bytes()).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// Returns the destinations of the kernel's routes that someone configured.
fn kernel_routes() -> BTreeSet<IpNet> {
    let mut routes = BTreeSet::new();
    for family in ["-4", "-6"] {
        let output = Command::new("ip")
            .args([family, "route", "show", "table", "main", "proto", "static"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        routes.extend(text.lines().map(|line| {
            let destination = line.split_whitespace().next().unwrap();
            let alone = if family == "-4" { "/32" } else { "/128" };
            destination
                .parse()
                .unwrap_or_else(|_| prefix(&format!("{destination}{alone}")))
        }));
    }
    routes
}

/// Lines of ip(8) that add or delete the routes with these numbers, of both families in turn.
fn lines(verb: &str, numbers: impl Iterator<Item = u32>) -> String {
    let mut text = String::new();
    for number in numbers {
        let [_, a, b, c] = number.to_be_bytes();
        let destination = if number % 2 == 0 {
            format!("{}.{b}.{c}.0/24", 20 + a)
        } else {
            format!("2001:db8:{a:x}:{b:02x}{c:02x}::/64")
        };
        writeln!(text, "route {verb} {destination} dev d0 proto static").unwrap();
    }
    text
}

#[test]
fn a_hundred_thousand_routes_that_change_meanwhile_are_the_kernels() {
    const ROUTES: u32 = 100_000;
    // Only this thread, and what it starts, is in the namespace.
    unshare(CloneFlags::CLONE_NEWNET).expect("needs root");
    ip("link add d0 type veth peer name d1\nlink set d1 up\nlink set d0 up\n");
    ip(&lines("add", 0..ROUTES));
    let mut monitor = monitor();
    let mut imported = BTreeMap::new();
    let changes = std::thread::spawn(|| {
        for round in 0..4 {
            let mine = move |number: &u32| number % 8 == round;
            ip(&lines("del", (0..ROUTES).filter(mine)));
            ip(&lines("add", (0..ROUTES).filter(mine).step_by(2)));
        }
    });
    let began = Instant::now();
    let mut quiet_since = Instant::now();
    // The end: no event for some time after the last change, and no dump to come. The kernel queues an event before the change returns.
    while !changes.is_finished() || quiet_since.elapsed() < Duration::from_millis(500) {
        assert!(began.elapsed() < DEADLINE, "still changing");
        let mut count = 0;
        monitor
            .turn(Instant::now(), &mut |event| {
                count += 1;
                match event.route {
                    Some(route) => imported.insert(event.prefix, route),
                    None => imported.remove(&event.prefix),
                };
            })
            .unwrap();
        if count > 0 || !changes.is_finished() || !monitor.dumps.is_idle() {
            quiet_since = Instant::now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    changes.join().unwrap();
    let kernel = kernel_routes();
    assert!(kernel.len() > 50_000, "{} routes", kernel.len());
    let ours: BTreeSet<IpNet> = imported.into_keys().collect();
    let missing: Vec<_> = kernel.difference(&ours).take(5).collect();
    let surplus: Vec<_> = ours.difference(&kernel).take(5).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "{missing:?} are not imported, {surplus:?} are no longer there"
    );
}
