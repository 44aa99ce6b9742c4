// SPDX-License-Identifier: Apache-2.0
//! The thread that talks to the peers of all ports of shared memory: it accepts connections, carries messages, attaches
//! rings to queues and detaches them. One for the process; it runs on the control CPUs.
//!
//! An endpoint is what belongs together on one socket: a listener with its connections, or a client. A fault of a peer ends
//! its connection; other endpoints go on.

pub(crate) mod populate;
pub(crate) mod socket;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Pause between two attempts of a client to connect: part of the time that a restarted peer seems to be away.
pub(crate) const RETRY: Duration = Duration::from_millis(20);
/// The same after a connection of less than [`STABLE`], so that a peer that ends connections at once does not keep this side busy.
const RETRY_AFTER_SHORT: Duration = Duration::from_millis(500);
/// How long a connection with a sound peer lasts at least.
const STABLE: Duration = Duration::from_secs(1);

/// Returns the pause of a client after a connection of this length.
pub(crate) fn retry_after(lasted: Duration) -> Duration {
    if lasted < STABLE {
        RETRY_AFTER_SHORT
    } else {
        RETRY
    }
}

/// Something with sockets that the thread serves.
pub(crate) trait Endpoint: Send {
    /// One of its descriptors can be read from, or has failed. Reads a bounded amount: what is left is announced again.
    fn ready(&mut self, token: u32, control: &mut Control<'_>);

    /// The moment that it asked for has come.
    fn tick(&mut self, control: &mut Control<'_>);

    /// For additions to an endpoint of a known type.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// What an endpoint may do with the thread's event loop.
pub(crate) struct Control<'reactor> {
    epoll: &'reactor Epoll,
    endpoint: u32,
    /// When to call [`Endpoint::tick`]; the earliest request counts.
    wake_at: Option<Instant>,
    pub(crate) now: Instant,
}

impl Control<'_> {
    /// Has [`Endpoint::ready`] called with `token` whenever the descriptor can be read from.
    pub(crate) fn watch(&self, file: impl AsFd, token: u32) -> io::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, data(self.endpoint, token));
        Ok(self.epoll.add(file, event)?)
    }

    /// Ends that.
    pub(crate) fn unwatch(&self, file: impl AsFd) {
        // An error says that the descriptor is not watched, which is the result wanted here.
        let _ = self.epoll.delete(file);
    }

    /// Has [`Endpoint::tick`] called at a moment, or earlier if others asked for that.
    pub(crate) fn wake_at(&mut self, moment: Instant) {
        self.wake_at = Some(self.wake_at.map_or(moment, |before| before.min(moment)));
    }

    /// The same, from now on.
    pub(crate) fn wake_in(&mut self, wait: Duration) {
        self.wake_at(self.now + wait);
    }
}

fn data(endpoint: u32, token: u32) -> u64 {
    u64::from(endpoint) << 32 | u64::from(token)
}

/// The state of the thread. Work that others hand to it gets this.
pub(crate) struct Reactor {
    epoll: Epoll,
    endpoints: HashMap<u32, Box<dyn Endpoint>>,
    timers: BTreeMap<u32, Instant>,
    next: u32,
    /// Endpoints that several ports share, by their socket.
    pub(crate) shared: HashMap<String, u32>,
}

impl Reactor {
    /// Adds an endpoint and has it begin, through its first [`Endpoint::tick`]. Returns its number.
    pub(crate) fn add(&mut self, endpoint: Box<dyn Endpoint>) -> u32 {
        self.next += 1;
        let id = self.next;
        self.endpoints.insert(id, endpoint);
        self.visit(id, |endpoint, control| endpoint.tick(control));
        id
    }

    /// Removes an endpoint, whose sockets close.
    pub(crate) fn remove(&mut self, id: u32) -> Option<Box<dyn Endpoint>> {
        self.timers.remove(&id);
        self.shared.retain(|_, shared| *shared != id);
        self.endpoints.remove(&id)
    }

