/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2010-2018 Intel Corporation
 */

/*
 * Receiving from and sending to a guest through split virtqueues (virtio 1.2, section 2.7), by whole bursts: all
 * descriptors are asked for before the first is read, and all buffers before the first is copied. Rings and buffers are
 * the guest's to change at any time: a descriptor is read once, as a copy, and what it says is checked before it is
 * followed; indices of this side are kept in private memory.
 */

#include <poll.h>
#include <string.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <rte_branch_prediction.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>

#include "prefetch_write.h"
#include "vhost_ring.h"

/* Frames that are worked on together. */
#define VHOST_BURST 64

/* Frames that are tried together after one that was special: others may be so too. */
#define VHOST_BURST_CAREFUL 8

/* Frames of a burst that is large enough not to look for more. */
#define VHOST_ENOUGH 32

/* Buffers that a frame may be spread over, on the guest's side (BUF_VECTOR_MAX of the vhost library). */
#define VHOST_PIECES_MAX 256

/* Octets of the longest frame: 64 KiB of IP, with what stands before it. */
#define VHOST_FRAME_MAX (65536 + 128)

/* What has the guest's header differ from the usual one. */
#define VHOST_OFFLOADS (RTE_MBUF_F_TX_L4_MASK | RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_IP_CKSUM)

/* Some octets of a buffer of the guest's. */
struct vhost_piece {
	uint8_t *at;
	uint32_t length;
};

struct vhost_pieces {
	uint32_t count;
	uint64_t length;		/* Of all together. */
	struct vhost_piece piece[VHOST_PIECES_MAX];
};

/* A descriptor as it stood when it was read. */
struct vhost_desc {
	uint64_t address;
	uint32_t length;
	uint16_t flags;
	uint16_t next;
};

static inline struct vhost_desc
vhost_read_desc(const struct vring_desc *shared)
{
	const uint64_t *words = (const uint64_t *)(const void *)shared;
	const uint64_t rest = __atomic_load_n(&words[1], __ATOMIC_RELAXED);

	return (struct vhost_desc) {
		.address = __atomic_load_n(&words[0], __ATOMIC_RELAXED),
		.length = (uint32_t)rest,
		.flags = (uint16_t)(rest >> 32),
		.next = (uint16_t)(rest >> 48),
	};
}

static inline uint16_t
vhost_read_slot(const struct vhost_ring *ring, uint16_t slot)
{
	return __atomic_load_n(&ring->avail->ring[slot & (ring->size - 1)], __ATOMIC_RELAXED);
}

/* Whether an address is in a region, and how far in. */
static inline bool
vhost_is_in(const struct vhost_region *region, uint64_t address, uint64_t *offset)
{
	*offset = address - region->guest;
	return *offset < region->size;
}

static __rte_noinline bool
vhost_find_region(struct vhost_ring *ring, uint64_t address)
{
	uint64_t offset;
	uint32_t i;

	for (i = 0; i < ring->regions_count; i++) {
		if (vhost_is_in(&ring->regions[i], address, &offset)) {
			ring->near = ring->regions[i];
			return true;
		}
	}
	return false;
}

/* Where so many octets of the guest's are, or NULL when they are not within one region. */
static inline uint8_t *
vhost_at(struct vhost_ring *ring, uint64_t address, uint64_t length)
{
	uint64_t offset;

	if (unlikely(!vhost_is_in(&ring->near, address, &offset))) {
		if (!vhost_find_region(ring, address))
			return NULL;
		vhost_is_in(&ring->near, address, &offset);
	}
	if (unlikely(length > ring->near.size - offset))
		return NULL;
	return ring->near.host + offset;
}

/* Adds a buffer, which may go on in a further region. */
static bool
vhost_add_buffer(struct vhost_ring *ring, struct vhost_pieces *pieces, uint64_t address, uint64_t length)
{
	uint64_t offset, part;

	while (length > 0) {
		if (unlikely(pieces->count == VHOST_PIECES_MAX))
			return false;
		if (!vhost_is_in(&ring->near, address, &offset)) {
			if (!vhost_find_region(ring, address))
				return false;
			vhost_is_in(&ring->near, address, &offset);
		}
		part = RTE_MIN(length, ring->near.size - offset);
		pieces->piece[pieces->count++] = (struct vhost_piece) {
			.at = ring->near.host + offset,
			.length = (uint32_t)part,
		};
		pieces->length += part;
		address += part;
		length -= part;
	}
	return true;
}

