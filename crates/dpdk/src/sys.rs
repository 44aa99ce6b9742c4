// SPDX-License-Identifier: Apache-2.0
//! Bindings of DPDK's headers and the shim by bindgen, and access to the fields of packet buffers.
#![allow(warnings, clippy::all, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "bindgen generates the arithmetic of bit fields"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

// rte_mbuf_core.h: two cache lines (RTE_CACHE_LINE_MIN_SIZE), also asserted there.
const _: () = assert!(size_of::<rte_mbuf>() == 128);

/// Fields of `struct rte_mbuf`, by their names there. Each function returns a field's address in a buffer. The offsets are
/// compile-time constants from the DPDK version of the build.
///
/// All functions are `unsafe`: the buffer must exist. The caller must follow Rust's rules for references and threads when
/// it uses the address.
pub(crate) mod field {
    use super::*;

    macro_rules! fields {
        ($($name:ident: $type:ty = $offset:ident;)*) => { $(
            // The size is asserted in shim.c.
            const _: () = assert!($offset as usize % align_of::<$type>() == 0);

            #[inline(always)]
            pub(crate) const unsafe fn $name(mbuf: *mut rte_mbuf) -> *mut $type {
                // SAFETY: the buffer exists (the caller), and the field lies within it (offsetof).
                unsafe { mbuf.byte_add($offset as usize).cast() }
            }
        )* };
    }

    fields! {
        buf_addr: *mut u8 = QW_MBUF_BUF_ADDR;
        // Four fields, in the order that shim.c asserts: data_off, refcnt, nb_segs and port.
        first_fields: [u16; 4] = QW_MBUF_DATA_OFF;
        buf_len: u16 = QW_MBUF_BUF_LEN;
        data_off: u16 = QW_MBUF_DATA_OFF;
        data_len: u16 = QW_MBUF_DATA_LEN;
        pkt_len: u32 = QW_MBUF_PKT_LEN;
        // packet_type and pkt_len.
        type_and_length: [u32; 2] = QW_MBUF_PACKET_TYPE;
        // data_len and vlan_tci.
        length_and_tag: [u16; 2] = QW_MBUF_DATA_LEN;
        nb_segs: u16 = QW_MBUF_NB_SEGS;
        refcnt: u16 = QW_MBUF_REFCNT;
        next: *mut rte_mbuf = QW_MBUF_NEXT;
        ol_flags: u64 = QW_MBUF_OL_FLAGS;
        hash_usr: u32 = QW_MBUF_HASH_USR;
        hash_fdir_hi: u32 = QW_MBUF_HASH_FDIR_HI;
    }
}

/// rte_mbuf_core.h, RTE_MBUF_F_RX_LRO: flag of a driver for a valid segment size. bindgen cannot read the macro.
pub(crate) const TSO: u64 = 1 << 16;
/// rte_mbuf_core.h, RTE_MBUF_F_TX_TCP_SEG and RTE_MBUF_F_TX_UDP_SEG: the transmitting port or its peer cuts the frame. Also macros.
pub(crate) const TO_CUT: u64 = 1 << 50 | 1 << 42;
/// rte_mbuf_core.h, RTE_MBUF_F_TX_IP_CKSUM, RTE_MBUF_F_TX_IPV4 and RTE_MBUF_F_TX_IPV6: the device computes the checksum of the IPv4 header;
/// the frame has such a header, or one of IPv6.
pub(crate) const IPV4_CHECKSUM: u64 = 1 << 54;
pub(crate) const IS_IPV4: u64 = 1 << 55;
pub(crate) const IS_IPV6: u64 = 1 << 56;
/// rte_mbuf_core.h, RTE_MBUF_F_RX_L4_CKSUM_BAD and RTE_MBUF_F_RX_L4_CKSUM_GOOD: the device has checked the checksum of TCP or UDP. Both:
/// it is incomplete, and the data are correct. Asserted in shim.c, like those below.
pub(crate) const CHECKSUM_BAD: u64 = 1 << 3;
pub(crate) const CHECKSUM_GOOD: u64 = 1 << 8;
/// rte_mbuf_core.h, RTE_MBUF_F_TX_L4_MASK: the device computes the checksum of TCP or UDP.
pub(crate) const TRANSPORT_CHECKSUM: u64 = 3 << 52;
/// rte_mbuf_ptype.h, RTE_PTYPE_L4_TCP, RTE_PTYPE_L4_UDP, RTE_PTYPE_L4_MASK and RTE_PTYPE_TUNNEL_MASK: the headers that a device has parsed.
pub(crate) const TYPE_TCP: u32 = 0x100;
pub(crate) const TYPE_UDP: u32 = 0x200;
pub(crate) const TYPE_TRANSPORT: u32 = 0xf00;
pub(crate) const TYPE_TUNNEL: u32 = 0xf000;
