// SPDX-License-Identifier: Apache-2.0
//! A mapped receive ring (packet(7), PACKET_RX_RING with TPACKET_V2): an array of slots. The status word at
//! the start of a slot determines whether the kernel or this process owns it.

// The number of slots is a power of two, and slots lie within the mapping, so the operations that could wrap do not leave it.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::libc;
#[cfg(test)]
use nix::sys::mman::mmap_anonymous;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::geometry::Geometry;
use super::socket::PacketSocket;

/// A mapped ring and the next slot.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    geometry: Geometry,
    /// Number of passed slots, modulo 2^32; the number of slots is a power of two.
    head: u32,
    /// Socket of the ring. The kernel's side of the ring lives as long as the socket.
    _socket: Option<Arc<PacketSocket>>,
}

// SAFETY: the mapping belongs to this value only and may be used by any thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `socket`.
    pub(super) fn map(socket: &Arc<PacketSocket>, geometry: Geometry) -> Result<Self, Errno> {
        let length = NonZeroUsize::new(geometry.length()).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &***socket, 0)? };
        Ok(Self {
            base: base.cast(),
            geometry,
            head: 0,
            _socket: Some(Arc::clone(socket)),
        })
    }

    /// Returns a ring without a kernel side.
    #[cfg(test)]
    pub(super) fn unserved(geometry: Geometry) -> Self {
        let length = NonZeroUsize::new(geometry.length()).unwrap();
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE) }.unwrap();
        Self {
            base: base.cast(),
            geometry,
            head: 0,
            _socket: None,
        }
    }

    #[cfg(test)]
    pub(super) const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the slot `ahead` of the next one.
    #[inline(always)]
    fn slot(&self, ahead: u32) -> NonNull<u8> {
        let index = self.head.wrapping_add(ahead) & self.geometry.slots.wrapping_sub(1);
        // SAFETY: the index is less than the number of slots (masked; a power of two), so the address is within the mapping.
        unsafe {
            let size = self.geometry.slot_size as usize;
            self.base.add((index as usize).wrapping_mul(size))
        }
    }

    #[inline(always)]
    fn status(&self, ahead: u32) -> &AtomicU32 {
        // SAFETY: a slot begins with its status (struct tpacket2_hdr), is aligned to 16 octets and lives as long as the
        // ring; any bits are a number. Both sides access it atomically only.
        unsafe { AtomicU32::from_ptr(self.slot(ahead).as_ptr().cast()) }
    }

    /// Returns how many of the next slots have a received frame, at most `most`.
    #[inline]
    pub(super) fn received(&self, most: usize) -> usize {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        (0..most.min(self.geometry.slots))
            .take_while(|ahead| {
                self.status(*ahead).load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0
            })
            .count()
    }

    /// Returns the next slot if it has a received frame.
    #[inline(always)]
    pub(super) fn next_received(&mut self) -> Option<Received<'_>> {
        let status = self.status(0).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        quietwire_memory::prefetch_address(self.slot(1).as_ptr());
        Some(Received { ring: self, status })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and no reference to it is left.
        if let Err(error) = unsafe { munmap(self.base.cast(), self.geometry.length()) } {
            tracing::warn!("cannot unmap a packet ring: {error}");
        }
    }
}

/// A slot with a received frame. Drop returns it to the kernel.
#[derive(Debug)]
pub(super) struct Received<'ring> {
    ring: &'ring mut Ring,
    status: u32,
}

impl Received<'_> {
    /// Returns the status that the kernel wrote.
    pub(super) const fn status(&self) -> u32 {
        self.status
    }

    /// Returns the complete slot.
    #[inline(always)]
    pub(super) fn octets(&self) -> &[u8] {
        // SAFETY: the slot is within the mapping (`slot`). The kernel does not access it while its status assigns it to
        // us (checked by `next_received`), until this value is dropped.
        unsafe {
            slice::from_raw_parts(
                self.ring.slot(0).as_ptr(),
                self.ring.geometry.slot_size as usize,
            )
        }
    }
}

impl Drop for Received<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ring
            .status(0)
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.ring.head = self.ring.head.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: usize = 4096;
    use super::super::geometry::ALIGNMENT;

    proptest! {
        /// Checks a request like the kernel (packet(7) and Documentation/networking/packet_mmap.rst).
        #[test]
        fn geometries_are_what_the_kernel_takes(
            exponent in 5u32..=14,
            space in 64usize..=9400,
            page in prop_oneof![Just(PAGE), Just(16384), Just(65536)],
        ) {
            let geometry = Geometry::new(1 << exponent, space, page);
            let request = geometry.request();
            prop_assert_eq!(geometry.slots, 1 << exponent);
            prop_assert!(geometry.slot_size as usize >= space);
            prop_assert_eq!(request.tp_frame_size as usize % ALIGNMENT, 0);
            prop_assert_eq!(request.tp_block_size as usize % page, 0);
            prop_assert_eq!(request.tp_block_size % request.tp_frame_size, 0);
            prop_assert_eq!(
                request.tp_block_size / request.tp_frame_size * request.tp_block_nr,
                request.tp_frame_nr
            );
            prop_assert_eq!(
                request.tp_block_size as usize * request.tp_block_nr as usize,
                geometry.length()
            );
        }
    }

    #[test]
    fn received_frames_come_in_order_and_their_slots_go_back() {
        let mut ring = Ring::unserved(Geometry::new(32, 64, PAGE));
        assert!(ring.next_received().is_none());
        for round in 0u8..5 {
            for number in 0u8..20 {
                // SAFETY: the slot is within the mapping, and the ring has no kernel side.
                unsafe { *ring.slot(u32::from(number)).as_ptr().add(60) = number + round };
                let status = ring.status(u32::from(number));
                status.store(libc::TP_STATUS_USER, Ordering::Release);
            }
            assert_eq!((ring.received(8), ring.received(64)), (8, 20));
            let size = ring.geometry().slot_size as usize;
            for number in 0u8..20 {
                let slot = ring.next_received().unwrap();
                assert_eq!(slot.octets()[60], number + round);
                assert_eq!(slot.octets().len(), size);
            }
            assert!(ring.next_received().is_none());
            assert_eq!(ring.received(64), 0);
        }
        assert_eq!(ring.head, 100);
    }
}
