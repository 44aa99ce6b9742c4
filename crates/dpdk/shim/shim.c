/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "shim.h"

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

int
qw_hook_unregister(void (*hook)(void))
{
	unregister_hook = hook;
	return dlsym(RTLD_DEFAULT, "rte_intr_callback_unregister") == (void *)rte_intr_callback_unregister;
}
