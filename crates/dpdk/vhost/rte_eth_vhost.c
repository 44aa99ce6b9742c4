/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2016 IGEL Co., Ltd.
 * Copyright(c) 2016-2018 Intel Corporation
 */

/*
 * The driver of vhost-user ports. DPDK's vhost library has the socket and its messages; frames go through vhost_ring.c,
 * or through the library where a guest has agreed to what that does not do. Which of the two is settled while nobody is in
 * a burst.
 *
 * The library changes rings and unmaps memory whenever a guest says so, and tells only its own bursts. So each message
 * that may do that is waited for: before it is handled, the guest's queues are halted until every thread has come out of
 * its burst, and afterwards they get what is true then (pre_message, post_message).
 */

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include <bus_vdev_driver.h>
#include <ethdev_driver.h>
#include <ethdev_vdev.h>
#include <rte_arp.h>
#include <rte_kvargs.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_vhost.h>

#include "vhost_driver.h"
#include "vhost_ring.h"

RTE_LOG_REGISTER(qw_vhost_logtype, pmd.net.qwvhost, NOTICE);

#define VHOST_LOG(level, ...) \
	rte_log(RTE_LOG_ ## level, qw_vhost_logtype, __VA_ARGS__)

enum { VIRTIO_RXQ, VIRTIO_TXQ, VIRTIO_QNUM };

#define ETH_VHOST_IFACE_ARG		"iface"
#define ETH_VHOST_QUEUES_ARG		"queues"
#define ETH_VHOST_CLIENT_ARG		"client"
#define ETH_VHOST_VIRTIO_NET_F_HOST_TSO	"tso"

/* Frames that the library takes or hands over at a time. */
#define VHOST_LIBRARY_BURST 32

/* Messages of the protocol (VhostUserRequest of the vhost library). */
#define VHOST_USER_GET_FEATURES		1
#define VHOST_USER_RESET_OWNER		4
#define VHOST_USER_SET_MEM_TABLE	5
#define VHOST_USER_GET_PROTOCOL_FEATURES	15
#define VHOST_USER_GET_QUEUE_NUM	17
#define VHOST_USER_SEND_RARP		19
#define VHOST_USER_NET_SET_MTU		20
#define VHOST_USER_SET_STATUS		39
#define VHOST_USER_GET_STATUS		40

/* What vhost_ring.c does not do: packed rings, translated addresses, and notes of what is written. */
#define VHOST_LIBRARY_FEATURES \
	(1ULL << VIRTIO_F_RING_PACKED | 1ULL << VIRTIO_F_IOMMU_PLATFORM | 1ULL << VHOST_F_LOG_ALL)

/* virtio_net_with_host_offload of the vhost library. */
#define VHOST_OFFLOAD_FEATURES \
	(1ULL << VIRTIO_NET_F_CSUM | 1ULL << VIRTIO_NET_F_HOST_ECN | 1ULL << VIRTIO_NET_F_HOST_TSO4 | \
	 1ULL << VIRTIO_NET_F_HOST_TSO6 | 1ULL << VIRTIO_NET_F_HOST_UFO)

/* How a message begins. */
struct vhost_message {
	uint32_t request;
	uint32_t flags;
	uint32_t size;
	uint8_t mac[RTE_ETHER_ADDR_LEN];
} __rte_packed;

/* What bursts of a queue go through. */
enum vhost_way {
	VHOST_WAY_NONE,
	VHOST_WAY_RING,
	VHOST_WAY_LIBRARY,
};

struct vhost_queue {
	uint32_t way;				/* enum vhost_way; read at the beginning of each burst. */
	bool was_ring;				/* Its indices are to be given back to the library. */
	bool may_be_inside;			/* It was closed, and a thread may not have come out yet. */
	int vid;
	struct pmd_internal *internal;
	struct rte_mempool *mb_pool;
	uint16_t port;
	uint16_t virtqueue_id;
	struct vhost_ring ring __rte_cache_aligned;
} __rte_cache_aligned;

struct pmd_internal {
	/* Held while anything here changes. Never by a burst, nor when the library is called that waits for callbacks. */
	pthread_mutex_t lock;
	char *iface_name;
	uint64_t flags;
	uint64_t disable_flags;
	uint64_t features;
	uint16_t max_queues;
	int vid;				/* The guest's number. */
	bool is_attached;			/* It has set up a device. */
	bool is_started;
	bool in_message;			/* What it says is being done. */
	bool by_library;			/* It has agreed to VHOST_LIBRARY_FEATURES. */
	bool rings[RTE_MAX_QUEUES_PER_PORT * 2];	/* Those that it has enabled. */
	uint32_t has_rarp;			/* Where a guest has gone to, the network shall learn. */
	struct rte_ether_addr rarp;
};

struct internal_list {
	TAILQ_ENTRY(internal_list) next;
	struct rte_eth_dev *eth_dev;
};

TAILQ_HEAD(internal_list_head, internal_list);
static struct internal_list_head internal_list = TAILQ_HEAD_INITIALIZER(internal_list);
static pthread_mutex_t internal_list_lock = PTHREAD_MUTEX_INITIALIZER;

/* Guests, by the library's numbers, whose memory is mapped. Only its own thread looks here, or holds the port's lock. */
static bool has_memory[RTE_MAX_VHOST_DEVICE];

static const char * const valid_arguments[] = {
	ETH_VHOST_IFACE_ARG,
	ETH_VHOST_QUEUES_ARG,
	ETH_VHOST_CLIENT_ARG,
	ETH_VHOST_VIRTIO_NET_F_HOST_TSO,
	NULL
};

static const struct rte_ether_addr base_eth_addr = {
	.addr_bytes = { 0x56 /* V */, 0x48 /* H */, 0x4F /* O */, 0x53 /* S */, 0x54 /* T */, 0x00 }
};

static const struct rte_eth_link pmd_link = {
	.link_speed = 10000,
	.link_duplex = RTE_ETH_LINK_FULL_DUPLEX,
	.link_status = RTE_ETH_LINK_DOWN
};

/* A frame that tells the network where a guest is now, as if it had sent it. */
static __rte_noinline uint16_t
vhost_make_rarp(struct vhost_queue *q, struct rte_mbuf **bufs)
{
	struct rte_mbuf *mbuf;

	if (__atomic_exchange_n(&q->internal->has_rarp, 0, __ATOMIC_ACQUIRE) == 0)
		return 0;
	mbuf = rte_net_make_rarp_packet(q->mb_pool, &q->internal->rarp);
	if (mbuf == NULL) {
		q->ring.counters.no_buffers++;
		return 0;
	}
	mbuf->port = q->port;
	bufs[0] = mbuf;
	q->ring.counters.frames++;
	q->ring.counters.octets += mbuf->pkt_len;
	return 1;
}

static __rte_noinline uint16_t
vhost_library_rx(struct vhost_queue *q, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	uint16_t i, count, part, nb_rx = 0;

	do {
		part = RTE_MIN((uint16_t)(nb_bufs - nb_rx), (uint16_t)VHOST_LIBRARY_BURST);
		count = rte_vhost_dequeue_burst(q->vid, q->virtqueue_id, q->mb_pool, &bufs[nb_rx], part);
		nb_rx += count;
	} while (count == part && nb_rx < nb_bufs);
	for (i = 0; i < nb_rx; i++) {
		bufs[i]->port = q->port;
		bufs[i]->vlan_tci = 0;
		if (q->ring.software_checksums)
			vhost_finish_frame(bufs[i]);
		q->ring.counters.octets += bufs[i]->pkt_len;
	}
	q->ring.counters.frames += nb_rx;
	return nb_rx;
}

static __rte_noinline uint16_t
vhost_library_tx(struct vhost_queue *q, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	uint16_t i, count, part, nb_tx = 0;

	do {
		part = RTE_MIN((uint16_t)(nb_bufs - nb_tx), (uint16_t)VHOST_LIBRARY_BURST);
		count = rte_vhost_enqueue_burst(q->vid, q->virtqueue_id, &bufs[nb_tx], part);
		nb_tx += count;
	} while (count == part && nb_tx < nb_bufs);
	for (i = 0; i < nb_tx; i++)
		q->ring.counters.octets += bufs[i]->pkt_len;
	q->ring.counters.frames += nb_tx;
	rte_pktmbuf_free_bulk(bufs, nb_tx);
	return nb_tx;
}

static uint16_t
eth_vhost_rx(void *queue, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	struct vhost_queue *q = queue;
	uint16_t made = 0;

	switch (__atomic_load_n(&q->way, __ATOMIC_ACQUIRE)) {
	case VHOST_WAY_RING:
		if (unlikely(__atomic_load_n(&q->internal->has_rarp, __ATOMIC_RELAXED) != 0 && nb_bufs > 0))
			made = vhost_make_rarp(q, bufs);
		return made + vhost_ring_receive(&q->ring, q->mb_pool, bufs + made, nb_bufs - made);
	case VHOST_WAY_LIBRARY:
		return vhost_library_rx(q, bufs, nb_bufs);
	default:
		return 0;
	}
}

static uint16_t
eth_vhost_tx(void *queue, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	struct vhost_queue *q = queue;

	switch (__atomic_load_n(&q->way, __ATOMIC_ACQUIRE)) {
	case VHOST_WAY_RING:
		return vhost_ring_send(&q->ring, bufs, nb_bufs);
	case VHOST_WAY_LIBRARY:
		return vhost_library_tx(q, bufs, nb_bufs);
	default:
		return 0;
	}
}

static struct rte_eth_dev *
find_device(const char *ifname)
{
	struct rte_eth_dev *found = NULL;
	struct pmd_internal *internal;
	struct internal_list *list;

	pthread_mutex_lock(&internal_list_lock);
	TAILQ_FOREACH(list, &internal_list, next) {
		internal = list->eth_dev->data->dev_private;
		if (strcmp(internal->iface_name, ifname) == 0) {
			found = list->eth_dev;
			break;
		}
	}
	pthread_mutex_unlock(&internal_list_lock);
	return found;
}

static struct rte_eth_dev *
find_device_of(int vid)
{
	char ifname[PATH_MAX];

	if (rte_vhost_get_ifname(vid, ifname, sizeof(ifname)) != 0)
		return NULL;
	return find_device(ifname);
}

/* The queues of both ways, one after the other; NULL after the last. */
static struct vhost_queue *
queue_at(const struct rte_eth_dev *dev, uint16_t number)
{
	const struct rte_eth_dev_data *data = dev->data;

	if (data->rx_queues == NULL || data->tx_queues == NULL)
		return NULL;
	if (number < data->nb_rx_queues)
		return data->rx_queues[number];
	number -= data->nb_rx_queues;
	return number < data->nb_tx_queues ? data->tx_queues[number] : NULL;
}

#define FOREACH_QUEUE(dev, number, q) \
	for ((number) = 0; ((q) = queue_at((dev), (number))) != NULL; (number)++)

/* Whether so many octets are mapped, all of them in one region. */
static bool
is_mapped(const struct vhost_ring *ring, const void *at, uint64_t length, uintptr_t alignment)
{
	uint64_t offset;
	uint32_t i;

	if (at == NULL || ((uintptr_t)at & (alignment - 1)) != 0)
		return false;
	for (i = 0; i < ring->regions_count; i++) {
		offset = (uintptr_t)at - (uintptr_t)ring->regions[i].host;
		if (offset < ring->regions[i].size && length <= ring->regions[i].size - offset)
			return true;
	}
	return false;
}

/* What wakes a guest: anything else could keep this side from going on. */
static bool
is_eventfd(int fd)
{
	static const char name[] = "anon_inode:[eventfd]";
	char link[64], target[sizeof(name)];
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, target, sizeof(target));
	return length == (ssize_t)sizeof(name) - 1 && memcmp(target, name, sizeof(name) - 1) == 0;
}

