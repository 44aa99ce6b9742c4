/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright 2018-2019 Cisco Systems, Inc.  All rights reserved.
 */

/*
 * Receiving and sending. Everything in shared memory is the peer's to change at any time: a descriptor is read once,
 * as a copy, and what it says is checked before it is followed; counters of this side are kept in private memory.
 */

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>

#include "memif_burst.h"
#include "prefetch_write.h"
#include "rte_eth_memif.h"

/* Octets of the longest frame: what a length of 16 bits says. */
#define MEMIF_FRAME_MAX 65535

/* How many frames ahead cache lines are asked for, and of how much of each frame. */
#define MEMIF_AHEAD 8
#define MEMIF_ASKED_FOR_MAX 256

/* Buffers given back to the peer at once, unless the ring is small. */
#define MEMIF_REFILL_MIN 32

/* A descriptor as it stands now. */
static inline memif_desc_t
memif_read_desc(const memif_ring_t *ring, uint16_t slot)
{
	const uint64_t *shared = (const uint64_t *)(const void *)&ring->desc[slot];
	uint64_t words[2];
	memif_desc_t desc;

	words[0] = __atomic_load_n(&shared[0], __ATOMIC_RELAXED);
	words[1] = __atomic_load_n(&shared[1], __ATOMIC_RELAXED);
	memcpy(&desc, words, sizeof(desc));
	return desc;
}

/* Where a buffer of so many octets is, or NULL when it is not within a region. */
static inline uint8_t *
memif_buffer(const struct pmd_process_private *proc_private, const memif_desc_t *desc, uint32_t length)
{
	const struct memif_region *region;

	if (unlikely(desc->region >= proc_private->regions_num))
		return NULL;
	region = proc_private->regions[desc->region];
	if (unlikely((uint64_t)desc->offset + length > region->region_size))
		return NULL;
	return (uint8_t *)region->addr + desc->offset;
}

/*
 * Asks for the cache lines of the buffer that a slot's descriptor leads to: they are in the other CPU's cache, and take longer
 * to come than several frames take to copy.
 */
static inline void
memif_ask_for(const struct memif_queue *mq, const memif_ring_t *ring, uint16_t slot, uint32_t length, bool to_write)
{
	const uint16_t mask = (1 << mq->log2_ring_size) - 1;
	const memif_desc_t desc = memif_read_desc(ring, slot & mask);
	const uint32_t lines = RTE_MIN(to_write ? length : desc.length, (uint32_t)MEMIF_ASKED_FOR_MAX);
	const uint8_t *data = memif_buffer(mq->proc_private, &desc, lines);
	uint32_t line;

	if (unlikely(data == NULL))
		return;
	for (line = 0; line < lines; line += RTE_CACHE_LINE_SIZE) {
		if (to_write)
			prefetch_write(data + line);
		else
			rte_prefetch0(data + line);
	}
}

/* What became of a frame. */
enum memif_frame {
	MEMIF_FRAME_GOOD,
	MEMIF_FRAME_BAD,	/* The peer's descriptors make no sense. */
	MEMIF_FRAME_NO_BUFFER,	/* The pool is empty. */
};

/* Adds octets to a frame that did not fit its first buffer. */
static enum memif_frame
memif_append(struct memif_queue *mq, struct rte_mbuf *head, const uint8_t *data, uint32_t length)
{
	struct rte_mbuf *tail = rte_pktmbuf_lastseg(head);
	struct rte_mbuf *next;
	uint16_t part;

	if (length > MEMIF_FRAME_MAX - RTE_MIN(head->pkt_len, (uint32_t)MEMIF_FRAME_MAX))
		return MEMIF_FRAME_BAD;
	while (length > 0) {
		part = RTE_MIN(length, (uint32_t)rte_pktmbuf_tailroom(tail));
		if (part == 0) {
			next = rte_pktmbuf_alloc(mq->mempool);
			if (next == NULL)
				return MEMIF_FRAME_NO_BUFFER;
			tail->next = next;
			head->nb_segs++;
			tail = next;
			continue;
		}
		rte_memcpy(rte_pktmbuf_mtod_offset(tail, void *, tail->data_len), data, part);
		tail->data_len += part;
		head->pkt_len += part;
		data += part;
		length -= part;
	}
	return MEMIF_FRAME_GOOD;
}

/* Takes a frame out of the ring, of `slots` that are filled. Returns how many it had. */
static inline uint16_t
memif_take(struct memif_queue *mq, const memif_ring_t *ring, uint16_t slot, uint16_t slots, struct rte_mbuf *mbuf,
	   enum memif_frame *outcome)
{
	const uint16_t mask = (1 << mq->log2_ring_size) - 1;
	enum memif_frame frame = MEMIF_FRAME_GOOD;
	const uint8_t *data;
	memif_desc_t desc;
	uint16_t used = 0;

