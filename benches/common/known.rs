// SPDX-License-Identifier: Apache-2.0
//! Known flows of a switch, alone and beside as many frames of a scan.

use super::Spread;
use super::device::Device;
use super::lcg::Lcg;
use super::packets::Packets;
use super::record::Figure;

/// Figures of each of the two loads.
pub(crate) const FIGURES: [Figure; 3] =
    [Figure::EstablishedPps, Figure::NewPps, Figure::CyclesAFrame];
/// Times that each load is measured in a round: the host's speed differs more from one minute to another than the figures do.
const REPEATS: usize = 3;

/// Returns the description of UDP flows to as many networks of /24, from `first`.0.0.0 on. Ports are described, so that frames the other way
/// answer them: default ports are the same both ways. From 16.0.0.0 on, they are the flows of [`Device::rate_to`].
pub(crate) fn to_networks(first: u8, count: u32) -> String {
    format!(
        "[traffic]\nflows = {{ count = {count}, order = \"uniform\" }}\n\
         [traffic.ipv4]\ndestination = {{ first = \"{first}.0.0.1\", step = 256, count = {count} }}\n\
         [traffic.udp]\nsource = 1024\n"
    )
}

/// Measures `known` flows alone, and beside as many frames of a scan, in turns: the medians of [`FIGURES`] of both. Without tracking, the
/// switch forwards all alike.
pub(crate) fn measure(
    device: &Device,
    (known, is_tracked): (u32, bool),
    turns: &mut Lcg,
) -> [[Option<f64>; FIGURES.len()]; 2] {
    // The first destinations are those of the known flows.
    let mut measured = [known, 2 * known].map(|count| (count, Vec::new()));
    for _ in 0..REPEATS {
        for index in turns.order(measured.len()) {
            let (count, values) = &mut measured[index];
            values.push(measure_once(device, (known, is_tracked), *count));
        }
    }
    measured.map(|(_, values)| {
        std::array::from_fn(|index| {
            let values: Option<Vec<f64>> = values.iter().map(|one| one[index]).collect();
            values.map(|values| Spread::of(&values).median)
        })
    })
}

/// Measures frames to this many destinations.
fn measure_once(
    device: &Device,
    (known, is_tracked): (u32, bool),
    count: u32,
) -> [Option<f64>; FIGURES.len()] {
    let packets = || is_tracked.then(|| Packets::of(&device.switch));
    let (before, work) = (packets(), device.work());
    let rate = device.rate_to(count);
    let cycles = device.work().since(work).cycles_a_frame();
    let share = match packets().zip(before) {
        Some((now, before)) => now.established_share_since(&before),
        None => Some(f64::from(known) / f64::from(count)),
    };
    let of_rate = |part: Option<f64>| part.map(|part| part * rate);
    [
        of_rate(share),
        of_rate(share.map(|share| 1.0 - share)),
        cycles,
    ]
}
