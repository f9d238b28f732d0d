/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soak.c - random layers and exchanges on several communicators at once, started and completed in
 * random orders with sleeps in between; every result is compared with the reference, and memory
 * must not grow. SOAK_STEPS and SOAK_SEED say how many and which.
 */
#include "suite/soak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fields/fields.h"
#include "support/exchange.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { FLIGHTS = 3, OPERATIONS = 4, PENDING = FLIGHTS * (OPERATIONS + 3) };
enum { STEPS_BETWEEN_LOOKS = 50, STREAMS = 3, MOST_RANKS = 64 };

static int world_rank, world_size;
static int *world_nodes;
static int max_sms;                 /* a hint; 0 = as the environment says */
static EPX_Stream streams[STREAMS]; /* none on the host */

int everybody(int rank, int size)
{
    (void)rank;
    (void)size;
    return 0;
}

int halves(int rank, int size)
{
    return rank < (size + 1) / 2;
}

int parity(int rank, int size)
{
    (void)size;
    return rank % 2;
}

int all_but_last(int rank, int size)
{
    return rank < size - 1;
}

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoll(text, NULL, 0) : otherwise;
}

static void enter(const struct party *party)
{
    suite_rank = party ? party->rank : world_rank;
    suite_size = party ? party->size : world_size;
    suite_nodes = party ? party->nodes : world_nodes;
}

/* Hints win over the environment, so what a party leaves to the environment must be no hint. */
static MPI_Info hints_of(const struct party *party)
{
    MPI_Info info = suite_info("epx_window_bytes", party->window_bytes, NULL);
    char ranks_per_node[16], sms[16];

    if (party->transport)
        MPI_Info_set(info, "epx_transport", party->transport);
    if (party->progress)
        MPI_Info_set(info, "epx_progress", party->progress);
    snprintf(sms, sizeof(sms), "%d", max_sms);
    if (max_sms)
        MPI_Info_set(info, "epx_max_sms", sms);
    snprintf(ranks_per_node, sizeof(ranks_per_node), "%d", party->ranks_per_node);
    MPI_Info_set(info, "epx_ranks_per_node", ranks_per_node);
    return info;
}

static void open_party(struct party *party)
{
    MPI_Comm comm;
    MPI_Info info;

    if (!party->ranks_per_node)
        party->ranks_per_node = (int)setting("EPX_RANKS_PER_NODE", 0);
    info = hints_of(party);
    MPI_Comm_split(MPI_COMM_WORLD, party->color(world_rank, world_size), world_rank, &comm);
    MPI_Comm_rank(comm, &party->rank);
    MPI_Comm_size(comm, &party->size);
    party->nodes = calloc((size_t)party->size, sizeof(*party->nodes));
    EXPECT_CODE(EPX_Comm_create(comm, info, &party->comm), EPX_SUCCESS);
    MPI_Comm_free(&comm);
    MPI_Info_free(&info);
}

static void close_party(struct party *party)
{
    EXPECT_CODE(EPX_Comm_free(&party->comm), EPX_SUCCESS);
    free(party->nodes);
}

/* What one communicator has in flight in one step. */
struct flight {
    const struct party *party;
    struct layer layer;
    struct routing routing;
    struct operation ops[OPERATIONS];
    struct fields fields;
    struct exchange exchange;
    int num_ops, has_fields, exchanges;
    int called_with; /* operations that the routing was called with */
};

/* One request of a flight, and what it must complete with. */
struct pending {
    const struct flight *flight;
    EPX_Request *request;
    MPI_Status status;
    int wanted, done;
    int64_t rows;
};

static int pick(uint64_t seed, int what, int below)
{
    return data_below(seed, 301, (uint64_t)what, below);
}

/* Sleeps in a quarter of its calls; which of them differs by rank. */
static void sleep_perhaps(uint64_t seed, int what)
{
    int place = what * 64 + world_rank;
    struct timespec time = {0, 1000L * pick(seed, 1000 + place, 300)};

    if (pick(seed, 2000 + place, 4) == 0)
        nanosleep(&time, NULL);
}