	do {
		if (unlikely(used == slots)) {
			frame = MEMIF_FRAME_BAD;
			break;
		}
		desc = memif_read_desc(ring, (slot + used++) & mask);
		data = memif_buffer(mq->proc_private, &desc, desc.length);
		if (unlikely(frame != MEMIF_FRAME_GOOD))
			continue;
		if (unlikely(data == NULL)) {
			frame = MEMIF_FRAME_BAD;
		} else if (likely(used == 1 && desc.length <= rte_pktmbuf_tailroom(mbuf))) {
			rte_memcpy(rte_pktmbuf_mtod(mbuf, void *), data, desc.length);
			mbuf->data_len = desc.length;
			mbuf->pkt_len = desc.length;
		} else {
			frame = memif_append(mq, mbuf, data, desc.length);
		}
	} while (desc.flags & MEMIF_DESC_FLAG_NEXT);

	if (unlikely(mbuf->pkt_len == 0))
		frame = MEMIF_FRAME_BAD;
	*outcome = frame;
	return used;
}

/* Gives the peer its buffers back, with their length. */
static inline void
memif_refill(struct memif_queue *mq, memif_ring_t *ring)
{
	const uint16_t size = 1 << mq->log2_ring_size;
	uint16_t head = mq->last_head;
	uint16_t count = size - (uint16_t)(head - mq->last_tail);

	/* Few at a time would have both sides write to the same cache lines in turn. */
	if (count < RTE_MIN(MEMIF_REFILL_MIN, size / 4))
		return;
	while (count-- > 0)
		ring->desc[head++ & (size - 1)].length = mq->pmd->run.pkt_buffer_size;
	mq->last_head = head;
	__atomic_store_n(&ring->head, head, __ATOMIC_RELEASE);
}

uint16_t
eth_memif_rx(void *queue, struct rte_mbuf **bufs, uint16_t nb_pkts)
{
	struct memif_queue *mq = queue;
	memif_ring_t *ring = mq->ring;
	uint16_t slot, slots, used, wanted, ahead, n_rx = 0;
	enum memif_frame outcome;
	struct rte_mbuf *mbuf;
	const bool c2s = mq->type == MEMIF_RING_C2S;

	if (unlikely((__atomic_load_n(&mq->pmd->flags, __ATOMIC_ACQUIRE) & ETH_MEMIF_FLAG_CONNECTED) == 0))
		return 0;
	if (unlikely(ring == NULL))
		return 0;

	slot = c2s ? mq->last_head : mq->last_tail;
	slots = __atomic_load_n(c2s ? &ring->head : &ring->tail, __ATOMIC_ACQUIRE) - slot;
	if (slots == 0)
		goto refill;
	if (unlikely(slots > 1 << mq->log2_ring_size)) {
		/* More than there are: nothing of it can be believed. */
		mq->n_errors++;
		slot += slots;
		goto done;
	}

	wanted = RTE_MIN(slots, nb_pkts);
	if (unlikely(rte_pktmbuf_alloc_bulk(mq->mempool, bufs, wanted) != 0)) {
		mq->n_no_buffers++;
		goto refill;
	}
	for (ahead = 0; ahead < RTE_MIN(wanted, MEMIF_AHEAD); ahead++)
		memif_ask_for(mq, ring, slot + ahead, 0, false);
	while (slots > 0 && n_rx < wanted) {
		mbuf = bufs[n_rx];
		if (slots > MEMIF_AHEAD && n_rx + MEMIF_AHEAD < wanted)
			memif_ask_for(mq, ring, slot + MEMIF_AHEAD, 0, false);
		used = memif_take(mq, ring, slot, slots, mbuf, &outcome);
		slot += used;
		slots -= used;
		if (likely(outcome == MEMIF_FRAME_GOOD)) {
			mbuf->port = mq->in_port;
			mq->n_bytes += mbuf->pkt_len;
			n_rx++;
			continue;
		}
		if (outcome == MEMIF_FRAME_BAD)
			mq->n_errors++;
		else
			mq->n_no_buffers++;
		rte_pktmbuf_free(mbuf->next);
		rte_pktmbuf_reset(mbuf);
	}
	if (unlikely(n_rx < wanted))
		rte_pktmbuf_free_bulk(&bufs[n_rx], wanted - n_rx);
	mq->n_pkts += n_rx;

done:
	if (c2s) {
		mq->last_head = slot;
		__atomic_store_n(&ring->tail, slot, __ATOMIC_RELEASE);
	} else {
		mq->last_tail = slot;
	}
refill:
	if (!c2s)
		memif_refill(mq, ring);
	return n_rx;
}

/*
 * Puts a frame into the ring, of `slots` that are free. Returns how many it took, 0 when it needs more, -1 when the
 * peer's descriptors make no sense.
 */
