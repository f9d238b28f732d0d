/* SPDX-License-Identifier: BSD-3-Clause */
/* fields.c - a dispatch of several fields, each compared with the reference. */
#include "fields/fields.h"

#include <stdio.h>
#include <string.h>

#include "support/suite.h"

int fields_row_bytes(const struct field_kind kinds[], int num)
{
    int bytes = 0;

    for (int f = 0; f < num; f++)
        bytes += kinds[f].count * (int)data_size(kinds[f].datatype);
    return bytes;
}

int fields_random(struct field_kind kinds[], const struct scenario *s, uint64_t seed)
{
    int num = 1 + data_below(seed, 6, 0, EPX_MAX_FIELDS), left = (int)scenario_row_bytes(s);

    for (int f = 0; f < num; f++) {
        EPX_Datatype type = EPX_BYTE + data_below(seed, 7, (uint64_t)f, EPX_FLOAT64);
        int most = left / (int)data_size(type);

        kinds[f] = (struct field_kind){type, data_below(seed, 8, (uint64_t)f, most + 1), s->memory};
        left -= kinds[f].count * (int)data_size(type);
    }
    return num;
}

static void make_weights(struct fields *fields)
{
    const struct ref *ref = fields->routing->ref;
    int64_t pairs = (int64_t)ref->in.tokens[suite_rank] * ref->in.top_k;
    int64_t wide = ref->in.layout == EPX_RANK_MAJOR ? ref->in.top_k : 1;
    int64_t rows = ref->rank[suite_rank].capacity;

    if (fields->routing->layer->s.weightless)
        return;
    buffer_create(&fields->weights, (size_t)pairs * sizeof(float), sizeof(float), MEMORY_MALLOC,
                  fields->routing->layer->comm);
    for (int64_t i = 0; i < pairs; i++)
        ((float *)fields->weights.data)[i] = data_weight(fields->weight_seed, suite_rank, i);
    buffer_freeze(&fields->weights);
    buffer_create(&fields->out_weights, (size_t)(rows * wide) * sizeof(float), sizeof(float),
                  MEMORY_MALLOC, fields->routing->layer->comm);
}

static void make_field(struct fields *fields, int f, uint64_t seed)
{
    const struct ref *ref = fields->routing->ref;
    const struct field_kind *kind = &fields->kind[f];
    const struct data data = {data_hash(seed, 4, (uint64_t)f), kind->datatype, kind->count,
                              DATA_BYTES};
    const uint64_t *weights = fields->weights.data && f == 0 ? &fields->weight_seed : NULL;
    size_t bytes = data_row_bytes(&data), element = data_size(kind->datatype);
    EPX_Comm comm = fields->routing->layer->comm;
    int64_t tokens = ref->in.tokens[suite_rank];

    buffer_create(&fields->in[f], (size_t)tokens * bytes, element, MEMORY_MALLOC, comm);
    for (int64_t t = 0; t < tokens; t++)
        data_row(&data, suite_rank, t, (char *)fields->in[f].data + (size_t)t * bytes);
    buffer_freeze(&fields->in[f]);
    buffer_create(&fields->out[f], (size_t)ref->rank[suite_rank].capacity * bytes, element,
                  kind->memory, comm);
    if (!ref->truncated)
        ref_dispatch(ref, suite_rank, &data, weights, fields->out[f].expected,
                     fields->out_weights.expected);
}

void fields_prepare(struct fields *fields, struct routing *routing, const struct field_kind kinds[],
                    int num, uint64_t seed)
{
    memset(fields, 0, sizeof(*fields));
    fields->routing = routing;
    fields->num = num;
    memcpy(fields->kind, kinds, (size_t)num * sizeof(*kinds));
    fields->weight_seed = data_hash(seed, 5, 0);
    make_weights(fields);
    for (int f = 0; f < num; f++)
        make_field(fields, f, seed);
}

int fields_call(struct fields *fields, int routes)
{
    const struct routing *routing = fields->routing;
    const struct layer *layer = routing->layer;
    const void *in[EPX_MAX_FIELDS];
    void *out[EPX_MAX_FIELDS];
    int counts[EPX_MAX_FIELDS], tokens = routing->tokens[suite_rank], code;
    EPX_Datatype types[EPX_MAX_FIELDS];

    for (int f = 0; f < fields->num; f++) {
        in[f] = fields->in[f].bytes ? fields->in[f].address : NULL;
        out[f] = fields->out[f].bytes ? fields->out[f].address : NULL;
        counts[f] = fields->kind[f].count;
        types[f] = fields->kind[f].datatype;
    }
    fields->routes = routes;
    if (routes) {
        routing_keep_counts(routing);
        code = EPX_Route_dispatch_fields(tokens ? routing->id_buffer.address : NULL, tokens,
                                         fields->num, in, out, counts, types,
                                         fields->weights.address, fields->out_weights.address,
                                         layer->route, layer->stream, &fields->request);
    } else {
        code = EPX_Dispatch_fields(fields->num, in, out, counts, types, fields->weights.address,
                                   fields->out_weights.address, layer->route, layer->stream,
                                   &fields->request);
    }
    memset(in, 0x5a, sizeof(in));
    memset(out, 0x5a, sizeof(out));
    memset(counts, 0x5a, sizeof(counts));
    memset(types, 0x5a, sizeof(types));
    return code;
}

int fields_check(const struct fields *fields)
{
    int ok = buffer_check(&fields->weights, "fields: weights") &
             buffer_check(&fields->out_weights, "fields: output weights");
    char what[48];

    for (int f = 0; f < fields->num; f++) {
        snprintf(what, sizeof(what), "fields: input %d", f);
        ok &= buffer_check(&fields->in[f], what);
        snprintf(what, sizeof(what), "fields: output %d", f);
        ok &= buffer_check(&fields->out[f], what);
    }
    return ok;
}

int fields_finish(struct fields *fields)
{
    const struct ref *ref = fields->routing->ref;
    int wanted = ref->truncated ? EPX_ERR_TRUNCATE : EPX_SUCCESS, ok;
    MPI_Status status;

    if (fields->routes) {
        fields->routing->request = fields->request;
        fields->request = EPX_REQUEST_NULL;
        return routing_finish(fields->routing) & fields_check(fields);
    }
    ok = EXPECT_CODE(EPX_Wait(&fields->request, &status), wanted);
    ok &= EXPECT(fields->request == EPX_REQUEST_NULL, "request not nulled");
    ok = ok && status_check(&status, wanted, ref->rank[suite_rank].status_rows);
    return fields_check(fields) & ok;
}

void fields_free(struct fields *fields)
{
    for (int f = 0; f < fields->num; f++) {
        buffer_free(&fields->in[f]);
        buffer_free(&fields->out[f]);
    }
    buffer_free(&fields->weights);
    buffer_free(&fields->out_weights);
}
