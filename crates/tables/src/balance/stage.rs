// SPDX-License-Identifier: Apache-2.0
//! All virtual endpoints of a forwarding thread: which packets are for one of them, and their translation.

use std::net::{SocketAddrV4, SocketAddrV6};

use super::balancer::{BalanceDrop, Balancer};
use super::endpoint::BalanceEndpoint;
use super::packets::Packets;
use crate::nat::NatProtocol;
use crate::nat::packet::{End, Kind, View};
use crate::nat::rewrite::Which;

/// Result of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceOutcome {
    /// Of no virtual endpoint: not changed.
    Untouched,
    /// Translated.
    Translated,
    /// To be dropped.
    Dropped(BalanceDrop),
}

/// Address and port of an endpoint, its protocol, and the number of a load balancer that has it.
type NumberedEndpoint<A> = (A, u16, u8, u16);

/// Load balancers of a forwarding thread, by their endpoints.
#[derive(Debug)]
pub struct Balancers<E: BalanceEndpoint = SocketAddrV4> {
    balancers: Vec<Balancer<E>>,
    /// Virtual endpoints, in ascending order.
    virtuals: Vec<NumberedEndpoint<E::Address>>,
    /// Backends whose answers pass the switch, in ascending order.
    backends: Vec<NumberedEndpoint<E::Address>>,
    /// Backends that answer directly, in ascending order.
    directs: Vec<NumberedEndpoint<E::Address>>,
}

fn numbered<E: BalanceEndpoint>(
    endpoint: E,
    protocol: NatProtocol,
    number: usize,
) -> NumberedEndpoint<E::Address> {
    let number = u16::try_from(number).unwrap_or(u16::MAX);
    let (address, port) = endpoint.parts();
    (address, port, protocol as u8, number)
}

#[inline(always)]
fn socket<E: BalanceEndpoint>(end: End<E::Address>) -> E {
    E::of_parts(end.address, end.port)
}

#[inline(always)]
fn end_of<E: BalanceEndpoint>(socket: E) -> End<E::Address> {
    let (address, port) = socket.parts();
    End { address, port }
}

#[inline(always)]
fn has_address<A: Copy + Ord>(places: &[NumberedEndpoint<A>], address: A) -> bool {
    let at = places.partition_point(|one| one.0 < address);
    places.get(at).is_some_and(|one| one.0 == address)
}

/// Returns the load balancers that have an endpoint.
fn those_with<A: Copy + Ord>(
    places: &[NumberedEndpoint<A>],
    end: End<A>,
    protocol: NatProtocol,
) -> &[NumberedEndpoint<A>] {
    let key = (end.address, end.port, protocol as u8);
    let from = places.partition_point(|one| (one.0, one.1, one.2) < key);
    let to = places.partition_point(|one| (one.0, one.1, one.2) <= key);
    places.get(from..to).unwrap_or_default()
}

impl<E: BalanceEndpoint> Balancers<E> {
    /// Creates the stage of these load balancers.
    #[must_use]
    pub fn new(balancers: Vec<Balancer<E>>) -> Self {
        let mut all = Self {
            balancers,
            virtuals: Vec::new(),
            backends: Vec::new(),
            directs: Vec::new(),
        };
        for (number, balancer) in all.balancers.iter().enumerate() {
            let settings = balancer.settings();
            all.virtuals
                .push(numbered(settings.endpoint, settings.protocol, number));
            let backends = match settings.is_direct {
                true => &mut all.directs,
                false => &mut all.backends,
            };
            for one in balancer.backends() {
                let endpoint = one.backend.endpoint;
                backends.push(numbered(endpoint, settings.protocol, number));
            }
        }
        all.virtuals.sort_unstable();
        all.backends.sort_unstable();
        all.directs.sort_unstable();
        all
    }

    /// Returns the load balancers, in the order in which they were given.
    #[must_use]
    pub fn balancers(&self) -> &[Balancer<E>] {
        &self.balancers
    }

    /// Returns the load balancer of a virtual endpoint.
    pub fn find_mut(&mut self, protocol: NatProtocol, endpoint: E) -> Option<&mut Balancer<E>> {
        let mut balancers = self.balancers.iter_mut();
        balancers.find(|one| {
            let settings = one.settings();
            settings.protocol == protocol && settings.endpoint == endpoint
        })
    }

    /// Returns the load balancers for changes.
    #[cfg(test)]
    pub(super) fn balancers_mut(&mut self) -> &mut [Balancer<E>] {
        &mut self.balancers
    }

    /// Continues with the connections of former load balancers that have the same settings. The backends are the new ones. Allocates
    /// nothing.
    pub fn inherit(&mut self, former: &mut Self) {
        for mine in &mut self.balancers {
            let mut others = former.balancers.iter_mut();
            if let Some(other) = others.find(|one| one.settings() == mine.settings()) {
                mine.exchange(other);
            }
        }
    }

