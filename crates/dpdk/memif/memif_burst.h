/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright 2018-2019 Cisco Systems, Inc.  All rights reserved.
 */

#ifndef _MEMIF_BURST_H_
#define _MEMIF_BURST_H_

#include <stdint.h>

struct rte_mbuf;

/* Receives up to nb_pkts frames of a queue (eth_rx_burst_t). */
uint16_t eth_memif_rx(void *queue, struct rte_mbuf **bufs, uint16_t nb_pkts);

/* Sends up to nb_pkts frames on a queue (eth_tx_burst_t). */
uint16_t eth_memif_tx(void *queue, struct rte_mbuf **bufs, uint16_t nb_pkts);

#endif				/* _MEMIF_BURST_H_ */
