/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.h - the lock of the library's objects. Held for a progress pass, never while waiting. */
#ifndef EPX_CORE_LOCK_H
#define EPX_CORE_LOCK_H

/* A thread that holds the lock may take it again. */
void epx_lock(void);
void epx_unlock(void);

#endif
