/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "shim.h"

#ifdef QW_OWN_DRIVERS
#include "memif_driver.h"
#include "vhost_driver.h"
#else
#include <rte_eth_vhost.h>
#endif

#include <rte_interrupts.h>

uint16_t
qw_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_rx_burst(port, queue, mbufs, n);
}

uint16_t
qw_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_tx_burst(port, queue, mbufs, n);
}

int
qw_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, n);
}

uint16_t
qw_segment_size(const struct rte_mbuf *mbuf)
{
	return mbuf->tso_segsz;
}

void
qw_request_segments(struct rte_mbuf *mbuf, uint16_t l2, uint16_t l3, uint16_t l4, uint16_t size, int is_ipv4)
{
	mbuf->tx_offload = 0;
	mbuf->l2_len = l2;
	mbuf->l3_len = l3;
	mbuf->l4_len = l4;
	mbuf->tso_segsz = size;
	mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_SEG | (is_ipv4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6);
}

int
qw_errno(void)
{
	return rte_errno;
}

uint64_t
qw_tsc(void)
{
	return rte_rdtsc();
}

typedef int (*unregister_fn)(const struct rte_intr_handle *, rte_intr_callback_fn, void *);

static void (*unregister_hook)(void);

/*
 * Takes the place of EAL's function of this name for all libraries of the process, since an executable's symbols
 * come first, and calls it. See gate.rs for why.
 */
int
rte_intr_callback_unregister(const struct rte_intr_handle *handle, rte_intr_callback_fn cb, void *arg)
{
	static unregister_fn real;

	if (real == NULL)
		real = (unregister_fn)dlsym(RTLD_NEXT, "rte_intr_callback_unregister");
	if (real == NULL)
		return -ENOTSUP;
	if (unregister_hook != NULL)
		unregister_hook();
	return real(handle, cb, arg);
}

#ifdef QW_OWN_DRIVERS
void
qw_wait_for_bursts(void)
{
	if (unregister_hook != NULL)
		unregister_hook();
}
#endif

void
qw_register_drivers(void)
{
#ifdef QW_OWN_DRIVERS
	qw_memif_register();
	qw_vhost_register();
#endif
}

int
qw_hook_unregister(void (*hook)(void))
{
	unregister_hook = hook;
	return dlsym(RTLD_DEFAULT, "rte_intr_callback_unregister") == (void *)rte_intr_callback_unregister;
}

static __thread uint64_t refused;

void
qw_vhost_refuse(uint64_t features)
{
	refused = features;
}

typedef int (*start_fn)(const char *);

/*
 * Takes the place of the vhost library's function of this name for its driver. Between the registration of a socket
 * and its start, features can be taken back; the driver does both in one go and has arguments for few of them.
 */
int
rte_vhost_driver_start(const char *path)
{
	static start_fn real;

	if (real == NULL)
		real = (start_fn)dlsym(RTLD_NEXT, "rte_vhost_driver_start");
	if (real == NULL)
		return -1;
	if (refused != 0 && rte_vhost_driver_disable_features(path, refused) != 0)
		return -1;
	return real(path);
}

int
qw_vhost_guest(uint16_t port, uint64_t *features, uint16_t *rings, uint16_t *ring_size)
{
	struct rte_vhost_vring ring;
#ifdef QW_OWN_DRIVERS
	int vid = qw_vhost_device(port);
#else
	int vid = rte_eth_vhost_get_vid_from_port_id(port);
#endif

	if (vid < 0 || rte_vhost_get_negotiated_features(vid, features) != 0)
		return -1;
	*rings = rte_vhost_get_vring_num(vid);
	*ring_size = rte_vhost_get_vhost_vring(vid, 0, &ring) == 0 ? ring.size : 0;
	return 0;
}

/* How long a driver waits for its first peer, and for the rest of a message that has begun. */
#define PEER_PATIENCE_MS 30000
#define MESSAGE_PATIENCE_S 2
/* How long a back end may take to answer: Open vSwitch makes its buffers first, on CPUs that others have, too. */
#define ANSWER_PATIENCE_S 15

/* Whether code at this address is in a library whose file name begins so. */
static int
is_in(const void *address, const char *library)
{
	const char *name;
	Dl_info info;

	if (dladdr(address, &info) == 0 || info.dli_fname == NULL)
		return 0;
	name = strrchr(info.dli_fname, '/');
	return strncmp(name == NULL ? info.dli_fname : name + 1, library, strlen(library)) == 0;
}

static int
is_dpdk(const void *address)
{
	return is_in(address, "librte_");
}

/* A peer that falls silent is given up, or the thread hung that waits for it. */
static void
limit_patience(int fd, int seconds)
{
	const struct timeval limit = { .tv_sec = seconds };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

typedef int (*accept_fn)(int, struct sockaddr *, socklen_t *);
typedef int (*connect_fn)(int, const struct sockaddr *, socklen_t);

/*
 * Stand in for the C library's functions of these names, for DPDK's libraries, which wait for their peers without end:
 * net_virtio_user for its first client, and vhost for the rest of a message. For other callers nothing changes.
 */
int
accept(int fd, struct sockaddr *address, socklen_t *length)
{
	static accept_fn real;
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	int peer;

	if (real == NULL)
		real = (accept_fn)dlsym(RTLD_NEXT, "accept");
	if (!is_dpdk(__builtin_return_address(0)))
		return real(fd, address, length);
	if (poll(&ready, 1, PEER_PATIENCE_MS) == 0) {
		errno = ETIMEDOUT;
		return -1;
	}
	peer = real(fd, address, length);
	if (peer >= 0)
		limit_patience(peer, MESSAGE_PATIENCE_S);
	return peer;
}

int
connect(int fd, const struct sockaddr *address, socklen_t length)
{
	const void *caller = __builtin_return_address(0);
	static connect_fn real;

	if (real == NULL)
		real = (connect_fn)dlsym(RTLD_NEXT, "connect");
	/* The front end asks from the thread that opens its port; the back end hears in the thread that serves all ports. */
	if (address->sa_family == AF_UNIX && is_dpdk(caller))
		limit_patience(fd, is_in(caller, "librte_net_virtio") ? ANSWER_PATIENCE_S : MESSAGE_PATIENCE_S);
	return real(fd, address, length);
}

/* Whether a file of a peer's has so much; it is mapped in whole blocks. Keeps it from shrinking, where that can be. */
static int
is_backed(int fd, off_t offset, size_t length)
{
	struct stat status;
	uint64_t size;

	if (fstat(fd, &status) != 0)
		return 0;
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
	size = RTE_ALIGN_CEIL((uint64_t)status.st_size, (uint64_t)status.st_blksize);
	return offset >= 0 && (uint64_t)offset <= size && length <= size - (uint64_t)offset;
}

/*
 * Stands in for the C library's function, for the vhost library, which maps as much of a peer's file as the peer says:
 * what is not there ends the process when it is looked at. For other callers nothing changes.
 */
void *
mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
	if (fd >= 0 && is_in(__builtin_return_address(0), "librte_vhost") && !is_backed(fd, offset, length)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}
