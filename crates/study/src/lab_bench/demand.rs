// SPDX-License-Identifier: Apache-2.0
//! Resources that a study requires: memory, space for frames and addresses, neighbours.

use quietwire_host::CpuList;
use quietwire_lab::{NeighbourKind, NeighbourSpec, NetworkNeighbour};

use crate::file::{Neighbours, StudyFile};

/// Memory for the buffers of the tester and of the device each, MiB. Jumbo frames need more.
const MEMORY_MIB: u32 = 192;
const MEMORY_JUMBO_MIB: u32 = 512;

/// Returns the maximum number of MAC addresses of one sending port.
pub(super) fn addresses(file: &StudyFile) -> u32 {
    let frames = file.traffic.frames.as_ref();
    let of_case = |case: &crate::Case| file.traffic_of(case).mac_addresses;
    let of_cases = || file.cases.iter().map(of_case).max().unwrap_or(1);
    frames.map_or_else(of_cases, |frames| frames.flow_count())
}

pub(super) fn frame_size_max(file: &StudyFile) -> u16 {
    let sizes = file.traffic.frame_sizes.iter();
    let frames = sizes.map(|size| size.0.largest()).max().unwrap_or(0);
    if file.opens_connections() {
        frames.max(file.conversations().frame_size_max())
    } else {
        frames
    }
}

pub(super) fn memory_mib(file: &StudyFile) -> u32 {
    /// Size of an ordinary buffer, octets.
    const ORDINARY: u16 = 2048;
    /// Number of tester ports that the ordinary memory is for, and the memory of each further pair, MiB.
    const ORDINARY_PORTS: usize = 4;
    const MEMORY_PAIR_MIB: u32 = 48;
    let ports = |case: &crate::Case| {
        let graph = file.device_of(case).graph();
        graph.map_or(0, |graph| graph.chains.len().saturating_mul(2))
    };
    let most = file.cases.iter().map(ports).max().unwrap_or(0);
    let pairs = most.saturating_sub(ORDINARY_PORTS).div_ceil(2);
    let pairs = u32::try_from(pairs).unwrap_or(u32::MAX);
    let more = MEMORY_PAIR_MIB.saturating_mul(pairs);
    if frame_size_max(file) > ORDINARY {
        MEMORY_JUMBO_MIB.saturating_add(more.saturating_mul(4))
    } else {
        MEMORY_MIB.saturating_add(more)
    }
}

/// Size with FCS of the frames that neighbours send through the device, octets.
const NETWORK_FRAME_SIZE: u16 = 64;

/// Returns these neighbours, on these CPUs.
pub(super) fn neighbours(printed: &Neighbours, cpus: CpuList) -> NeighbourSpec {
    NeighbourSpec {
        stressors: stressors(printed, cpus.len()),
        place: printed.place,
        network: printed.network_pps.map(|rate_pps| NetworkNeighbour {
            rate_pps,
            frame_size: NETWORK_FRAME_SIZE,
        }),
        cpus,
    }
}

/// Arguments of stress-ng for neighbours that may use `cpus` CPUs.
fn stressors(neighbours: &Neighbours, cpus: usize) -> Vec<String> {
    let usual = u32::try_from(cpus).unwrap_or(u32::MAX);
    let count = neighbours.count.unwrap_or(usual);
    let kinds = neighbours.kinds.iter();
    let of_kinds = kinds
        .filter_map(|name| NeighbourKind::named(name))
        .flat_map(|kind| kind.stressors(count));
    neighbours
        .stressors
        .iter()
        .cloned()
        .chain(of_kinds)
        .collect()
}