    /// Returns true if a packet is to a virtual address.
    #[inline(always)]
    #[must_use]
    pub fn is_to_virtual(&self, packet: &[u8]) -> bool {
        E::destination_of(packet).is_some_and(|one| has_address(&self.virtuals, one))
    }

    /// Returns true if a packet is from the address of a backend.
    #[inline(always)]
    #[must_use]
    pub fn is_from_backend(&self, packet: &[u8]) -> bool {
        E::source_of(packet).is_some_and(|one| has_address(&self.backends, one))
    }

    /// Returns true if a packet is to the address of a backend that answers directly.
    #[inline(always)]
    #[must_use]
    pub fn is_to_direct(&self, packet: &[u8]) -> bool {
        !self.directs.is_empty()
            && E::destination_of(packet).is_some_and(|one| has_address(&self.directs, one))
    }

    /// Removes expired connections: reads the next `budget` entries of each table.
    pub fn expire(&mut self, now: u32, budget: usize) {
        for balancer in &mut self.balancers {
            balancer.expire(now, budget);
        }
    }
}

/// Translation of packets, whose parsers are of this crate only.
impl<E: BalanceEndpoint> Balancers<E> {
    #[inline(always)]
    fn receive_packet(&mut self, packet: &mut [u8], length: usize, now: u32) -> BalanceOutcome
    where
        E: Packets,
    {
        let Ok((view, kind)) = E::read(packet, length) else {
            return BalanceOutcome::Untouched;
        };
        let end = view.end.min(packet.len());
        let Some(packet) = packet.get_mut(..end) else {
            return BalanceOutcome::Untouched;
        };
        if let Kind::Error(inner) = kind {
            return match self.error_to_backend(packet, &view, &inner) {
                true => BalanceOutcome::Translated,
                false => BalanceOutcome::Untouched,
            };
        }
        let found = those_with(&self.virtuals, view.destination, view.protocol).first();
        let balancer = found.and_then(|(.., number)| self.balancers.get_mut(usize::from(*number)));
        match balancer.map(|one| one.to_backend(socket(view.source), view.flags, now)) {
            None => BalanceOutcome::Untouched,
            Some(Err(reason)) => BalanceOutcome::Dropped(reason),
            Some(Ok(backend)) => {
                E::translate(packet, &view, Which::Destination, end_of(backend));
                BalanceOutcome::Translated
            }
        }
    }

    #[inline(always)]
    fn send_packet(&mut self, packet: &mut [u8], length: usize, now: u32) -> bool
    where
        E: Packets,
    {
        let Ok((view, kind)) = E::read(packet, length) else {
            return false;
        };
        let end = view.end.min(packet.len());
        let Some(packet) = packet.get_mut(..end) else {
            return false;
        };
        if let Kind::Error(inner) = kind {
            return self.error_to_client(packet, &view, &inner)
                || self.error_to_direct(packet, &view, &inner);
        }
        if self.to_direct(packet, &view) {
            return true;
        }
        let (backend, client) = (socket(view.source), socket(view.destination));
        for (.., number) in those_with(&self.backends, view.source, view.protocol) {
            let balancer = self.balancers.get_mut(usize::from(*number));
            if let Some(balancer) = balancer
                && balancer.to_client(backend, client, view.flags, now)
            {
                let endpoint = end_of(balancer.settings().endpoint);
                E::translate(packet, &view, Which::Source, endpoint);
                return true;
            }
        }
        false
    }

    fn show_packet_inside(&self, packet: &mut [u8], length: usize) -> bool
    where
        E: Packets,
    {
        let Ok((view, kind)) = E::read(packet, length) else {
            return false;
        };
        let end = view.end.min(packet.len());
        let Some(packet) = packet.get_mut(..end) else {
            return false;
        };
        if let Kind::Error(inner) = kind {
            return self.error_to_backend(packet, &view, &inner);
        }
        let found = those_with(&self.virtuals, view.destination, view.protocol).first();
        let balancer = found.and_then(|(.., number)| self.balancers.get(usize::from(*number)));
        match balancer.and_then(|one| one.next_backend(socket(view.source))) {
            Some(backend) => {
                E::translate(packet, &view, Which::Destination, end_of(backend));
                true
            }
            None => false,
        }
    }

    /// Translates an ICMP error about a packet from a virtual endpoint to a client.
    fn error_to_backend(
        &self,
        packet: &mut [u8],
        view: &View<E::Address>,
        inner: &View<E::Address>,
    ) -> bool
    where
        E: Packets,
    {
        let client = socket(inner.destination);
        let found = those_with(&self.virtuals, inner.source, inner.protocol).first();
        let balancer = found.and_then(|(.., number)| self.balancers.get(usize::from(*number)));
        let backend = balancer.and_then(|one| one.backend_of(client));
        let backend = backend.filter(|_| view.destination.address == inner.source.address);
        let Some(end) = backend.map(end_of) else {
            return false;
        };
        E::translate_inner(packet, view.transport, inner, Which::Source, end);
        E::translate_error(packet, view.transport, Which::Destination, end.address);
        true
    }