static bool
load_regions(int vid, struct vhost_ring *ring)
{
	struct rte_vhost_memory *memory;
	uint32_t i;

	if (!has_memory[vid] || rte_vhost_get_mem_table(vid, &memory) != 0)
		return false;
	ring->regions_count = RTE_MIN(memory->nregions, (uint32_t)VHOST_REGIONS_MAX);
	for (i = 0; i < ring->regions_count; i++) {
		ring->regions[i].guest = memory->regions[i].guest_phys_addr;
		ring->regions[i].size = memory->regions[i].size;
		ring->regions[i].host = (uint8_t *)(uintptr_t)memory->regions[i].host_user_addr;
	}
	free(memory);
	memset(&ring->near, 0, sizeof(ring->near));
	return ring->regions_count > 0;
}

/* Reads what the library knows of a ring. False when it is none that can be worked on. */
static bool
load_ring(struct vhost_queue *q, uint64_t features)
{
	struct vhost_ring *ring = &q->ring;
	struct rte_vhost_vring vring;
	uint64_t events;

	if (!load_regions(q->vid, ring) || rte_vhost_get_vhost_vring(q->vid, q->virtqueue_id, &vring) != 0)
		return false;
	if (vring.size == 0 || vring.size > 32768 || (vring.size & (vring.size - 1)) != 0)
		return false;
	ring->has_events = (features & 1ULL << VIRTIO_RING_F_EVENT_IDX) != 0;
	events = ring->has_events ? sizeof(uint16_t) : 0;
	/* Sizes and alignments: virtio 1.2, section 2.7. */
	if (!is_mapped(ring, vring.desc, (uint64_t)vring.size * sizeof(struct vring_desc), 16) ||
	    !is_mapped(ring, vring.avail, sizeof(struct vring_avail) + (uint64_t)vring.size * sizeof(uint16_t) + events, 2) ||
	    !is_mapped(ring, vring.used,
		       sizeof(struct vring_used) + (uint64_t)vring.size * sizeof(struct vring_used_elem) + events, 4))
		return false;
	if (rte_vhost_get_vring_base(q->vid, q->virtqueue_id, &ring->last_avail, &ring->last_used) != 0)
		return false;
	ring->seen_avail = ring->last_avail;
	ring->desc = vring.desc;
	ring->avail = vring.avail;
	ring->used = vring.used;
	ring->size = vring.size;
	ring->call = vring.callfd >= 0 && is_eventfd(vring.callfd) ? vring.callfd : -1;
	ring->has_signalled = false;
	ring->is_mergeable = (features & 1ULL << VIRTIO_NET_F_MRG_RXBUF) != 0;
	ring->has_offloads = (features & VHOST_OFFLOAD_FEATURES) != 0;
	ring->header = features & (1ULL << VIRTIO_NET_F_MRG_RXBUF | 1ULL << VIRTIO_F_VERSION_1) ?
		sizeof(struct virtio_net_hdr_mrg_rxbuf) : sizeof(struct virtio_net_hdr);
	return true;
}

