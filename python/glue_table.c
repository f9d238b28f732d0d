/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_table.c - numbers for communicators and routes. A number is given once, so that the number
 * of a freed object never means another one. */
#include "glue.h"

#include <pthread.h>
#include <stdlib.h>

struct epx_python_table {
    void **items;
    int num_items;
};

struct epx_python_table epx_python_comms, epx_python_routes;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

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
