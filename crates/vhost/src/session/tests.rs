// SPDX-License-Identifier: Apache-2.0
//! Tests of the back end with the front end, and of each alone with a misbehaving peer.

mod backend_tests;
mod frontend_tests;

use proptest::collection::vec;
use proptest::prelude::*;

use super::SessionError;
use super::backend::{self, Backend, BackendConfig, Kick, RingConfig};
use crate::features::*;
use crate::fuzz::{fuzz_backend_session, fuzz_frontend_session};
use crate::message::{
    FrontendRequest as R, Header, InflightArea, IotlbEntry, IotlbRange, LogArea, MemoryTable,
    Permission, Region, Reply, RingAddresses, RingBase, RingEvent, RingSize, code,
};

type Action = backend::Action<u32>;
type Rings = Vec<RingConfig<u32>>;

const USER: u64 = 0x7f00_0000_0000;

fn region(number: u64) -> Region {
    let size = 0x10_0000;
    Region::new(number * size, size, USER + number * size, 0).unwrap()
}

fn table() -> MemoryTable {
    MemoryTable::new(vec![region(0)]).unwrap()
}

fn addresses(index: u8) -> RingAddresses {
    let start = USER + u64::from(index) * 0x4000;
    let (available, used) = (start + 0x1000, start + 0x2000);
    RingAddresses {
        descriptors: start,
        available,
        used,
        log: None,
    }
}

fn parse_reply(octets: &[u8], descriptors: usize) -> Reply {
    let (header, payload) = octets.split_first_chunk().unwrap();
    Reply::parse(Header::parse(header).unwrap(), payload, descriptors).unwrap()
}

/// A back end, and a caller that carries out its actions.
struct Side {
    backend: Backend<u32>,
    rings: Rings,
    stopped: Vec<u8>,
    log: Vec<Action>,
    fails: bool,
}

impl Side {
    fn new(config: BackendConfig) -> Self {
        Self {
            backend: Backend::new(config),
            rings: Vec::new(),
            stopped: Vec::new(),
            log: Vec::new(),
            fails: false,
        }
    }

    /// Passes a request to the back end; returns the replies.
    fn ask(
        &mut self,
        request: R,
        need_reply: bool,
        descriptors: Vec<u32>,
    ) -> Result<Vec<(Reply, Vec<u32>)>, SessionError> {
        let mut replies = Vec::new();
        let mut actions = self.backend.handle(request, need_reply, descriptors)?;
        while !actions.is_empty() {
            let mut more = Vec::new();
            for action in actions {
                more.extend(self.carry_out(action, &mut replies)?);
            }
            actions = more;
        }
        Ok(replies)
    }

    fn carry_out(
        &mut self,
        action: Action,
        replies: &mut Vec<(Reply, Vec<u32>)>,
    ) -> Result<Vec<Action>, SessionError> {
        let result = if self.fails { Err(()) } else { Ok(()) };
        let more = match &action {
            Action::Reply(octets, files) => {
                replies.push((parse_reply(octets, files.len()), files.clone()));
                return Ok(Vec::new());
            }
            Action::SetMemory(_) | Action::AddRegion(..) | Action::RemoveRegion(_) => {
                self.backend.memory_mapped(result)
            }
            Action::SetLog { .. } => self.backend.log_mapped(result),
            Action::IotlbUpdate(_) | Action::IotlbInvalidate(_) => {
                self.backend.iotlb_updated(result)
            }
            Action::SetInflight(..) => self.backend.inflight_mapped(result),
            Action::CreateInflight {
                rings, ring_size, ..
            } => {
                let size = RingSize::new(*ring_size).unwrap();
                let area = InflightArea::new(8192, 0, *rings, size).unwrap();
                self.backend.inflight_created(result.map(|()| (area, 99)))
            }
            Action::StartRing(config) => {
                self.rings.push(RingConfig::clone(config));
                Ok(Vec::new())
            }
            Action::StopRing { index } => {
                let ring = self
                    .rings
                    .iter()
                    .position(|ring| ring.index == *index)
                    .unwrap();
                let is_packed = self.rings.remove(ring).is_packed;
                self.stopped.push(*index);
                self.backend
                    .ring_stopped(*index, stopped_at(*index, is_packed))
            }
            _ => Ok(Vec::new()),
        };
        self.log.push(action);
        more
    }

    /// Passes a request that has no reply.
    fn tell(&mut self, request: R, descriptors: Vec<u32>) {
        let replies = self.ask(request, false, descriptors).unwrap();
        assert!(replies.is_empty(), "{replies:?}");
    }

    /// Returns the number with which the back end replies.
    fn number(&mut self, request: R, need_reply: bool, descriptors: Vec<u32>) -> u64 {
        let code = request.code();
        match self
            .ask(request, need_reply, descriptors)
            .unwrap()
            .as_slice()
        {
            [(Reply::Number { request, value }, _)] if *request == code => *value,
            other => panic!("{other:?}"),
        }
    }

    /// Sends what a ring requires, in the usual order.
    fn set_up(&mut self, index: u8) {
        let size = RingSize::new(256).unwrap();
        self.tell(R::SetRingSize { index, size }, vec![]);
        self.tell(R::SetRingBase { index, bits: 0 }, vec![]);
        self.tell(
            R::SetRingAddresses {
                index,
                addresses: addresses(index),
            },
            vec![],
        );
        let event = RingEvent {
            index,
            has_descriptor: true,
        };
        self.tell(R::SetRingCall(event), vec![100 + u32::from(index)]);
        self.tell(R::SetRingKick(event), vec![200 + u32::from(index)]);
    }

    fn take_log(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.log)
    }
}

fn stopped_at(index: u8, is_packed: bool) -> RingBase {
    let at = u16::from(index) + 40;
    if is_packed {
        RingBase::Packed {
            available: at,
            available_wrap: false,
            used: at - 3,
            used_wrap: true,
        }
    } else {
        RingBase::Split { available: at }
    }
}

/// Returns a back end with these protocol features, whose memory is set.
fn side(features: u64, protocol_features: u64) -> Side {
    let features = features | F_VERSION_1;
    let mut side = Side::new(BackendConfig {
        features,
        queue_pairs: 2,
        ..Default::default()
    });
    side.tell(R::SetOwner, vec![]);
    side.tell(R::SetProtocolFeatures(protocol_features), vec![]);
    side.tell(
        R::SetFeatures(features & !F_LOG_ALL | F_PROTOCOL_FEATURES),
        vec![],
    );
    side.tell(R::SetMemoryTable(table()), vec![1]);
    side.take_log();
    side
}

proptest! {
    #[test]
    fn any_requests_leave_the_back_end_whole(octets in vec(any::<u8>(), 0..1500)) {
        fuzz_backend_session(&octets);
    }

    #[test]
    fn any_requests_to_a_running_back_end_leave_it_consistent(
        setup in any::<u8>(),
        octets in vec(any::<u8>(), 0..1500),
    ) {
        let mut all = vec![setup & !2 | 8];
        all.extend(octets);
        fuzz_backend_session(&all);
    }

    #[test]
    fn any_replies_leave_the_front_end_whole(octets in vec(any::<u8>(), 0..400)) {
        fuzz_frontend_session(&octets);
    }
}
