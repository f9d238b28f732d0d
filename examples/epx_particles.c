/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_particles.c - particles that move between the ranks of a domain decomposition. Every
 * exchange is done by EPX and by hand with MPI, compared byte for byte, and timed.
 * epx_particles(1) describes options and output.
 */
#include "epx_particles.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PARTICLES = 1 << 24, MAX_CHECKED = 8192, OPTION_NO_CHECK = 256, OPTION_LOSE };

static const char usage[] =
    "usage: mpiexec -n RANKS epx_particles [options]\n"
    "  -n, --particles N   particles of all ranks, 1 to 16777216 (4096)\n"
    "  -s, --steps N       timed steps, 1 to 1000000 (20)\n"
    "  -f, --flow SPEED    speed of the flow at the start, in tiles a step, 0 to 1 (0.1)\n"
    "  -r, --seed N        of the places and velocities at the start (1)\n"
    "  -o, --svg FILE      draw the last step into FILE\n"
    "      --no-check      do not compare with a serial computation, which is done for at most\n"
    "                      8192 particles\n"
    "      --lose-rank R   kill rank R after half of the steps; the others go on, by EPX alone\n"
    "  -h, --help          this text\n";

static const struct option long_options[] = {
    {"particles", required_argument, NULL, 'n'},
    {"steps", required_argument, NULL, 's'},
    {"flow", required_argument, NULL, 'f'},
    {"seed", required_argument, NULL, 'r'},
    {"svg", required_argument, NULL, 'o'},
    {"no-check", no_argument, NULL, OPTION_NO_CHECK},
    {"lose-rank", required_argument, NULL, OPTION_LOSE},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* The two ways to exchange, and what is measured: [step][phase][way] seconds. */
enum { BY_EPX, BY_HAND, NUM_WAYS };
struct run {
    struct domain d;
    struct patch patch;
    struct exchange exchanges[NUM_WAYS];
    double (*seconds)[NUM_PHASES][NUM_WAYS];
    int64_t rows[NUM_PHASES]; /* that went to other ranks in timed steps */
    struct particle *serial;
    int64_t errors;
    FILE *svg; /* on rank 0, if a picture is wanted */
};

static const struct exchange_ops *const ways[NUM_WAYS] = {&particles_epx, &particles_mpi};
static const char *const phase_names[NUM_PHASES] = {"migrate: neighbors", "halo: route_dispatch",
                                                    "forces: dispatch_backward",
                                                    "records: alltoallv"};

void particles_fail(const char *format, ...)
{
    va_list values;

    fputs("epx_particles: ", stderr);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

void *particles_alloc(int64_t count, size_t size)
{
    void *memory = calloc(count ? (size_t)count : 1, size);

    if (!memory)
        particles_fail("no memory for %lld elements of %zu bytes", (long long)count, size);
    return memory;
}

/* These leave the value alone and answer 0 if the text is no number between the bounds. */
static int parse_int(const char *text, int min, int max, int *value)
{
    char *end;
    long number;

    errno = 0;
    number = strtol(text, &end, 10);
    if (end == text || *end || errno || number < min || number > max)
        return 0;
    *value = (int)number;
    return 1;
}

static int parse_double(const char *text, double max, double *value)
{
    char *end;
    double number = strtod(text, &end);

    if (end == text || *end || !(number >= 0 && number <= max))
        return 0;
    *value = number;
    return 1;
}

static int parse_seed(const char *text, uint64_t *seed)
{
    char *end;

    errno = 0;
    *seed = strtoull(text, &end, 10);
    return end != text && !*end && !errno && !strchr(text, '-');
}

static int parse_option(int letter, struct options *opt)
{
    switch (letter) {
    case 'n': return parse_int(optarg, 1, MAX_PARTICLES, &opt->num_particles);
    case 's': return parse_int(optarg, 1, 1000000, &opt->steps);
    case 'f': return parse_double(optarg, 1, &opt->flow);
    case 'r': return parse_seed(optarg, &opt->seed);
    case 'o': opt->svg = optarg; return *optarg != 0;
    case OPTION_NO_CHECK: opt->check = 0; return 1;
    case OPTION_LOSE: return parse_int(optarg, 0, INT_MAX, &opt->lose_rank);
    default: return 0;
    }
}

static const char *long_name(int letter)
{
    int i = 0;

    while (long_options[i].val != letter)
        i++;
    return long_options[i].name;
}

/* Every rank parses the same arguments, rank 0 speaks. Answers the exit status, or -1 to go on. */
static int parse_options(int argc, char **argv, int rank, struct options *opt)
{
    int letter;

    opterr = rank == 0;
    while ((letter = getopt_long(argc, argv, "n:s:f:r:o:h", long_options, NULL)) != -1) {
        if (letter == 'h') {
            if (rank == 0)
                fputs(usage, stdout);
            return 0;
        }
        if (parse_option(letter, opt))
            continue;
        if (rank == 0 && letter != '?')
            fprintf(stderr, "epx_particles: --%s cannot be \"%s\"\n", long_name(letter), optarg);
        return 2;
    }
    if (optind == argc)
        return -1;
    if (rank == 0)
        fprintf(stderr, "epx_particles: what is \"%s\"? All arguments are options\n", argv[optind]);
    return 2;
}

/* Rank 0 opens the file before any work is done. Collective. */
static FILE *open_picture(const struct domain *d)
{
    FILE *file = NULL;
    int error = 0;

    if (d->rank == 0 && d->opt.svg) {
        file = fopen(d->opt.svg, "w");
        if (!file)
            fprintf(stderr, "epx_particles: cannot write %s: %s\n", d->opt.svg, strerror(errno));
        error = !file;
    }
    MPI_Bcast(&error, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (error) {
        MPI_Finalize();
        exit(1);
    }
    return file;
}

/* Counts an error, and says on which rank and step, if the ways do not answer the same bytes. */
static void expect_same(struct run *r, int step, const char *what, int same)
{
    if (same)
        return;
    r->errors++;
    fprintf(stderr, "rank %d, step %d: %s by EPX and by MPI differ\n", r->d.rank, step, what);
}

static int same_bytes(const void *a, const void *b, int64_t count, size_t size)
{
    return memcmp(a, b, (size_t)count * size) == 0;
}

static void compare(struct run *r, int step, enum phase phase)
{
    const struct exchange *a = &r->exchanges[BY_EPX], *b = &r->exchanges[BY_HAND];
    int64_t n = a->num_arrived, border = r->patch.num_border;

    if (phase == MIGRATE)
        expect_same(r, step, "particles",
                    n == b->num_arrived &&
                        same_bytes(a->arrived, b->arrived, n, sizeof(struct particle)));
    else if (phase == HALO)
        expect_same(r, step, "ghosts",
                    a->num_ghosts == b->num_ghosts &&
                        same_bytes(a->ghosts, b->ghosts, a->num_ghosts, sizeof(struct point)));
    else if (phase == SCATTER_ADD)
        expect_same(r, step, "forces",
                    same_bytes(a->border_forces, b->border_forces, border, sizeof(struct point)));
    else
        expect_same(
            r, step, "records",
            a->num_records == b->num_records &&
                same_bytes(a->records, b->records, a->num_records, sizeof(struct particle)));
}

/* Both ways in turn, the one that goes first alternating; each begins when all ranks are there. */
static void exchange(struct run *r, int step, enum phase phase)
{
    for (int k = 0; k < NUM_WAYS; k++) {
        int way = (step + k) % NUM_WAYS;
        double start;

        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        ways[way]->phases[phase](&r->exchanges[way], &r->patch);
        r->seconds[step][phase][way] = MPI_Wtime() - start;
    }
    compare(r, step, phase);
}

/* Step 0 is the warm-up, and not counted. */
static void count_rows(struct run *r, int step)
{
    const struct patch *p = &r->patch;

    if (step == 0)
        return;
    r->rows[COLLECT] += p->num_particles - p->packed_counts[r->d.rank];
    r->rows[MIGRATE] += p->num_arrived;
    r->rows[HALO] += p->num_ghosts;
    r->rows[SCATTER_ADD] += p->num_ghosts;
}

static void migrate(struct run *r, int step)
{
    struct patch *p = &r->patch;

    particles_part(&r->d, p);
    exchange(r, step, MIGRATE);
    p->num_arrived = r->exchanges[BY_EPX].num_arrived;
    p->arrived = r->exchanges[BY_EPX].arrived;
    particles_sort(&r->d, p);
}

/* Action is reaction: added up exactly, all forces are 0. */
static void check_forces(struct run *r, int step)
{
    const struct patch *p = &r->patch;
    double sums[2] = {0, 0};

    for (int i = 0; i < p->num_particles; i++) {
        sums[0] += p->forces[i].x;
        sums[1] += p->forces[i].y;
    }
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (r->d.rank == 0 && (sums[0] != 0 || sums[1] != 0)) {
        r->errors++;
        fprintf(stderr, "step %d: the sum of all forces is %g %g\n", step, sums[0], sums[1]);
    }
}

static void find_forces(struct run *r, int step)
{
    struct patch *p = &r->patch;

    particles_find_border(&r->d, p);
    exchange(r, step, HALO);
    p->num_ghosts = r->exchanges[BY_EPX].num_ghosts;
    p->ghosts = r->exchanges[BY_EPX].ghosts;
    particles_find_forces(&r->d, p);
    exchange(r, step, SCATTER_ADD);
    particles_add_forces(r->exchanges[BY_EPX].border_forces, p);
    check_forces(r, step);
}

static void keep_records(struct run *r, int step)
{
    struct patch *p = &r->patch;
    int64_t wrong;

    particles_pack_records(&r->d, p);
    exchange(r, step, COLLECT);
    p->unsorted = r->exchanges[BY_EPX].records;
    wrong = particles_sort_records(&r->d, p);
    if (wrong)
        fprintf(stderr, "rank %d, step %d: %lld particles are lost or double\n", r->d.rank, step,
                (long long)wrong);
    r->errors += wrong;
    if (r->d.opt.check)
        r->errors += particles_check_step(&r->d, p, &r->serial);
}

static void run_steps(struct run *r)
{
    for (int step = 0; step <= r->d.opt.steps; step++) {
        migrate(r, step);
        find_forces(r, step);
        if (step == r->d.opt.steps && r->d.opt.svg)
            particles_draw(&r->d, &r->patch, r->svg);
        particles_move(&r->d, &r->patch);
        keep_records(r, step);
        count_rows(r, step);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The times of the steps, each as long as its slowest rank needs, from the shortest on. */
static double *sort_times(const struct run *r, int phase, int way)
{
    int n = r->d.opt.steps;
    double *times = particles_alloc(n, sizeof(double));

    for (int s = 0; s < n; s++)
        times[s] = 1e6 * r->seconds[s + 1][phase][way];
    qsort(times, (size_t)n, sizeof(double), by_size);
    return times;
}

static void print_times(const struct run *r, int phase, double rows)
{
    int n = r->d.opt.steps;
    double medians[NUM_WAYS], least[NUM_WAYS];

    for (int way = 0; way < NUM_WAYS; way++) {
        double *times = sort_times(r, phase, way);

        medians[way] = (times[(n - 1) / 2] + times[n / 2]) / 2;
        least[way] = times[0];
        free(times);
    }
    printf("%-25s %11.1f %10.1f %9.1f %10.1f %9.1f %7.2f\n", phase_names[phase], rows,
           medians[BY_EPX], least[BY_EPX], medians[BY_HAND], least[BY_HAND],
           medians[BY_HAND] / medians[BY_EPX]);
}

static void report_times(struct run *r)
{
    int n = (r->d.opt.steps + 1) * NUM_PHASES * NUM_WAYS, ranks = r->d.num_ranks;
    double *own = r->seconds[0][0], pairs = (double)ranks * (ranks - 1) * r->d.opt.steps;
    int root = r->d.rank == 0;

    MPI_Reduce(root ? MPI_IN_PLACE : own, own, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(root ? MPI_IN_PLACE : r->rows, r->rows, NUM_PHASES, MPI_INT64_T, MPI_SUM, 0,
               MPI_COMM_WORLD);
    if (!root)
        return;
    printf("%-25s %11s %10s %9s %10s %9s %7s\n", "times of a step in us", "rows a peer",
           "EPX median", "min", "MPI median", "min", "MPI/EPX");
    for (int phase = 0; phase < NUM_PHASES; phase++)
        print_times(r, phase, pairs > 0 ? (double)r->rows[phase] / pairs : 0);
}

/* How far the particles have come, as the ranks that keep their records know it. */
static void report_way(const struct run *r)
{
    double square = 0;

    for (int i = 0; i < r->d.num_ids; i++) {
        struct point path = r->patch.records[i].path;

        square += path.x * path.x + path.y * path.y;
    }
    MPI_Allreduce(MPI_IN_PLACE, &square, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (r->d.rank == 0)
        printf("root mean square way %.3f tiles\n",
               sqrt(square / r->d.opt.num_particles) * r->d.side);
}

static void report_check(const struct run *r)
{
    if (r->d.rank != 0 || r->errors)
        return;
    printf("EPX and MPI gave the same bytes in every step\n");
    if (r->d.opt.check)
        printf("a serial computation gave the same bytes in every step\n");
    else
        printf("no step was compared with a serial computation\n");
}

/* Answers the number of errors of all ranks. */
static int64_t report(struct run *r)
{
    int64_t errors = r->errors;

    MPI_Allreduce(MPI_IN_PLACE, &errors, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    r->errors = errors;
    report_times(r);
    report_way(r);
    report_check(r);
    if (r->d.rank == 0 && errors)
        printf(" Found %lld errors\n", (long long)errors);
    else if (r->d.rank == 0)
        printf(" No Errors\n");
    return errors;
}

static void start_run(struct run *r)
{
    char transport[MPI_MAX_INFO_VAL + 1];

    r->svg = open_picture(&r->d);
    r->seconds = particles_alloc(r->d.opt.steps + 1, sizeof(*r->seconds));
    particles_patch_create(&r->d, &r->patch);
    for (int way = 0; way < NUM_WAYS; way++)
        ways[way]->create(&r->d, &r->exchanges[way]);
    particles_epx_transport(&r->exchanges[BY_EPX], transport);
    if (r->d.rank == 0)
        printf("%d particles, %d tiles, %d ranks, transport %s, %d steps\n", r->d.opt.num_particles,
               r->d.num_tiles, r->d.num_ranks, transport, r->d.opt.steps);
}

/* A picture that could not be written is an error. */
static void close_picture(struct run *r)
{
    int failed = r->svg && ferror(r->svg);

    if (r->svg && (fclose(r->svg) != 0 || failed)) {
        fprintf(stderr, "epx_particles: cannot write %s\n", r->d.opt.svg);
        r->errors++;
    }
}

static void end_run(struct run *r)
{
    for (int way = 0; way < NUM_WAYS; way++)
        ways[way]->destroy(&r->exchanges[way]);
    particles_patch_free(&r->patch);
    free(r->seconds);
    free(r->serial);
}

static int64_t run(const struct options *opt)
{
    struct run r = {.errors = 0};
    int64_t errors;
    int rank, num_ranks;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
    particles_domain_create(opt, rank, num_ranks, &r.d);
    start_run(&r);
    run_steps(&r);
    close_picture(&r);
    errors = report(&r);
    end_run(&r);
    particles_domain_free(&r.d);
    return errors;
}

int main(int argc, char **argv)
{
    struct options opt = {4096, 20, .flow = 0.1, .seed = 1, .check = 1, .lose_rank = -1};
    int rank, status;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    status = parse_options(argc, argv, rank, &opt);
    opt.check = opt.check && opt.num_particles <= MAX_CHECKED;
    if (status == 2 && rank == 0)
        fputs(usage, stderr);
    else if (status < 0 && opt.lose_rank >= 0)
        _exit(particles_run_lost(&opt));
    else if (status < 0)
        status = run(&opt) != 0;
    MPI_Finalize();
    return status;
}
