/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright 2018-2019 Cisco Systems, Inc.  All rights reserved.
 */

#ifndef _MEMIF_DRIVER_H_
#define _MEMIF_DRIVER_H_

/* Devices of this name are this driver's; net_memif is that of the installed DPDK. */
#define QW_MEMIF_DRIVER "net_qwmemif"

/* Makes the driver known to DPDK. To be called once, before a device is probed. */
void qw_memif_register(void);

/* Returns when every thread that was in a burst has come out of it. Provided by the shim. */
void qw_wait_for_bursts(void);

#endif				/* _MEMIF_DRIVER_H_ */
