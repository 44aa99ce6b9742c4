// SPDX-License-Identifier: Apache-2.0
//! Tests of the front end with the back end.

use super::*;
use crate::session::frontend::{
    self, Frontend, FrontendConfig, FrontendRing, Inflight, Negotiated, Resources,
};

/// Carries messages between both sides until the front end has nothing more to send.
struct Link {
    frontend: Frontend<u32>,
    side: Side,
    ring_size: u16,
    base: Option<RingBase>,
    inflight: Inflight<u32>,
    kept: Option<(InflightArea, u32)>,
    ready: Option<Negotiated>,
    stopped: Option<Vec<RingBase>>,
}

impl Link {
    fn new(frontend: FrontendConfig, backend: BackendConfig) -> Self {
        Self {
            frontend: Frontend::new(frontend),
            side: Side::new(backend),
            ring_size: 256,
            base: None,
            inflight: Inflight::Off,
            kept: None,
            ready: None,
            stopped: None,
        }
    }

    fn resources(&self, negotiated: Negotiated) -> Resources<u32> {
        let is_packed = negotiated.features & F_RING_PACKED != 0;
        let rings = (0..2 * negotiated.queue_pairs).map(|index| FrontendRing {
            size: self.ring_size,
            addresses: addresses(u8::try_from(index).unwrap()),
            base: self.base.unwrap_or(RingBase::initial(is_packed)),
            kick: Some(200 + u32::from(index)),
            call: Some(100 + u32::from(index)),
        });
        Resources {
            regions: vec![(region(0), 7)],
            rings: rings.collect(),
            inflight: self.inflight.clone(),
        }
    }

