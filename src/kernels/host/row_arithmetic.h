/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * row_arithmetic.h - products and sums over blocks of at most EPX_ROW_BLOCK elements, included
 * once for each type that sums are kept in: EPX_SUM is the type, EPX_SUM_NAME(x) names a
 * function for it. Loads and stores convert from and to the datatype.
 */

static inline EPX_SUM EPX_SUM_NAME(element)(const char *row, int i)
{
    EPX_SUM value;

    memcpy(&value, row + (size_t)i * sizeof(value), sizeof(value));
    return value;
}

static inline void EPX_SUM_NAME(scale)(EPX_SUM *restrict a, int n, EPX_SUM weight)
{
    for (int i = 0; i < n; i++)
        a[i] = EPX_SUM_NAME(epx_mul)(weight, a[i]);
}

static inline void EPX_SUM_NAME(add)(EPX_SUM *restrict sum, const char *restrict row, int n)
{
    for (int i = 0; i < n; i++)
        sum[i] = EPX_SUM_NAME(epx_add)(sum[i], EPX_SUM_NAME(element)(row, i));
}

static inline void EPX_SUM_NAME(add_scaled)(EPX_SUM *restrict sum, const char *restrict row, int n,
                                            EPX_SUM weight)
{
    for (int i = 0; i < n; i++)
        sum[i] = EPX_SUM_NAME(epx_add)(
            sum[i], EPX_SUM_NAME(epx_mul)(weight, EPX_SUM_NAME(element)(row, i)));
}

/* Elements of the type of the sums: the row itself if it has them, else its conversion. */
static inline const char *EPX_SUM_NAME(convert)(EPX_Datatype datatype, const char *row, int n,
                                                EPX_SUM *converted)
{
    if (epx_datatype_bytes(datatype) == (int)sizeof(EPX_SUM))
        return row;
    EPX_SUM_NAME(load)(datatype, row, n, converted);
    return (const char *)converted;
}

/* dst = round(w[0] * row[0] + w[1] * row[1] + ...), in this order; w NULL = 1. dst has elements of
 * the type `to`. */
static void EPX_SUM_NAME(sum_pairs)(EPX_Datatype datatype, EPX_Datatype to, struct terms terms,
                                    int n, char *dst)
{
    EPX_SUM sum[EPX_SUM_BLOCK], term[EPX_SUM_BLOCK];

    EPX_SUM_NAME(load)(datatype, terms.rows[0], n, sum);
    if (terms.weights)
        EPX_SUM_NAME(scale)(sum, n, terms.weights[0]);
    for (int k = 1; k < terms.num; k++) {
        const char *row = EPX_SUM_NAME(convert)(datatype, terms.rows[k], n, term);

        if (terms.weights)
            EPX_SUM_NAME(add_scaled)(sum, row, n, terms.weights[k]);
        else
            EPX_SUM_NAME(add)(sum, row, n);
    }
    EPX_SUM_NAME(store)(to, sum, n, dst);
}

/*
 * The sum of one node's rows, the run of parts that begins at `first`; returns where it ends. The
 * sum of a node other than home_node is rounded to the datatype.
 */
static int EPX_SUM_NAME(sum_node)(EPX_Datatype datatype, const struct node_parts *parts, int first,
                                  int32_t home_node, int n, EPX_SUM *sum)
{
    EPX_SUM term[EPX_SUM_BLOCK];
    char rounded[EPX_SUM_BLOCK * sizeof(EPX_SUM)];
    int32_t node = parts->node[first];
    int end = first + 1;

    EPX_SUM_NAME(load)(datatype, parts->row[first], n, sum);
    for (; end < parts->num && parts->node[end] == node; end++)
        EPX_SUM_NAME(add)(sum, EPX_SUM_NAME(convert)(datatype, parts->row[end], n, term), n);
    if (node != home_node) {
        EPX_SUM_NAME(store)(datatype, sum, n, rounded);
        EPX_SUM_NAME(load)(datatype, rounded, n, sum);
    }
    return end;
}

/*
 * The sum of the biases, of the type `to`; the partials of the home's node are added to it one by
 * one if they come first. Without biases the sum of the first node. Returns where the parts in the
 * sum end.
 */
static int EPX_SUM_NAME(start_sum)(EPX_Datatype datatype, EPX_Datatype to,
                                   const struct node_parts *parts, int32_t home_node, int n,
                                   EPX_SUM *sum)
{
    EPX_SUM term[EPX_SUM_BLOCK];
    int end = 0;

    if (!parts->num_biases)
        return EPX_SUM_NAME(sum_node)(datatype, parts, 0, home_node, n, sum);
    EPX_SUM_NAME(load)(to, parts->bias[0], n, sum);
    for (int b = 1; b < parts->num_biases; b++)
        EPX_SUM_NAME(add)(sum, EPX_SUM_NAME(convert)(to, parts->bias[b], n, term), n);
    for (; end < parts->num && parts->node[end] == home_node; end++)
        EPX_SUM_NAME(add)(sum, EPX_SUM_NAME(convert)(datatype, parts->row[end], n, term), n);
    return end;
}

/* dst = round(biases + sums of the nodes, in order); dst has elements of the type `to`. */
static void EPX_SUM_NAME(sum_ranks)(EPX_Datatype datatype, EPX_Datatype to,
                                    const struct node_parts *parts, int32_t home_node, int n,
                                    char *dst)
{
    EPX_SUM sum[EPX_SUM_BLOCK], term[EPX_SUM_BLOCK];
    int end = EPX_SUM_NAME(start_sum)(datatype, to, parts, home_node, n, sum);

    while (end < parts->num) {
        end = EPX_SUM_NAME(sum_node)(datatype, parts, end, home_node, n, term);
        EPX_SUM_NAME(add)(sum, (const char *)term, n);
    }
    EPX_SUM_NAME(store)(to, sum, n, dst);
}

static void EPX_SUM_NAME(scale_row)(EPX_Datatype datatype, const char *src, float weight, int n,
                                    char *dst)
{
    EPX_SUM row[EPX_ROW_BLOCK];

    EPX_SUM_NAME(load)(datatype, src, n, row);
    EPX_SUM_NAME(scale)(row, n, weight);
    EPX_SUM_NAME(store)(datatype, row, n, dst);
}

/*
 * The dot product of one block. Lane j sums elements j, j + 256, j + 512, j + 768; the lanes
 * are added as a binary tree. The shape is part of the contract, see EPX_Combine_backward(3).
 */
static double EPX_SUM_NAME(dot_block)(EPX_Datatype datatype, const char *a, const char *b, int n)
{
    EPX_SUM x[EPX_ROW_BLOCK], y[EPX_ROW_BLOCK], lane[EPX_SUM_LANES] = {0};

    EPX_SUM_NAME(load)(datatype, a, n, x);
    EPX_SUM_NAME(load)(datatype, b, n, y);
    for (int i = 0; i < n; i++)
        lane[i % EPX_SUM_LANES] =
            EPX_SUM_NAME(epx_add)(lane[i % EPX_SUM_LANES], EPX_SUM_NAME(epx_mul)(x[i], y[i]));
    for (int w = EPX_SUM_LANES / 2; w; w /= 2)
        EPX_SUM_NAME(add)(lane, (const char *)(lane + w), w);
    return lane[0];
}

static double EPX_SUM_NAME(add_block)(double sum, double block)
{
    return EPX_SUM_NAME(epx_add)((EPX_SUM)sum, (EPX_SUM)block);
}