/* Takes a queue away from bursts; returns what they went through. */
static uint32_t
close_queue(struct vhost_queue *q)
{
	const uint32_t way = __atomic_exchange_n(&q->way, VHOST_WAY_NONE, __ATOMIC_SEQ_CST);

	q->was_ring = way == VHOST_WAY_RING;
	q->may_be_inside |= way != VHOST_WAY_NONE;
	return way;
}

/* Gives the library the indices of a queue that was closed, and that nobody is inside any more. */
static void
return_indices(struct vhost_queue *q)
{
	q->may_be_inside = false;
	if (q->was_ring)
		rte_vhost_set_vring_base(q->vid, q->virtqueue_id, q->ring.last_avail, q->ring.last_used);
	q->was_ring = false;
}

/*
 * Takes all queues away from bursts, and waits until nobody is in one. The port's lock is held; the locks of rings are not
 * where bursts go through the library.
 */
static void
halt_queues(struct rte_eth_dev *dev)
{
	bool may_be_inside = false;
	struct vhost_queue *q;
	uint16_t i;

	FOREACH_QUEUE(dev, i, q) {
		close_queue(q);
		may_be_inside |= q->may_be_inside;
	}
	if (!may_be_inside)
		return;
	qw_wait_for_bursts();
	FOREACH_QUEUE(dev, i, q)
		return_indices(q);
}

