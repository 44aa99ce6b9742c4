// SPDX-License-Identifier: Apache-2.0
//! Both sides with tables that are sets of numbers: whatever is lost on the way, the standby has what the active switch has.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use proptest::prelude::*;
use quietwire_base::Deadline;
use quietwire_tables::connections::{ConnectionChange, SavedConnection};

use super::active::{LOG_INTERVAL, PEERS_A_SOURCE, PEERS_MAX};
use super::link::TIMEOUT;
use super::link::tests::pair;
use super::tables::COMPARE;
use super::wire::LIMITS_A_MESSAGE;
use super::wire::tests::saved_connection;
use super::*;

/// Changes that the ring of a table holds, and entries of a page.
const RING: usize = 6;
const PAGE: usize = 3;

/// Connections by one of their ports.
#[derive(Debug, Default)]
struct Model {
    present: BTreeSet<u16>,
    ring: VecDeque<ConnectionChange>,
    is_on: bool,
    lost: u64,
    /// Connections whose end the standby cannot know.
    stale: BTreeSet<u16>,
    /// The forwarding thread does not reply.
    is_late: bool,
    settings: Digests,
    limits: Limits,
}

fn port_of(saved: &SavedConnection) -> u16 {
    let ([one, other], _) = saved.endpoints().unwrap();
    if one.port == 53 { other.port } else { one.port }
}

fn late() -> SwitchError {
    wrong("the thread does not reply".to_owned())
}

impl Model {
    fn note(&mut self, change: ConnectionChange) {
        if let ConnectionChange::Ended(saved) = &change
            && (!self.is_on || self.ring.len() == RING)
        {
            self.stale.insert(port_of(saved));
        }
        if !self.is_on {
            return;
        }
        if self.ring.len() == RING {
            self.lost += 1;
        } else {
            self.ring.push_back(change);
        }
    }

    fn add(&mut self, port: u16) {
        self.present.insert(port);
        self.stale.remove(&port);
        self.note(ConnectionChange::Present(saved_connection(port)));
    }

    fn remove(&mut self, port: u16) {
        if self.present.remove(&port) {
            self.note(ConnectionChange::Ended(saved_connection(port)));
        }
    }
}

impl Tables for Model {
    fn digests(&self) -> Digests {
        self.settings.clone()
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn changes(&mut self, messages: &mut Vec<Message>) -> Result<u64, SwitchError> {
        if self.is_late {
            return Err(late());
        }
        if !std::mem::replace(&mut self.is_on, true) {
            self.lost = 1;
        }
        let list: Vec<ConnectionChange> = self.ring.drain(..).collect();
        if !list.is_empty() {
            messages.push(Message::Connections(list));
        }
        Ok(std::mem::take(&mut self.lost))
    }

    fn page(
        &mut self,
        from: Position,
        messages: &mut Vec<Message>,
    ) -> Result<Option<Position>, SwitchError> {
        if self.is_late {
            return Err(late());
        }
        let start = u16::try_from(from.from).unwrap();
        let mut rest = self.present.range(start..);
        let list = rest.by_ref().take(PAGE).map(|port| saved_connection(*port));
        let list: Vec<ConnectionChange> = list.map(ConnectionChange::Present).collect();
        if !list.is_empty() {
            messages.push(Message::Connections(list));
        }
        let next = rest.next().map(|port| u32::from(*port));
        Ok(next.map(|next| Position { from: next, ..from }))
    }

    fn end(&mut self) -> Result<(), SwitchError> {
        if self.is_late {
            return Err(late());
        }
        self.is_on = false;
        for change in self.ring.drain(..) {
            if let ConnectionChange::Ended(saved) = change {
                self.stale.insert(port_of(&saved));
            }
        }
        Ok(())
    }

    fn apply(&mut self, message: Message) -> Result<ApplyCounts, SwitchError> {
        let mut counts = ApplyCounts::default();
        let Message::Connections(changes) = message else {
            panic!("a message of another kind");
        };
        for change in &changes {
            match change {
                ConnectionChange::Present(saved) => {
                    if self.present.insert(port_of(saved)) {
                        counts.added += 1;
                    } else {
                        counts.updated += 1;
                    }
                }
                ConnectionChange::Ended(saved) => {
                    counts.removed += u64::from(self.present.remove(&port_of(saved)));
                }
            }
        }
        Ok(counts)
    }
}

/// An active switch and a standby.
struct Both {
    active: Active<UnixStream>,
    standby: Option<Standby<UnixStream>>,
    first: Model,
    second: Model,
    counts: ApplyCounts,
    now: Instant,
}

impl Both {
    fn new() -> Self {
        Self {
            active: Active::new(Duration::from_secs(30)),
            standby: None,
            first: Model::default(),
            second: Model::default(),
            counts: ApplyCounts::default(),
            now: Instant::now(),
        }
    }

