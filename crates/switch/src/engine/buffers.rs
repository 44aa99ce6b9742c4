// SPDX-License-Identifier: Apache-2.0
//! Pools of the buffers that ports receive into.
//!
//! Ports that are opened together have one pool. Ports of the kernel, which hold no buffers between calls, share pools with those that are
//! opened later ([`SharedPools`]): up to [`PORTS_A_POOL`] of them. A shared pool has buffers for all that can hold them at the same time:
//! the caches of threads and bursts in flight, frames of 64 KiB that a thread receives at once, the transmit rings of network cards, and a
//! burst of each thread for each port. Peers of memif and vhost-user ports can keep buffers, so that these ports share with nothing that
//! is opened later.

use std::sync::Arc;

use quietwire_dpdk::{BURST_MAX, Mempool, PortOptions};

use crate::config::{Plan, PortPlan};

/// Buffers per thread: its cache (one and a half times its size), and bursts in flight.
const BUFFERS_A_THREAD: u32 = buffers(1024);
const BUFFERS_SPARE: u32 = buffers(1024);
/// Maximum number of ports that share a pool.
const PORTS_A_POOL: u32 = 32;
/// Buffers of a shared pool for each of these ports and each thread.
#[expect(clippy::cast_possible_truncation, reason = "the size of a burst")]
const BUFFERS_A_PORT: u32 = buffers(BURST_MAX as u32);

/// Returns the number of buffers. Tests of this crate make thousands of switches that forward nothing.
pub(super) const fn buffers(number: u32) -> u32 {
    if cfg!(test) { number / 4 } else { number }
}

/// Buffers of a port.
#[derive(Debug)]
pub(crate) struct PortBuffers {
    pool: Mempool,
    /// Counts the ports of a shared pool.
    _user: Option<Arc<()>>,
}

impl PortBuffers {
    /// Returns the buffers of a port whose pool no later port uses.
    pub(super) const fn own(pool: Mempool) -> Self {
        Self { pool, _user: None }
    }

    /// Returns the pool.
    pub(super) const fn pool(&self) -> &Mempool {
        &self.pool
    }
}

/// Number and size of buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) count: u32,
    /// Space of each for a frame, octets.
    pub(super) data_room: u16,
}

#[derive(Debug)]
struct SharedPool {
    pool: Mempool,
    /// Each port of the pool has a reference.
    users: Arc<()>,
}

impl SharedPool {
    fn ports(&self) -> u32 {
        let references = Arc::strong_count(&self.users);
        u32::try_from(references.saturating_sub(1)).unwrap_or(u32::MAX)
    }

    fn has_space(&self, need: Need) -> bool {
        self.ports() < PORTS_A_POOL
            && self.pool.count() >= need.count
            && self.pool.data_room() >= need.data_room
    }

    fn give(&self) -> PortBuffers {
        PortBuffers {
            pool: self.pool.clone(),
            _user: Some(Arc::clone(&self.users)),
        }
    }
}

/// Pools that ports of the kernel share. Each has a port, except one that may wait for the next port.
#[derive(Debug, Default)]
pub(super) struct SharedPools(Vec<SharedPool>);

impl SharedPools {
    /// Returns the buffers of a further port, of a pool that has space or of the one that `make` returns.
    ///
    /// # Errors
    /// That of `make`.
    pub(super) fn take<E>(
        &mut self,
        need: Need,
        make: impl FnOnce() -> Result<Mempool, E>,
    ) -> Result<PortBuffers, E> {
        if let Some(found) = self.0.iter().find(|one| one.has_space(need)) {
            return Ok(found.give());
        }
        // None of those without ports is large enough.
        self.0.retain(|one| one.ports() > 0);
        let made = SharedPool {
            pool: make()?,
            users: Arc::default(),
        };
        let given = made.give();
        self.0.push(made);
        Ok(given)
    }