/* The same for one queue, whose ring's lock may be held: bursts through the library are not waited for here. */
static void
halt_queue(struct rte_eth_dev *dev, uint16_t vring)
{
	struct vhost_queue *q;
	uint16_t i;

	FOREACH_QUEUE(dev, i, q) {
		if (q->virtqueue_id != vring || close_queue(q) != VHOST_WAY_RING)
			continue;
		qw_wait_for_bursts();
		return_indices(q);
	}
}

/* Gives bursts the queues that they may have, with their rings as they are now. The port's lock is held. */
static void
release_queues(struct rte_eth_dev *dev)
{
	struct pmd_internal *internal = dev->data->dev_private;
	struct vhost_queue *q;
	uint16_t i;

	if (!internal->is_attached || !internal->is_started || internal->in_message)
		return;
	FOREACH_QUEUE(dev, i, q) {
		if (__atomic_load_n(&q->way, __ATOMIC_RELAXED) != VHOST_WAY_NONE || !internal->rings[q->virtqueue_id])
			continue;
		q->vid = internal->vid;
		q->internal = internal;
		q->port = dev->data->port_id;
		q->ring.port = q->port;
		q->ring.software_checksums = (internal->features & 1ULL << VIRTIO_NET_F_CSUM) != 0;
		if (internal->by_library)
			__atomic_store_n(&q->way, VHOST_WAY_LIBRARY, __ATOMIC_RELEASE);
		else if (load_ring(q, internal->features))
			__atomic_store_n(&q->way, VHOST_WAY_RING, __ATOMIC_RELEASE);
		else
			VHOST_LOG(NOTICE, "vring%u of %s is none\n", q->virtqueue_id, internal->iface_name);
	}
}

/* Whether a message leaves rings and memory as they are. */
static bool
is_harmless(uint32_t request)
{
	switch (request) {
	case VHOST_USER_GET_FEATURES:
	case VHOST_USER_GET_PROTOCOL_FEATURES:
	case VHOST_USER_GET_QUEUE_NUM:
	case VHOST_USER_SEND_RARP:
	case VHOST_USER_NET_SET_MTU:
	case VHOST_USER_SET_STATUS:
	case VHOST_USER_GET_STATUS:
		return true;
	default:
		return false;
	}
}

/*
 * Before the library does what a guest says. It holds the locks of all the guest's rings, which its bursts wait for: so
 * queues that go through the library are left alone, it takes care of them.
 */
static enum rte_vhost_msg_result
pre_message(int vid, void *msg)
{
	const struct vhost_message *message = msg;
	struct rte_eth_dev *dev = find_device_of(vid);
	struct pmd_internal *internal;

	if (message->request == VHOST_USER_SET_MEM_TABLE || message->request == VHOST_USER_RESET_OWNER)
		has_memory[vid] = false;
	if (dev == NULL || is_harmless(message->request))
		return RTE_VHOST_MSG_RESULT_NOT_HANDLED;
	internal = dev->data->dev_private;
	pthread_mutex_lock(&internal->lock);
	if (internal->is_attached && internal->vid == vid && !internal->by_library) {
		internal->in_message = true;
		halt_queues(dev);
	}
	pthread_mutex_unlock(&internal->lock);
	return RTE_VHOST_MSG_RESULT_NOT_HANDLED;
}

/* After the library has done it. Where it could not, queues stay halted until it can do what comes next. */
static enum rte_vhost_msg_result
post_message(int vid, void *msg)
{
	const struct vhost_message *message = msg;
	struct rte_eth_dev *dev = find_device_of(vid);
	struct pmd_internal *internal;
	uint64_t features;

	if (message->request == VHOST_USER_SET_MEM_TABLE)
		has_memory[vid] = true;
	if (dev == NULL)
		return RTE_VHOST_MSG_RESULT_NOT_HANDLED;
	internal = dev->data->dev_private;
	pthread_mutex_lock(&internal->lock);
	if (internal->is_attached && internal->vid == vid) {
		internal->in_message = false;
		/* A guest that is about to move has what is written noted from now on. */
		if (rte_vhost_get_negotiated_features(vid, &features) == 0) {
			internal->features = features;
			internal->by_library |= (features & VHOST_LIBRARY_FEATURES) != 0;
		}
		if (message->request == VHOST_USER_SEND_RARP && !internal->by_library) {
			memcpy(&internal->rarp, message->mac, sizeof(internal->rarp));
			__atomic_store_n(&internal->has_rarp, 1, __ATOMIC_RELEASE);
		}
		release_queues(dev);
	}
	pthread_mutex_unlock(&internal->lock);
	return RTE_VHOST_MSG_RESULT_NOT_HANDLED;
}