    fn turn(&mut self) {
        self.now += Duration::from_millis(20);
        let result = self.active.turn(&mut self.first, self.now);
        assert!(result.is_ok() || self.first.is_late);
        match &mut self.standby {
            None => {
                let (one, other) = pair();
                // Ends that were sent and have not arrived are lost.
                let gone = self.second.present.difference(&self.first.present);
                self.first.stale.extend(gone);
                self.active.add(one, "peer".to_owned(), None, self.now);
                self.standby = Some(Standby::new(other, self.now));
            }
            Some(standby) => {
                let turned = standby.turn(&mut self.second, &mut self.counts, self.now);
                if turned.is_err() {
                    self.standby = None;
                }
            }
        }
    }

    /// Returns true once the standby has everything.
    fn settle(&mut self) -> bool {
        self.first.is_late = false;
        for _ in 0..600 {
            self.turn();
            let is_complete = self.standby.as_ref().is_some_and(|one| one.is_complete);
            let mut peers = self.active.peers.iter();
            if is_complete && peers.all(|peer| peer.is_complete) && self.first.ring.is_empty() {
                // What is on its way arrives.
                self.turn();
                self.turn();
                return true;
            }
        }
        false
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Add(u16),
    Remove(u16),
    /// More changes than the ring holds.
    Many(u16),
    Turns(u8),
    /// Nothing happens for some seconds.
    Wait(u8),
    Disconnect,
    Late(bool),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (100..130u16).prop_map(Operation::Add),
        4 => (100..130u16).prop_map(Operation::Remove),
        1 => (100..130u16).prop_map(Operation::Many),
        6 => (1..4u8).prop_map(Operation::Turns),
        1 => (1..8u8).prop_map(Operation::Wait),
        1 => Just(Operation::Disconnect),
        1 => any::<bool>().prop_map(Operation::Late),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_standby_has_what_the_active_switch_has_whatever_was_lost(
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        let mut both = Both::new();
        for operation in operations {
            match operation {
                Operation::Add(port) => both.first.add(port),
                Operation::Remove(port) => both.first.remove(port),
                Operation::Many(port) => {
                    for port in port..port + 2 * RING as u16 {
                        both.first.add(port);
                    }
                }
                Operation::Turns(count) => (0..count).for_each(|_| both.turn()),
                Operation::Wait(seconds) => both.now += Duration::from_secs(seconds.into()),
                Operation::Disconnect => both.standby = None,
                Operation::Late(is_late) => both.first.is_late = is_late,
            }
        }
        prop_assert!(both.settle());
        let (first, second) = (&both.first, &both.second);
        prop_assert!(first.present.is_subset(&second.present));
        let others: BTreeSet<u16> = second.present.difference(&first.present).copied().collect();
        prop_assert!(others.is_subset(&first.stale), "{:?} of {:?}", others, first.stale);
    }
}

#[test]
fn changes_are_sent_once_and_a_full_ring_leads_to_a_further_pass() {
    let mut both = Both::new();
    both.first.add(200);
    assert!(both.settle());
    assert_eq!((both.counts.added, both.active.counts.passes), (1, 1));
    both.first.add(201);
    both.first.remove(200);
    both.turn();
    assert_eq!(both.second.present, [201].into());
    assert_eq!((both.counts.removed, both.active.counts.lost), (1, 0));
    for port in 300..300 + RING as u16 + 4 {
        both.first.add(port);
    }
    both.turn();
    assert_eq!(both.active.counts.lost, 4);
    assert!(both.settle());
    assert_eq!(both.second.present, both.first.present);
    assert_eq!(both.active.counts.passes, 2);
    // All entries are sent again after a while, because packets extend their timeouts.
    let updated = both.counts.updated;
    for _ in 0..31 * 50 {
        both.turn();
    }
    assert_eq!(both.active.counts.passes, 3);
    assert!(both.counts.updated >= updated + both.first.present.len() as u64);
    // Without a standby, no changes are noted.
    both.standby = None;
    both.active.turn(&mut both.first, both.now).unwrap();
    both.active.turn(&mut both.first, both.now).unwrap();
    assert!(both.active.peers.is_empty() && !both.first.is_on);
}

#[test]
fn a_standby_with_other_settings_names_them_and_gets_no_entries() {
    let now = Instant::now();
    let settings = |zones| {
        vec![
            ("ports of NAT 'x'".to_owned(), 1),
            ("zones".to_owned(), zones),
        ]
    };
    let mut model = Model {
        settings: settings(7),
        ..Model::default()
    };
    model.add(200);
    for (own, expected) in [
        (settings(7), None),
        (settings(8), Some("other settings: zones (make")),
        (
            Vec::new(),
            Some("other settings: ports of NAT 'x', zones (make"),
        ),
    ] {
        let mut copy = Model {
            settings: own,
            ..Model::default()
        };
        let mut active: Active<UnixStream> = Active::new(Duration::from_secs(30));
        let (one, other) = pair();
        active.add(one, "standby".to_owned(), None, now);
        let mut standby = Standby::new(other, now);
        let mut counts = ApplyCounts::default();
        standby.turn(&mut copy, &mut counts, now).unwrap();
        active.turn(&mut model, now).unwrap();
        let turned = standby.turn(&mut copy, &mut counts, now);
        assert_eq!(standby.is_greeted, expected.is_none());
        match expected {
            None => assert!(turned.is_ok() && copy.present.contains(&200)),
            Some(text) => {
                let error = turned.unwrap_err().to_string();
                assert!(error.contains(text), "{error}");
                assert!(copy.present.is_empty());
            }
        }
    }
}

#[test]
fn settings_that_change_on_one_side_end_the_stream_until_they_are_equal() {
    let changed = vec![("zones".to_owned(), 7)];
    for is_active in [true, false] {
        let mut both = Both::new();
        both.first.add(200);
        assert!(both.settle());
        let side = match is_active {
            true => &mut both.first,
            false => &mut both.second,
        };
        side.settings.clone_from(&changed);
        both.now += COMPARE;
        both.active.turn(&mut both.first, both.now).unwrap();
        let standby = both.standby.as_mut().unwrap();
        let turned = standby.turn(&mut both.second, &mut both.counts, both.now);
        let error = turned.unwrap_err().to_string();
        assert!(error.contains("other settings: zones (make"), "{error}");
        // The standby keeps its entries, and gets all again with equal settings.
        assert_eq!(both.second.present, [200].into());
        both.first.settings.clone_from(&changed);
        both.second.settings.clone_from(&changed);
        both.standby = None;
        both.first.add(201);
        assert!(both.settle());
        assert_eq!(both.second.present, [200, 201].into());
    }
}

#[test]
fn settings_that_change_on_both_sides_at_a_time_leave_the_stream() {
    let mut both = Both::new();
    assert!(both.settle());
    both.first.settings = vec![("zones".to_owned(), 7)];
    both.second.settings.clone_from(&both.first.settings);
    both.first.add(200);
    for _ in 0..3 {
        both.now += COMPARE;
        both.turn();
        assert!(both.standby.is_some());
    }
    assert_eq!(both.second.present, [200].into());
}

#[test]
fn losses_in_each_turn_do_not_fill_the_log() {
    let mut active: Active<UnixStream> = Active::new(Duration::from_secs(30));
    let now = Instant::now();
    // A turn is due every 20 ms.
    let times = (0..2900u32).map(|turn| now + Duration::from_millis(20) * turn);
    assert_eq!(times.filter(|time| active.logs_loss(*time)).count(), 1);
    assert!(active.logs_loss(now + LOG_INTERVAL + Duration::from_secs(1)));
}

#[test]
fn a_peer_of_the_wrong_role_is_disconnected() {
    let now = Instant::now();
    let mut model = Model::default();
    let mut counts = ApplyCounts::default();
    let mut active: Active<UnixStream> = Active::new(Duration::from_secs(30));
    let (one, mut other) = pair();
    active.add(one, "peer".to_owned(), None, now);
    let changes = vec![ConnectionChange::Present(saved_connection(7))];
    let foreign = wire_tests::written(&[Message::Hello, Message::Connections(changes)]);
    other.write_all(&foreign).unwrap();
    active.turn(&mut model, now).unwrap();
    assert!(active.peers.is_empty() && model.present.is_empty());
    let (one, mut other) = pair();
    active.add(one, "peer".to_owned(), None, now);
    let unsent = wire_tests::written(&[Message::Hello, Message::Acknowledgement(99)]);
    other.write_all(&unsent).unwrap();
    active.turn(&mut model, now).unwrap();
    assert!(active.peers.is_empty());
    let (one, mut other) = pair();
    let mut standby = Standby::new(one, now);
    let foreign = wire_tests::written(&[Message::Hello, Message::Acknowledgement(0)]);
    other.write_all(&foreign).unwrap();
    let error = standby.turn(&mut model, &mut counts, now).unwrap_err();
    assert!(error.to_string().contains("role"), "{error}");
}

#[test]
fn entries_before_the_settings_do_not_change_a_standby() {
    let now = Instant::now();
    let changes = vec![ConnectionChange::Present(saved_connection(7))];
    for early in [Message::Connections(changes), Message::Complete] {
        let mut copy = Model::default();
        let mut counts = ApplyCounts::default();
        let (one, mut other) = pair();
        let mut standby = Standby::new(one, now);
        let sent = wire_tests::written(&[Message::Hello, early]);
        other.write_all(&sent).unwrap();
        let error = standby.turn(&mut copy, &mut counts, now).unwrap_err();
        assert!(error.to_string().contains("role"), "{error}");
        assert!(copy.present.is_empty() && !standby.is_complete);
    }
}

#[test]
fn peers_without_a_hello_give_way_to_a_standby_and_standbys_do_not() {
    let now = Instant::now();
    let (mut model, mut copy) = (Model::default(), Model::default());
    let mut counts = ApplyCounts::default();
    let mut active: Active<UnixStream> = Active::new(Duration::from_secs(30));
    let mut silent = Vec::new();
    for _ in 0..PEERS_MAX {
        let (one, other) = pair();
        active.add(one, "silent".to_owned(), None, now);
        silent.push(other);
    }
    let mut standbys = Vec::new();
    for _ in 0..PEERS_MAX + 1 {
        let (one, other) = pair();
        active.add(one, "standby".to_owned(), None, now);
        let mut standby = Standby::new(other, now);
        // The last one has no space, and loses its stream.
        if standby.turn(&mut copy, &mut counts, now).is_ok() {
            standbys.push(standby);
        }
        active.turn(&mut model, now).unwrap();
    }
    assert_eq!((active.peers.len(), standbys.len()), (PEERS_MAX, PEERS_MAX));
    assert!(active.peers.iter().all(|peer| peer.name == "standby"));
}

#[test]
fn peers_of_one_address_leave_space_for_standbys_of_others() {
    let now = Instant::now();
    let mut model = Model::default();
    let mut active: Active<UnixStream> = Active::new(Duration::from_secs(30));
    let hello = wire_tests::written(&[Message::Hello]);
    let mut streams = Vec::new();
    let mut connect = |active: &mut Active<UnixStream>, name: &str, source: &str| {
        let (one, mut other) = pair();
        let source = Some(source.parse().unwrap());
        active.add(one, name.to_owned(), source, now);
        // No space for it: its stream has ended.
        let _ = other.write_all(&hello);
        streams.push(other);
        active.turn(&mut model, now).unwrap();
    };
    let names = |active: &Active<UnixStream>, name: &str| {
        let peers = active.peers.iter();
        peers.filter(|peer| peer.name == name).count()
    };
    // Each behaves as a standby does, so that none gives way.
    for _ in 0..PEERS_MAX {
        connect(&mut active, "copy", "192.0.2.1");
    }
    assert_eq!(names(&active, "copy"), PEERS_A_SOURCE);
    connect(&mut active, "standby", "192.0.2.2");
    connect(&mut active, "standby", "2001:db8::2");
    assert_eq!(names(&active, "copy"), PEERS_A_SOURCE);
    assert_eq!(names(&active, "standby"), 2);
    // One without a hello gives way to another of its address only.
    let (one, _silent) = pair();
    let source = Some("192.0.2.2".parse().unwrap());
    active.add(one, "silent".to_owned(), source, now);
    connect(&mut active, "copy", "192.0.2.1");
    assert_eq!(names(&active, "silent"), 1);
    for _ in 0..PEERS_A_SOURCE {
        connect(&mut active, "standby", "192.0.2.2");
    }
    assert_eq!(names(&active, "silent"), 0);
    assert_eq!(names(&active, "standby"), PEERS_A_SOURCE + 1);
}

#[test]
fn an_address_has_a_limit_of_peers_except_behind_tunnels() {
    let at = |listen: &str| ReplicationSetting {
        listen: Some(listen.parse().unwrap()),
        ..setting(ReplicationRole::Active, None)
    };
    let source = |listen: &str, peer: &str| source_of(&at(listen), peer.parse().unwrap());
    assert_eq!(source("127.0.0.1:9476", "127.0.0.1:40000"), None);
    assert_eq!(source("[::1]:9476", "[::1]:40000"), None);
    let expected = Some("192.0.2.1".parse().unwrap());
    assert_eq!(source("0.0.0.0:9476", "192.0.2.1:40000"), expected);
    // As the kernel shows IPv4 peers of a socket of IPv6.
    assert_eq!(source("[::]:9476", "[::ffff:192.0.2.1]:40000"), expected);
}

#[test]
fn an_end_that_fails_is_tried_again() {
    let mut both = Both::new();
    assert!(both.settle());
    both.standby = None;
    both.first.is_late = true;
    for _ in 0..3 {
        both.active.turn(&mut both.first, both.now).unwrap_err();
    }
    assert!(both.active.peers.is_empty() && both.first.is_on);
    assert!(!both.active.is_idle());
    both.first.is_late = false;
    both.active.turn(&mut both.first, both.now).unwrap();
    assert!(!both.first.is_on && both.active.is_idle());
}

#[test]
fn peers_that_acknowledge_nothing_give_way_to_a_standby() {
    let now = Instant::now();
    let mut model = Model::default();
    let mut active: Active<UnixStream> = Active::new(Duration::from_secs(30));
    // Each repeats its first acknowledgement, so it is not silent.
    let hello = wire_tests::written(&[Message::Hello]).len();
    let sent = wire_tests::written(&[Message::Hello, Message::Acknowledgement(0)]);
    let mut hostile = Vec::new();
    for _ in 0..PEERS_MAX {
        let (one, mut other) = pair();
        active.add(one, "hostile".to_owned(), None, now);
        other.write_all(&sent[..hello]).unwrap();
        hostile.push(other);
    }
    active.turn(&mut model, now).unwrap();
    let later = now + TIMEOUT - Duration::from_secs(1);
    for other in &mut hostile {
        other.write_all(&sent[hello..]).unwrap();
    }
    active.turn(&mut model, later).unwrap();
    let standbys = |active: &Active<UnixStream>| {
        let peers = active.peers.iter();
        peers.filter(|peer| peer.name == "standby").count()
    };
    let (one, _early) = pair();
    active.add(one, "standby".to_owned(), None, later);
    assert_eq!((active.peers.len(), standbys(&active)), (PEERS_MAX, 0));
    let (one, _other) = pair();
    active.add(one, "standby".to_owned(), None, now + TIMEOUT);
    assert_eq!((active.peers.len(), standbys(&active)), (PEERS_MAX, 1));
}

#[test]
fn a_refused_peer_is_logged_once_a_minute() {
    let now = Instant::now();
    let mut model = Model::default();
    let mut active: Active<UnixStream> = Active::new(Duration::from_secs(30));
    let hello = wire_tests::written(&[Message::Hello]);
    let mut standbys = Vec::new();
    for _ in 0..PEERS_MAX {
        let (one, mut other) = pair();
        active.add(one, "standby".to_owned(), None, now);
        other.write_all(&hello).unwrap();
        standbys.push(other);
    }
    active.turn(&mut model, now).unwrap();
    // The first refusal takes the line of this minute.
    let (one, _refused) = pair();
    active.add(one, "refused".to_owned(), None, now);
    assert!(active.peers.iter().all(|peer| peer.name == "standby"));
    assert!(!active.logs_refusal(now));
    assert!(active.logs_refusal(now + LOG_INTERVAL + Duration::from_secs(1)));
}

/// A stream with octets to read, which accepts a number of octets.
#[derive(Clone, Default)]
struct Valve(Rc<RefCell<(VecDeque<u8>, usize)>>);

impl Valve {
    fn receive(&self, octets: &[u8]) {
        self.0.borrow_mut().0.extend(octets);
    }