/* Adds the buffers of a chain. False when it makes no sense. */
static bool
vhost_add_chain(struct vhost_ring *ring, struct vhost_pieces *pieces, uint16_t head)
{
	struct vring_desc *table = ring->desc;
	uint32_t entries = ring->size, seen, index = head;
	uint64_t indirect = 0;
	struct vhost_desc desc;
	const uint8_t *entry;

	if (unlikely(head >= ring->size))
		return false;
	desc = vhost_read_desc(&table[head]);
	if (desc.flags & VRING_DESC_F_INDIRECT) {
		entries = desc.length / sizeof(struct vring_desc);
		indirect = desc.address;
		if (unlikely((desc.flags & VRING_DESC_F_NEXT) || entries == 0 || entries > ring->size))
			return false;
		index = 0;
		table = NULL;
	}
	for (seen = 0; seen < entries; seen++) {
		if (unlikely(index >= entries))
			return false;
		if (table == NULL) {
			entry = vhost_at(ring, indirect + index * sizeof(struct vring_desc), sizeof(struct vring_desc));
			if (unlikely(entry == NULL))
				return false;
			desc = vhost_read_desc((const struct vring_desc *)(const void *)entry);
		} else if (seen > 0) {
			desc = vhost_read_desc(&table[index]);
		}
		if (unlikely(desc.flags & VRING_DESC_F_INDIRECT))
			return false;
		if (unlikely(!vhost_add_buffer(ring, pieces, desc.address, desc.length)))
			return false;
		if (!(desc.flags & VRING_DESC_F_NEXT))
			return true;
		index = desc.next;
	}
	return false;
}

/* Copies between 1 and many octets; few of them without a call. */
static inline void
vhost_copy(uint8_t *to, const uint8_t *from, uint32_t length)
{
#ifdef __SSE2__
	__m128i a, b, c, d;

	if (likely(length >= 32 && length <= 64)) {
		a = _mm_loadu_si128((const __m128i *)(const void *)from);
		b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
		c = _mm_loadu_si128((const __m128i *)(const void *)(from + length - 32));
		d = _mm_loadu_si128((const __m128i *)(const void *)(from + length - 16));
		_mm_storeu_si128((__m128i *)(void *)to, a);
		_mm_storeu_si128((__m128i *)(void *)(to + 16), b);
		_mm_storeu_si128((__m128i *)(void *)(to + length - 32), c);
		_mm_storeu_si128((__m128i *)(void *)(to + length - 16), d);
		return;
	}
#endif
	rte_memcpy(to, from, length);
}

/* Asks for the cache lines behind the first of a buffer. */
static inline void
vhost_prefetch_rest(const uint8_t *at, uint32_t length)
{
	uint32_t line;

	for (line = RTE_CACHE_LINE_SIZE; line < RTE_MIN(length, 256u); line += RTE_CACHE_LINE_SIZE)
		rte_prefetch0(at + line);
}

/*
 * Wakes a guest that sleeps and wants to be woken. Its eventfd is looked at first, for it may be full: a guest does not
 * keep this thread.
 */
static __rte_noinline void
vhost_wake(struct vhost_ring *ring)
{
	struct pollfd ready = { .fd = ring->call, .events = POLLOUT };
	const uint64_t one = 1;

	if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0)
		return;
	if (write(ready.fd, &one, sizeof(one)) == sizeof(one))
		ring->counters.notifications++;
}

/* Shows the guest what it got back; vhost_tell is to follow. */
static inline void
vhost_publish(struct vhost_ring *ring)
{
	__atomic_store_n(&ring->used->idx, ring->last_used, __ATOMIC_RELEASE);
	ring->is_untold = ring->call >= 0;
}

/*
 * Wakes the guest if it wants to know of what it got back. To be called when that was written a while ago: the barrier waits
 * until all of it is in the guest's sight.
 */