    /// Calls `work` with an endpoint; `None` when there is no such one.
    pub(crate) fn visit<R>(
        &mut self,
        id: u32,
        work: impl FnOnce(&mut dyn Endpoint, &mut Control<'_>) -> R,
    ) -> Option<R> {
        let endpoint = self.endpoints.get_mut(&id)?;
        let mut control = Control {
            epoll: &self.epoll,
            endpoint: id,
            wake_at: self.timers.remove(&id),
            now: Instant::now(),
        };
        let result = work(&mut **endpoint, &mut control);
        if let Some(moment) = control.wake_at {
            self.timers.insert(id, moment);
        }
        Some(result)
    }

    fn run_timers(&mut self) {
        let now = Instant::now();
        let due: Vec<u32> = self
            .timers
            .iter()
            .filter(|(_, moment)| **moment <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.timers.remove(&id);
            self.visit(id, |endpoint, control| endpoint.tick(control));
        }
    }

    fn until_next_timer(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(60);
        let now = Instant::now();
        self.timers
            .values()
            .map(|moment| moment.saturating_duration_since(now))
            .min()
            .unwrap_or(LONGEST)
            .min(LONGEST)
    }
}

type Work = Box<dyn FnOnce(&mut Reactor) + Send>;

/// The way to the thread.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    work: SyncSender<Work>,
    wake: Arc<EventFd>,
}

/// Most requests that may wait for the thread.
const WORK_MAX: usize = 64;
/// Events that are taken at once.
const EVENTS_MAX: usize = 32;
/// Event data of the thread's own eventfd: no endpoint has the number 0.
const WAKE: u64 = 0;

impl Peers {
    /// Starts the thread, which inherits the caller's CPUs. It ends when the last of these values is dropped.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn start() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC,
        )?);
        epoll.add(&*wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let (work, works) = sync_channel(WORK_MAX);
        let reactor = Reactor {
            epoll,
            endpoints: HashMap::new(),
            timers: BTreeMap::new(),
            next: 0,
            shared: HashMap::new(),
        };
        let its_wake = Arc::clone(&wake);
        std::thread::Builder::new()
            .name("qw-peers".to_owned())
            .spawn(move || run(reactor, &works, &its_wake))?;
        Ok(Self { work, wake })
    }

    /// Has the thread do something and waits for the result; `None` when it does not come in time.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Reactor) -> R + Send + 'static,
    ) -> Option<R> {
        /// The thread never waits for a peer; it may wait for a CPU.
        const WAIT: Duration = Duration::from_secs(30);
        let (done, result) = sync_channel(1);
        let work: Work = Box::new(move |reactor| {
            // Nobody waits any more only after WAIT.
            let _ = done.send(work(reactor));
        });
        self.work.try_send(work).ok()?;
        self.wake();
        result.recv_timeout(WAIT).ok()
    }

    fn wake(&self) {
        // Full only when the thread is about to look anyway.
        let _ = self.wake.write(1);
    }
}

fn run(mut reactor: Reactor, works: &Receiver<Work>, wake: &EventFd) {
    let mut events = [EpollEvent::empty(); EVENTS_MAX];
    loop {
        let wait = reactor.until_next_timer();
        // Rounded up, or the last millisecond would be spent in circles.
        let wait = u16::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        let count = match reactor.epoll.wait(&mut events, EpollTimeout::from(wait)) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => {
                tracing::error!("connections of ports are no longer served: epoll_wait: {error}");
                return;
            }
        };
        for event in events.iter().take(count) {
            let (endpoint, token) = ((event.data() >> 32) as u32, event.data() as u32);
            if event.data() == WAKE {
                let _ = wake.read();
            } else {
                // An endpoint may be gone by the time its event is handled.
                reactor.visit(endpoint, |endpoint, control| endpoint.ready(token, control));
            }
        }
        for _ in 0..WORK_MAX {
            match works.try_recv() {
                Ok(work) => work(&mut reactor),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            }
        }
        reactor.run_timers();
    }
}

/// Log lines about peers: a few at once, then one now and then, whatever they do.
#[derive(Debug)]
pub(crate) struct LogLimit(Mutex<quietwire_base::RateLimit>);

impl LogLimit {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(quietwire_base::RateLimit::new(
            Duration::from_secs(5),
            5,
            Instant::now(),
        )))
    }

    /// Returns true when a line may be written now.
    pub(crate) fn allows(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(Instant::now())
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_waits_longer_after_a_short_connection() {
        let milliseconds = |lasted| retry_after(Duration::from_millis(lasted)).as_millis();
        assert_eq!([0, 999, 1000, 60_000].map(milliseconds), [500, 500, 20, 20]);
    }
}