static void start_exchange(struct flight *flight, uint64_t seed)
{
    struct exchange *x = &flight->exchange;

    memset(x, 0, sizeof(*x));
    x->comm = flight->party->comm;
    x->data = (struct data){seed, EPX_BYTE + pick(seed, 1, 7), 1 + pick(seed, 2, 300), DATA_BYTES};
    x->most_rows = pick(seed, 3, 40);
    x->gap = pick(seed, 4, 3);
    x->short_rows = pick(seed, 5, 4) ? 0 : 1 + pick(seed, 6, 10);
    x->memory = (enum memory)pick(seed, 7, 3);
    EXPECT_CODE(exchange_start(x), EPX_SUCCESS);
}

static void prepare_fields(struct flight *flight, uint64_t seed)
{
    struct field_kind kinds[EPX_MAX_FIELDS];
    int num = fields_random(kinds, &flight->layer.s, seed);

    fields_prepare(&flight->fields, &flight->routing, kinds, num, seed);
    flight->has_fields = 1;
}

/* The routing: alone, or with a dispatch of rows or of fields, whose request the routing gets.
 * Returns how many operations were called. */
static int start_routing(struct flight *flight, uint64_t seed)
{
    int with = pick(seed, 8, 6);

    if (with > 1) {
        EXPECT_CODE(routing_start(&flight->routing, &flight->layer, seed + 1), EPX_SUCCESS);
        return 0;
    }
    routing_prepare(&flight->routing, &flight->layer, seed + 1);
    if (with == 1) {
        prepare_fields(flight, data_hash(seed, 7, 0));
        EXPECT_CODE(fields_call(&flight->fields, 1), EPX_SUCCESS);
        flight->routing.request = flight->fields.request;
        flight->fields.request = EPX_REQUEST_NULL;
        return 0;
    }
    EXPECT_CODE(operation_route_start(&flight->ops[0], &flight->routing, seed + 2), EPX_SUCCESS);
    flight->routing.request = flight->ops[0].request;
    flight->ops[0].request = EPX_REQUEST_NULL;
    return 1;
}

static void start_flight(struct flight *flight, uint64_t seed)
{
    struct scenario scenario;

    flight->party = &parties[pick(seed, 1, num_parties)];
    flight->exchanges = pick(seed, 3, 3) == 0;
    enter(flight->party);
    scenario = scenario_random(data_hash(seed, 4, 0));
    scenario.ranks_per_node = flight->party->ranks_per_node;
    scenario_add_tokens(&scenario, seed, 6);
    layer_open(&flight->layer, &scenario, flight->party->comm);
    flight->layer.stream = streams[pick(seed, 6, STREAMS)];
    flight->called_with = start_routing(flight, seed);
    flight->num_ops = flight->called_with + pick(seed, 2, OPERATIONS + 1 - flight->called_with);
    for (int i = flight->called_with; i < flight->num_ops; i++) {
        sleep_perhaps(seed, i);
        EXPECT_CODE(operation_start(&flight->ops[i], &flight->routing,
                                    (enum verb)pick(seed, 10 + i, VERBS), seed + 2 + (uint64_t)i),
                    EPX_SUCCESS);
    }
    if (!flight->has_fields && pick(seed, 9, 4) == 0) {
        prepare_fields(flight, data_hash(seed, 7, 0));
        EXPECT_CODE(fields_call(&flight->fields, 0), EPX_SUCCESS);
    }
    if (flight->exchanges)
        start_exchange(flight, data_hash(seed, 5, 0));
}