    /// Frees pools without ports, except the first one.
    pub(super) fn free_unused(&mut self) {
        let mut unused = 0_u32;
        self.0.retain(|one| {
            unused = unused.saturating_add(u32::from(one.ports() == 0));
            one.ports() > 0 || unused == 1
        });
    }
}

fn threads_of(plan: &Plan) -> u32 {
    u32::try_from(plan.forwarding_cpus.len()).unwrap_or(u32::MAX)
}

/// Returns the buffers of the caches of threads, and of bursts in flight.
fn need_of_threads(plan: &Plan) -> u32 {
    let of_threads = threads_of(plan).saturating_mul(BUFFERS_A_THREAD);
    BUFFERS_SPARE.saturating_add(of_threads)
}

/// Returns the buffers that rings of all queues hold.
fn of_rings(queues: u16, size: u16) -> u32 {
    u32::from(queues).saturating_mul(u32::from(size))
}

/// Returns the need of ports that share a pool with no later port. It saturates: [`Mempool::new`] refuses the maximum.
pub(super) fn need_of_own(plan: &Plan, new: &[PortPlan], options: &[PortOptions]) -> Need {
    let mut count = need_of_threads(plan);
    let data_room = options.iter().map(PortOptions::data_room).max();
    let data_room = data_room.unwrap_or_default();
    for options in options {
        count = count
            .saturating_add(of_rings(options.rx_queues, options.rx_ring_size))
            .saturating_add(of_rings(options.tx_queues, options.tx_ring_size));
    }
    for port in new {
        count = count.saturating_add(port.uri.buffers_kept(data_room));
    }
    Need { count, data_room }
}

