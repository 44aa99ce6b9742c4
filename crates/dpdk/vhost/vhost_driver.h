/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2016 IGEL Co., Ltd.
 * Copyright(c) 2016-2018 Intel Corporation
 */

#ifndef _VHOST_DRIVER_H_
#define _VHOST_DRIVER_H_

#include <stdint.h>

/* Devices of this name are this driver's; net_vhost is that of the installed DPDK. */
#define QW_VHOST_DRIVER "net_qwvhost"

/* Makes the driver known to DPDK. To be called once, before a device is probed. */
void qw_vhost_register(void);

/* The vhost library's number of a port's guest, or a negative value without one. */
int qw_vhost_device(uint16_t port_id);

/* Returns when every thread that was in a burst has come out of it. Provided by the shim. */
void qw_wait_for_bursts(void);

#endif				/* _VHOST_DRIVER_H_ */
