/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bindgen reads, and the functions that DPDK offers only as inline code.
 * Every function here is called once per burst (or at set-up), never per packet, but those that are about one frame of
 * 64 KiB.
 */
#ifndef QUIETWIRE_SHIM_H
#define QUIETWIRE_SHIM_H

#include <rte_alarm.h>
#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>
#include <rte_vhost.h>

/* Receives up to n frames of one queue. Returns how many (rte_eth_rx_burst). */
uint16_t qw_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);

/* Hands n frames to one queue; takes over the first returned-value of them (rte_eth_tx_burst). */
uint16_t qw_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);

/* Takes n mbufs from a pool, all or none; 0 or a negative errno (rte_pktmbuf_alloc_bulk). */
int qw_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n);

/* Octets of data in each segment that a frame is to be cut into (tso_segsz of struct rte_mbuf). */
uint16_t qw_segment_size(const struct rte_mbuf *mbuf);

/*
 * Has whoever gets the frame cut it: lengths of the headers of Ethernet, IP and TCP, octets of data in each segment, and
 * whether IP is of version 4.
 */
void qw_request_segments(struct rte_mbuf *mbuf, uint16_t l2, uint16_t l3, uint16_t l4, uint16_t size, int is_ipv4);

/* Value of rte_errno of the calling thread. */
int qw_errno(void);

/* The time stamp counter (rte_rdtsc). */
uint64_t qw_tsc(void);

/* Makes drivers that are part of this program known to DPDK. To be called once, after rte_eal_init. */
void qw_register_drivers(void);

/*
 * Sets the virtio features (bits) that vhost sockets started by the calling thread from now on do not offer to guests.
 */
void qw_vhost_refuse(uint64_t features);

/*
 * Tells of the guest of a vhost port: features that were negotiated, rings, descriptors of the first. 0, or -1 without
 * a guest. To be called by the library's own thread only, which else may take the guest away meanwhile.
 */
int qw_vhost_guest(uint16_t port, uint64_t *features, uint16_t *rings, uint16_t *ring_size);

/*
 * Has `hook` called by every later rte_intr_callback_unregister, before its work is done. Returns 1, or 0 when
 * calls do not come this way because the program was linked without exporting the symbol.
 */
int qw_hook_unregister(void (*hook)(void));

#endif