/// Returns the need of the pool that a port of the kernel shares.
pub(super) fn need_of_shared(plan: &Plan, port: &PortPlan, data_room: u16) -> Need {
    let threads = threads_of(plan);
    let queues = u32::from(port.uri.queues()).max(1);
    // Large frames of one queue for each thread, as a thread receives from one queue at a time.
    let large = port.uri.buffers_kept(data_room).div_ceil(queues);
    let devices = plan.ports.iter().filter(|port| port.uri.kind().is_device());
    let of_rings = devices
        .map(|port| u32::from(port.tx_queues(plan.forwarding_cpus.len())))
        .fold(0_u32, u32::saturating_add)
        .saturating_mul(u32::from(plan.tx_ring_size));
    let of_ports = PORTS_A_POOL
        .saturating_mul(BUFFERS_A_PORT)
        .saturating_add(large)
        .saturating_mul(threads);
    let count = need_of_threads(plan)
        .saturating_add(of_rings)
        .saturating_add(of_ports);
    Need { count, data_room }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quietwire_dpdk::Error;

    use super::*;
    use crate::config::Settings;
    use crate::testing::eal;

    const NEED: Need = Need {
        count: 511,
        data_room: 256,
    };

    /// Pools, and the number of pools that were made.
    #[derive(Default)]
    struct Rig {
        pools: SharedPools,
        made: u32,
    }

    impl Rig {
        fn take(&mut self, need: Need) -> PortBuffers {
            let made = &mut self.made;
            let make = || -> Result<Mempool, Error> {
                *made += 1;
                // Each has its name, also in tests that run at the same time.
                let name = format!("sh-{:?}-{made}", std::thread::current().id());
                let name = name.replace(['(', ')'], "");
                Mempool::new(&eal(), &name, need.count, need.data_room)
            };
            self.pools.take(need, make).unwrap()
        }

        fn ports(&self) -> Vec<u32> {
            self.pools.0.iter().map(SharedPool::ports).collect()
        }
    }

    #[test]
    fn ports_share_pools_whose_number_is_bounded() {
        let mut rig = Rig::default();
        let ports: Vec<_> = (0..=2 * PORTS_A_POOL).map(|_| rig.take(NEED)).collect();
        assert_eq!(rig.ports(), [PORTS_A_POOL, PORTS_A_POOL, 1]);
        assert_eq!(rig.made, 3);
        assert!(ports.iter().all(|port| port.pool().count() == NEED.count));
    }

    #[test]
    fn pools_without_ports_are_freed_except_one_and_used_again() {
        let mut rig = Rig::default();
        for _ in 0..200 {
            drop(rig.take(NEED));
        }
        assert_eq!((rig.made, rig.ports()), (1, vec![0]));
        let ports: Vec<_> = (0..=PORTS_A_POOL).map(|_| rig.take(NEED)).collect();
        assert_eq!((rig.made, rig.ports()), (2, vec![PORTS_A_POOL, 1]));
        drop(ports);
        rig.pools.free_unused();
        assert_eq!(rig.ports(), [0]);
        let port = rig.take(NEED);
        assert_eq!((rig.made, rig.ports()), (2, vec![1]));
        assert_eq!(port.pool().available(), NEED.count);
    }

    /// A plan of a port of the kernel and of others.
    fn plan_of(cpus: &str, devices: u32) -> Plan {
        let mut text = format!(
            "pinning = \"none\"\nforwarding-cpus = \"{cpus}\"\nservice-cpus = \"0\"\ncontrol-cpus = \"1\"\ntx-ring-size = 64\n"
        );
        text += "[[port]]\nname = \"k\"\nuri = \"af-packet:eth0\"\n";
        for number in 0..devices {
            text += &format!("[[port]]\nname = \"n{number}\"\nuri = \"null:\"\n");
        }
        let settings = Settings::parse(Path::new("start"), &text).unwrap();
        settings.plan(&"0-7".parse().unwrap()).unwrap()
    }

    #[test]
    fn buffers_for_the_largest_rings_of_many_ports_do_not_overflow() {
        let plan = plan_of("2-5", 0);
        let count = |ports: &[PortOptions]| need_of_own(&plan, &[], ports).count;
        let mut port = PortOptions::new("port", 1518);
        (port.rx_queues, port.rx_ring_size) = (2, 512);
        (port.tx_queues, port.tx_ring_size) = (3, 256);
        let of_threads = BUFFERS_SPARE + 4 * BUFFERS_A_THREAD;
        assert_eq!(count(&[]), of_threads);
        assert_eq!(
            count(&[port.clone(), port.clone()]),
            of_threads + 2 * (2 * 512 + 3 * 256)
        );
        (port.rx_queues, port.rx_ring_size) = (u16::MAX, u16::MAX);
        (port.tx_queues, port.tx_ring_size) = (u16::MAX, u16::MAX);
        assert_eq!(count(&[port]), u32::MAX);
    }

    #[test]
    fn a_shared_pool_suffices_for_all_that_hold_its_buffers() {
        let count = |cpus: &str, devices: u32| {
            let plan = plan_of(cpus, devices);
            need_of_shared(&plan, &plan.ports[0], 2048).count
        };
        let (one, two) = (count("2", 0), count("2-3", 0));
        let a_thread = BUFFERS_A_THREAD + PORTS_A_POOL * BUFFERS_A_PORT;
        assert!(one > BUFFERS_SPARE + a_thread, "{one}");
        assert!(two > one + a_thread, "{two}");
        // A card may keep the frames of one port in all its transmit rings.
        assert_eq!(count("2", 3), one + 3 * 64);
        assert_eq!(count("2-3", 1), two + 2 * 64);
    }

    #[test]
    fn a_pool_that_is_too_small_is_used_by_its_ports_only() {
        let mut rig = Rig::default();
        let small = rig.take(NEED);
        let larger = Need {
            count: 1023,
            ..NEED
        };
        let large = rig.take(larger);
        assert_eq!(large.pool().count(), larger.count);
        assert_eq!(rig.ports(), [1, 1]);
        drop((small, large));
        // Pools without ports that do not suffice are replaced.
        let wide = Need {
            data_room: 512,
            ..larger
        };
        let port = rig.take(wide);
        assert_eq!((rig.ports(), port.pool().data_room()), (vec![1], 512));
    }
}
