/* SPDX-License-Identifier: Apache-2.0 */
#include "shim.h"

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