    fn run(
        &mut self,
        first: Result<Vec<frontend::Action<u32>>, SessionError>,
    ) -> Result<(), SessionError> {
        let mut actions = first?;
        while !actions.is_empty() {
            let mut more = Vec::new();
            for action in actions {
                match action {
                    frontend::Action::Send(octets, files) => {
                        let (header, payload) = octets.split_first_chunk().unwrap();
                        let header = Header::parse(header).unwrap();
                        let request = R::parse(header, payload, files.len()).unwrap();
                        for (reply, files) in self.side.ask(request, header.need_reply(), files)? {
                            more.extend(self.frontend.handle_reply(reply, files)?);
                        }
                    }
                    frontend::Action::Negotiated(negotiated) => {
                        more.extend(self.frontend.provide(self.resources(negotiated))?);
                    }
                    frontend::Action::KeepInflight(area, file) => self.kept = Some((area, file)),
                    frontend::Action::Ready(negotiated) => self.ready = Some(negotiated),
                    frontend::Action::Stopped(bases) => self.stopped = Some(bases),
                }
            }
            actions = more;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), SessionError> {
        let first = self.frontend.start();
        self.run(first)
    }

    fn stop(&mut self) -> Result<(), SessionError> {
        let first = self.frontend.stop();
        self.run(first)
    }
}

#[test]
fn both_sides_agree_with_each_kind_of_ring_pairs_and_protocol_features() {
    for is_packed in [false, true] {
        for pairs in [1, 4, 128] {
            for protocol_features in [0, PROTOCOL_F_MQ, u64::MAX] {
                agree(is_packed, pairs, protocol_features);
            }
        }
    }
}

#[test]
fn segmentation_is_used_if_the_back_end_offers_the_checksums_that_it_requires() {
    let wanted = NET_F_CSUM | NET_F_GUEST_CSUM | NET_F_HOST_TSO4 | NET_F_GUEST_TSO4;
    for (offered, used) in [
        (wanted, wanted),
        (NET_F_HOST_TSO4 | NET_F_GUEST_TSO4, 0),
        (wanted & !NET_F_CSUM, NET_F_GUEST_CSUM | NET_F_GUEST_TSO4),
        (wanted & !NET_F_GUEST_CSUM, NET_F_CSUM | NET_F_HOST_TSO4),
    ] {
        let backend = BackendConfig {
            features: F_VERSION_1 | offered,
            ..Default::default()
        };
        let frontend = FrontendConfig {
            features: wanted,
            ..Default::default()
        };
        let mut link = Link::new(frontend, backend);
        link.start().unwrap();
        assert_eq!(link.ready.unwrap().features, F_VERSION_1 | used);
    }
}

fn agree(is_packed: bool, pairs: u16, protocol_features: u64) {
    let packed = if is_packed { F_RING_PACKED } else { 0 };
    let backend = BackendConfig {
        features: F_VERSION_1 | packed | F_EVENT_IDX,
        queue_pairs: pairs,
        protocol_features,
        ..Default::default()
    };
    let frontend = FrontendConfig {
        features: F_VERSION_1 | F_RING_PACKED | NET_F_MRG_RXBUF,
        queue_pairs: pairs,
        mtu: Some(9000),
        protocol_features,
        ..Default::default()
    };
    let mut link = Link::new(frontend, backend);
    // Not a power of two: allowed for packed rings only.
    link.ring_size = if is_packed { 300 } else { 256 };
    link.start().unwrap();
    let used = if protocol_features == 0 { 1 } else { pairs };
    let ready = link.ready.unwrap();
    assert_eq!(ready.queue_pairs, used);
    assert_eq!(ready.features, F_VERSION_1 | packed);
    assert_eq!(link.side.rings.len(), 2 * usize::from(used));
    let mut enabled: Vec<_> = link.side.rings.iter().map(|ring| ring.is_enabled).collect();
    for action in &link.side.log {
        if let Action::EnableRing { index, is_enabled } = action {
            enabled[usize::from(*index)] = *is_enabled;
        }
    }
    assert!(enabled.iter().all(|is_enabled| *is_enabled));
    for (index, ring) in link.side.rings.iter().enumerate() {
        let index = u32::try_from(index).unwrap();
        assert_eq!(u32::from(ring.index), index);
        assert_eq!(ring.is_packed, is_packed);
        assert_eq!(ring.size, link.ring_size);
        assert_eq!(ring.base, RingBase::initial(is_packed));
        assert_eq!(ring.descriptors, addresses(ring.index).descriptors);
        assert_eq!(ring.available, addresses(ring.index).available);
        assert_eq!(ring.used, addresses(ring.index).used);
        assert_eq!(ring.kick, Kick::Event(200 + index));
        assert_eq!(ring.call, Some(100 + index));
    }
    let is_mtu = |action: &Action| *action == Action::SetMtu(9000);
    assert_eq!(
        link.side.log.iter().any(is_mtu),
        protocol_features == u64::MAX
    );
    let status = if protocol_features == u64::MAX { 15 } else { 0 };
    assert_eq!(link.side.backend.status(), status);

    link.stop().unwrap();
    let bases: Vec<_> = (0..=u8::MAX)
        .take(2 * usize::from(used))
        .map(|index| stopped_at(index, is_packed))
        .collect();
    assert_eq!(link.stopped.as_ref(), Some(&bases));
    assert!(link.side.rings.is_empty());
    assert_eq!(link.side.log.last(), Some(&Action::DeviceGone));
    // Once more on the same connection, from the positions where the rings stopped.
    link.base = Some(bases[0]);
    let resources = link.resources(link.frontend.negotiated());
    let first = link.frontend.provide(resources);
    link.run(first).unwrap();
    assert_eq!(link.side.rings.len(), bases.len());
    assert!(link.side.rings.iter().all(|ring| ring.base == bases[0]));
    assert_eq!(link.side.backend.descriptors_held(), 0);
}

#[test]
fn the_front_end_takes_fewer_queues_if_the_back_end_has_fewer() {
    let frontend = FrontendConfig {
        queue_pairs: 4,
        ..Default::default()
    };
    let mut link = Link::new(
        frontend,
        BackendConfig {
            queue_pairs: 2,
            ..Default::default()
        },
    );
    link.start().unwrap();
    assert_eq!(link.ready.unwrap().queue_pairs, 2);
    assert_eq!(link.side.rings.len(), 4);
}

#[test]
fn the_front_end_ends_if_a_required_feature_is_missing_or_a_request_is_refused() {
    let required_features = F_VERSION_1 | NET_F_MRG_RXBUF;
    let frontend = FrontendConfig {
        required_features,
        ..Default::default()
    };
    let mut link = Link::new(frontend, BackendConfig::default());
    assert_eq!(link.start(), Err(SessionError::Missing(NET_F_MRG_RXBUF)));
    assert_eq!(link.frontend.start(), Err(SessionError::Ended));

    let mut link = Link::new(FrontendConfig::default(), BackendConfig::default());
    link.side.fails = true;
    assert_eq!(
        link.start(),
        Err(SessionError::Refused(code::SET_MEM_TABLE))
    );

    let backend = BackendConfig {
        mtu_max: 1500,
        ..Default::default()
    };
    let mut link = Link::new(
        FrontendConfig {
            mtu: Some(1501),
            ..Default::default()
        },
        backend,
    );
    assert_eq!(link.start(), Err(SessionError::Refused(code::NET_SET_MTU)));
}

#[test]
fn the_front_end_checks_resources_and_order() {
    let mut frontend = Frontend::<u32>::new(FrontendConfig::default());
    assert_eq!(frontend.stop(), Err(SessionError::OutOfOrder));
    assert_eq!(frontend.start(), Err(SessionError::Ended));
    for wrong in 0..4 {
        let mut link = Link::new(FrontendConfig::default(), BackendConfig::default());
        match wrong {
            0 => link.ring_size = 0,
            1 => link.ring_size = 32_769,
            2 => link.base = Some(RingBase::initial(true)),
            _ => {
                link.inflight = Inflight::Restore(
                    InflightArea::new(1, 0, 2, RingSize::new(2).unwrap()).unwrap(),
                    5,
                )
            }
        }
        // Inflight areas are not negotiated by default, and then not used.
        assert_eq!(link.start().is_err(), wrong < 3, "{wrong}");
    }
    let mut frontend = Frontend::<u32>::new(FrontendConfig::default());
    let _ = frontend.start().unwrap();
    let reply = Reply::Number {
        request: code::GET_QUEUE_NUM,
        value: 1,
    };
    let error = SessionError::UnexpectedReply(code::GET_QUEUE_NUM);
    assert_eq!(frontend.handle_reply(reply, vec![]), Err(error));
}

#[test]
fn inflight_areas_are_kept_and_given_back() {
    let frontend = FrontendConfig {
        protocol_features: u64::MAX,
        ..Default::default()
    };
    let mut link = Link::new(frontend.clone(), BackendConfig::default());
    link.inflight = Inflight::Request;
    link.start().unwrap();
    let (area, file) = link.kept.unwrap();
    assert_eq!((area.rings(), area.ring_size().get(), file), (2, 256, 99));
    assert!(link.side.log.contains(&Action::CreateInflight {
        rings: 2,
        ring_size: 256,
        is_packed: false
    }));

    let mut link = Link::new(frontend, BackendConfig::default());
    link.inflight = Inflight::Restore(area, file);
    link.start().unwrap();
    assert!(link.side.log.contains(&Action::SetInflight(area, 99)));
}
