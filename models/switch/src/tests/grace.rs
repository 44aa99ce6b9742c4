// SPDX-License-Identifier: Apache-2.0
//! Memory of forwarding tables is used again once every thread has finished the burst in which it may have read the former contents: the
//! control thread begins an epoch, gives each thread an order, and reclaims after the replies.

use ipnet::{Ipv4Net, Ipv6Net};
use loom::thread;
use quietwire_memory::{Defect, check, found};
use quietwire_tables::fib::{Ipv4Routes, Ipv6Routes, NO_ROUTE};

use super::{ask, forward};
use crate::line::{GivenUp, line};

/// A table with a writer, as far as both kinds agree.
trait Table: Sized {
    type Readers: 'static;

    /// Returns a table with space for one change at a time, and with a route for the destination of the readers.
    fn new() -> Self;
    fn readers(&self) -> Self::Readers;
    fn look_up(readers: &Self::Readers) -> u32;
    /// Changes the route of the readers' destination. The memory of its former route is retired.
    fn change(&mut self);
    /// Adds a route for another destination. Returns false if there is no memory left.
    fn reuse(&mut self) -> bool;
    fn set_epoch(&mut self, epoch: u64);
    fn reclaim(&mut self, epoch: u64);
}

/// Next hops of the readers' destination before and after the change, and of another destination.
const BEFORE: u32 = 2;
const AFTER: u32 = 1;
const OTHER: u32 = 3;

struct V4(Ipv4Routes);

