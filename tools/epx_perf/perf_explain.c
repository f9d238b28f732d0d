/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_explain.c - what the columns mean, in short: epx_perf(1) defines them. */
#include "epx_perf/perf_explain.h"

struct column {
    const char *name, *unit;
    const char *meaning[3]; /* lines */
};

static const struct column columns[] = {
    {"tokens", "", {"tokens of each rank"}},
    {"row", "B", {"bytes of a row, which is what a token sends to an expert"}},
    {"median",
     "us",
     {"time of one operation of EPX: half of the iterations took less. An iteration takes",
      "as long as its slowest rank, from the call until the request is complete"}},
    {"min, max", "us", {"the fastest and the slowest iteration"}},
    {"wire", "GB/s", {"rows that must leave their rank, each once for each rank, over the median"}},
    {"logical", "GB/s", {"rows that arrive at experts, over the median"}},
    {"copy",
     "%",
     {"time of a plain copy of the logical bytes, over the median: 100% means that EPX",
      "moves the rows to other ranks as fast as they can be copied at all"}},
    {"of_ceil", "%", {"--ceiling: wire rate, of the rate at which GPUs can store into each other"}},
    {"log_of", "%", {"--ceiling: logical rate, of the same"}},
    {"wire", "B", {"--full: wire bytes of the rank that has most"}},
    {"logical", "B", {"--full: logical bytes of the rank that has most"}},
    {"copy", "GB/s", {"--full: rate of the plain copy"}},
    {"barrier", "us", {"--full: median of a barrier, a part of every time that is below it"}},
    {"compute", "us", {"--full: a computation alone, about as long as the operation"}},
    {"both", "us", {"--full: operation started, computation done, operation waited for"}},
    {"overlap", "%", {"--full: the part of the shorter of the two that the other one hides"}},
    {"gemm", "us", {"--overlap: products of matrices alone, on all multiprocessors"}},
    {"beside", "us", {"--overlap: the same beside the operation, on those that it leaves"}},
    {"slower", "%", {"--overlap: how much longer they took so"}},
    {"both", "us", {"--overlap: operation called, products queued, operation waited for"}},
    {"overlap", "%", {"--overlap: the part of the operation that the products hide"}},
    {"peer", "us", {"--peer: median of the same by hand, without EPX"}},
    {"ratio", "", {"--peer: peer over median; above 1 EPX is faster"}},
    {"peer_of", "%", {"--peer --ceiling: wire bytes over the peer's median, of the ceiling"}},
    {"wrong", "rows", {"--check: wrong rows on all ranks; 0 is right"}},
    {"err_type",
     "",
     {"--check of combine and dispatch-backward: largest relative error of an element,",
      "against a float64 sum, with the hint epx_combine_partials=datatype"}},
    {"err_f32", "", {"--check of the same: that error with epx_combine_partials=float32"}},
    {NULL, NULL, {NULL}},
};

void perf_explain(FILE *stream)
{
    for (const struct column *c = columns; c->name; c++) {
        fprintf(stream, "%-9s%-5s", c->name, c->unit);
        for (int i = 0; i < 3 && c->meaning[i]; i++)
            fprintf(stream, "%*s%s\n", i ? 14 : 0, "", c->meaning[i]);
    }
    fputs("\nA - stands where a number has no meaning: route moves no rows.\n", stream);
}
