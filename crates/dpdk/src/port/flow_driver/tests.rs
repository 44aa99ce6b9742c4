// SPDX-License-Identifier: Apache-2.0
//! Flow rules of a driver that obeys them without a card: DPDK's tap driver (net_tap) makes filters of the kernel's tc of them.

use std::ffi::CString;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::{mem, ptr};

use super::*;
use crate::burst::Burst;
use crate::eal::Eal;
use crate::mempool::Mempool;
use crate::steer::offload::OffloadedRules;
use crate::steer::{SteerMatch, SteerRule, SteerTarget};
use crate::testing::{self, in_a_namespace, until};

const INTERFACE: &str = "qwflow0";
const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const RING: u16 = 256;

/// A started device of the tap driver.
struct TapDevice {
    port: u16,
    device: *mut sys::rte_device,
    _pool: Mempool,
}

impl TapDevice {
    fn start(eal: &Eal) -> Self {
        let pool = Mempool::new(eal, "flow-tap", 4095, 2048).unwrap();
        let arguments = CString::new(format!("net_tap0,iface={INTERFACE}")).unwrap();
        let mut port = 0;
        // SAFETY: the EAL runs; texts are terminated; the structures are plain integers and pointers, for which zero is a value; the pool
        // outlives the device.
        let device = unsafe {
            assert_eq!(sys::rte_dev_probe(arguments.as_ptr()), 0);
            let found = sys::rte_eth_dev_get_port_by_name(c"net_tap0".as_ptr(), &raw mut port);
            assert_eq!(found, 0);
            let mut info: sys::rte_eth_dev_info = mem::zeroed();
            assert_eq!(sys::rte_eth_dev_info_get(port, &raw mut info), 0);
            let conf: sys::rte_eth_conf = mem::zeroed();
            let codes = [
                sys::rte_eth_dev_configure(port, 1, 1, &raw const conf),
                sys::rte_eth_rx_queue_setup(port, 0, RING, u32::MAX, ptr::null(), pool.as_ptr()),
                sys::rte_eth_tx_queue_setup(port, 0, RING, u32::MAX, ptr::null()),
                sys::rte_eth_dev_start(port),
            ];
            assert_eq!(codes, [0; 4]);
            info.device
        };
        Self {
            port,
            device,
            _pool: pool,
        }
    }
}

impl Drop for TapDevice {
    fn drop(&mut self) {
        // SAFETY: started above, and no queue is in use.
        unsafe {
            sys::rte_eth_dev_stop(self.port);
            sys::rte_dev_remove(self.device);
        }
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().unwrap();
    assert!(status.success(), "{arguments:?}");
}

/// Returns the destination port of UDP over IPv4.
fn destination_port(frame: &[u8]) -> Option<u16> {
    let is_udp = frame.get(12..14) == Some(&[8, 0][..]) && frame.get(23) == Some(&17);
    let octets = frame.get(36..38).filter(|_| is_udp)?;
    Some(u16::from_be_bytes(octets.try_into().ok()?))
}

#[test]
#[ignore = "requires a kernel with tc's flower classifier (CONFIG_NET_CLS_FLOWER, CONFIG_NET_ACT_GACT, CONFIG_NET_SCH_MULTIQ) and root; make test-hardware runs it"]
fn the_tap_driver_drops_the_frames_of_a_rule() {
    const DROPPED: u16 = 5000;
    const KEPT: u16 = 5001;
    const FRAMES: u32 = 20;
    let eal = testing::eal();
    in_a_namespace(move || {
        let device = TapDevice::start(&eal);
        ip(&["address", "add", "10.0.0.1/24", "dev", INTERFACE]);
        let far = [
            "neigh",
            "add",
            "10.0.0.2",
            "lladdr",
            "02:00:00:00:00:02",
            "nud",
            "permanent",
            "dev",
            INTERFACE,
        ];
        ip(&far);
        let mut rules = OffloadedRules::new(PortDriver::new(device.port));
        let rule = SteerRule {
            frames: SteerMatch {
                protocol: Some(17),
                destination: Some((FAR.into(), 32)),
                destination_ports: Some((DROPPED, DROPPED)),
                ..SteerMatch::default()
            },
            target: SteerTarget::Switch,
            card: Some(CardTarget::Drop),
        };
        rules.replace(&[rule]).unwrap();
        let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
        let mut burst = Burst::new(&eal);
        // Frames to each port that have arrived.
        let mut arrived = [0_u32; 2];
        let mut exchange = |arrived: &mut [u32; 2]| {
            for port in [DROPPED, KEPT] {
                socket.send_to(b"flow", (FAR, port)).unwrap();
            }
            burst.fill_from(device.port, 0, 32);
            for port in burst.frames().filter_map(destination_port) {
                match port {
                    DROPPED => arrived[0] += 1,
                    KEPT => arrived[1] += 1,
                    _ => {}
                }
            }
            burst.free();
        };
        until("frames without a rule arrive", || {
            exchange(&mut arrived);
            arrived[1] >= FRAMES
        });
        assert_eq!(arrived[0], 0);
        rules.clear();
        until("all frames arrive without the rule", || {
            exchange(&mut arrived);
            arrived[0] >= FRAMES
        });
    });
}
