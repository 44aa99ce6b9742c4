/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright 2018-2019 Cisco Systems, Inc.  All rights reserved.
 */

/* Memory shared with the peer: regions, the rings in them, and what a connection makes of both. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_malloc.h>

#include "rte_eth_memif.h"

static uint64_t
memif_ring_octets(memif_log2_ring_size_t log2_ring_size)
{
	return sizeof(memif_ring_t) + sizeof(memif_desc_t) * (UINT64_C(1) << log2_ring_size);
}

void
memif_free_regions(struct rte_eth_dev *dev)
{
	struct pmd_process_private *proc_private = dev->process_private;
	struct memif_region *r;
	int i;

	for (i = 0; i < proc_private->regions_num; i++) {
		r = proc_private->regions[i];
		proc_private->regions[i] = NULL;
		if (r == NULL)
			continue;
		if (r->addr != NULL)
			munmap(r->addr, r->region_size);
		if (r->fd >= 0)
			close(r->fd);
		rte_free(r);
	}
	proc_private->regions_num = 0;
}

/* The client's one region: rings and buffers. */
static int
memif_region_init_shm(struct rte_eth_dev *dev)
{
	struct pmd_internals *pmd = dev->data->dev_private;
	struct pmd_process_private *proc_private = dev->process_private;
	const uint64_t rings = pmd->run.num_c2s_rings + pmd->run.num_s2c_rings;
	struct memif_region *r;

	r = rte_zmalloc("region", sizeof(struct memif_region), 0);
	if (r == NULL) {
		MIF_LOG(ERR, "Failed to alloc memif region.");
		return -1;
	}
	r->pkt_buffer_offset = rings * memif_ring_octets(pmd->run.log2_ring_size);
	r->region_size = r->pkt_buffer_offset +
			 rings * pmd->run.pkt_buffer_size * (UINT64_C(1) << pmd->run.log2_ring_size);
	if (r->region_size > UINT32_MAX) {
		MIF_LOG(ERR, "Rings and buffers do not fit a region.");
		rte_free(r);
		return -1;
	}

	r->fd = memfd_create("memif_region_0", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	if (r->fd < 0) {
		MIF_LOG(ERR, "Failed to create shm file: %s.", strerror(errno));
		goto error;
	}
	if (ftruncate(r->fd, r->region_size) < 0 || fcntl(r->fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
		MIF_LOG(ERR, "Failed to size shm file: %s.", strerror(errno));
		goto error;
	}
	r->addr = mmap(NULL, r->region_size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (r->addr == MAP_FAILED) {
		MIF_LOG(ERR, "Failed to mmap shm region: %s.", strerror(errno));
		goto error;
	}
	proc_private->regions[0] = r;
	proc_private->regions_num = 1;
	return 0;

error:
	if (r->fd >= 0)
		close(r->fd);
	rte_free(r);
	return -1;
}

/* Lays out one ring of the client's, the number-th of all, and its buffers. */
static int
memif_init_ring(struct rte_eth_dev *dev, struct memif_queue *mq, uint16_t number)
{
	struct pmd_internals *pmd = dev->data->dev_private;
	struct pmd_process_private *proc_private = dev->process_private;
	const struct memif_region *r = proc_private->regions[0];
	const uint32_t size = UINT32_C(1) << pmd->run.log2_ring_size;
	memif_ring_t *ring;
	uint32_t i;

	mq->log2_ring_size = pmd->run.log2_ring_size;
	mq->region = 0;
	mq->ring_offset = number * memif_ring_octets(pmd->run.log2_ring_size);
	mq->is_added = 1;
	ring = (memif_ring_t *)((uint8_t *)r->addr + mq->ring_offset);
	ring->cookie = MEMIF_COOKIE;
	ring->flags = 0;
	for (i = 0; i < size; i++) {
		ring->desc[i].region = 0;
		ring->desc[i].offset = r->pkt_buffer_offset + (number * size + i) * pmd->run.pkt_buffer_size;
		ring->desc[i].length = pmd->run.pkt_buffer_size;
	}
	if (rte_intr_fd_set(mq->intr_handle, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) != 0)
		return -1;
	if (rte_intr_fd_get(mq->intr_handle) < 0)
		MIF_LOG(WARNING, "Failed to create eventfd: %s.", strerror(errno));
	return 0;
}

int
memif_init_regions_and_queues(struct rte_eth_dev *dev)
{
	struct pmd_internals *pmd = dev->data->dev_private;
	int i;

	if (memif_region_init_shm(dev) < 0)
		return -1;
	for (i = 0; i < pmd->run.num_c2s_rings; i++) {
		if (memif_init_ring(dev, dev->data->tx_queues[i], i) < 0)
			return -1;
	}
	for (i = 0; i < pmd->run.num_s2c_rings; i++) {
		if (memif_init_ring(dev, dev->data->rx_queues[i], pmd->run.num_c2s_rings + i) < 0)
			return -1;
	}
	return 0;
}

/* Maps a region of the peer's, as large as it says and as its file is. */
static int
memif_map_region(struct memif_region *r)
{
	struct stat status;

	if (fstat(r->fd, &status) < 0 || !S_ISREG(status.st_mode) || r->region_size == 0 ||
	    (uint64_t)status.st_size < r->region_size) {
		MIF_LOG(ERR, "A region is larger than its file.");
		return -1;
	}
	/* A file that shrinks takes its pages away from under this process. */
	if (fcntl(r->fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0 &&
	    (fcntl(r->fd, F_GET_SEALS) < 0 || (fcntl(r->fd, F_GET_SEALS) & F_SEAL_SHRINK) == 0))
		MIF_LOG(WARNING, "The peer's memory cannot be sealed: it has to be trusted not to take it back.");
	r->addr = mmap(NULL, r->region_size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (r->addr == MAP_FAILED) {
		r->addr = NULL;
		MIF_LOG(ERR, "mmap failed: %s", strerror(errno));
		return -1;
	}
	return 0;
}

/* Finds a queue's ring, if the peer has added one, and begins it anew. */
static int
memif_connect_queue(struct rte_eth_dev *dev, struct memif_queue *mq, bool is_receiver)
{
	struct pmd_process_private *proc_private = dev->process_private;
	const struct memif_region *r;
	memif_ring_t *ring;

	mq->ring = NULL;
	mq->last_head = 0;
	mq->last_tail = 0;
	if (!mq->is_added)
		return 0;
	if (mq->region >= proc_private->regions_num) {
		MIF_LOG(ERR, "A ring is in a region that there is not.");
		return -1;
	}
	r = proc_private->regions[mq->region];
	if (mq->ring_offset % sizeof(uint64_t) != 0 ||
	    mq->ring_offset + memif_ring_octets(mq->log2_ring_size) > r->region_size) {
		MIF_LOG(ERR, "A ring is outside its region.");
		return -1;
	}
	ring = (memif_ring_t *)((uint8_t *)r->addr + mq->ring_offset);
	if (ring->cookie != MEMIF_COOKIE) {
		MIF_LOG(ERR, "Wrong ring");
		return -1;
	}
	__atomic_store_n(&ring->head, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&ring->tail, 0, __ATOMIC_RELAXED);
	/* enable polling mode */
	if (is_receiver)
		ring->flags = MEMIF_RING_FLAG_MASK_INT;
	mq->ring = ring;
	return 0;
}

int
memif_connect(struct rte_eth_dev *dev)
{
	struct pmd_internals *pmd = dev->data->dev_private;
	struct pmd_process_private *proc_private = dev->process_private;
	struct memif_region *r;
	int i;

	for (i = 0; i < proc_private->regions_num; i++) {
		r = proc_private->regions[i];
		if (r->addr == NULL && memif_map_region(r) < 0)
			return -1;
	}
	for (i = 0; i < dev->data->nb_rx_queues; i++) {
		if (memif_connect_queue(dev, dev->data->rx_queues[i], true) < 0)
			return -1;
	}
	for (i = 0; i < dev->data->nb_tx_queues; i++) {
		if (memif_connect_queue(dev, dev->data->tx_queues[i], false) < 0)
			return -1;
	}
	pmd->flags &= ~ETH_MEMIF_FLAG_CONNECTING;
	/* Whoever sees this sees the rings. */
	__atomic_or_fetch(&pmd->flags, ETH_MEMIF_FLAG_CONNECTED, __ATOMIC_RELEASE);
	dev->data->dev_link.link_status = RTE_ETH_LINK_UP;
	MIF_LOG(INFO, "Connected.");
	return 0;
}