static inline int
memif_put(struct memif_queue *mq, memif_ring_t *ring, uint16_t slot, uint16_t slots, const struct rte_mbuf *mbuf)
{
	const uint16_t mask = (1 << mq->log2_ring_size) - 1;
	uint32_t length, room = 0, filled = 0, part, offset;
	memif_desc_t *shared = NULL;
	uint8_t *buffer = NULL;
	memif_desc_t desc;
	int used = 0;

	for (; mbuf != NULL; mbuf = mbuf->next) {
		length = mbuf->data_len;
		for (offset = 0; offset < length; offset += part) {
			if (room == 0) {
				if (shared != NULL) {
					shared->length = filled;
					shared->flags = MEMIF_DESC_FLAG_NEXT;
				}
				if (unlikely(used == slots))
					return 0;
				desc = memif_read_desc(ring, (slot + used) & mask);
				room = mq->type == MEMIF_RING_C2S ? mq->pmd->run.pkt_buffer_size : desc.length;
				buffer = memif_buffer(mq->proc_private, &desc, room);
				if (unlikely(buffer == NULL || room == 0))
					return -1;
				shared = &ring->desc[(slot + used) & mask];
				used++;
				filled = 0;
			}
			part = RTE_MIN(room, length - offset);
			rte_memcpy(buffer + filled, rte_pktmbuf_mtod_offset(mbuf, void *, offset), part);
			filled += part;
			room -= part;
		}
	}
	if (unlikely(shared == NULL))
		return -1;
	shared->length = filled;
	shared->flags = 0;
	return used;
}

/* Wakes a peer that sleeps. Its eventfd does not block, and is looked at first, should the peer have changed that. */
static void
memif_wake(struct memif_queue *mq)
{
	struct pollfd ready = { .fd = rte_intr_fd_get(mq->intr_handle), .events = POLLOUT };
	const uint64_t one = 1;

	if (ready.fd < 0 || poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0)
		return;
	if (write(ready.fd, &one, sizeof(one)) < 0)
		mq->n_errors++;
}

uint16_t
eth_memif_tx(void *queue, struct rte_mbuf **bufs, uint16_t nb_pkts)
{
	struct memif_queue *mq = queue;
	memif_ring_t *ring = mq->ring;
	const uint16_t size = 1 << mq->log2_ring_size;
	const bool c2s = mq->type == MEMIF_RING_C2S;
	uint16_t slot, slots, ahead, n_tx = 0, n_bad = 0;
	int used;

	if (unlikely((__atomic_load_n(&mq->pmd->flags, __ATOMIC_ACQUIRE) & ETH_MEMIF_FLAG_CONNECTED) == 0))
		return 0;
	if (unlikely(ring == NULL))
		return 0;

	if (c2s) {
		slot = mq->last_head;
		slots = size - (uint16_t)(slot - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE));
	} else {
		slot = mq->last_tail;
		slots = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) - slot;
	}
	if (unlikely(slots > size)) {
		mq->n_errors++;
		return 0;
	}
	/* Nothing is written while there is no room: whoever tries again and again would keep the line from the peer. */
	if (slots == 0)
		return 0;

	/* A guess where frames take several descriptors each, and a miss then costs no more than time. */
	for (ahead = 0; ahead < RTE_MIN(RTE_MIN(nb_pkts, slots), MEMIF_AHEAD); ahead++)
		memif_ask_for(mq, ring, slot + ahead, bufs[ahead]->data_len, true);
	while (n_tx < nb_pkts && slots > 0) {
		if (slots > MEMIF_AHEAD && n_tx + MEMIF_AHEAD < nb_pkts)
			memif_ask_for(mq, ring, slot + MEMIF_AHEAD, bufs[n_tx + MEMIF_AHEAD]->data_len, true);
		used = memif_put(mq, ring, slot, slots, bufs[n_tx]);
		if (unlikely(used == 0))
			break;
		if (unlikely(used < 0)) {
			n_bad++;
			used = 0;
		} else {
			mq->n_bytes += bufs[n_tx]->pkt_len;
		}
		slot += used;
		slots -= used;
		n_tx++;
	}
	rte_pktmbuf_free_bulk(bufs, n_tx);
	if (c2s) {
		mq->last_head = slot;
		__atomic_store_n(&ring->head, slot, __ATOMIC_RELEASE);
	} else {
		mq->last_tail = slot;
		__atomic_store_n(&ring->tail, slot, __ATOMIC_RELEASE);
	}
	if ((ring->flags & MEMIF_RING_FLAG_MASK_INT) == 0 && n_tx > 0)
		memif_wake(mq);

	mq->n_errors += n_bad;
	mq->n_pkts += n_tx - n_bad;
	return n_tx;
}