static const struct rte_vhost_user_extern_ops extern_ops = {
	.pre_msg_handle = pre_message,
	.post_msg_handle = post_message,
};

static int
new_connection(int vid)
{
	has_memory[vid] = false;
	return rte_vhost_extern_callback_register(vid, &extern_ops, NULL);
}

static int
new_device(int vid)
{
	struct rte_eth_dev *dev = find_device_of(vid);
	struct pmd_internal *internal;
	uint16_t i;

	if (dev == NULL) {
		VHOST_LOG(INFO, "vhost device %d belongs to no port\n", vid);
		return -1;
	}
	internal = dev->data->dev_private;
	for (i = 0; i < rte_vhost_get_vring_num(vid); i++)
		rte_vhost_enable_guest_notification(vid, i, 0);
	rte_vhost_get_mtu(vid, &dev->data->mtu);

	pthread_mutex_lock(&internal->lock);
	/* Of several guests, the last has the port. */
	halt_queues(dev);
	if (rte_vhost_get_negotiated_features(vid, &internal->features) != 0) {
		pthread_mutex_unlock(&internal->lock);
		VHOST_LOG(ERR, "vhost device %d has no features\n", vid);
		return -1;
	}
	internal->vid = vid;
	internal->by_library = (internal->features & VHOST_LIBRARY_FEATURES) != 0;
	internal->in_message = false;
	internal->is_attached = true;
	dev->data->dev_link.link_status = RTE_ETH_LINK_UP;
	release_queues(dev);
	pthread_mutex_unlock(&internal->lock);

	VHOST_LOG(INFO, "Vhost device %d created\n", vid);
	rte_eth_dev_callback_process(dev, RTE_ETH_EVENT_INTR_LSC, NULL);
	return 0;
}

static void
destroy_device(int vid)
{
	struct rte_eth_dev *dev = find_device_of(vid);
	struct pmd_internal *internal;

	if (dev == NULL) {
		VHOST_LOG(ERR, "vhost device %d belongs to no port\n", vid);
		return;
	}
	internal = dev->data->dev_private;
	pthread_mutex_lock(&internal->lock);
	if (!internal->is_attached || internal->vid != vid) {
		pthread_mutex_unlock(&internal->lock);
		return;
	}
	halt_queues(dev);
	internal->is_attached = false;
	internal->vid = -1;
	memset(internal->rings, 0, sizeof(internal->rings));
	dev->data->dev_link.link_status = RTE_ETH_LINK_DOWN;
	pthread_mutex_unlock(&internal->lock);

	VHOST_LOG(INFO, "Vhost device %d destroyed\n", vid);
	rte_eth_dev_callback_process(dev, RTE_ETH_EVENT_INTR_LSC, NULL);
}

/* Called with the locks of the guest's rings held. */
static int
vring_state_changed(int vid, uint16_t vring, int enable)
{
	struct rte_eth_dev *dev = find_device_of(vid);
	struct pmd_internal *internal;

	if (dev == NULL) {
		VHOST_LOG(ERR, "vhost device %d belongs to no port\n", vid);
		return -1;
	}
	internal = dev->data->dev_private;
	if (vring >= RTE_DIM(internal->rings))
		return -1;
	pthread_mutex_lock(&internal->lock);
	if (internal->rings[vring] != (enable != 0) &&
	    (enable || !internal->is_attached || internal->vid == vid)) {
		internal->rings[vring] = enable != 0;
		if (enable)
			release_queues(dev);
		else
			halt_queue(dev, vring);
	}
	pthread_mutex_unlock(&internal->lock);
	VHOST_LOG(INFO, "vring%u is %s\n", vring, enable ? "enabled" : "disabled");
	rte_eth_dev_callback_process(dev, RTE_ETH_EVENT_QUEUE_STATE, NULL);
	return 0;
}

static const struct rte_vhost_device_ops vhost_ops = {
	.new_device          = new_device,
	.destroy_device      = destroy_device,
	.vring_state_changed = vring_state_changed,
	.new_connection      = new_connection,
};

static int
vhost_driver_setup(struct rte_eth_dev *dev)
{
	struct pmd_internal *internal = dev->data->dev_private;
	struct internal_list *list;

	/* Don't try to setup again if it has already been done. */
	if (find_device(internal->iface_name) != NULL)
		return 0;
	list = rte_zmalloc_socket(dev->device->name, sizeof(*list), 0, dev->device->numa_node);
	if (list == NULL)
		return -1;
	list->eth_dev = dev;
	pthread_mutex_lock(&internal_list_lock);
	TAILQ_INSERT_TAIL(&internal_list, list, next);
	pthread_mutex_unlock(&internal_list_lock);

	if (rte_vhost_driver_register(internal->iface_name, internal->flags))
		goto list_remove;
	if (internal->disable_flags &&
	    rte_vhost_driver_disable_features(internal->iface_name, internal->disable_flags))
		goto unregister;
	if (rte_vhost_driver_callback_register(internal->iface_name, &vhost_ops) < 0) {
		VHOST_LOG(ERR, "Can't register callbacks\n");
		goto unregister;
	}
	if (rte_vhost_driver_start(internal->iface_name) < 0) {
		VHOST_LOG(ERR, "Failed to start driver for %s\n", internal->iface_name);
		goto unregister;
	}
	return 0;

unregister:
	rte_vhost_driver_unregister(internal->iface_name);
list_remove:
	pthread_mutex_lock(&internal_list_lock);
	TAILQ_REMOVE(&internal_list, list, next);
	pthread_mutex_unlock(&internal_list_lock);
	rte_free(list);
	return -1;
}

