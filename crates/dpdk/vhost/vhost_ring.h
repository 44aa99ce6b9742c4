/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2010-2018 Intel Corporation
 */

#ifndef _VHOST_RING_H_
#define _VHOST_RING_H_

#include <stdbool.h>
#include <stdint.h>

#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>

/* Regions of memory that a guest can have (VHOST_MEMORY_MAX_NREGIONS of the vhost library). */
#define VHOST_REGIONS_MAX 8

/* Memory of the guest that is mapped here. */
struct vhost_region {
	uint64_t guest;			/* Its address in descriptors. */
	uint64_t size;
	uint8_t *host;			/* Where it is mapped. */
};

/* What a ring has met, counted by the thread that has its queue. */
struct vhost_counters {
	uint64_t frames;
	uint64_t octets;
	uint64_t errors;		/* Frames, or bursts of them, that the guest spoilt. */
	uint64_t no_buffers;		/* Frames for which the pool had no buffer. */
	uint64_t notifications;
};

/*
 * A split virtqueue of a guest. Everything that its pointers lead to is the guest's to change at any time: what is there
 * is read once, and checked before it is followed.
 */
struct vhost_ring {
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t size;			/* A power of two. */
	uint16_t seen_avail;		/* The first slot of the guest's ring that was not filled when it was looked at. */
	uint16_t last_avail;		/* The slot of the guest's ring that comes next. */
	uint16_t last_used;		/* The slot of this side's. */
	uint16_t signalled;		/* last_used when the guest was last looked at whether it wants to be told. */
	bool has_signalled;
	bool is_untold;			/* The guest got something back, and was not looked at since. */
	bool has_events;		/* VIRTIO_RING_F_EVENT_IDX */
	bool has_offloads;		/* The guest's headers say something. */
	bool is_mergeable;		/* VIRTIO_NET_F_MRG_RXBUF */
	bool software_checksums;	/* What the guest left out is put in here. */
	uint8_t header;			/* Octets before each frame. */
	uint16_t port;
	int call;			/* An eventfd that wakes the guest, or -1. */
	uint32_t regions_count;
	struct vhost_region near;	/* The one that was hit last. */
	struct vhost_region regions[VHOST_REGIONS_MAX];
	struct vhost_counters counters;
};

/* Takes frames that the guest sends, into buffers of a pool. Returns how many. */
uint16_t vhost_ring_receive(struct vhost_ring *ring, struct rte_mempool *pool, struct rte_mbuf **bufs, uint16_t count);

/* Hands frames to the guest, and frees those that it took, as many of the first ones as the value that is returned. */
uint16_t vhost_ring_send(struct vhost_ring *ring, struct rte_mbuf **bufs, uint16_t count);

/* What the guest says before a frame about checksums and segments, for the buffer that has the frame now. */
void vhost_take_offloads(struct vhost_ring *ring, struct rte_mbuf *mbuf, const struct virtio_net_hdr *header);

/* Finishes the checksum of a frame that the guest did not, by the flags of its buffer. */
void vhost_finish_frame(struct rte_mbuf *mbuf);

/* What is said to the guest before a frame. */
void vhost_give_offloads(struct rte_mbuf *mbuf, struct virtio_net_hdr *header);

#endif				/* _VHOST_RING_H_ */
