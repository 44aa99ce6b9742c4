// SPDX-License-Identifier: Apache-2.0
//! Guest memory and its translation.

mod change;

use super::{Action, Backend, Progress, Waiting, reply};
use crate::features::{F_ACCESS_PLATFORM, PROTOCOL_F_BACKEND_REQ, PROTOCOL_F_CONFIGURE_MEM_SLOTS};
use crate::message::{FrontendRequest, Reply};
use crate::session::SessionError;

pub(super) use change::Change;

impl<F> Backend<F> {
    /// Handles requests about guest memory and its translation.
    pub(super) fn memory_request(
        &mut self,
        request: FrontendRequest,
        need_reply: bool,
        mut descriptors: Vec<F>,
    ) -> Result<Progress<F>, SessionError> {
        use FrontendRequest as R;
        let code = request.code();
        let acknowledge = self.acknowledges(code, need_reply);
        let missing = SessionError::Descriptors {
            request: code,
            count: descriptors.len(),
        };
        let wait = |action, change| {
            Ok(Progress::Waiting(
                vec![action],
                Waiting::Memory {
                    change,
                    request: code,
                    acknowledge,
                },
            ))
        };
        match request {
            R::SetMemoryTable(table) => {
                let regions = table.into_regions();
                let pairs = regions.iter().copied().zip(descriptors).collect();
                wait(Action::SetMemory(pairs), Change::Replace(regions))
            }
            R::AddRegion(region) => {
                self.require_slots(code)?;
                if self.regions.len() >= usize::from(self.config.memory_slots) {
                    return Err(SessionError::MemorySlots(self.config.memory_slots));
                }
                if self.regions.iter().any(|other| other.overlaps(&region)) {
                    return Err(SessionError::Overlap(region.guest_address()));
                }
                let file = descriptors.pop().ok_or(missing)?;
                wait(Action::AddRegion(region, file), Change::Add(region))
            }
            R::RemoveRegion(region) => {
                self.require_slots(code)?;
                let known = self
                    .regions
                    .iter()
                    .find(|other| other.is_same_range(&region));
                let known = *known.ok_or(SessionError::NoSuchRegion(region.guest_address()))?;
                wait(Action::RemoveRegion(known), Change::Remove(known))
            }
            R::GetMemorySlots => {
                self.require_slots(code)?;
                let value = self.config.memory_slots.into();
                Ok(Progress::Replied(vec![reply(&Reply::Number {
                    request: code,
                    value,
                })]))
            }
            R::SetRequestChannel => {
                self.require(PROTOCOL_F_BACKEND_REQ, "PROTOCOL_F_BACKEND_REQ", code)?;
                let socket = descriptors.pop().ok_or(missing)?;
                Ok(Progress::Done(vec![Action::IotlbChannel(socket)]))
            }
            R::IotlbUpdate(entry) => self.iotlb(Action::IotlbUpdate(entry), code, acknowledge),
            R::IotlbInvalidate(range) => {
                self.iotlb(Action::IotlbInvalidate(range), code, acknowledge)
            }
            _ => Err(SessionError::Unknown(code)),
        }
    }

    fn iotlb(
        &self,
        action: Action<F>,
        request: u32,
        acknowledge: bool,
    ) -> Result<Progress<F>, SessionError> {
        if !self.has_feature(F_ACCESS_PLATFORM) {
            return Err(SessionError::NotNegotiated {
                request,
                feature: "F_ACCESS_PLATFORM",
            });
        }
        Ok(Progress::Waiting(
            vec![action],
            Waiting::Iotlb { acknowledge },
        ))
    }

    fn require_slots(&self, request: u32) -> Result<(), SessionError> {
        self.require(
            PROTOCOL_F_CONFIGURE_MEM_SLOTS,
            "PROTOCOL_F_CONFIGURE_MEM_SLOTS",
            request,
        )
    }
}
