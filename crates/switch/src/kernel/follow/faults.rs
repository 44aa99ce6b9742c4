// SPDX-License-Identifier: Apache-2.0
//! A kernel of the test, whose answers are late, short, interrupted or refused, and whose notifications overrun the socket. All choices
//! follow from a seed, and the test moves the clock.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP_INTR, NLM_F_MULTIPART};
use nix::errno::Errno;
use nix::libc;
use quietwire_base::faults::{Random, run_seeds};

use super::super::netlink::Line;
use super::*;

const MAIN: u32 = 254;
/// Types of messages (linux/netlink.h).
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// AF_INET (linux/socket.h).
const INET: u8 = 2;
/// Octets of a message's header.
const HEADER: usize = 16;
/// Datagrams that wait in the socket.
const QUEUE_MAX: usize = 6;
/// Routes of a part of a dump.
const PART: usize = 2;
/// Longest delay of a part of a dump, reads of the socket.
const WAITS_MAX: u64 = 30;
/// Turns without faults at the end: more seconds than a dump may be silent, several times.
const QUIET_TURNS: usize = 120;

/// A dump that the kernel is sending.
#[derive(Debug)]
struct Dump {
    sequence: u32,
    family: u8,
    /// Lowest number of a route that is not dumped yet.
    next: u16,
    /// Reads of the socket until the dump continues.
    waits: u64,
    is_interrupted: bool,
}

#[derive(Debug)]
struct State {
    random: Random,
    /// One operation in this many has a fault; 0: none.
    one_in: u64,
    /// Interfaces of the routes to 10.0.N.0/24.
    routes: BTreeMap<u8, u32>,
    /// Datagrams and the port numbers of their senders.
    queue: VecDeque<(Vec<u8>, u32)>,
    /// The next read reports ENOBUFS.
    is_overrun: bool,
    /// Notifications are dropped until the queue is empty.
    drops: bool,
    dump: Option<Dump>,
}

/// A kernel with a table of IPv4 routes and one socket.
#[derive(Clone, Debug)]
struct FakeKernel(Arc<Mutex<State>>);

/// Returns a message with a netlink header.
fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + payload.len()).unwrap();
    let mut octets = length.to_ne_bytes().to_vec();
    octets.extend(kind.to_ne_bytes());
    octets.extend(flags.to_ne_bytes());
    octets.extend(sequence.to_ne_bytes());
    octets.extend([0; 4]);
    octets.extend(payload);
    octets
}