    fn accept(&self, octets: usize) {
        self.0.borrow_mut().1 = octets;
    }
}

impl Read for Valve {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        match self.0.borrow_mut().0.read(octets)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Valve {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        let count = octets.len().min(state.1);
        state.1 -= count;
        match count {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tables with a number of full pages.
struct Pages(u32);

impl Tables for Pages {
    fn digests(&self) -> Digests {
        Digests::new()
    }

    fn limits(&self) -> Limits {
        Limits::new()
    }

    fn changes(&mut self, _: &mut Vec<Message>) -> Result<u64, SwitchError> {
        Ok(0)
    }

    fn page(
        &mut self,
        from: Position,
        messages: &mut Vec<Message>,
    ) -> Result<Option<Position>, SwitchError> {
        let present = ConnectionChange::Present(saved_connection(7));
        messages.push(Message::Connections(vec![present; CHANGES_MAX]));
        let next = from.from + 1;
        Ok((next < self.0).then_some(Position { from: next, ..from }))
    }

    fn end(&mut self) -> Result<(), SwitchError> {
        Ok(())
    }

    fn apply(&mut self, _: Message) -> Result<ApplyCounts, SwitchError> {
        Ok(ApplyCounts::default())
    }
}

#[test]
fn a_standby_that_reads_slowly_delays_others_for_one_timeout_in_a_pass() {
    const STEP: Duration = Duration::from_millis(500);
    const STEPS: usize = 24;
    let mut now = Instant::now();
    let mut messages = vec![Message::Acknowledgement(0); 100];
    messages.insert(0, Message::Hello);
    let sent = wire_tests::written(&messages);
    let hello = wire_tests::written(&messages[..1]).len();
    let acknowledgement = (sent.len() - hello) / (messages.len() - 1);
    let present = ConnectionChange::Present(saved_connection(7));
    let page = wire_tests::written(&[Message::Connections(vec![present; CHANGES_MAX])]).len();
    // Five times what a standby may have in its queue.
    let mut pages = Pages(u32::try_from((5 << 20) / page).unwrap());
    let mut active: Active<Valve> = Active::new(Duration::from_secs(30));
    let (fast, slow) = (Valve::default(), Valve::default());
    active.add(fast.clone(), "fast".to_owned(), None, now);
    active.add(slow.clone(), "slow".to_owned(), None, now);
    let mut parts = std::iter::once(&sent[..hello]).chain(sent[hello..].chunks(acknowledgement));
    let is_complete = |active: &Active<Valve>, name: &str| {
        let mut peers = active.peers.iter();
        peers.any(|peer| peer.name == name && peer.is_complete)
    };
    fast.accept(usize::MAX);
    for step in 0..STEPS {
        let part = parts.next().unwrap();
        fast.receive(part);
        slow.receive(part);
        // It reads its queue just before it would be disconnected.
        let is_open = step % 8 == 7;
        slow.accept(if is_open { usize::MAX } else { 0 });
        for _ in 0..if is_open { 1 } else { 100 } {
            active.turn(&mut pages, now).unwrap();
        }
        now += STEP;
    }
    assert!(is_complete(&active, "fast") && !is_complete(&active, "slow"));
    assert_eq!(active.peers.len(), 2);
    // It gets all entries in the next pass.
    slow.accept(usize::MAX);
    for _ in 0..20 {
        let part = parts.next().unwrap();
        fast.receive(part);
        slow.receive(part);
        for _ in 0..100 {
            active.turn(&mut pages, now).unwrap();
        }
        now += STEP;
    }
    assert!(is_complete(&active, "slow"));
}

fn setting(role: ReplicationRole, peer: Option<SocketAddr>) -> ReplicationSetting {
    ReplicationSetting {
        role,
        listen: Some(([127, 0, 0, 1], 0).into()),
        peer,
        allow_remote: false,
        refresh: None,
    }
}

#[test]
fn a_standby_follows_over_tcp_beside_hostile_peers_and_takes_over() {
    let (mut first, mut second) = (Model::default(), Model::default());
    first.add(200);
    let mut active = Replication::open(&setting(ReplicationRole::Active, None)).unwrap();
    let address = active.listener.as_ref().unwrap().local_addr().unwrap();
    let mut hostile: Vec<TcpStream> = (0..2)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    hostile[0].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let setting = setting(ReplicationRole::Standby, Some(address));
    let mut standby = Replication::open(&setting).unwrap();
    assert_eq!(standby.wait_ms(), Some(TURN_MS));
    let mut follow = |first: &mut Model, standby: &mut Replication, wanted: u16| {
        let found = Deadline::after(Duration::from_secs(20)).poll(Duration::from_millis(1), || {
            active.turn(first, Instant::now());
            standby.turn(&mut second, Instant::now());
            second.present.contains(&wanted).then_some(())
        });
        assert!(found.is_some(), "{wanted} does not arrive");
        active.report()
    };
    follow(&mut first, &mut standby, 200);
    first.add(201);
    let report = follow(&mut first, &mut standby, 201);
    assert_eq!((report.role.as_str(), report.lost), ("active", 0));
    assert!(report.peers.iter().any(|peer| peer.is_complete));
    let report = standby.report();
    assert_eq!((report.role.as_str(), report.peers.len()), ("standby", 1));
    assert!(report.added >= 2 && report.peers[0].address == address.to_string());
    standby.take_over().unwrap();
    let error = standby.take_over().unwrap_err().to_string();
    assert!(error.contains("already active"), "{error}");
    assert_eq!(standby.report().role, "active");
    drop(hostile);
    let taken = ReplicationSetting {
        listen: Some(address),
        ..setting
    };
    let error = Replication::open(&taken).unwrap_err().to_string();
    assert!(error.contains("cannot listen on"), "{error}");
}

#[test]
fn differing_settings_are_reported_until_they_are_equal() {
    let (mut first, mut second) = (Model::default(), Model::default());
    let mut active = Replication::open(&setting(ReplicationRole::Active, None)).unwrap();
    let address = active.listener.as_ref().unwrap().local_addr().unwrap();
    let setting = setting(ReplicationRole::Standby, Some(address));
    let mut standby = Replication::open(&setting).unwrap();
    let mut now = Instant::now();
    let is_complete = |report: &ReplicationReport| {
        let mut peers = report.peers.iter();
        report.differing_settings.is_empty() && peers.any(|peer| peer.is_complete)
    };
    let differs = |report: &ReplicationReport| {
        report.differing_settings == ["zones"] && report.peers.is_empty()
    };
    let mut follow = |first: &mut Model,
                      second: &mut Model,
                      wanted: &dyn Fn(&ReplicationReport) -> bool| {
        let found = Deadline::after(Duration::from_secs(20)).poll(Duration::from_millis(1), || {
            now += Duration::from_millis(50);
            active.turn(first, now);
            standby.turn(second, now);
            wanted(&standby.report()).then_some(())
        });
        assert!(found.is_some(), "{:?}", standby.report());
    };
    follow(&mut first, &mut second, &is_complete);
    second.settings = vec![("zones".to_owned(), 7)];
    follow(&mut first, &mut second, &differs);
    first.settings.clone_from(&second.settings);
    follow(&mut first, &mut second, &is_complete);
    first.settings.clear();
    follow(&mut first, &mut second, &differs);
    standby.take_over().unwrap();
    assert!(standby.report().differing_settings.is_empty());
}

#[test]
fn lower_limits_of_a_standby_are_reported_and_leave_the_stream() {
    let (mut first, mut second) = (Model::default(), Model::default());
    first.add(200);
    let named = |name: &str, value| (name.to_owned(), value);
    // More limits than fit into a message.
    let zones = (0..LIMITS_A_MESSAGE as u32).map(|number| (format!("zone {number}"), 1000));
    first.limits = zones.clone().collect();
    first.limits.push(named("table", 100));
    first.limits.push(named("source", NO_LIMIT));
    first.limits.push(named("only active", 100));
    second.limits = zones.collect();
    second.limits[0].1 = 2000;
    second.limits.push(named("table", 99));
    second.limits.push(named("source", 7));
    let mut active = Replication::open(&setting(ReplicationRole::Active, None)).unwrap();
    let address = active.listener.as_ref().unwrap().local_addr().unwrap();
    let setting = setting(ReplicationRole::Standby, Some(address));
    let mut standby = Replication::open(&setting).unwrap();
    let mut now = Instant::now();
    let mut follow = |first: &mut Model, second: &mut Model, wanted: &[&str]| {
        let found = Deadline::after(Duration::from_secs(20)).poll(Duration::from_millis(1), || {
            now += Duration::from_millis(50);
            active.turn(first, now);
            standby.turn(second, now);
            let report = standby.report();
            let is_complete = report.peers.iter().any(|peer| peer.is_complete);
            (is_complete && report.lower_limits == wanted).then_some(())
        });
        assert!(found.is_some(), "{:?}", standby.report());
        assert!(second.present.contains(&200));
    };
    let source = "source 7 (active switch: no limit)";
    follow(
        &mut first,
        &mut second,
        &["table 99 (active switch: 100)", source],
    );
    // A change on either side is noticed, also after the stream has begun.
    second.limits.retain(|(name, _)| name != "table");
    second.limits.push(named("table", 100));
    follow(&mut first, &mut second, &[source]);
    first.limits.retain(|(name, _)| name != "source");
    follow(&mut first, &mut second, &[]);
    // Only the first ones are named.
    for (_, limit) in &mut first.limits {
        *limit = 3000;
    }
    let mut wanted = vec!["zone 0 2000 (active switch: 3000)".to_owned()];
    wanted.extend((1..8).map(|zone| format!("zone {zone} 1000 (active switch: 3000)")));
    wanted.push(format!("{} more", LIMITS_A_MESSAGE - 8 + 1));
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    follow(&mut first, &mut second, &wanted);
    standby.take_over().unwrap();
    assert!(standby.report().lower_limits.is_empty());
}
