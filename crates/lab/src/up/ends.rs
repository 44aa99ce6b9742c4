// SPDX-License-Identifier: Apache-2.0
//! The two ends of a topology's first chain as kernel network stacks, for applications that communicate through it.

use std::net::Ipv4Addr;
use std::path::Path;

use quietwire_host::journal::Change;

use super::UpLab;
use super::place::NAMESPACES;
use crate::element::ElementContext;
use crate::error::LabError;
use crate::netns::NetNs;

/// IP addresses of the two ends.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 73, 0, 1), Ipv4Addr::new(10, 73, 0, 2)];
const PREFIX: u8 = 24;

/// The two ends that the device connects.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Network namespace of each end.
    pub places: [NetNs; 2],
    /// IP addresses of the ends.
    pub addresses: [Ipv4Addr; 2],
}

impl UpLab {
    /// Runs `work` with a network namespace and an address for each end of the first chain. The tester's ports must be closed
    /// during the call.
    ///
    /// # Errors
    /// [`LabError::Topology`] if the tester's ports are not kernel interfaces; a setup step that failed. All of it is removed with
    /// the lab.
    pub fn with_ends<T>(&mut self, work: impl FnOnce(&Ends) -> T) -> Result<T, LabError> {
        let none = || {
            LabError::Topology(
                "applications require kernel interfaces (use link = \"veth\")".to_owned(),
            )
        };
        let near = self.state.tester.namespace.clone().ok_or_else(none)?;
        let claim = self.claim.as_mut().ok_or_else(none)?;
        let far = format!("{}-far", claim.tag());
        let mut commands = Vec::new();
        let mut context = ElementContext::new(claim.journal(), &mut commands);
        part(&mut context, &near, &far)?;
        let done = work(&Ends {
            places: [NetNs::of(Some(&near))?, NetNs::of(Some(&far))?],
            addresses: ADDRESSES,
        });
        join(&mut context, &near, &far)?;
        Ok(done)
    }
}

fn part(context: &mut ElementContext<'_>, near: &str, far: &str) -> Result<(), LabError> {
    context.record(&Change::NamespaceCreated {
        path: Path::new(NAMESPACES).join(far),
    })?;
    context.run(&["ip", "netns", "add", far])?;
    context.run(&["ip", "-n", near, "link", "set", "p1", "netns", far])?;
    for (place, port, address) in [(near, "p0", ADDRESSES[0]), (far, "p1", ADDRESSES[1])] {
        let address = format!("{address}/{PREFIX}");
        context.run(&["ip", "-n", place, "address", "add", &address, "dev", port])?;
        context.run(&["ip", "-n", place, "link", "set", port, "up"])?;
    }
    Ok(())
}

/// Restores the state before [`part`].
fn join(context: &mut ElementContext<'_>, near: &str, far: &str) -> Result<(), LabError> {
    context.run(&["ip", "-n", far, "address", "flush", "dev", "p1"])?;
    context.run(&["ip", "-n", far, "link", "set", "p1", "netns", near])?;
    context.run(&["ip", "-n", near, "address", "flush", "dev", "p0"])?;
    context.run(&["ip", "-n", near, "link", "set", "p1", "up", "promisc", "on"])?;
    context.run(&["ip", "netns", "delete", far])?;
    Ok(())
}
