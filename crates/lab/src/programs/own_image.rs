// SPDX-License-Identifier: Apache-2.0
//! A custom image outside a guest, which cannot be started.

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;

use super::forwarder::Forwarder;
use crate::element::{ElementContext, Plan, Process};
use crate::error::LabError;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;

#[derive(Debug)]
pub(super) struct OwnImage;

const WHY: &str = "own-image runs in guests only";

impl Forwarder for OwnImage {
    fn probe(&self) -> Result<String, Unavailable> {
        Err(Unavailable(WHY.to_owned()))
    }

    fn start(&mut self, plan: &Plan, _context: &mut ElementContext<'_>) -> Result<(), LabError> {
        Err(LabError::Unavailable {
            name: plan.name.clone(),
            reason: Unavailable(WHY.to_owned()),
        })
    }

    fn frames(&self, _plan: &Plan, _deadline: Deadline) -> Result<ElementCounts, String> {
        Err(WHY.to_owned())
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        Err(WHY.to_owned())
    }

    fn configuration(&self, _plan: &Plan) -> Result<Vec<String>, String> {
        Err(WHY.to_owned())
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut []
    }
}
