// SPDX-License-Identifier: Apache-2.0
//! Sockets of a deleted interface, closed by a further thread. When a packet socket is closed, the kernel waits until no CPU uses it or its
//! ring (synchronize_net in packet_release and packet_set_ring, net/packet/af_packet.c), which takes some 10 ms each time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Most threads that close sockets at the same time. Further sockets are closed by the caller.
const THREADS_MAX: usize = 4;

/// Number of these threads.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Closes sockets, in another thread if few enough threads do so. The kernel closes the sockets of a process that ends meanwhile.
pub(super) fn close(sockets: impl Send + 'static) {
    close_by(&THREADS, sockets);
}

/// Like [`close`], with the number of threads.
fn close_by(threads: &'static AtomicUsize, sockets: impl Send + 'static) {
    if threads.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
        drop(sockets);
        threads.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let task = move || {
        drop(sockets);
        threads.fetch_sub(1, Ordering::Relaxed);
    };
    let builder = thread::Builder::new().name("qw-close".to_owned());
    if let Err(error) = builder.spawn(task) {
        // The task was dropped, and the sockets with it.
        threads.fetch_sub(1, Ordering::Relaxed);
        tracing::debug!("sockets are closed without a thread: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Duration;

    use super::*;

    /// Waits at its end until the other side of `held` is dropped, and reports the end with the name of the thread.
    struct Slow {
        held: Receiver<()>,
        ended: Sender<Option<String>>,
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.held.recv_timeout(Duration::from_secs(10));
            let name = thread::current().name().map(str::to_owned);
            let _ = self.ended.send(name);
        }
    }

    #[test]
    fn few_threads_close_sockets_and_the_caller_closes_further_ones() {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        let (ended, ends) = mpsc::channel();
        let slow = || {
            let (hold, held) = mpsc::channel::<()>();
            let ended = ended.clone();
            (hold, Slow { held, ended })
        };
        let mut holds = Vec::new();
        for _ in 0..THREADS_MAX {
            let (hold, value) = slow();
            holds.push(hold);
            close_by(&THREADS, value);
        }
        assert!(ends.try_recv().is_err(), "the caller has waited");
        let (hold, value) = slow();
        drop(hold);
        close_by(&THREADS, value);
        let own = thread::current().name().map(str::to_owned);
        assert_eq!(ends.try_recv(), Ok(own));
        drop(holds);
        for _ in 0..THREADS_MAX {
            let name = ends.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(name.as_deref(), Some("qw-close"));
        }
    }
}
