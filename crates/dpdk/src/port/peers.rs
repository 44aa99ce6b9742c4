// SPDX-License-Identifier: Apache-2.0
//! The peer thread. It serves the peers of all shared-memory ports: accepts connections, carries messages, attaches
//! rings to queues and detaches them. There is one per process; it runs on the control CPUs.
//!
//! An endpoint is the unit on one socket: a listener with its connections, or a client. A fault of a peer ends
//! its connection; other endpoints continue.

pub(crate) mod input;
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

/// Pause between two connection attempts of a client. It is part of the outage when a peer restarts.
pub(crate) const RETRY: Duration = Duration::from_millis(20);
/// Pause after a connection of less than [`STABLE`], so that a peer that ends connections at once does not keep this side busy.
const RETRY_AFTER_SHORT: Duration = Duration::from_millis(500);
/// Shortest duration of a connection with a sound peer.
const STABLE: Duration = Duration::from_secs(1);

/// Returns the pause of a client after a connection of this length.
pub(crate) fn retry_after(lasted: Duration) -> Duration {
    if lasted < STABLE {
        RETRY_AFTER_SHORT
    } else {
        RETRY
    }
}

/// Sockets that the thread serves as a unit.
pub(crate) trait Endpoint: Send {
    /// Handles a descriptor that is readable or has failed. Reads a bounded amount; remaining data is reported again.
    fn ready(&mut self, token: u32, control: &mut Control<'_>);

    /// Runs at the requested time.
    fn tick(&mut self, control: &mut Control<'_>);

    /// Returns the endpoint as [`Any`], to change an endpoint of a known type.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// Access of an endpoint to the thread's event loop.
pub(crate) struct Control<'reactor> {
    epoll: &'reactor Epoll,
    endpoint: u32,
    /// Time of the next [`Endpoint::tick`]: the earliest request.
    wake_at: Option<Instant>,
    pub(crate) now: Instant,
}

impl Control<'_> {
    /// Requests calls of [`Endpoint::ready`] with `token` whenever the descriptor is readable.
    pub(crate) fn watch(&self, file: impl AsFd, token: u32) -> io::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, data(self.endpoint, token));
        Ok(self.epoll.add(file, event)?)
    }

    /// Ends these calls.
    pub(crate) fn unwatch(&self, file: impl AsFd) {
        // An error means that the descriptor is not watched, which is the intended result.
        let _ = self.epoll.delete(file);
    }

    /// Requests a call of [`Endpoint::tick`] at a time. An earlier request takes precedence.
    pub(crate) fn wake_at(&mut self, moment: Instant) {
        self.wake_at = Some(self.wake_at.map_or(moment, |before| before.min(moment)));
    }

    /// Requests a call of [`Endpoint::tick`] after a duration.
    pub(crate) fn wake_in(&mut self, wait: Duration) {
        self.wake_at(self.now.checked_add(wait).unwrap_or(self.now));
    }
}

fn data(endpoint: u32, token: u32) -> u64 {
    u64::from(endpoint) << 32 | u64::from(token)
}

/// State of the peer thread, passed to the work of other threads.
pub(crate) struct Reactor {
    epoll: Epoll,
    endpoints: HashMap<u32, Box<dyn Endpoint>>,
    timers: BTreeMap<u32, Instant>,
    next: u32,
    /// Endpoints shared by several ports, by their socket.
    pub(crate) shared: HashMap<String, u32>,
}

impl Reactor {
    /// Adds an endpoint and starts it with its first [`Endpoint::tick`]. Returns its number.
    pub(crate) fn add(&mut self, endpoint: Box<dyn Endpoint>) -> u32 {
        self.next = self.next.wrapping_add(1);
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

    /// Calls `work` with an endpoint. `None` if the endpoint does not exist.
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

/// Handle of the peer thread.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    work: SyncSender<Work>,
    wake: Arc<EventFd>,
}

/// Most queued requests.
const WORK_MAX: usize = 64;
/// Most events per epoll_wait.
const EVENTS_MAX: usize = 32;
/// Event data of the thread's own eventfd: no endpoint has the number 0.
const WAKE: u64 = 0;

impl Peers {
    /// Starts the thread, which inherits the caller's CPUs. It ends when the last of these values is dropped.
    ///
    /// # Errors
    /// The kernel's error.
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

    /// Runs work in the peer thread and waits for the result. `None` after a timeout.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Reactor) -> R + Send + 'static,
    ) -> Option<R> {
        /// Timeout. The thread never waits for a peer, but it may wait for a CPU.
        const WAIT: Duration = Duration::from_secs(30);
        let (done, result) = sync_channel(1);
        let work: Work = Box::new(move |reactor| {
            // The receiver is gone only after WAIT.
            let _ = done.send(work(reactor));
        });
        self.work.try_send(work).ok()?;
        self.wake();
        result.recv_timeout(WAIT).ok()
    }

    fn wake(&self) {
        // The eventfd is full only if the thread is about to read it anyway.
        let _ = self.wake.write(1);
    }
}

fn run(mut reactor: Reactor, works: &Receiver<Work>, wake: &EventFd) {
    let mut events = [EpollEvent::empty(); EVENTS_MAX];
    loop {
        let wait = reactor.until_next_timer();
        // Rounded up, otherwise the last millisecond would be a busy loop.
        let wait = u16::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        let count = match reactor.epoll.wait(&mut events, EpollTimeout::from(wait)) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => {
                tracing::error!(
                    "the peer thread ends, so connections of ports are no longer served: epoll_wait: {error}"
                );
                return;
            }
        };
        for event in events.iter().take(count) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the two halves of the number that `data` returned"
            )]
            let (endpoint, token) = ((event.data() >> 32) as u32, event.data() as u32);
            if event.data() == WAKE {
                let _ = wake.read();
            } else {
                // An endpoint may be removed before its event is handled.
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

/// Rate limit of log lines about peers: a few at once, then one per interval.
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

    /// Returns true if a line may be written now.
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
