// SPDX-License-Identifier: Apache-2.0
//! One or both ends of a run, and the schedule of new conversations. All times are nanoseconds since the start of the run.

use crate::pacer::{Pace, Pacer};

use super::add;
use super::background::{Background, BackgroundResult};
use super::client::Client;
use super::description::{Connections, Role};
use super::plan::Plan;
use super::server::Server;

/// Ticks of the schedule per second: nanoseconds.
const PER_SECOND: u64 = 1_000_000_000;
/// Conversations that are opened in a turn at most.
const OPENS_A_TURN: u64 = 32;
/// Conversations that a late tester may open in a row.
const CATCH_UP: u64 = 256;
/// Space for packets that a turn of opening requires.
const SPARE: usize = 64;
/// Timers that fire in a turn at most.
const TIMERS_A_TURN: usize = 64;

/// When conversations are opened.
#[derive(Debug)]
enum Schedule {
    /// At a rate.
    Rate(Box<Pacer>),
    /// Whenever fewer than a number are open, at most at a rate per second.
    Concurrent {
        number: u64,
        rate_max: Option<f64>,
        until: u64,
    },
}

/// Ends of a run.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Option<Client>,
    pub(crate) server: Option<Server>,
    schedule: Schedule,
    background: Background,
    /// Conversations that were due and not opened, because the table was full or no endpoint was free.
    unopened: u64,
    /// Part of the run whose rates are reported, nanoseconds.
    window: [u64; 2],
    /// Counts of the client at the first turn from each end of the window on.
    marks: [Option<Mark>; 2],
}

/// Counts of the client at a time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u64,
    counts: [u64; 3],
}

/// Rates of a part of a run, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WindowRates {
    /// Length of the part, seconds.
    pub(crate) length_s: f64,
    pub(crate) completed: f64,
    pub(crate) transactions: f64,
    pub(crate) received_octets: f64,
}

impl Session {
    /// Creates the ends of a valid description, of which conversations are opened for `duration_ns`.
    pub(crate) fn new(description: &Connections, duration_ns: u64) -> Self {
        let plan = Plan::new(description);
        let schedule = match description.concurrent {
            Some(number) => Schedule::Concurrent {
                number: u64::from(number),
                rate_max: description.rate,
                until: duration_ns,
            },
            None => {
                let pace = Pace::Rate(description.rate.unwrap_or(0.0));
                let pacer = Pacer::new(pace, 0, duration_ns, PER_SECOND, CATCH_UP);
                Schedule::Rate(Box::new(pacer))
            }
        };
        let (has_client, has_server) = match description.role {
            Role::Both => (true, true),
            Role::Client => (true, false),
            Role::Server => (false, true),
        };
        let background = match has_client {
            true => Background::new(&plan, duration_ns),
            false => Background::default(),
        };
        Self {
            background,
            client: has_client.then(|| Client::new(plan.clone())),
            server: has_server.then(|| Server::new(plan)),
            schedule,
            unopened: 0,
            window: [duration_ns / 10, duration_ns],
            marks: [None; 2],
        }
    }

    /// Reports the rates of another part of the run, nanoseconds from its start.
    pub(crate) fn with_window(self, window: [u64; 2]) -> Self {
        Self { window, ..self }
    }

    /// Notes the client's counts at the ends of the window.
    fn record_marks(&mut self, now: u64) {
        let Some(client) = &self.client else {
            return;
        };
        for (end, mark) in self.window.iter().zip(&mut self.marks) {
            if now >= *end && mark.is_none() {
                *mark = Some(Mark {
                    at: now,
                    counts: client.mark(),
                });
            }
        }
    }

    /// Returns the rates within the window; `None` if the run ended before the window did.
    pub(crate) fn window_rates(&self) -> Option<WindowRates> {
        let [Some(first), Some(last)] = self.marks else {
            return None;
        };
        let length_s = last.at.checked_sub(first.at)? as f64 / PER_SECOND as f64;
        let mut counts = last.counts.into_iter().zip(first.counts);
        let mut per_second = || {
            let (after, before) = counts.next()?;
            Some(after.saturating_sub(before) as f64 / length_s)
        };
        (length_s > 0.0).then_some(WindowRates {
            length_s,
            completed: per_second()?,
            transactions: per_second()?,
            received_octets: per_second()?,
        })
    }

    /// Opens the conversations that are due, and acts on expired timers.
    pub(crate) fn turn(&mut self, now: u64) {
        self.record_marks(now);
        if let Some(client) = &mut self.client {
            let unopened = open_due(client, &mut self.schedule, now);
            add(&mut self.unopened, unopened);
            client.expire(now, TIMERS_A_TURN);
            client.resume(now);
            self.background.send_due(client.shared(), now);
        }
        if let Some(server) = &mut self.server {
            server.expire(now, TIMERS_A_TURN);
            server.resume(now);
        }
    }

    /// Returns true if the client has opened all conversations, none of them is open, and no other packet is awaited.
    pub(crate) fn is_done(&self, now: u64) -> bool {
        if !self.background.is_done(now, self.server.as_ref()) {
            return false;
        }
        let is_opened = match &self.schedule {
            Schedule::Rate(pacer) => pacer.is_done(),
            Schedule::Concurrent { until, .. } => now >= *until,
        };
        let client = self.client.as_ref();
        is_opened && client.is_some_and(|client| client.open_count() == 0)
    }

    /// Ends the traffic beside the conversations. Returns its counters.
    pub(crate) fn end_background(&mut self) -> BackgroundResult {
        self.background.end(self.server.as_ref())
    }

    /// Ends the schedule. Returns the number of conversations in it, and of those that were not opened in time. Without a rate, both
    /// are what was opened.
    pub(crate) fn end_schedule(&mut self) -> (u64, u64) {
        let opened = self.client.as_ref().map_or(0, Client::opened);
        match &mut self.schedule {
            Schedule::Rate(pacer) => {
                pacer.close();
                (
                    pacer.scheduled(),
                    pacer.unsent().saturating_add(self.unopened),
                )
            }
            Schedule::Concurrent { .. } => (opened, 0),
        }
    }
}

/// Opens the conversations that are due. Returns the number of those that could not be opened.
fn open_due(client: &mut Client, schedule: &mut Schedule, now: u64) -> u64 {
    if client.shared().space() < SPARE {
        return 0;
    }
    match schedule {
        Schedule::Rate(pacer) => {
            let due = pacer.due(now, OPENS_A_TURN).frames;
            let opened = (0..due).filter(|_| client.open(now)).count() as u64;
            due.saturating_sub(opened)
        }
        Schedule::Concurrent {
            number,
            rate_max,
            until,
        } => {
            if now >= *until {
                return 0;
            }
            let seconds = now as f64 / PER_SECOND as f64;
            let most = rate_max.map_or(f64::INFINITY, |rate| rate * seconds + 1.0);
            for _ in 0..OPENS_A_TURN {
                let is_due = client.open_count() < *number && (client.opened() as f64) < most;
                if !is_due || !client.open(now) {
                    break;
                }
            }
            0
        }
    }
}