int
qw_vhost_device(uint16_t port_id)
{
	struct pmd_internal *internal;
	struct internal_list *list;
	int vid = -1;

	pthread_mutex_lock(&internal_list_lock);
	TAILQ_FOREACH(list, &internal_list, next) {
		if (list->eth_dev->data->port_id != port_id)
			continue;
		internal = list->eth_dev->data->dev_private;
		pthread_mutex_lock(&internal->lock);
		vid = internal->is_attached ? internal->vid : -1;
		pthread_mutex_unlock(&internal->lock);
		break;
	}
	pthread_mutex_unlock(&internal_list_lock);
	return vid;
}

static int
eth_dev_configure(struct rte_eth_dev *dev)
{
	return vhost_driver_setup(dev) < 0 ? -1 : 0;
}

static int
eth_dev_start(struct rte_eth_dev *dev)
{
	struct pmd_internal *internal = dev->data->dev_private;
	uint16_t i;

	pthread_mutex_lock(&internal->lock);
	internal->is_started = true;
	release_queues(dev);
	pthread_mutex_unlock(&internal->lock);
	for (i = 0; i < dev->data->nb_rx_queues; i++)
		dev->data->rx_queue_state[i] = RTE_ETH_QUEUE_STATE_STARTED;
	for (i = 0; i < dev->data->nb_tx_queues; i++)
		dev->data->tx_queue_state[i] = RTE_ETH_QUEUE_STATE_STARTED;
	return 0;
}

static int
eth_dev_stop(struct rte_eth_dev *dev)
{
	struct pmd_internal *internal = dev->data->dev_private;
	uint16_t i;

	dev->data->dev_started = 0;
	pthread_mutex_lock(&internal->lock);
	internal->is_started = false;
	halt_queues(dev);
	pthread_mutex_unlock(&internal->lock);
	for (i = 0; i < dev->data->nb_rx_queues; i++)
		dev->data->rx_queue_state[i] = RTE_ETH_QUEUE_STATE_STOPPED;
	for (i = 0; i < dev->data->nb_tx_queues; i++)
		dev->data->tx_queue_state[i] = RTE_ETH_QUEUE_STATE_STOPPED;
	return 0;
}

static int
eth_dev_close(struct rte_eth_dev *dev)
{
	struct pmd_internal *internal = dev->data->dev_private;
	struct internal_list *list;
	uint16_t i;

	if (internal == NULL)
		return 0;
	eth_dev_stop(dev);
	pthread_mutex_lock(&internal_list_lock);
	TAILQ_FOREACH(list, &internal_list, next) {
		if (list->eth_dev == dev)
			break;
	}
	pthread_mutex_unlock(&internal_list_lock);
	if (list != NULL) {
		/* Waits for callbacks, which look for the device. */
		rte_vhost_driver_unregister(internal->iface_name);
		pthread_mutex_lock(&internal_list_lock);
		TAILQ_REMOVE(&internal_list, list, next);
		pthread_mutex_unlock(&internal_list_lock);
		rte_free(list);
	}
	for (i = 0; dev->data->rx_queues != NULL && i < dev->data->nb_rx_queues; i++)
		rte_free(dev->data->rx_queues[i]);
	for (i = 0; dev->data->tx_queues != NULL && i < dev->data->nb_tx_queues; i++)
		rte_free(dev->data->tx_queues[i]);
	rte_free(internal->iface_name);
	pthread_mutex_destroy(&internal->lock);
	rte_free(internal);
	dev->data->dev_private = NULL;
	return 0;
}

static struct vhost_queue *
make_queue(struct rte_eth_dev *dev, uint16_t virtqueue_id, unsigned int socket_id)
{
	struct vhost_queue *q = rte_zmalloc_socket(NULL, sizeof(*q), RTE_CACHE_LINE_SIZE, socket_id);

	if (q == NULL) {
		VHOST_LOG(ERR, "Failed to allocate memory for a queue\n");
		return NULL;
	}
	q->virtqueue_id = virtqueue_id;
	q->internal = dev->data->dev_private;
	q->port = dev->data->port_id;
	q->vid = -1;
	return q;
}

static int
eth_rx_queue_setup(struct rte_eth_dev *dev, uint16_t rx_queue_id, uint16_t nb_rx_desc __rte_unused,
		   unsigned int socket_id, const struct rte_eth_rxconf *rx_conf __rte_unused,
		   struct rte_mempool *mb_pool)
{
	struct vhost_queue *q = make_queue(dev, rx_queue_id * VIRTIO_QNUM + VIRTIO_TXQ, socket_id);