    /// Replaces the destination of a packet to a backend that answers directly by its virtual endpoint.
    fn to_direct(&self, packet: &mut [u8], view: &View<E::Address>) -> bool
    where
        E: Packets,
    {
        let client = socket(view.source);
        let endpoint = self.virtual_of(view.destination, view.protocol, client);
        if let Some(end) = endpoint {
            E::translate(packet, view, Which::Destination, end);
        }
        endpoint.is_some()
    }

    /// Replaces the endpoints of an ICMP error about a packet from a virtual endpoint to a client, for a backend that answers directly.
    fn error_to_direct(
        &self,
        packet: &mut [u8],
        view: &View<E::Address>,
        inner: &View<E::Address>,
    ) -> bool
    where
        E: Packets,
    {
        let client = socket(inner.destination);
        let endpoint = self.virtual_of(inner.source, inner.protocol, client);
        let endpoint = endpoint.filter(|_| view.destination.address == inner.source.address);
        if let Some(end) = endpoint {
            E::translate_inner(packet, view.transport, inner, Which::Source, end);
            E::translate_error(packet, view.transport, Which::Destination, end.address);
        }
        endpoint.is_some()
    }

    /// Returns the virtual endpoint by which a client has a connection to a backend that answers directly.
    fn virtual_of(
        &self,
        backend: End<E::Address>,
        protocol: NatProtocol,
        client: E,
    ) -> Option<End<E::Address>> {
        let numbers = those_with(&self.directs, backend, protocol).iter();
        let mut balancers =
            numbers.filter_map(|(.., number)| self.balancers.get(usize::from(*number)));
        let found = balancers.find(|one| one.backend_of(client).map(end_of) == Some(backend));
        found.map(|one| end_of(one.settings().endpoint))
    }

    /// Translates an ICMP error about a packet from a client to a backend, by the backend or by a router.
    fn error_to_client(
        &self,
        packet: &mut [u8],
        view: &View<E::Address>,
        inner: &View<E::Address>,
    ) -> bool
    where
        E: Packets,
    {
        let backends = those_with(&self.backends, inner.destination, inner.protocol);
        let directs = those_with(&self.directs, inner.destination, inner.protocol);
        for (.., number) in backends.iter().chain(directs) {
            let Some(balancer) = self.balancers.get(usize::from(*number)) else {
                continue;
            };
            let backend = balancer.backend_of(socket(inner.source));
            if backend.map(end_of) == Some(inner.destination) {
                let end = end_of(balancer.settings().endpoint);
                E::translate_inner(packet, view.transport, inner, Which::Destination, end);
                if view.source.address == inner.destination.address {
                    E::translate_error(packet, view.transport, Which::Source, end.address);
                }
                return true;
            }
        }
        false
    }
}

/// Translation of packets of an IP version.
macro_rules! packets_of {
    ($endpoint:ty) => {
        impl Balancers<$endpoint> {
            /// Translates the destination of a packet to a virtual endpoint, in place, from its IP header on. `length` is the number of octets
            /// in the frame; the packet may end in further buffers, except that of an ICMP error. Fragments are not translated.
            pub fn receive(
                &mut self,
                packet: &mut [u8],
                length: usize,
                now: u32,
            ) -> BalanceOutcome {
                self.receive_packet(packet, length, now)
            }

            /// Translates the source of a packet of a backend that answers a client, and gives packets to a backend that answers directly
            /// their virtual endpoint again, by which they were routed; parameters as in [`Self::receive`]. Returns false if the packet
            /// stays as it is.
            pub fn send(&mut self, packet: &mut [u8], length: usize, now: u32) -> bool {
                self.send_packet(packet, length, now)
            }

            /// Translates the packet in an ICMP error of the router itself about a packet to a backend. Other packets stay as they are.
            pub fn translate_own_error(&self, packet: &mut [u8], length: usize) {
                if let Ok((view, Kind::Error(inner))) = <$endpoint>::read(packet, length) {
                    self.error_to_client(packet, &view, &inner);
                }
            }

            /// Translates the destination of a packet to a virtual endpoint, for the classification of a copy: begins no connection, and
            /// counts nothing. Returns true if the copy has changed.
            pub fn show_inside(&self, packet: &mut [u8], length: usize) -> bool {
                self.show_packet_inside(packet, length)
            }
        }
    };
}

packets_of!(SocketAddrV4);
packets_of!(SocketAddrV6);
