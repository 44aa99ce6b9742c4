// SPDX-License-Identifier: Apache-2.0
//! Both programs, run by the kernel on made frames. Requires root.

use super::*;
use crate::ebpf::table::Table;
use crate::thread;

/// linux/bpf.h, TCX_NEXT and TCX_REDIRECT.
const NEXT: u32 = u32::MAX;
const REDIRECT: u32 = 7;
/// Test runs come in on the loopback interface of the namespace.
const HERE: u32 = 1;
const THERE: u32 = 7;
const LENGTH_MAX: u32 = 1514;

const A: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xa]);
const B: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xb]);

/// A table with station A here, on port 3, and B there, on port 4.
struct Net {
    forwarding: KernelForwarding,
}

impl Net {
    fn new(vlan: Option<VlanId>) -> Self {
        let forwarding = KernelForwarding::new(16).unwrap();
        let maps = &forwarding.maps;
        maps.ports
            .set(HERE.to_ne_bytes(), program::port(number_of(vlan)))
            .unwrap();
        let net = Self { forwarding };
        net.put(A, vlan, (HERE, 3));
        net.put(B, vlan, (THERE, 4));
        net.forwarding.set_active(true).unwrap();
        net
    }

    fn put(&self, address: MacAddress, vlan: Option<VlanId>, at: (u32, u16)) {
        let station = KernelStation { address, vlan };
        let value = program::station(at.0, at.1, LENGTH_MAX);
        let stations = &self.forwarding.maps.stations;
        stations.set(station.key(), value).unwrap();
    }

    /// Returns true if the kernel forwards a frame of this length. The decisions of both programs agree.
    fn forwards(&self, [to, from]: [MacAddress; 2], length: usize) -> bool {
        let mut frame = vec![0; length];
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&from.0);
        frame[12] = 8;
        // The kernel takes a first header off before it runs a filter.
        let behind_another = [&frame[..14], &frame[..]].concat();
        let kept = bpf::run(self.forwarding.filter(), &behind_another).unwrap();
        let sent = bpf::run(self.forwarding.classifier.as_fd(), &frame).unwrap();
        match (kept, sent) {
            (0, REDIRECT) => true,
            (u32::MAX, NEXT) => false,
            other => panic!("{to} from {from}: {other:?}"),
        }
    }

    fn last_frame(&self, address: MacAddress) -> Option<u64> {
        let vlan = None;
        let station = KernelStation { address, vlan };
        self.forwarding.last_frame(station).unwrap()
    }
}

/// Both programs run on one CPU, as in the kernel.
fn pinned(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        let cpu = *thread::affinity().unwrap().first().unwrap();
        thread::pin(&[cpu]).unwrap();
        test();
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
fn frames_between_known_stations_are_forwarded_and_counted() {
    pinned(|| {
        let net = Net::new(None);
        assert_eq!(net.last_frame(A), Some(0));
        assert!(net.forwards([B, A], 60));
        assert!(net.forwards([B, A], LENGTH_MAX as usize));
        assert!(net.last_frame(A) > Some(0));
        assert_eq!(net.last_frame(B), Some(0));
        let octets = 60 + u64::from(LENGTH_MAX);
        let counts = |number| net.forwarding.counts(number).unwrap();
        let (input, output) = (counts(3), counts(4));
        assert_eq!((input.rx_frames, input.rx_octets), (2, octets));
        assert_eq!((output.tx_frames, output.tx_octets), (2, octets));
        assert_eq!((input.tx_frames, output.rx_frames), (0, 0));
        let since = output.since(KernelCounts::default());
        assert_eq!(since.plus(output).tx_frames, 4);
    });
}

#[test]
fn all_other_frames_go_to_the_socket() {
    pinned(|| {
        let net = Net::new(None);
        let unknown = MacAddress([2, 0, 0, 0, 0, 0xc]);
        let group = MacAddress([1, 0x80, 0xc2, 0, 0, 0]);
        for [to, from] in [
            [unknown, A],
            [group, A],
            [MacAddress::BROADCAST, A],
            [B, unknown],
            // The destination is where the frame comes from.
            [A, A],
        ] {
            assert!(!net.forwards([to, from], 60), "{to} from {from}");
        }
        assert!(!net.forwards([B, A], LENGTH_MAX as usize + 1));
        net.forwarding.set_active(false).unwrap();
        assert!(!net.forwards([B, A], 60));
        net.forwarding.set_active(true).unwrap();
        assert!(net.forwards([B, A], 60));
        net.forwarding
            .maps
            .ports
            .remove(HERE.to_ne_bytes())
            .unwrap();
        assert!(!net.forwards([B, A], 60));
    });
}

#[test]
fn a_station_that_comes_from_elsewhere_is_removed() {
    pinned(|| {
        let net = Net::new(None);
        net.put(A, None, (THERE, 4));
        assert!(!net.forwards([B, A], 60));
        assert_eq!(net.last_frame(A), None);
        net.put(A, None, (HERE, 3));
        assert!(net.forwards([B, A], 60));
    });
}

#[test]
fn stations_of_vlans_are_separate() {
    pinned(|| {
        let [five, six] = [5, 6].map(|vlan| VlanId::new(vlan).ok());
        let net = Net::new(five);
        assert!(net.forwards([B, A], 60));
        let other = program::port(number_of(six));
        let ports = &net.forwarding.maps.ports;
        ports.set(HERE.to_ne_bytes(), other).unwrap();
        assert!(!net.forwards([B, A], 60));
        net.put(A, six, (HERE, 3));
        net.put(B, six, (THERE, 4));
        assert!(net.forwards([B, A], 60));
    });
}

#[test]
fn a_full_table_refuses_a_station() {
    let table: Table<8, 24> = Table::hash("qw_test", 1).unwrap();
    table.set([1; 8], [2; 24]).unwrap();
    let error = table.set([2; 8], [3; 24]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
    assert_eq!(table.get([1; 8]).unwrap(), Some([2; 24]));
    assert_eq!(table.get([2; 8]).unwrap(), None);
    assert!(table.remove([1; 8]).unwrap());
    assert!(!table.remove([1; 8]).unwrap());
}
