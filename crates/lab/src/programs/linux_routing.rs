// SPDX-License-Identifier: Apache-2.0
//! The kernel as a router between the tester's two networks, in a namespace of its own. No process: softirqs do the work, on
//! the element's CPUs.

use serde_json::Value;

use super::networks::{TESTER, sides};
use super::{Forwarder, Unavailable, kernel};
use crate::adapters::DeviceThread;
use crate::error::LabError;
use crate::topology::Encapsulation;
use crate::up::{Plan, Process, Room};

#[derive(Debug)]
pub(super) struct LinuxRouting;

impl Forwarder for LinuxRouting {
    fn probe(&self) -> Result<String, Unavailable> {
        kernel::probe()
    }

    fn start(&mut self, plan: &Plan, room: &mut Room<'_>) -> Result<(), LabError> {
        let setting = match plan.encapsulation {
            Encapsulation::Ipv6 => "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
            // Answers would go another way than questions came, as seen by a filter of sources.
            _ => {
                "echo 1 >/proc/sys/net/ipv4/ip_forward; \
                 for each in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$each; done"
            }
        };
        kernel::inside(plan, room, &["sh", "-c", setting])
    }

    fn connect(&mut self, plan: &Plan, room: &mut Room<'_>) -> Result<(), LabError> {
        let namespace = kernel::namespace(plan)?;
        for (port, side) in sides(plan.encapsulation).iter().enumerate() {
            let name = format!("p{port}");
            // The tester's frames go to the MAC address of the tester's other port: that is what the router has to have.
            let ip = ["ip", "-n", namespace];
            let address = ["link", "set", &name, "address", TESTER[1 - port]];
            room.run(&[&ip[..], &address].concat())?;
            let nodad: &[&str] = match plan.encapsulation {
                Encapsulation::Ipv6 => &["nodad"],
                _ => &[],
            };
            let own = ["address", "add", side.own, "dev", &name];
            room.run(&[&ip[..], &own, nodad].concat())?;
        }
        kernel::steer(plan, room)
    }

    fn program(&mut self, plan: &Plan, room: &mut Room<'_>) -> Result<(), LabError> {
        let namespace = kernel::namespace(plan)?;
        for (port, side) in sides(plan.encapsulation).iter().enumerate() {
            let name = format!("p{port}");
            room.run(&[
                "ip",
                "-n",
                namespace,
                "neighbour",
                "replace",
                side.tester,
                "lladdr",
                TESTER[port],
                "dev",
                &name,
                "nud",
                "permanent",
            ])?;
        }
        Ok(())
    }

    fn counters(&self, plan: &Plan) -> Result<Value, String> {
        kernel::counters(plan)
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        Ok(Vec::new())
    }

    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        let version = match plan.encapsulation {
            Encapsulation::Ipv6 => "-6",
            _ => "-4",
        };
        kernel::told(
            plan,
            &[
                &["address", "show"],
                &[version, "route", "show"],
                &[version, "neighbour", "show"],
            ],
        )
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut []
    }
}
