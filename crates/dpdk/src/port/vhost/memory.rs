// SPDX-License-Identifier: Apache-2.0
//! Mappings of one connection: a guest's memory, its dirty page log, and the inflight area.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::port::peers::populate::Populating;
use quietwire_memory::{Mapping, Sealing};
use quietwire_vhost::address_space::{AddressSpace, Iotlb, Region};
use quietwire_vhost::message::{self, InflightArea, RingSize};
use quietwire_vhost::ring::{DirtyLog, InflightRegion, inflight_region_len};

/// Mappings of a connection.
#[derive(Debug)]
pub(super) struct Memory {
    sealing: Sealing,
    /// Regions of the front end and their mappings, in order.
    regions: Vec<(message::Region, Arc<Mapping>)>,
    space: Option<AddressSpace>,
    iotlb: Option<Arc<Iotlb>>,
    log: Option<(DirtyLog, Arc<Mapping>)>,
    inflight: Option<(InflightArea, Arc<Mapping>, bool)>,
    populating: Populating,
}

impl Memory {
    pub(super) fn new(sealing: Sealing) -> Self {
        Self {
            sealing,
            regions: Vec::new(),
            space: None,
            iotlb: None,
            log: None,
            inflight: None,
            populating: Populating::default(),
        }
    }

    /// Enables translation through an IOTLB.
    pub(super) fn use_iotlb(&mut self) -> Result<(), String> {
        if self.iotlb.is_none() {
            self.iotlb = Some(Arc::new(Iotlb::new()));
            self.rebuild()?;
        }
        Ok(())
    }

    pub(super) fn iotlb(&self) -> Option<&Iotlb> {
        self.iotlb.as_deref()
    }

    pub(super) fn space(&self) -> Option<&AddressSpace> {
        self.space.as_ref()
    }

    pub(super) fn log(&self) -> Option<DirtyLog> {
        self.log.as_ref().map(|(log, _)| log.clone())
    }

    /// Maps regions and replaces all former ones. The former ones stay if that fails.
    pub(super) fn set(&mut self, regions: Vec<(message::Region, OwnedFd)>) -> Result<(), String> {
        let mapped = regions
            .into_iter()
            .map(|(region, file)| Ok((region, self.map(&region, file)?)))
            .collect::<Result<Vec<_>, String>>()?;
        self.replace(mapped)
    }

    /// Maps one more region.
    pub(super) fn add(&mut self, region: message::Region, file: OwnedFd) -> Result<(), String> {
        let mapping = self.map(&region, file)?;
        let mut regions = self.regions.clone();
        regions.push((region, mapping));
        self.replace(regions)
    }

    /// Unmaps a region when no ring uses it any more.
    pub(super) fn remove(&mut self, region: &message::Region) -> Result<(), String> {
        let mut regions = self.regions.clone();
        regions.retain(|(other, _)| !other.is_same_range(region));
        self.replace(regions)
    }

    /// Returns the mappings of all regions.
    pub(super) fn mappings(&self) -> impl Iterator<Item = &Arc<Mapping>> {
        self.regions.iter().map(|(_, mapping)| mapping)
    }

    fn replace(&mut self, regions: Vec<(message::Region, Arc<Mapping>)>) -> Result<(), String> {
        let former = std::mem::replace(&mut self.regions, regions);
        let result = self.rebuild();
        if result.is_err() {
            self.regions = former;
        }
        result
    }

    fn rebuild(&mut self) -> Result<(), String> {
        let regions = self
            .regions
            .iter()
            .map(|(region, mapping)| {
                Region::new(
                    region.guest_address(),
                    region.user_address(),
                    region.size(),
                    mapping,
                    0,
                )
                .ok_or_else(|| "a region is out of range".to_owned())
            })
            .collect::<Result<Vec<_>, _>>()?;
        let space =
            AddressSpace::new(regions, self.iotlb.clone()).map_err(|error| error.to_string())?;
        self.space = Some(space);
        Ok(())
    }

    fn map(&mut self, region: &message::Region, file: OwnedFd) -> Result<Arc<Mapping>, String> {
        let mapping = Mapping::of_peer(file.as_fd(), region.offset(), region.size(), self.sealing)
            .map(Arc::new)
            .map_err(|error| error.to_string())?;
        self.populating.push(&mapping, file, region.offset());
        Ok(mapping)
    }

    /// Fills a part of the page tables. Returns true while more remains.
    pub(super) fn populate(&mut self) -> bool {
        self.populating.step()
    }

    /// Maps the dirty page log and replaces the former one.
    pub(super) fn set_log(&mut self, size: u64, offset: u64, file: &OwnedFd) -> Result<(), String> {
        let mapping = Mapping::of_peer(file.as_fd(), offset, size, self.sealing)
            .map(Arc::new)
            .map_err(|error| error.to_string())?;
        let log = DirtyLog::new(&mapping, 0, size).ok_or("the log is out of range")?;
        self.log = Some((log, mapping));
        Ok(())
    }

    /// Creates an inflight area.
    pub(super) fn create_inflight(
        rings: u16,
        ring_size: u16,
        is_packed: bool,
    ) -> Result<(InflightArea, OwnedFd), String> {
        let len = inflight_region_len(ring_size, is_packed).saturating_mul(u64::from(rings));
        let octets = usize::try_from(len).map_err(|_| "the area is too large")?;
        let (mapping, file) =
            Mapping::create("quietwire-inflight", octets).map_err(|error| error.to_string())?;
        drop(mapping);
        let size = RingSize::new(ring_size).ok_or("the size of the rings is out of range")?;
        let area = InflightArea::new(len, 0, rings, size).ok_or("the area is out of range")?;
        Ok((area, file))
    }

    /// Maps an inflight area.
    pub(super) fn set_inflight(
        &mut self,
        area: InflightArea,
        file: &OwnedFd,
        is_packed: bool,
    ) -> Result<(), String> {
        let mapping = Mapping::of_peer(file.as_fd(), area.offset(), area.size(), self.sealing)
            .map_err(|error| error.to_string())?;
        self.inflight = Some((area, Arc::new(mapping), is_packed));
        Ok(())
    }

    /// Returns the part of the inflight area for a ring.
    pub(super) fn inflight(&self, ring: u8) -> Option<InflightRegion> {
        let (area, mapping, is_packed) = self.inflight.as_ref()?;
        let len = inflight_region_len(area.ring_size().get(), *is_packed);
        Some(InflightRegion::new(
            mapping,
            len.saturating_mul(u64::from(ring)),
        ))
    }

    /// Returns true if the guest truncated its memory.
    pub(super) fn has_faulted(&self) -> bool {
        let log = self.log.as_ref().map(|(_, mapping)| mapping);
        let inflight = self.inflight.as_ref().map(|(_, mapping, _)| mapping);
        self.mappings()
            .chain(log)
            .chain(inflight)
            .any(|mapping| mapping.has_faulted())
    }
}