fn v4(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

impl Table for V4 {
    type Readers = std::sync::Arc<quietwire_tables::fib::Ipv4Fib>;

    fn new() -> Self {
        let mut routes = Ipv4Routes::new(1).unwrap();
        routes.insert(v4("0.0.0.0/31"), AFTER).unwrap();
        routes.insert(v4("0.0.0.1/32"), BEFORE).unwrap();
        Self(routes)
    }

    fn readers(&self) -> Self::Readers {
        self.0.fib()
    }

    fn look_up(readers: &Self::Readers) -> u32 {
        readers.look_up(1)
    }

    fn change(&mut self) {
        assert_eq!(self.0.remove(v4("0.0.0.1/32")), Some(BEFORE));
    }

    fn reuse(&mut self) -> bool {
        self.0.insert(v4("0.0.0.3/32"), OTHER).is_ok()
    }

    fn set_epoch(&mut self, epoch: u64) {
        self.0.set_epoch(epoch);
    }

    fn reclaim(&mut self, epoch: u64) {
        self.0.reclaim(epoch);
    }
}

struct V6(Ipv6Routes);

fn v6(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

impl Table for V6 {
    type Readers = std::sync::Arc<quietwire_tables::fib::Ipv6Fib>;

    fn new() -> Self {
        // A node of each root entry, and one more while a route changes.
        let mut routes = Ipv6Routes::new(2).unwrap();
        routes.insert(v6("2000::/4"), BEFORE).unwrap();
        Self(routes)
    }

    fn readers(&self) -> Self::Readers {
        self.0.fib()
    }

    fn look_up(readers: &Self::Readers) -> u32 {
        readers.look_up(0x2000 << 112)
    }

    fn change(&mut self) {
        let former = self.0.insert(v6("2000::/4"), AFTER);
        assert_eq!(former, Ok(Some(BEFORE)));
    }

    fn reuse(&mut self) -> bool {
        self.0.insert(v6("4000::/4"), OTHER).is_ok()
    }

    fn set_epoch(&mut self, epoch: u64) {
        self.0.set_epoch(epoch);
    }

    fn reclaim(&mut self, epoch: u64) {
        self.0.reclaim(epoch);
    }
}

/// Changes a route beside a thread that looks it up, and uses the memory again, with or without a grace period.
fn reclaim<T: Table>(has_grace: bool) {
    let mut table = T::new();
    let readers = table.readers();
    let (mut orders, mut commands) = line::<(), ()>();
    let thread = thread::spawn(move || {
        forward(
            &mut (),
            &mut commands,
            |()| {
                let hop = T::look_up(&readers);
                assert!(
                    hop == BEFORE || hop == AFTER,
                    "next hop {hop} of another route"
                );
            },
            |(), ()| (),
        );
    });
    table.change();
    // As `Layer3::begin_epoch` and `Engine::reclaim`.
    table.set_epoch(1);
    let replied = !has_grace || matches!(ask(&mut orders, (), ()), Ok(GivenUp::Replied(())));
    if replied {
        table.reclaim(1);
        assert!(table.reuse(), "no memory after a grace period");
    } else {
        assert!(!table.reuse(), "memory of the last burst is used again");
    }
    thread.join().unwrap();
    assert_ne!(T::look_up(&table.readers()), NO_ROUTE);
}

#[test]
fn memory_of_ipv4_routes_is_used_again_after_all_bursts_in_every_order() {
    check(|| reclaim::<V4>(true));
}

#[test]
fn memory_of_ipv6_routes_is_used_again_after_all_bursts_in_every_order() {
    check(|| reclaim::<V6>(true));
}

#[test]
#[should_panic(expected = "of another route")]
fn the_model_finds_a_missing_grace_period_of_ipv4_routes() {
    check(|| reclaim::<V4>(false));
}

#[test]
#[should_panic(expected = "of another route")]
fn the_model_finds_a_missing_grace_period_of_ipv6_routes() {
    check(|| reclaim::<V6>(false));
}

/// A reader that sees a new group or node must see its contents.
#[test]
fn the_models_find_weak_orders_of_routes() {
    for defect in [Defect::RelaxedStores, Defect::RelaxedLoads] {
        let message = found(defect, publish::<V4New>);
        assert!(message.contains("of no route"), "{message}");
        let message = found(defect, publish::<V6New>);
        assert!(message.contains("of no route"), "{message}");
    }
}

/// A route that gets a longer one.
trait NewTable {
    type Readers: 'static;
    fn new() -> (Self, Self::Readers)
    where
        Self: Sized;
    fn look_up(readers: &Self::Readers) -> u32;
    fn add(&mut self);
}

struct V4New(Ipv4Routes);

impl NewTable for V4New {
    type Readers = std::sync::Arc<quietwire_tables::fib::Ipv4Fib>;

    fn new() -> (Self, Self::Readers) {
        let mut routes = Ipv4Routes::new(1).unwrap();
        routes.insert(v4("0.0.0.0/31"), BEFORE).unwrap();
        let readers = routes.fib();
        (Self(routes), readers)
    }

    fn look_up(readers: &Self::Readers) -> u32 {
        let mut hops = [NO_ROUTE];
        readers.look_up_burst(&[1], &mut hops);
        hops[0]
    }

    fn add(&mut self) {
        self.0.insert(v4("0.0.0.1/32"), AFTER).unwrap();
    }
}

struct V6New(Ipv6Routes);

impl NewTable for V6New {
    type Readers = std::sync::Arc<quietwire_tables::fib::Ipv6Fib>;

    fn new() -> (Self, Self::Readers) {
        let mut routes = Ipv6Routes::new(2).unwrap();
        routes.insert(v6("2000::/4"), BEFORE).unwrap();
        let readers = routes.fib();
        (Self(routes), readers)
    }

    fn look_up(readers: &Self::Readers) -> u32 {
        let mut hops = [NO_ROUTE];
        readers.look_up_burst(&[0x2000 << 112], &mut hops);
        hops[0]
    }

    fn add(&mut self) {
        self.0.insert(v6("2000::/5"), AFTER).unwrap();
    }
}

fn publish<T: NewTable>() {
    let (mut table, readers) = T::new();
    let thread = thread::spawn(move || {
        for _ in 0..2 {
            let hop = T::look_up(&readers);
            assert!(hop == BEFORE || hop == AFTER, "next hop {hop} of no route");
        }
    });
    table.add();
    thread.join().unwrap();
}

#[test]
fn a_look_up_sees_a_route_before_or_after_its_change_in_every_order() {
    check(publish::<V4New>);
    check(publish::<V6New>);
}
