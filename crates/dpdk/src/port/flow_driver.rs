// SPDX-License-Identifier: Apache-2.0
//! Flow rules of a started device with a DPDK driver (rte_flow.h), through the shim.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use crate::steer::CardTarget;
use crate::steer::flow_spec::Masked;
use crate::steer::offload::{Flow, FlowDriver};
use crate::sys;

/// Octets of a driver's reason.
const REASON: usize = 256;

/// The driver of a port. The port is started while it has rules.
#[derive(Debug)]
pub(super) struct PortDriver {
    port: u16,
}

/// A rule of a driver.
#[derive(Debug)]
pub(super) struct PortRule(NonNull<c_void>);

/// A reason that the shim writes.
struct Reason([c_char; REASON]);

impl Reason {
    const fn new() -> Self {
        Self([0; REASON])
    }

    fn text(&self) -> String {
        let octets = self.0.map(c_char::cast_unsigned);
        let text = CStr::from_bytes_until_nul(&octets).unwrap_or_default();
        text.to_string_lossy().into_owned()
    }
}

impl PortDriver {
    pub(super) const fn new(port: u16) -> Self {
        Self { port }
    }
}

/// Returns the rule in the form of the shim.
fn request(flow: &Flow) -> sys::qw_flow {
    let fields = flow.spec.fields();
    // In network order, as the octets are.
    let number = |octets: [u8; 2]| u16::from_ne_bytes(octets);
    let pair = |(value, mask): Masked<2>| (number(value), number(mask));
    let (ethertype, ethertype_mask) = pair(fields.ethertype);
    let (vlan, vlan_mask) = pair(fields.vlan);
    let (source_port, source_port_mask) = pair(fields.source_port);
    let (destination_port, destination_port_mask) = pair(fields.destination_port);
    let ([protocol], [protocol_mask]) = fields.protocol;
    let (is_to_function, is_dropped, queue, function) = match flow.spec.target() {
        CardTarget::Queue(queue) => (0, 0, queue, 0),
        CardTarget::Function(number) => (1, 0, 0, u32::from(number)),
        CardTarget::Drop => (0, 1, 0, 0),
    };
    sys::qw_flow {
        source_mac: fields.source_mac.0,
        source_mac_mask: fields.source_mac.1,
        destination_mac: fields.destination_mac.0,
        destination_mac_mask: fields.destination_mac.1,
        ethertype,
        ethertype_mask,
        vlan,
        vlan_mask,
        source: fields.source.0,
        source_mask: fields.source.1,
        destination: fields.destination.0,
        destination_mask: fields.destination.1,
        source_port,
        source_port_mask,
        destination_port,
        destination_port_mask,
        protocol,
        protocol_mask,
        version: fields.version,
        is_counted: u8::from(flow.is_counted),
        is_to_function,
        is_dropped,
        queue,
        function,
    }
}

impl FlowDriver for PortDriver {
    type Rule = PortRule;

    fn validate(&self, flow: &Flow) -> Result<(), String> {
        let (request, mut reason) = (request(flow), Reason::new());
        // SAFETY: the rule is whole; the text has space for as many octets as stated. DPDK checks the port.
        let code = unsafe {
            sys::qw_flow_validate(self.port, &raw const request, reason.0.as_mut_ptr(), REASON)
        };
        if code == 0 {
            Ok(())
        } else {
            Err(reason.text())
        }
    }

    fn create(&self, flow: &Flow) -> Result<PortRule, String> {
        let (request, mut reason) = (request(flow), Reason::new());
        // SAFETY: as above.
        let rule = unsafe {
            sys::qw_flow_create(self.port, &raw const request, reason.0.as_mut_ptr(), REASON)
        };
        NonNull::new(rule)
            .map(PortRule)
            .ok_or_else(|| reason.text())
    }

    fn destroy(&self, rule: &PortRule) -> Result<(), String> {
        let mut reason = Reason::new();
        // SAFETY: a rule of this port, which the caller forgets if it is destroyed; the text as above.
        let code = unsafe {
            sys::qw_flow_destroy(self.port, rule.0.as_ptr(), reason.0.as_mut_ptr(), REASON)
        };
        if code == 0 {
            Ok(())
        } else {
            Err(reason.text())
        }
    }

    fn hits(&self, rule: &PortRule) -> Option<u64> {
        let mut hits = 0;
        // SAFETY: a rule of this port, and a number.
        let code = unsafe { sys::qw_flow_hits(self.port, rule.0.as_ptr(), &raw mut hits) };
        (code == 0).then_some(hits)
    }
}

#[cfg(test)]
mod tests;
