/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * handle.h - the handles that the user holds. A handle is looked up by its value, so that a null
 * one, a freed one and one that EPX never gave are told apart without a look at what it points to.
 */
#ifndef EPX_CORE_HANDLE_H
#define EPX_CORE_HANDLE_H

#include "base/status.h"

enum epx_handle_kind {
    EPX_HANDLE_COMM,
    EPX_HANDLE_ROUTE,
    EPX_HANDLE_REQUEST,
    EPX_HANDLE_GRAPH,
    EPX_NUM_HANDLES
};

/* The first member of each object that users have handles of. */
struct epx_handle {
    struct epx_handle *next; /* of the same bucket */
    enum epx_handle_kind kind;
    int held; /* under the lock: the user may name the object */
};

/* From now on until it is removed the user may name the object. */
void epx_handle_add(struct epx_handle *handle, enum epx_handle_kind kind);
/* Does nothing where the handle was removed before. */
void epx_handle_remove(struct epx_handle *handle);

/* With the lock held, in a child of fork: the handles are the parent's. */
void epx_handle_forget_all(void);
/* How often that was called in this process and in those that it comes from. */
int epx_handle_generation(void);

int epx_handle_is(const void *handle, enum epx_handle_kind kind);
/* EPX_ERR_COMM, EPX_ERR_ROUTE or EPX_ERR_REQUEST, of a graph EPX_ERR_ARG, with what is wrong with a
 * handle that is not of that kind. */
int epx_handle_fail(const void *handle, enum epx_handle_kind kind);
static inline int epx_handle_check(const void *handle, enum epx_handle_kind kind)
{
    return epx_handle_is(handle, kind) ? EPX_SUCCESS : epx_handle_fail(handle, kind);
}

#endif
