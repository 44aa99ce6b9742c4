// SPDX-License-Identifier: Apache-2.0
//! Ends of routed frames: the outputs of their interfaces.

use quietwire_dpdk::{Burst, Mbuf};
use quietwire_tables::port_mask::PortMask;
use quietwire_tables::route::{
    DecisionWord, Interface, InterfaceBinding, Interfaces, Source, rewrite,
};

use super::output::Output;

/// Ends of routed frames: the ports that they wait for, and the number of those that are lost.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) touched: PortMask,
    pub(super) lost: u64,
}

impl Ends {
    /// Rewrites the frames of a burst that all leave by one interface, and passes the burst on as a whole if the interface is a port whose
    /// output is empty. Returns the number of rewritten frames at the beginning of the burst, which stay in it otherwise.
    #[inline(always)]
    pub(super) fn forward_all(
        &mut self,
        outputs: &mut [Option<Box<Output>>],
        out: &Interface,
        burst: &mut Burst,
        mut words: impl Iterator<Item = DecisionWord>,
    ) -> usize {
        let source = Source::new(out.mac);
        let rewritten = burst.change_while(|frame| {
            let to = words.next().and_then(DecisionWord::forwarded);
            to.is_some_and(|to| rewrite(frame, source, to))
        });
        if rewritten == burst.len()
            && let (InterfaceBinding::Port(port), None) = (out.place, out.vlan)
            && let Some(Some(output)) = outputs.get_mut(usize::from(port))
            && output.waiting.is_empty()
        {
            std::mem::swap(&mut output.waiting, burst);
            self.touched.insert(port);
        }
        rewritten
    }

    /// Adds the frame that `ready` makes to the burst of an interface.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline(always)]
    pub(super) fn forward<'eal>(
        &mut self,
        outputs: &mut [Option<Box<Output>>],
        interface: u16,
        interfaces: &Interfaces,
        to_bridges: &mut Burst,
        ready: impl FnOnce(&Interface) -> Option<Mbuf<'eal>>,
    ) {
        let out = interfaces.get(interface);
        let touched = &mut self.touched;
        let sent = out.and_then(|out| {
            let frame = ready(out)?;
            leave(outputs, frame, interface, out, to_bridges, touched)
        });
        self.lost += u64::from(sent.is_none());
    }
}

/// Adds a frame to the burst of an interface. Returns `None` if the frame is lost.
#[inline(always)]
pub(super) fn leave(
    outputs: &mut [Option<Box<Output>>],
    mut frame: Mbuf<'_>,
    interface: u16,
    out: &Interface,
    to_bridges: &mut Burst,
    touched: &mut PortMask,
) -> Option<()> {
    match out.place {
        InterfaceBinding::Port(port) => {
            if let Some(vlan) = out.vlan
                && !frame.push_tag(0x8100, vlan.get())
            {
                return None;
            }
            touched.insert(port);
            match outputs.get_mut(usize::from(port))? {
                Some(place) => place.waiting.push(frame).ok(),
                None => None,
            }
        }
        InterfaceBinding::Bridge(_) => {
            frame.set_mark(u32::from(interface));
            to_bridges.push(frame).ok()
        }
    }
}
