// SPDX-License-Identifier: Apache-2.0
//! Transmission of frames without segmentation: one system call (sendmmsg(2)) sends the frames of a burst from their packet buffers.
//!
//! A transmit ring (packet(7), PACKET_TX_RING) would pass pages of the ring to the device. The other end of a `veth` pair copies these
//! pages to new ones (skb_orphan_frags, linux/skbuff.h). This takes longer than the copy that the kernel makes in sendmmsg(2), in
//! particular if another CPU receives the frames.

use std::mem::MaybeUninit;
use std::{array, ptr};

use nix::errno::Errno;
use nix::libc;

use super::counters::TxCounters;
use super::slot;
use super::socket::PacketSocket;
use crate::BURST_MAX;
use crate::burst::Burst;
use crate::port::transfer::Outgoing;
use crate::sys::{self, field};

/// Maximum number of pieces of all frames of a call. A frame of the longest size in the smallest buffers has fewer.
const PIECES_MAX: usize = 4 * BURST_MAX;

/// Result of the addition of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    Done,
    /// The frame can never be sent.
    Unfit,
    /// The frame has no space until the earlier ones are sent.
    Full,
}

/// Frames to send, in order, as messages of one call.
pub(super) struct Messages {
    mbufs: [*mut sys::rte_mbuf; BURST_MAX],
    lengths: [u32; BURST_MAX],
    /// The first `count` are initialized, and point to pieces of this value.
    headers: [MaybeUninit<libc::mmsghdr>; BURST_MAX],
    count: usize,
    /// The first `pieces_used` are initialized.
    pieces: [MaybeUninit<libc::iovec>; PIECES_MAX],
    pieces_used: usize,
}

/// Effect of an error on the frames of a call.
enum Refusal {
    /// The kernel accepts no frame now.
    Busy,
    /// The kernel refuses this frame. It may accept others.
    Frame,
    /// The interface is down or gone.
    Interface,
}

impl Refusal {
    /// Classifies an error. Without a carrier, a driver refuses frames with the same error as when it is busy.
    #[cold]
    fn of(error: Errno, sender: &PacketSocket) -> Self {
        match error {
            Errno::EAGAIN | Errno::ENOMEM | Errno::EINTR => Self::Busy,
            Errno::ENOBUFS if sender.link_is_up() => Self::Busy,
            Errno::EMSGSIZE | Errno::EINVAL => Self::Frame,
            _ => Self::Interface,
        }
    }
}

impl Messages {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            mbufs: [ptr::null_mut(); BURST_MAX],
            lengths: [0; BURST_MAX],
            headers: array::from_fn(|_| MaybeUninit::uninit()),
            count: 0,
            pieces: array::from_fn(|_| MaybeUninit::uninit()),
            pieces_used: 0,
        }
    }

    /// Adds a frame.
    ///
    /// # Safety
    /// The caller owns `mbuf`. If the frame is added, this value owns it.
    #[inline(always)]
    pub(super) unsafe fn add(&mut self, mbuf: *mut sys::rte_mbuf) -> Added {
        // SAFETY: the buffer is owned.
        let (length, segments) = unsafe { (*field::pkt_len(mbuf), *field::nb_segs(mbuf)) };
        let first_piece = self.pieces_used;
        let end = first_piece.saturating_add(segments.into());
        if (length as usize) < slot::ETHERNET_HEADER || usize::from(segments) > PIECES_MAX {
            return Added::Unfit;
        }
        let (Some(pieces), Some(header), Some(place), Some(noted)) = (
            self.pieces.get_mut(first_piece..end),
            self.headers.get_mut(self.count),
            self.mbufs.get_mut(self.count),
            self.lengths.get_mut(self.count),
        ) else {
            return Added::Full;
        };
        // SAFETY: the buffer is owned.
        let frame = unsafe { Outgoing::of_buffer(mbuf) };
        let mut octets = frame.segments();
        for piece in pieces {
            let Some(octets) = octets.next() else {
                return Added::Unfit;
            };
            piece.write(libc::iovec {
                iov_base: octets.as_ptr().cast_mut().cast(),
                iov_len: octets.len(),
            });
        }
        header.write(libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: ptr::null_mut(),
                msg_namelen: 0,
                // Set by `send`: this value may move before.
                msg_iov: ptr::null_mut(),
                msg_iovlen: segments.into(),
                msg_control: ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            },
            msg_len: 0,
        });
        *place = mbuf;
        *noted = length;
        self.count = self.count.saturating_add(1);
        self.pieces_used = end;
        Added::Done
    }

    /// Sends the frames. Those for which the kernel has no space return to the burst. Returns the numbers of sent and of dropped frames. No
    /// frame is left afterwards.
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        (sender, counters): (&PacketSocket, &TxCounters),
        burst: &mut Burst,
    ) -> (usize, usize) {
        if self.count == 0 {
            return (0, 0);
        }
        self.point_to_pieces();
        let (mut done, mut dropped, mut octets) = (0_usize, 0_usize, 0_u64);
        // Each turn handles at least one frame, or is the last one.
        while let Some(headers) = self.headers.get_mut(done..self.count)
            && !headers.is_empty()
        {
            // SAFETY: the first `count` headers are initialized; their pieces are memory of owned buffers, which is only read.
            match unsafe { sender.send_messages(headers) } {
                Ok(0) => break,
                Ok(sent) => {
                    let lengths = self.lengths.iter().skip(done).take(sent);
                    octets = octets.saturating_add(lengths.map(|length| u64::from(*length)).sum());
                    done = done.saturating_add(sent);
                }
                Err(error) => match Refusal::of(error, sender) {
                    Refusal::Busy => break,
                    Refusal::Frame => {
                        done = done.saturating_add(1);
                        dropped = dropped.saturating_add(1);
                    }
                    Refusal::Interface => {
                        dropped = dropped.saturating_add(self.count.saturating_sub(done));
                        done = self.count;
                    }
                },
            }
        }
        free(self.mbufs.get_mut(..done).unwrap_or_default());
        burst.append_raw(self.mbufs.iter().copied().take(self.count).skip(done));
        (self.count, self.pieces_used) = (0, 0);
        let sent = done.saturating_sub(dropped);
        counters.frames.add(sent as u64);
        counters.octets.add(octets);
        (sent, dropped)
    }

    /// Makes each header point to its pieces.
    #[inline(always)]
    fn point_to_pieces(&mut self) {
        let pieces: *mut libc::iovec = self.pieces.as_mut_ptr().cast();
        let mut first = 0_usize;
        for header in self.headers.iter_mut().take(self.count) {
            // SAFETY: initialized, as one of the first `count`.
            let header = unsafe { header.assume_init_mut() };
            header.msg_hdr.msg_iov = pieces.wrapping_add(first);
            first = first.saturating_add(header.msg_hdr.msg_iovlen);
        }
    }
}

/// Returns buffers to their pools.
#[expect(clippy::cast_possible_truncation, reason = "at most BURST_MAX buffers")]
pub(super) fn free(mbufs: &mut [*mut sys::rte_mbuf]) {
    if !mbufs.is_empty() {
        // SAFETY: the caller owns the buffers, and forgets them.
        unsafe { sys::rte_pktmbuf_free_bulk(mbufs.as_mut_ptr(), mbufs.len() as u32) };
    }
}