static inline void
vhost_tell(struct vhost_ring *ring)
{
	uint16_t event;
	bool wanted;

	if (!ring->is_untold)
		return;
	ring->is_untold = false;
	/* A guest that goes to sleep now says so before it looks at the index, and this side the other way round. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (ring->has_events) {
		event = __atomic_load_n(&ring->avail->ring[ring->size], __ATOMIC_RELAXED);
		wanted = !ring->has_signalled ||
			(uint16_t)(ring->last_used - event - 1) < (uint16_t)(ring->last_used - ring->signalled);
		ring->signalled = ring->last_used;
		ring->has_signalled = true;
	} else {
		wanted = (__atomic_load_n(&ring->avail->flags, __ATOMIC_RELAXED) & VRING_AVAIL_F_NO_INTERRUPT) == 0;
	}
	if (unlikely(wanted))
		vhost_wake(ring);
}

/* Notes in this side's ring, `ahead` slots from what the guest knows, that a chain is back, with so many octets. */
static inline void
vhost_note_used(struct vhost_ring *ring, uint16_t ahead, uint16_t head, uint32_t length)
{
	struct vring_used_elem *slot = &ring->used->ring[(uint16_t)(ring->last_used + ahead) & (ring->size - 1)];

	slot->id = head;
	slot->len = length;
}

/*
 * Slots that the guest has filled, `wanted` at most: those that were seen before if they are enough, since each look at the
 * index takes its cache line from the guest. None when it says more than there can be.
 */
static inline uint16_t
vhost_available(struct vhost_ring *ring, uint16_t wanted, uint16_t enough)
{
	uint16_t count = ring->seen_avail - ring->last_avail;

	if (count >= RTE_MIN(wanted, enough))
		return RTE_MIN(count, wanted);
	rte_prefetch0(&ring->avail->ring[ring->last_avail & (ring->size - 1)]);
	ring->seen_avail = __atomic_load_n(&ring->avail->idx, __ATOMIC_ACQUIRE);
	count = ring->seen_avail - ring->last_avail;
	if (unlikely(count > ring->size)) {
		/* Nothing of it can be believed. */
		ring->last_avail = ring->seen_avail;
		ring->counters.errors++;
		return 0;
	}
	return RTE_MIN(count, wanted);
}

/* Asks for the places where so many chains are going to be noted, to write there. */
static inline void
vhost_prefetch_used(const struct vhost_ring *ring, uint16_t count)
{
	uint16_t i;

	prefetch_write(&ring->used->idx);
	for (i = 0; i < count; i += RTE_CACHE_LINE_SIZE / sizeof(struct vring_used_elem))
		prefetch_write(&ring->used->ring[(uint16_t)(ring->last_used + i) & (ring->size - 1)]);
}

/* Asks for the descriptors that come next, as many as this burst had, as far as they are known: they are there in time. */
static inline void
vhost_prefetch_next(const struct vhost_ring *ring, uint16_t wanted)
{
	const uint16_t known = ring->seen_avail - ring->last_avail;
	const uint16_t count = RTE_MIN(known, wanted);
	uint16_t i;

	for (i = 0; i < count; i++)
		rte_prefetch0(&ring->desc[vhost_read_slot(ring, ring->last_avail + i) & (ring->size - 1)]);
	if (known > count)
		rte_prefetch0(&ring->avail->ring[(uint16_t)(ring->last_avail + count) & (ring->size - 1)]);
}

/* A buffer fresh from its pool, with a frame of one piece. */
static inline void
vhost_start_mbuf(const struct vhost_ring *ring, struct rte_mbuf *mbuf, uint32_t length)
{
	/* It has no shares and no further segments: it would not be in its pool else. */
	mbuf->data_off = RTE_PKTMBUF_HEADROOM;
	mbuf->port = ring->port;
	mbuf->ol_flags = 0;
	mbuf->packet_type = 0;
	mbuf->pkt_len = length;
	mbuf->data_len = (uint16_t)length;
	mbuf->vlan_tci = 0;
}

enum vhost_frame {
	VHOST_FRAME_GOOD,
	VHOST_FRAME_BAD,	/* What the guest says makes no sense. */
	VHOST_FRAME_NO_BUFFER,	/* The pool is empty. */
	VHOST_FRAME_NO_ROOM,	/* The guest has not given enough yet. */
	VHOST_FRAME_TOO_LONG,	/* The guest never will. */
};

/* Takes a frame out of any chain, into a buffer fresh from its pool and further ones. */
static __rte_noinline enum vhost_frame
vhost_take_chain(struct vhost_ring *ring, struct rte_mempool *pool, struct rte_mbuf *mbuf, uint16_t head)
{
	struct virtio_net_hdr_mrg_rxbuf header = { 0 };
	uint32_t skip = ring->header, i, part, room;
	struct rte_mbuf *tail = mbuf, *next;
	struct vhost_pieces pieces;
	const uint8_t *from;

	pieces.count = 0;
	pieces.length = 0;
	vhost_start_mbuf(ring, mbuf, 0);
	if (!vhost_add_chain(ring, &pieces, head))
		return VHOST_FRAME_BAD;
	if (pieces.length <= ring->header || pieces.length - ring->header > VHOST_FRAME_MAX)
		return VHOST_FRAME_BAD;
	for (i = 0; i < pieces.count; i++) {
		from = pieces.piece[i].at;
		part = pieces.piece[i].length;
		if (skip > 0) {
			room = RTE_MIN(skip, part);
			memcpy((uint8_t *)&header + ring->header - skip, from, room);
			skip -= room;
			from += room;
			part -= room;
		}
		while (part > 0) {
			room = RTE_MIN(part, (uint32_t)rte_pktmbuf_tailroom(tail));
			if (room == 0) {
				next = rte_pktmbuf_alloc(pool);
				if (next == NULL)
					return VHOST_FRAME_NO_BUFFER;
				tail->next = next;
				tail = next;
				mbuf->nb_segs++;
				continue;
			}
			rte_memcpy(rte_pktmbuf_mtod_offset(tail, void *, tail->data_len), from, room);
			tail->data_len += room;
			mbuf->pkt_len += room;
			from += room;
			part -= room;
		}
	}
	if (ring->has_offloads && (header.hdr.flags != 0 || header.hdr.gso_type != VIRTIO_NET_HDR_GSO_NONE))
		vhost_take_offloads(ring, mbuf, &header.hdr);
	return VHOST_FRAME_GOOD;
}

uint16_t
vhost_ring_receive(struct vhost_ring *ring, struct rte_mempool *pool, struct rte_mbuf **bufs, uint16_t count)
{
	const uint32_t header = ring->header;
	const uint32_t room = rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
	struct rte_mbuf *spare[VHOST_BURST], *mbuf;
	uint16_t i, wanted, taken = 0, spares = 0;
	uint8_t *from[VHOST_BURST];
	uint32_t length[VHOST_BURST];
	uint16_t head[VHOST_BURST];
	struct virtio_net_hdr said;
	enum vhost_frame outcome;
	struct vhost_desc desc;
	uint64_t octets = 0;

	/* What the last burst gave back: this thread comes by again and again. */
	vhost_tell(ring);
	wanted = vhost_available(ring, RTE_MIN(count, (uint16_t)VHOST_BURST), VHOST_ENOUGH);
	if (wanted == 0)
		return 0;
	if (unlikely(rte_mempool_get_bulk(pool, (void **)bufs, wanted) != 0)) {
		ring->counters.no_buffers++;
		return 0;
	}
	vhost_prefetch_used(ring, wanted);
	for (i = 0; i < wanted; i++) {
		head[i] = vhost_read_slot(ring, ring->last_avail + i);
		rte_prefetch0(&ring->desc[head[i] & (ring->size - 1)]);
	}
	for (i = 0; i < wanted; i++) {
		from[i] = NULL;
		if (unlikely(head[i] >= ring->size))
			continue;
		desc = vhost_read_desc(&ring->desc[head[i]]);
		if (unlikely(desc.flags & (VRING_DESC_F_NEXT | VRING_DESC_F_INDIRECT)))
			continue;
		if (unlikely(desc.length <= header || desc.length - header > room))
			continue;
		from[i] = vhost_at(ring, desc.address, desc.length);
		length[i] = desc.length - header;
		if (ring->has_offloads)
			rte_prefetch0(from[i]);
		rte_prefetch0(from[i] + header);
		if (unlikely(length[i] > RTE_CACHE_LINE_SIZE))
			vhost_prefetch_rest(from[i] + header, length[i]);
	}
	for (i = 0; i < wanted; i++) {
		mbuf = bufs[i];
		vhost_note_used(ring, i, head[i], 0);
		if (likely(from[i] != NULL)) {
			vhost_start_mbuf(ring, mbuf, length[i]);
			vhost_copy((uint8_t *)mbuf->buf_addr + RTE_PKTMBUF_HEADROOM, from[i] + header, length[i]);
			if (ring->has_offloads) {
				memcpy(&said, from[i], sizeof(said));
				rte_compiler_barrier();
				if (unlikely(said.flags != 0 || said.gso_type != VIRTIO_NET_HDR_GSO_NONE))
					vhost_take_offloads(ring, mbuf, &said);
			}
			octets += length[i];
			bufs[taken++] = mbuf;
			continue;
		}
		outcome = vhost_take_chain(ring, pool, mbuf, head[i]);
		if (likely(outcome == VHOST_FRAME_GOOD)) {
			octets += mbuf->pkt_len;
			bufs[taken++] = mbuf;
			continue;
		}
		if (outcome == VHOST_FRAME_BAD)
			ring->counters.errors++;
		else
			ring->counters.no_buffers++;
		spare[spares++] = mbuf;
	}
	ring->last_avail += wanted;
	ring->last_used += wanted;
	vhost_publish(ring);
	vhost_prefetch_next(ring, wanted);
	if (unlikely(spares > 0))
		rte_pktmbuf_free_bulk(spare, spares);
	ring->counters.frames += taken;
	ring->counters.octets += octets;
	return taken;
}

/* Puts a frame into the chains that come next, of `available`; how many it took is noted. */
static __rte_noinline enum vhost_frame
vhost_put_chains(struct vhost_ring *ring, struct rte_mbuf *mbuf, uint16_t available, uint16_t *taken)
{
	const uint64_t needed = (uint64_t)mbuf->pkt_len + ring->header;
	struct virtio_net_hdr_mrg_rxbuf header = { 0 };
	uint64_t before = 0, filled, left;
	uint32_t piece = 0, offset = 0, part, from;
	struct vhost_pieces pieces;
	const struct rte_mbuf *segment;
	uint16_t head, i, first;
	const uint8_t *octets;
	uint32_t length;

	pieces.count = 0;
	pieces.length = 0;
	*taken = 0;
	while (pieces.length < needed) {
		if (*taken > 0 && !ring->is_mergeable)
			goto too_long;
		if (*taken == available) {
			if (available == ring->size)
				goto too_long;
			*taken = 0;
			return VHOST_FRAME_NO_ROOM;
		}
		head = vhost_read_slot(ring, ring->last_avail + *taken);
		/* A chain that makes no sense goes back empty, and those before it with it. */
		vhost_note_used(ring, *taken, head, 0);
		first = ++*taken;
		if (!vhost_add_chain(ring, &pieces, head)) {
			for (i = 0; i < first; i++)
				ring->used->ring[(uint16_t)(ring->last_used + i) & (ring->size - 1)].len = 0;
			return VHOST_FRAME_BAD;
		}
		filled = RTE_MIN(pieces.length, needed);
		vhost_note_used(ring, *taken - 1, head, (uint32_t)(filled - before));
		before = filled;
	}
	vhost_give_offloads(mbuf, &header.hdr);
	header.num_buffers = *taken;
	segment = mbuf;
	octets = (const uint8_t *)&header;
	length = ring->header;
	from = 0;
	for (left = needed; left > 0; left -= part) {
		while (from == length) {
			if (unlikely(segment == NULL))
				return VHOST_FRAME_BAD;
			octets = rte_pktmbuf_mtod(segment, const uint8_t *);
			length = segment->data_len;
			segment = segment->next;
			from = 0;
		}
		while (offset == pieces.piece[piece].length) {
			piece++;
			offset = 0;
		}
		part = RTE_MIN(length - from, pieces.piece[piece].length - offset);
		rte_memcpy(pieces.piece[piece].at + offset, octets + from, part);
		offset += part;
		from += part;
	}
	return VHOST_FRAME_GOOD;

too_long:
	*taken = 0;
	return VHOST_FRAME_TOO_LONG;
}

/*
 * Puts frames into the ring that are in one buffer each, and for which the guest has one buffer each, as many of the
 * first ones as are so.
 */
static inline uint16_t
vhost_put_plain(struct vhost_ring *ring, struct rte_mbuf **bufs, uint16_t count)
{
	const uint32_t header = ring->header;
	uint8_t *to[VHOST_BURST];
	uint16_t head[VHOST_BURST];
	const struct rte_mbuf *mbuf;
	struct vhost_desc desc;
	uint64_t octets = 0;
	uint16_t i, plain;
	uint64_t usual;
	uint32_t tail;

	vhost_prefetch_used(ring, count);
	for (i = 0; i < count; i++) {
		head[i] = vhost_read_slot(ring, ring->last_avail + i);
		rte_prefetch0(&ring->desc[head[i] & (ring->size - 1)]);
	}
	for (plain = 0; plain < count; plain++) {
		mbuf = bufs[plain];
		if (unlikely(head[plain] >= ring->size || mbuf->nb_segs != 1 || (mbuf->ol_flags & VHOST_OFFLOADS)))
			break;
		desc = vhost_read_desc(&ring->desc[head[plain]]);
		if (unlikely(desc.flags & (VRING_DESC_F_NEXT | VRING_DESC_F_INDIRECT)))
			break;
		if (unlikely(desc.length < header || desc.length - header < mbuf->data_len || mbuf->data_len == 0))
			break;
		to[plain] = vhost_at(ring, desc.address, desc.length);
		if (unlikely(to[plain] == NULL))
			break;
		rte_prefetch0(to[plain]);
		prefetch_write(to[plain] + header);
	}
	for (i = 0; i < plain; i++) {
		mbuf = bufs[i];
		/* A header that says what it said before is left alone, and with it the guest's cache. */
		memcpy(&usual, to[i], sizeof(usual));
		if (unlikely(usual != 0))
			memset(to[i], 0, sizeof(usual));
		memcpy(&tail, to[i] + sizeof(usual), sizeof(tail));
		if (header == sizeof(struct virtio_net_hdr_mrg_rxbuf)) {
			if (unlikely(tail != (uint32_t)1 << 16)) {
				tail = (uint32_t)1 << 16;
				memcpy(to[i] + sizeof(usual), &tail, sizeof(tail));
			}
		} else if (unlikely((uint16_t)tail != 0)) {
			memset(to[i] + sizeof(usual), 0, sizeof(uint16_t));
		}
		vhost_copy(to[i] + header, rte_pktmbuf_mtod(mbuf, const uint8_t *), mbuf->data_len);
		vhost_note_used(ring, i, head[i], header + mbuf->data_len);
		octets += mbuf->data_len;
	}
	ring->counters.octets += octets;
	ring->counters.frames += plain;
	ring->last_avail += plain;
	ring->last_used += plain;
	return plain;
}

/* Gives buffers back to their pool. Those that nobody shares, of one pool, need no look at each one's second half. */
static inline void
vhost_free(struct rte_mbuf **bufs, uint16_t count)
{
	struct rte_mempool *pool = bufs[0]->pool;
	bool are_plain = true;
	uint16_t i;

	for (i = 0; i < count; i++)
		are_plain &= bufs[i]->pool == pool && bufs[i]->nb_segs == 1 &&
			rte_mbuf_refcnt_read(bufs[i]) == 1 && RTE_MBUF_DIRECT(bufs[i]);
	if (likely(are_plain))
		rte_mempool_put_bulk(pool, (void **)bufs, count);
	else
		rte_pktmbuf_free_bulk(bufs, count);
}

uint16_t
vhost_ring_send(struct vhost_ring *ring, struct rte_mbuf **bufs, uint16_t count)
{
	uint16_t available, limit = VHOST_BURST, part, plain, taken, sent = 0;
	const uint16_t before = ring->last_used;
	enum vhost_frame outcome;

	while (sent < count) {
		available = vhost_available(ring, count - sent, VHOST_ENOUGH);
		if (available == 0)
			break;
		part = RTE_MIN(available, limit);
		plain = vhost_put_plain(ring, &bufs[sent], part);
		sent += plain;
		if (likely(plain == part)) {
			limit = VHOST_BURST;
			continue;
		}
		limit = VHOST_BURST_CAREFUL;
		available = vhost_available(ring, ring->size, ring->size);
		outcome = vhost_put_chains(ring, bufs[sent], available, &taken);
		if (outcome == VHOST_FRAME_NO_ROOM)
			break;
		if (likely(outcome == VHOST_FRAME_GOOD)) {
			ring->counters.frames++;
			ring->counters.octets += bufs[sent]->pkt_len;
		} else {
			ring->counters.errors++;
		}
		ring->last_avail += taken;
		ring->last_used += taken;
		sent++;
	}
	/* Nothing is written while there is no room: whoever tries again and again would keep the line from the guest. */
	if (ring->last_used != before)
		vhost_publish(ring);
	if (sent > 0)
		vhost_free(bufs, sent);
	vhost_prefetch_next(ring, sent);
	vhost_tell(ring);
	return sent;
}
