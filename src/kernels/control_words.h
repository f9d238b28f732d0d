/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control_words.h - what other ranks write into a rank's control window, and where it lies there.
 * protocol.cuh says who writes what when.
 *   uint64 abort                        0; or who is silent: verb << 32 | rank + 1; or whose host
 *                                       gave up, with EPX_ABORT_BY_HOST in place of the verb
 *   uint64 arrived[R]                   with messages: the last exchange that came from each
 *   uint64 credited[R]
 *   uint64 ready[2][R][EPX_READY_WORDS] epoch << 32 | word
 *   uint64 counts[2][R][R][2]           alltoallv: tag << 32 | half of a count, low half first
 *   uint64 packets[2][R][P]             alltoallv: tag << 32 | four bytes of the rows of source R;
 *                                       neighbours: the same, the edges from R one behind the other
 *   uint64 edges[2][EPX_MOST_EDGES][2]  neighbours: tag << 32 | half of the count of a source; with
 *                                       messages plain numbers that come
 *   uint64 grants[2][EPX_MOST_EDGES][2] neighbours: the same of where rows go at a destination;
 *                                       with messages plain numbers that go
 *   uint64 lists[2][R][EPX_LIST_WORDS]  several fields: epoch << 32 | word
 *   uint64 progress[R][EPX_SENDER_RUNS]  epoch << 32 | how far the senders of R are with a run
 *   uint64 begun[R]                     the last operation all of whose senders have begun
 *   char reason[EPX_MAX_ERROR_STRING]   written by its owner's host before it gives up
 */
#ifndef EPX_KERNELS_CONTROL_WORDS_H
#define EPX_KERNELS_CONTROL_WORDS_H

#include <epx.h>

#include "kernels/layout.h"

enum {
    EPX_READY_WORDS = 16,      /* what one rank tells about one operation */
    EPX_LIST_WORDS = 9,        /* what it tells besides about a dispatch of several fields */
    EPX_SENDER_RUNS = 1 << 13, /* most runs of senders' tasks, of each of which it tells a word */
    EPX_MOST_EDGES = 128,      /* of a graph that begin, or end, at one rank */
    EPX_CONTROL_HEADER = 16    /* words before arrived */
};

enum { EPX_ABORT_BY_HOST = -1 };

EPX_HD uint64_t *epx_control_arrived(char *control, int32_t source)
{
    return (uint64_t *)(void *)control + EPX_CONTROL_HEADER + source;
}

EPX_HD uint64_t *epx_control_credited(char *control, int32_t num_ranks, int32_t source)
{
    return epx_control_arrived(control, num_ranks) + source;
}

EPX_HD uint64_t *epx_control_ready(char *control, int32_t num_ranks, uint32_t epoch, int32_t source)
{
    return epx_control_credited(control, num_ranks, num_ranks) +
           ((int64_t)(epoch & 1) * num_ranks + source) * EPX_READY_WORDS;
}

EPX_HD uint64_t *epx_control_counts(char *control, int32_t num_ranks, uint32_t epoch,
                                    int32_t source)
{
    return epx_control_ready(control, num_ranks, 0, 2 * num_ranks) +
           ((int64_t)(epoch & 1) * num_ranks + source) * num_ranks * 2;
}

/* Rows for another rank go in packets if they have at most so many bytes, a multiple of 16, and fit
 * in a rank's share of all packets. */
enum { EPX_MOST_PACKED_BYTES = 1 << 19, EPX_PACKED_BYTES = 1 << 20 };

EPX_HD int32_t epx_most_packed(int32_t num_ranks)
{
    int32_t share = EPX_PACKED_BYTES / num_ranks / 16 * 16;

    return share < EPX_MOST_PACKED_BYTES ? share : EPX_MOST_PACKED_BYTES;
}

/* Words of all packets of a source. */
EPX_HD int64_t epx_packet_words(int32_t num_ranks)
{
    return epx_most_packed(num_ranks) / 4;
}

/* The packets of a source in bank 0; words is epx_packet_words(num_ranks). */
EPX_HD uint64_t *epx_control_packets(char *control, int32_t num_ranks, int64_t words,
                                     int32_t source)
{
    return epx_control_counts(control, num_ranks, 0, 2 * num_ranks) + words * source;
}

/* The edge that stands at a place among the owner's sources. */
EPX_HD uint64_t *epx_control_edge(char *control, int32_t num_ranks, uint32_t epoch, int32_t place)
{
    return epx_control_packets(control, num_ranks, epx_packet_words(num_ranks), 2 * num_ranks) +
           ((int64_t)(epoch & 1) * EPX_MOST_EDGES + place) * 2;
}

/* The edge that stands at a place among the owner's destinations. */
EPX_HD uint64_t *epx_control_grant(char *control, int32_t num_ranks, uint32_t epoch, int32_t place)
{
    return epx_control_edge(control, num_ranks, 0, 2 * EPX_MOST_EDGES) +
           ((int64_t)(epoch & 1) * EPX_MOST_EDGES + place) * 2;
}

EPX_HD uint64_t *epx_control_lists(char *control, int32_t num_ranks, uint32_t epoch, int32_t source)
{
    return epx_control_grant(control, num_ranks, 0, 2 * EPX_MOST_EDGES) +
           ((int64_t)(epoch & 1) * num_ranks + source) * EPX_LIST_WORDS;
}

EPX_HD uint64_t *epx_control_progress(char *control, int32_t num_ranks, int32_t source)
{
    return epx_control_lists(control, num_ranks, 0, 2 * num_ranks) +
           (int64_t)source * EPX_SENDER_RUNS;
}

EPX_HD uint64_t *epx_control_begun(char *control, int32_t num_ranks, int32_t source)
{
    return epx_control_progress(control, num_ranks, num_ranks) + source;
}

EPX_HD size_t epx_control_words(int32_t num_ranks)
{
    size_t ranks = (size_t)num_ranks, packets = ranks * (size_t)epx_packet_words(num_ranks);

    return EPX_CONTROL_HEADER + 2 * ranks + 2 * ranks * EPX_READY_WORDS + 4 * ranks * ranks +
           2 * packets + 8 * EPX_MOST_EDGES + 2 * ranks * EPX_LIST_WORDS +
           ranks * (EPX_SENDER_RUNS + 1);
}

EPX_HD char *epx_control_reason(char *control, int32_t num_ranks)
{
    return control + epx_control_words(num_ranks) * sizeof(uint64_t);
}

EPX_HD size_t epx_control_bytes(int32_t num_ranks)
{
    return epx_control_words(num_ranks) * sizeof(uint64_t) + EPX_MAX_ERROR_STRING;
}

#endif