static int list_pending(struct flight *flight, struct pending *pending)
{
    int n = 0, truncated = flight->routing.ref->truncated;
    int code = truncated ? EPX_ERR_TRUNCATE : EPX_SUCCESS;
    const struct ref_rank *at = &flight->routing.ref->rank[flight->party->rank];

    enter(flight->party);
    pending[n++] = (struct pending){.flight = flight,
                                    .request = &flight->routing.request,
                                    .wanted = routing_code(&flight->routing),
                                    .rows = at->status_rows};
    for (int i = flight->called_with; i < flight->num_ops; i++)
        pending[n++] = (struct pending){.flight = flight,
                                        .request = &flight->ops[i].request,
                                        .wanted = code,
                                        .rows = operation_rows(&flight->ops[i])};
    if (flight->has_fields && !flight->fields.routes)
        pending[n++] = (struct pending){.flight = flight,
                                        .request = &flight->fields.request,
                                        .wanted = code,
                                        .rows = at->status_rows};
    if (flight->exchanges)
        pending[n++] = (struct pending){.flight = flight,
                                        .request = &flight->exchange.request,
                                        .wanted = exchange_code(&flight->exchange),
                                        .rows = flight->exchange.recv_rows};
    return n;
}

/* Shuffles into another order on every rank. */
static void shuffle(struct pending *pending, int n, uint64_t seed)
{
    for (int i = n - 1; i > 0; i--) {
        int j = data_below(seed, 302 + (uint64_t)world_rank, (uint64_t)i, i + 1);
        struct pending swapped = pending[i];

        pending[i] = pending[j];
        pending[j] = swapped;
    }
}

static void wait_each(struct pending *pending, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) {
        sleep_perhaps(seed, 100 + i);
        EXPECT_CODE(EPX_Wait(pending[i].request, &pending[i].status), pending[i].wanted);
    }
}

static void test_all(struct pending *pending, int n, uint64_t seed)
{
    int left = n;

    for (int pass = 0; left; pass++)
        for (int i = 0; i < n; i++) {
            int code;

            if (pending[i].done)
                continue;
            code = EPX_Test(pending[i].request, &pending[i].done, &pending[i].status);
            EXPECT_CODE(code, pending[i].done ? pending[i].wanted : EPX_SUCCESS);
            left -= pending[i].done;
            if (pass < 8)
                sleep_perhaps(seed, 200 + 8 * i + pass);
        }
}

static void wait_all(struct pending *pending, int n)
{
    EPX_Request requests[PENDING];
    MPI_Status statuses[PENDING];
    int failing = 0;

    for (int i = 0; i < n; i++) {
        requests[i] = *pending[i].request;
        failing |= pending[i].wanted != EPX_SUCCESS;
    }
    EXPECT_CODE(EPX_Waitall(n, requests, statuses), failing ? EPX_ERR_IN_STATUS : EPX_SUCCESS);
    for (int i = 0; i < n; i++) {
        *pending[i].request = requests[i];
        pending[i].status = statuses[i];
    }
}

static void complete(struct pending *pending, int n, uint64_t seed)
{
    shuffle(pending, n, seed);
    switch (data_below(seed, 303, (uint64_t)world_rank, 3)) {
    case 0: wait_each(pending, n, seed); break;
    case 1: test_all(pending, n, seed); break;
    default: wait_all(pending, n);
    }
    for (int i = 0; i < n; i++) {
        enter(pending[i].flight->party);
        EXPECT(*pending[i].request == EPX_REQUEST_NULL, "request not nulled");
        status_check(&pending[i].status, pending[i].wanted, pending[i].rows);
    }
}

static void finish_flight(struct flight *flight)
{
    enter(flight->party);
    routing_check(&flight->routing);
    for (int i = 0; i < flight->num_ops; i++) {
        operation_check(&flight->ops[i]);
        operation_free(&flight->ops[i]);
    }
    if (flight->has_fields) {
        fields_check(&flight->fields);
        fields_free(&flight->fields);
    }
    if (flight->exchanges) {
        exchange_check(&flight->exchange);
        exchange_free(&flight->exchange);
    }
    routing_free(&flight->routing);
    layer_close(&flight->layer);
    enter(NULL);
}

static void take_step(uint64_t seed)
{
    static struct flight flights[FLIGHTS];
    struct pending pending[PENDING];
    int num_flights = 1 + pick(seed, 1, FLIGHTS), n = 0;

    memset(flights, 0, sizeof(flights));
    for (int i = 0; i < num_flights; i++) {
        start_flight(&flights[i], data_hash(seed, 2, (uint64_t)i));
        sleep_perhaps(seed, 300 + i);
    }
    for (int i = 0; i < num_flights; i++)
        n += list_pending(&flights[i], pending + n);
    complete(pending, n, seed);
    for (int i = 0; i < num_flights; i++)
        finish_flight(&flights[i]);
}