	if (q == NULL)
		return -ENOMEM;
	q->mb_pool = mb_pool;
	dev->data->rx_queues[rx_queue_id] = q;
	return 0;
}

static int
eth_tx_queue_setup(struct rte_eth_dev *dev, uint16_t tx_queue_id, uint16_t nb_tx_desc __rte_unused,
		   unsigned int socket_id, const struct rte_eth_txconf *tx_conf __rte_unused)
{
	struct vhost_queue *q = make_queue(dev, tx_queue_id * VIRTIO_QNUM + VIRTIO_RXQ, socket_id);

	if (q == NULL)
		return -ENOMEM;
	dev->data->tx_queues[tx_queue_id] = q;
	return 0;
}

static void
eth_rx_queue_release(struct rte_eth_dev *dev, uint16_t qid)
{
	rte_free(dev->data->rx_queues[qid]);
}

static void
eth_tx_queue_release(struct rte_eth_dev *dev, uint16_t qid)
{
	rte_free(dev->data->tx_queues[qid]);
}

static int
eth_dev_info(struct rte_eth_dev *dev, struct rte_eth_dev_info *dev_info)
{
	const struct pmd_internal *internal = dev->data->dev_private;

	dev_info->max_mac_addrs = 1;
	dev_info->max_rx_pktlen = (uint32_t)-1;
	dev_info->max_rx_queues = internal->max_queues;
	dev_info->max_tx_queues = internal->max_queues;
	dev_info->min_rx_bufsize = 0;
	dev_info->tx_offload_capa = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	return 0;
}

static int
eth_link_update(struct rte_eth_dev *dev __rte_unused, int wait_to_complete __rte_unused)
{
	return 0;
}

static int
eth_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
	const struct vhost_counters *counters;
	uint16_t i;

	stats->rx_nombuf = 0;
	for (i = 0; i < dev->data->nb_rx_queues; i++) {
		if (dev->data->rx_queues[i] == NULL)
			continue;
		counters = &((struct vhost_queue *)dev->data->rx_queues[i])->ring.counters;
		if (i < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			stats->q_ipackets[i] = counters->frames;
			stats->q_ibytes[i] = counters->octets;
		}
		stats->ipackets += counters->frames;
		stats->ibytes += counters->octets;
		stats->ierrors += counters->errors;
		stats->rx_nombuf += counters->no_buffers;
	}
	for (i = 0; i < dev->data->nb_tx_queues; i++) {
		if (dev->data->tx_queues[i] == NULL)
			continue;
		counters = &((struct vhost_queue *)dev->data->tx_queues[i])->ring.counters;
		if (i < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			stats->q_opackets[i] = counters->frames;
			stats->q_obytes[i] = counters->octets;
		}
		stats->opackets += counters->frames;
		stats->obytes += counters->octets;
		stats->oerrors += counters->errors;
	}
	return 0;
}

static int
eth_stats_reset(struct rte_eth_dev *dev)
{
	struct vhost_queue *q;
	uint16_t i;

	FOREACH_QUEUE(dev, i, q)
		memset(&q->ring.counters, 0, sizeof(q->ring.counters));
	return 0;
}

/* What is counted of a queue beside what all drivers count. */
static const struct {
	const char *name;
	size_t offset;
} xstats[] = {
	{ "unsound_buffers", offsetof(struct vhost_counters, errors) },
	{ "no_mbuf", offsetof(struct vhost_counters, no_buffers) },
	{ "guest_notifications", offsetof(struct vhost_counters, notifications) },
};

static int
eth_xstats_get_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int limit)
{
	unsigned int count = 0, k;
	struct vhost_queue *q;
	uint16_t i;

	FOREACH_QUEUE(dev, i, q) {
		for (k = 0; k < RTE_DIM(xstats); k++, count++) {
			if (names == NULL || count >= limit)
				continue;
			snprintf(names[count].name, sizeof(names[count].name), "%s_q%u_%s",
				 q->virtqueue_id & 1 ? "rx" : "tx", q->virtqueue_id / 2, xstats[k].name);
		}
	}
	return count;
}

static int
eth_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *values, unsigned int limit)
{
	unsigned int count = 0, k;
	struct vhost_queue *q;
	uint16_t i;

	FOREACH_QUEUE(dev, i, q) {
		for (k = 0; k < RTE_DIM(xstats); k++, count++) {
			if (values == NULL || count >= limit)
				continue;
			values[count].id = count;
			values[count].value = *(const uint64_t *)RTE_PTR_ADD(&q->ring.counters, xstats[k].offset);
		}
	}
	return count;
}

static const struct eth_dev_ops ops = {
	.dev_start = eth_dev_start,
	.dev_stop = eth_dev_stop,
	.dev_close = eth_dev_close,
	.dev_configure = eth_dev_configure,
	.dev_infos_get = eth_dev_info,
	.rx_queue_setup = eth_rx_queue_setup,
	.tx_queue_setup = eth_tx_queue_setup,
	.rx_queue_release = eth_rx_queue_release,
	.tx_queue_release = eth_tx_queue_release,
	.link_update = eth_link_update,
	.stats_get = eth_stats_get,
	.stats_reset = eth_stats_reset,
	.xstats_get = eth_xstats_get,
	.xstats_get_names = eth_xstats_get_names,
	.xstats_reset = eth_stats_reset,
};