/// Returns the payload of a route to 10.0.`number`.0/24 in the main table.
fn payload(number: u8, interface: u32) -> Vec<u8> {
    // Family, length, source's length, TOS, table, protocol (static), scope, type (unicast), flags; then RTA_DST and RTA_OIF.
    let mut octets = vec![INET, 24, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    octets.extend([8, 0, 1, 0, 10, 0, number, 0]);
    octets.extend([8, 0, 4, 0]);
    octets.extend(interface.to_ne_bytes());
    octets
}

/// Returns the answer to a refused request, with the header of the request.
fn refusal(sequence: u32, error: Errno) -> Vec<u8> {
    let mut payload = (-(error as i32)).to_ne_bytes().to_vec();
    payload.extend([0; HEADER]);
    message(NLMSG_ERROR, 0, sequence, &payload)
}

impl State {
    fn has_fault(&mut self) -> bool {
        self.one_in > 0 && self.random.below(self.one_in) == 0
    }

    /// Queues the notification of a change, unless the socket is full.
    fn notify(&mut self, kind: u16, number: u8, interface: u32) {
        if self.drops {
            return;
        }
        if self.queue.len() >= QUEUE_MAX {
            (self.is_overrun, self.drops) = (true, true);
            return;
        }
        // The sequence number is that of the process that changed the route.
        let sequence = self.random.below(8) as u32;
        let notification = message(kind, 0, sequence, &payload(number, interface));
        self.queue.push_back((notification, 0));
    }

    /// Adds, changes or removes a route.
    fn change(&mut self) {
        let (number, interface) = (self.random.below(12) as u8, self.random.below(3) as u32 + 1);
        if self.random.below(3) == 0 {
            if let Some(interface) = self.routes.remove(&number) {
                self.notify(RTM_DELROUTE, number, interface);
            }
        } else if self.routes.insert(number, interface) != Some(interface) {
            self.notify(RTM_NEWROUTE, number, interface);
        }
    }

    /// Queues the next part of the dump, as the kernel does when the socket is read.
    fn continue_dump(&mut self) {
        let (is_skipping, waits) = (self.has_fault(), self.has_fault());
        let more_waits = self.random.below(WAITS_MAX);
        let Some(dump) = &mut self.dump else {
            return;
        };
        if waits {
            dump.waits = (dump.waits + more_waits).min(WAITS_MAX);
        }
        if self.queue.len() >= QUEUE_MAX || dump.waits > 0 {
            dump.waits = dump.waits.saturating_sub(1);
            return;
        }
        let is_pending = |number: u8| dump.family == INET && u16::from(number) >= dump.next;
        let routes = self.routes.iter();
        let pending = routes.filter(|(number, _)| is_pending(**number));
        let mut part: Vec<(u8, u32)> = pending.take(PART).map(|(n, out)| (*n, *out)).collect();
        let last = part.last().map(|(number, _)| *number);
        if is_skipping {
            part.pop();
            dump.is_interrupted = true;
        }
        let flags = if dump.is_interrupted {
            NLM_F_MULTIPART | NLM_F_DUMP_INTR
        } else {
            NLM_F_MULTIPART
        };
        let sequence = dump.sequence;
        let datagram = match last {
            Some(last) => {
                dump.next = u16::from(last) + 1;
                let routes = part.iter().map(|(number, interface)| {
                    message(RTM_NEWROUTE, flags, sequence, &payload(*number, *interface))
                });
                routes.collect::<Vec<_>>().concat()
            }
            None => {
                self.dump = None;
                message(NLMSG_DONE, flags, sequence, &0_i32.to_ne_bytes())
            }
        };
        self.queue.push_back((datagram, 0));
    }
}

impl FakeKernel {
    fn new(seed: u64, one_in: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Random::new(seed),
            one_in,
            routes: BTreeMap::new(),
            queue: VecDeque::new(),
            is_overrun: false,
            drops: false,
            dump: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Line for FakeKernel {
    fn send(&self, request: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        if state.has_fault() {
            let error = state.random.one_of(Errno::ENOBUFS, &[Errno::ENOMEM]);
            return Err(error.into());
        }
        let sequence = u32::from_ne_bytes(request[8..12].try_into().unwrap());
        // The kernel sends one dump at a time to a socket.
        let refused = if state.dump.is_some() {
            Some(Errno::EBUSY)
        } else {
            state.has_fault().then_some(Errno::EINTR)
        };
        match refused {
            Some(error) => state.queue.push_back((refusal(sequence, error), 0)),
            None => {
                state.dump = Some(Dump {
                    sequence,
                    family: request[HEADER],
                    next: 0,
                    waits: 0,
                    is_interrupted: false,
                });
            }
        }
        Ok(())
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<(usize, u32)> {
        let mut state = self.state();
        if std::mem::take(&mut state.is_overrun) {
            return Err(Errno::ENOBUFS.into());
        }
        if state.has_fault() {
            let error = state.random.one_of(Errno::EINTR, &[Errno::ENOMEM]);
            return Err(error.into());
        }
        state.continue_dump();
        if state.has_fault() {
            // Another process claims that a dump has ended.
            let forged = message(NLMSG_DONE, NLM_F_MULTIPART, 1, &0_i32.to_ne_bytes());
            state.queue.push_front((forged, 4711));
        }
        let Some((datagram, sender)) = state.queue.pop_front() else {
            state.drops = false;
            return Err(Errno::EAGAIN.into());
        };
        if state.queue.is_empty() {
            state.drops = false;
        }
        buffer.extend(&datagram);
        if state.has_fault() {
            buffer.truncate(HEADER);
        }
        Ok((datagram.len(), sender))
    }
}

/// Routes as the monitor reported them.
type Imported = BTreeMap<IpNet, (u32, KernelTarget)>;

fn monitor(kernel: &FakeKernel) -> RouteMonitor {
    let line = NetlinkSocket::over(kernel.clone());
    RouteMonitor::over(line, BTreeSet::from([MAIN]))
}

fn turn(monitor: &mut RouteMonitor, now: Instant, imported: &mut Imported) -> io::Result<()> {
    monitor.turn(now, &mut |event| {
        match event.route {
            Some(route) => imported.insert(event.prefix, route),
            None => imported.remove(&event.prefix),
        };
    })
}

/// Returns the routes of the kernel, as the monitor has to report them.
fn expected(kernel: &FakeKernel) -> Imported {
    let state = kernel.state();
    let route = |(number, interface): (&u8, &u32)| {
        let prefix: IpNet = format!("10.0.{number}.0/24").parse().unwrap();
        let target = KernelTarget::Via(vec![(None, *interface, 1)]);
        (prefix, (0, target))
    };
    state.routes.iter().map(route).collect()
}

/// Takes turns without faults, a second each, until all dumps are complete.
fn settle(monitor: &mut RouteMonitor, now: &mut Instant, imported: &mut Imported) {
    for _ in 0..QUIET_TURNS {
        *now += Duration::from_secs(1);
        turn(monitor, *now, imported).unwrap();
    }
    assert!(monitor.dumps.is_idle(), "dumps are pending");
}

#[test]
fn routes_are_the_kernels_after_any_fault_of_netlink() {
    let test = "routes_are_the_kernels_after_any_fault_of_netlink";
    run_seeds(1000, "quietwire-switch", test, |seed| {
        let kernel = FakeKernel::new(seed, 2 + seed % 20);
        let mut monitor = monitor(&kernel);
        let (mut now, mut imported) = (Instant::now(), Imported::new());
        for _ in 0..60 {
            let (changes, pause_ms) = {
                let mut state = kernel.state();
                (state.random.below(6), state.random.below(4000))
            };
            for _ in 0..changes {
                kernel.state().change();
            }
            now += Duration::from_millis(pause_ms);
            // The switch logs a failed turn, and takes the next one.
            let _ = turn(&mut monitor, now, &mut imported);
        }
        kernel.state().one_in = 0;
        settle(&mut monitor, &mut now, &mut imported);
        assert_eq!(imported, expected(&kernel));
    });
}

/// Returns a kernel with four routes, and a monitor that has imported them.
fn with_four_routes() -> (FakeKernel, RouteMonitor, Instant, Imported) {
    let kernel = FakeKernel::new(0, 0);
    kernel.state().routes = (1..5).map(|number| (number, 7)).collect();
    let (mut monitor, mut now, mut imported) = (monitor(&kernel), Instant::now(), Imported::new());
    settle(&mut monitor, &mut now, &mut imported);
    assert_eq!(imported, expected(&kernel));
    (kernel, monitor, now, imported)
}

#[test]
fn the_late_end_of_a_dump_that_was_given_up_withdraws_nothing() {
    let (kernel, mut monitor, mut now, mut imported) = with_four_routes();
    monitor.ask_for_all();
    now += Duration::from_secs(1);
    turn(&mut monitor, now, &mut imported).unwrap();
    // The parts of the dump arrive only when it counts as failed and the next one was requested: its end follows that request.
    let first = kernel.state().dump.take().unwrap();
    now += Duration::from_secs(11);
    turn(&mut monitor, now, &mut imported).unwrap();
    now += Duration::from_secs(1);
    turn(&mut monitor, now, &mut imported).unwrap();
    assert!(monitor.dumps.is_running());
    let code = 0_i32.to_ne_bytes();
    let end = message(NLMSG_DONE, NLM_F_MULTIPART, first.sequence, &code);
    kernel.state().queue.push_front((end, 0));
    let mut events = Vec::new();
    monitor.turn(now, &mut |event| events.push(event)).unwrap();
    assert!(events.is_empty(), "{events:?}");
    settle(&mut monitor, &mut now, &mut imported);
    assert_eq!(imported, expected(&kernel));
}

#[test]
fn a_flood_of_changes_overruns_the_socket_and_leads_to_a_new_dump() {
    let (kernel, mut monitor, mut now, mut imported) = with_four_routes();
    for number in 0..40 {
        let mut state = kernel.state();
        state.routes.insert(number, 9);
        state.notify(RTM_NEWROUTE, number, 9);
    }
    assert!(kernel.state().is_overrun);
    settle(&mut monitor, &mut now, &mut imported);
    assert_eq!(imported.len(), 40);
    assert_eq!(imported, expected(&kernel));
}

#[test]
fn events_before_an_error_of_the_socket_are_reported() {
    let (kernel, mut monitor, now, mut imported) = with_four_routes();
    kernel.state().routes.remove(&1);
    kernel.state().notify(RTM_DELROUTE, 1, 7);
    monitor.line = NetlinkSocket::over(FailingLine(kernel.clone(), Mutex::new(1)));
    turn(&mut monitor, now, &mut imported).unwrap();
    assert_eq!(imported, expected(&kernel));
    let error = turn(&mut monitor, now, &mut imported).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
}

/// A socket that fails after a number of reads.
#[derive(Debug)]
struct FailingLine(FakeKernel, Mutex<u32>);

impl Line for FailingLine {
    fn send(&self, request: &[u8]) -> io::Result<()> {
        self.0.send(request)
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<(usize, u32)> {
        let mut left = self.1.lock().unwrap();
        *left = left.checked_sub(1).ok_or(Errno::ENOMEM)?;
        self.0.receive(buffer)
    }
}
