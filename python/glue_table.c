/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_table.c - numbers for communicators, graphs and routes. A number is given once, so that the
 * number of a freed object never means another one. In a process that was forked all of them count
 * as freed, since MPI and what it uses belong to the parent. */
#include "glue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct epx_python_table {
    void **items;
    int num_items;
};

struct epx_python_table epx_python_comms, epx_python_graphs, epx_python_routes;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int is_child;

static void become_child(void)
{
    is_child = 1;
}

static void note_forks(void)
{
    pthread_atfork(NULL, NULL, become_child);
}

/* From now on a process that is forked off knows that it is. */
void epx_python_note_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, note_forks);
}

int epx_python_is_child(void)
{
    return is_child;
}

/* The number of the item, or -1 without memory. */
int epx_python_table_add(struct epx_python_table *table, void *item)
{
    int number = -1;
    void **items;

    pthread_mutex_lock(&mutex);
    items = realloc(table->items, ((size_t)table->num_items + 1) * sizeof(*items));
    if (items) {
        table->items = items;
        number = table->num_items++;
        items[number] = item;
    }
    pthread_mutex_unlock(&mutex);
    return number;
}

void *epx_python_table_get(struct epx_python_table *table, int64_t number)
{
    void *item = NULL;

    if (is_child) /* the mutex may be that of a thread of the parent */
        return NULL;
    pthread_mutex_lock(&mutex);
    if (number >= 0 && number < table->num_items)
        item = table->items[number];
    pthread_mutex_unlock(&mutex);
    return item;
}

void epx_python_table_remove(struct epx_python_table *table, int64_t number)
{
    pthread_mutex_lock(&mutex);
    if (number >= 0 && number < table->num_items)
        table->items[number] = NULL;
    pthread_mutex_unlock(&mutex);
}

/* Whether anything in the table was not removed. */
int epx_python_table_is_used(const struct epx_python_table *table)
{
    int is_used = 0;

    pthread_mutex_lock(&mutex);
    for (int i = 0; i < table->num_items; i++)
        is_used |= table->items[i] != NULL;
    pthread_mutex_unlock(&mutex);
    return is_used;
}

/* The error of a communicator or a route that this process does not have. */
static int fail_gone(int code, const char *text)
{
    if (is_child)
        text = "this process was forked off: communicators and routes are its parent's";
    return epx_python_fail(code, "%s", text);
}

int epx_python_comm(int64_t number, struct epx_python_comm **comm)
{
    *comm = epx_python_table_get(&epx_python_comms, number);
    if (!*comm)
        return fail_gone(EPX_ERR_COMM, "the communicator is closed");
    return EPX_SUCCESS;
}

int epx_python_graph(int64_t number, struct epx_python_graph **graph)
{
    *graph = epx_python_table_get(&epx_python_graphs, number);
    if (!*graph)
        return fail_gone(EPX_ERR_ARG, "the graph is freed");
    if (epx_python_table_get(&epx_python_comms, (*graph)->comm) != (*graph)->owner)
        return epx_python_fail(EPX_ERR_COMM, "the communicator of the graph is closed");
    return EPX_SUCCESS;
}

int epx_python_route(int64_t number, struct epx_python_route **route)
{
    *route = epx_python_table_get(&epx_python_routes, number);
    if (!*route)
        return fail_gone(EPX_ERR_ROUTE, "the route is freed");
    if (epx_python_table_get(&epx_python_comms, (*route)->comm) != (*route)->owner)
        return epx_python_fail(EPX_ERR_COMM, "the communicator of the route is closed");
    return EPX_SUCCESS;
}
