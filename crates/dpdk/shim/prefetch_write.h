/* SPDX-License-Identifier: Apache-2.0 */
#ifndef QUIETWIRE_PREFETCH_WRITE_H
#define QUIETWIRE_PREFETCH_WRITE_H

/* Asks for a cache line to write to: rte_prefetch0_write asks to read, unless built for a processor that is newer. */
static inline void
prefetch_write(const volatile void *at)
{
#ifdef __x86_64__
	asm volatile ("prefetchw %0" : : "m" (*(const volatile char *)at));
#else
	__builtin_prefetch((const void *)(uintptr_t)at, 1, 3);
#endif
}

#endif