static int
eth_dev_vhost_create(struct rte_vdev_device *vdev, const char *iface_name, uint16_t queues, unsigned int numa_node,
		     uint64_t flags, uint64_t disable_flags)
{
	const char *name = rte_vdev_device_name(vdev);
	struct rte_ether_addr *eth_addr;
	struct pmd_internal *internal;
	struct rte_eth_dev_data *data;
	struct rte_eth_dev *dev;

	dev = rte_eth_vdev_allocate(vdev, sizeof(*internal));
	if (dev == NULL)
		return -1;
	data = dev->data;
	internal = data->dev_private;
	eth_addr = rte_zmalloc_socket(name, sizeof(*eth_addr), 0, numa_node);
	if (eth_addr == NULL)
		goto error;
	data->mac_addrs = eth_addr;
	*eth_addr = base_eth_addr;
	eth_addr->addr_bytes[5] = data->port_id;
	internal->iface_name = rte_malloc_socket(name, strlen(iface_name) + 1, 0, numa_node);
	if (internal->iface_name == NULL)
		goto error;
	strcpy(internal->iface_name, iface_name);
	if (pthread_mutex_init(&internal->lock, NULL) != 0)
		goto error;

	data->nb_rx_queues = queues;
	data->nb_tx_queues = queues;
	internal->max_queues = queues;
	internal->vid = -1;
	internal->flags = flags;
	internal->disable_flags = disable_flags;
	data->dev_link = pmd_link;
	data->dev_flags = RTE_ETH_DEV_INTR_LSC | RTE_ETH_DEV_AUTOFILL_QUEUE_XSTATS;
	data->promiscuous = 1;
	data->all_multicast = 1;
	dev->dev_ops = &ops;
	dev->rx_pkt_burst = eth_vhost_rx;
	dev->tx_pkt_burst = eth_vhost_tx;
	rte_eth_dev_probing_finish(dev);
	return 0;

error:
	rte_free(internal->iface_name);
	rte_eth_dev_release_port(dev);
	return -1;
}

static int
open_iface(const char *key __rte_unused, const char *value, void *extra_args)
{
	const char **iface_name = extra_args;

	if (value == NULL)
		return -1;
	*iface_name = value;
	return 0;
}

static int
open_int(const char *key __rte_unused, const char *value, void *extra_args)
{
	uint16_t *n = extra_args;
	unsigned long number;
	char *end;

	if (value == NULL)
		return -EINVAL;
	number = strtoul(value, &end, 0);
	if (*end != '\0' || number > UINT16_MAX)
		return -EINVAL;
	*n = (uint16_t)number;
	return 0;
}

static int
qw_vhost_probe(struct rte_vdev_device *vdev)
{
	uint64_t flags = RTE_VHOST_USER_NET_COMPLIANT_OL_FLAGS, disable_flags = 0;
	uint16_t queues = 1, client_mode = 0, tso = 0;
	const char *iface_name = NULL;
	struct rte_kvargs *kvlist;
	int ret = -1;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return -1;
	kvlist = rte_kvargs_parse(rte_vdev_device_args(vdev), valid_arguments);
	if (kvlist == NULL)
		return -1;
	if (rte_kvargs_count(kvlist, ETH_VHOST_IFACE_ARG) != 1 ||
	    rte_kvargs_process(kvlist, ETH_VHOST_IFACE_ARG, &open_iface, &iface_name) < 0 ||
	    rte_kvargs_process(kvlist, ETH_VHOST_QUEUES_ARG, &open_int, &queues) < 0 ||
	    rte_kvargs_process(kvlist, ETH_VHOST_CLIENT_ARG, &open_int, &client_mode) < 0 ||
	    rte_kvargs_process(kvlist, ETH_VHOST_VIRTIO_NET_F_HOST_TSO, &open_int, &tso) < 0 ||
	    queues > RTE_MAX_QUEUES_PER_PORT)
		goto out_free;
	if (client_mode)
		flags |= RTE_VHOST_USER_CLIENT;
	if (tso == 0)
		disable_flags = 1ULL << VIRTIO_NET_F_HOST_TSO4 | 1ULL << VIRTIO_NET_F_HOST_TSO6;
	if (vdev->device.numa_node == SOCKET_ID_ANY)
		vdev->device.numa_node = rte_socket_id();
	ret = eth_dev_vhost_create(vdev, iface_name, queues, vdev->device.numa_node, flags, disable_flags);
	if (ret != 0)
		VHOST_LOG(ERR, "Failed to create %s\n", rte_vdev_device_name(vdev));

out_free:
	rte_kvargs_free(kvlist);
	return ret;
}

static int
qw_vhost_remove(struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *dev = rte_eth_dev_allocated(rte_vdev_device_name(vdev));

	if (dev == NULL)
		return 0;
	eth_dev_close(dev);
	rte_eth_dev_release_port(dev);
	return 0;
}

static struct rte_vdev_driver qw_vhost_drv = {
	.driver = { .name = QW_VHOST_DRIVER },
	.probe = qw_vhost_probe,
	.remove = qw_vhost_remove,
};

void
qw_vhost_register(void)
{
	rte_vdev_register(&qw_vhost_drv);
}