int64_t most_of_all(int64_t value)
{
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    return value;
}

static void renew_parties(void)
{
    for (int i = 0; i < num_parties; i++)
        close_party(&parties[i]);
    for (int i = 0; i < num_parties; i++)
        open_party(&parties[i]);
}

/* Makes as many requests at once as any step can have, so that later steps make no more. */
static void fill_request_list(void)
{
    static const int64_t zeros[MOST_RANKS];
    EPX_Request requests[PENDING + 1];
    size_t bytes = sizeof(zeros), received = (PENDING + 1) * 2 * bytes;
    char *none = space_alloc(bytes), *from = space_alloc(received);

    space_put(none, zeros, bytes);
    for (int i = 0; i <= PENDING; i++) {
        int64_t *counts = (int64_t *)(void *)(from + (size_t)i * 2 * bytes);

        EXPECT_CODE(EPX_Alltoallv(NULL, (int64_t *)(void *)none, (int64_t *)(void *)none, NULL,
                                  counts, counts + MOST_RANKS, 0, 1, EPX_BYTE, parties[0].comm,
                                  EPX_STREAM_NULL, &requests[i]),
                    EPX_SUCCESS);
    }
    EXPECT_CODE(EPX_Waitall(PENDING + 1, requests, MPI_STATUSES_IGNORE), EPX_SUCCESS);
    space_free(none);
    space_free(from);
}

/*
 * Compares the memory in use. It can be compared because the communicators are new, their memory
 * not yet touched, and nothing else is live but the requests kept for reuse.
 */
static int look_round(struct look *warm, int step, int warm_step)
{
    renew_parties();
    if (step <= warm_step)
        look_note(warm);
    else
        look_compare(warm);
    if (suite_complaints() == 0)
        return 1;
    if (world_rank == 0)
        fprintf(stderr, "in the steps up to %d\n", step);
    return 0;
}

/* Returns the number of steps taken before one failed, or of all. */
static int run(int64_t seed, int steps, struct look *warm)
{
    int warm_step = steps / 3, step = 0, fine;

    for (int i = 0; i < num_parties; i++)
        open_party(&parties[i]);
    fill_request_list();
    fine = look_round(warm, 0, warm_step);
    while (fine && step < steps) {
        take_step(data_hash((uint64_t)seed, 300, (uint64_t)step));
        if (++step % STEPS_BETWEEN_LOOKS == 0 || step == steps)
            fine = look_round(warm, step, warm_step);
    }
    for (int i = 0; i < num_parties; i++)
        close_party(&parties[i]);
    return fine && suite_complaints() == 0 ? steps : step;
}

int main(int argc, char **argv)
{
    int64_t seed = setting("SOAK_SEED", (int64_t)time(NULL));
    int steps = (int)setting("SOAK_STEPS", usual_steps), taken;
    double start = suite_seconds();
    struct look warm = {0};
    const char *text;
    int failed;

    suite_init(&argc, &argv);
    world_rank = suite_rank;
    world_size = suite_size;
    world_nodes = suite_nodes;
    max_sms = getenv("EPX_MAX_SMS") ? 0 : max_sms_of(FLIGHTS);
    for (int i = 0; i < STREAMS; i++)
        streams[i] = i ? space_new_stream() : EPX_STREAM_NULL;
    MPI_Bcast(&seed, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    if (world_rank == 0)
        printf("SOAK_SEED=%lld SOAK_STEPS=%d on %d ranks\n", (long long)seed, steps, world_size);
    fflush(stdout);
    taken = run(seed, steps, &warm);
    failed = taken < steps;
    text = look_text(&warm);
    if (world_rank == 0)
        printf("%d steps in %.0f s; %s\n%s\n", taken, suite_seconds() - start, text,
               failed ? " Found 1 errors" : " No Errors");
    for (int i = 0; i < STREAMS; i++)
        space_free_stream(streams[i]);
    MPI_Finalize();
    return failed;
}
