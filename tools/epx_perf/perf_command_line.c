/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_command_line.c - the command line: its options, their defaults, and what they exclude. */
#include "epx_perf/perf_command_line.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "epx_perf/bench/perf_number.h"
#include "epx_perf/bench/perf_options.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/peer/peer_kinds.h"
#include "epx_perf/perf_verbs.h"
#include "epx_perf/space/perf_spaces.h"
#include "option_meant.h"

enum {
    OPTION_TRANSPORT = 256,
    OPTION_FIELDS,
    OPTION_PEER,
    OPTION_JSON,
    OPTION_SEED,
    OPTION_TESTS,
    OPTION_BATCH,
    OPTION_GRAPH,
    OPTION_CEILING,
    OPTION_OVERLAP,
    OPTION_MAX_SMS,
    OPTION_EXPLAIN,
    OPTION_ROWS_PER_EXPERT
};
enum { GRAPH_BATCH = 10 };

static const char usage[] =
    "usage: epx_perf SUB-COMMAND [options]\n"
    "sub-commands: route, dispatch, route-dispatch, combine, dispatch-backward,\n"
    "              combine-backward, alltoallv, layer, neighbor\n"
    "  -t, --tokens N[:MAX]       tokens of a rank, doubled up to MAX (4096)\n"
    "  -m, --row-bytes MIN[:MAX]  bytes of a row, doubled up to MAX (hidden elements)\n"
    "  -H, --hidden N             elements of a row (2048)\n"
    "  -k, --top-k N              experts of a token (8)\n"
    "  -e, --experts N            experts of all ranks (64)\n"
    "  -s, --skew S               uniform, zipf:EXPONENT, even or file:PATH (uniform)\n"
    "  -T, --datatype T           byte, float8_e4m3, float8_e5m2, float16, bfloat16, float32,\n"
    "                             float64 (float32)\n"
    "      --fields T:N[,T:N...]  rows of up to 4 arrays, of N elements of T, in one dispatch\n"
    "  -l, --layout L             expert, rank or slab (expert)\n"
    "      --rows-per-expert N    rows of a slab (as many as the fullest expert gets)\n"
    "  -a, --alignment N          rows that slabs are aligned to (1)\n"
    "  -r, --receive-buffer B     alloc (EPX_Alloc_mem) or malloc (alloc)\n"
    "  -d, --memory M             host or cuda (host)\n"
    "      --transport NAME       as the hint epx_transport\n"
    "      --max-sms N            as the hint epx_max_sms\n"
    "      --batch N              operations one after the other in a timing (1)\n"
    "      --graph                replay EPX's batch, then of 10, from a CUDA graph\n"
    "      --ceiling              measure how fast the GPUs store into each other's memory\n"
    "      --overlap              run products of matrices beside the operation, by cuBLAS\n"
    "  -i, --iterations N         timed iterations (20)\n"
    "  -x, --warm-up N            iterations before them (3)\n"
    "  -c, --check                check every result\n"
    "  -f, --full                 all columns, overlap among them\n"
    "      --tests N              EPX_Test calls during the computation of the overlap (0)\n"
    "      --peer P               alternate with the same by hand: none, mpi or mpi-blocks; with\n"
    "                             -d cuda mpi, nccl, nccl-counted or nccl-alltoall (none)\n"
    "      --json FILE            write the results to FILE too; -: to standard output, and the\n"
    "                             columns to standard error\n"
    "      --seed N               of ids (1)\n"
    "      --explain              what the columns mean\n"
    "  -h, --help                 this text\n"
    "k behind a number is 1024, m is 1048576: -t 1k:64k\n";

static const struct option long_options[] = {
    {"tokens", required_argument, NULL, 't'},
    {"row-bytes", required_argument, NULL, 'm'},
    {"hidden", required_argument, NULL, 'H'},
    {"top-k", required_argument, NULL, 'k'},
    {"experts", required_argument, NULL, 'e'},
    {"skew", required_argument, NULL, 's'},
    {"datatype", required_argument, NULL, 'T'},
    {"fields", required_argument, NULL, OPTION_FIELDS},
    {"layout", required_argument, NULL, 'l'},
    {"rows-per-expert", required_argument, NULL, OPTION_ROWS_PER_EXPERT},
    {"alignment", required_argument, NULL, 'a'},
    {"receive-buffer", required_argument, NULL, 'r'},
    {"memory", required_argument, NULL, 'd'},
    {"transport", required_argument, NULL, OPTION_TRANSPORT},
    {"iterations", required_argument, NULL, 'i'},
    {"warm-up", required_argument, NULL, 'x'},
    {"check", no_argument, NULL, 'c'},
    {"full", no_argument, NULL, 'f'},
    {"tests", required_argument, NULL, OPTION_TESTS},
    {"peer", required_argument, NULL, OPTION_PEER},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"graph", no_argument, NULL, OPTION_GRAPH},
    {"ceiling", no_argument, NULL, OPTION_CEILING},
    {"overlap", no_argument, NULL, OPTION_OVERLAP},
    {"max-sms", required_argument, NULL, OPTION_MAX_SMS},
    {"json", required_argument, NULL, OPTION_JSON},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"explain", no_argument, NULL, OPTION_EXPLAIN},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* A word that is the value of an option, and the number that it stands for. */
struct word {
    const char *name;
    int value;
};

static const struct word datatype_words[] = {{"byte", EPX_BYTE},
                                             {"float8_e4m3", EPX_FLOAT8_E4M3},
                                             {"float8_e5m2", EPX_FLOAT8_E5M2},
                                             {"float16", EPX_FLOAT16},
                                             {"bfloat16", EPX_BFLOAT16},
                                             {"float32", EPX_FLOAT32},
                                             {"float64", EPX_FLOAT64},
                                             {NULL, 0}};
static const struct word layout_words[] = {
    {"expert", EPX_EXPERT_MAJOR}, {"rank", EPX_RANK_MAJOR}, {"slab", EPX_EXPERT_SLAB}, {NULL, 0}};
static const struct word place_words[] = {
    {"alloc", PERF_PLACE_WINDOW}, {"malloc", PERF_PLACE_HEAP}, {NULL, 0}};

static int speaks; /* whether this is rank 0, which alone says what is wrong */

static int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int complain(const char *format, ...)
{
    va_list values;

    if (!speaks)
        return -1;
    fputs("epx_perf: ", stderr);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    return -1;
}

void perf_usage(FILE *stream)
{
    fputs(usage, stream);
}

/* What the end of a number multiplies it by; 0 if it must not end so. */
static int64_t factor_of(const char *suffix)
{
    if (!*suffix)
        return 1;
    if (suffix[1])
        return 0;
    return *suffix == 'k' || *suffix == 'K'   ? 1024
           : *suffix == 'm' || *suffix == 'M' ? 1024 * 1024
                                              : 0;
}

static int read_number(const char *text, int64_t min, int64_t max, int64_t *number)
{
    char *end;
    long long value;
    int64_t factor;

    errno = 0;
    value = strtoll(text, &end, 10);
    factor = factor_of(end);
    if (end == text || !factor || errno || value < 0 || value > max / factor ||
        value * factor < min)
        return complain("\"%s\" is not a number from %lld to %lld, with k or m for 1024 or 1048576",
                        text, (long long)min, (long long)max);
    *number = value * factor;
    return 0;
}

static int read_span(const char *text, int64_t min, int64_t max, struct perf_span *span)
{
    char first[32];
    size_t length = strcspn(text, ":");

    snprintf(first, sizeof(first), "%.*s", (int)length, text);
    if (read_number(first, min, max, &span->min))
        return -1;
    span->max = span->min;
    return text[length] ? read_number(text + length + 1, span->min, max, &span->max) : 0;
}

/* Complains of a name that is none of the list, which ends with NULL. */
static int complain_of_name(const char *what, const char *text, const char *const *names)
{
    char meant[EPX_MEANT_MAX], list[256] = "";

    for (int i = 0; names[i]; i++) {
        strncat(list, i ? ", " : "", sizeof(list) - strlen(list) - 1);
        strncat(list, names[i], sizeof(list) - strlen(list) - 1);
    }
    if (!text)
        return complain("want one %s of: %s", what, list);
    epx_write_meant(text, strlen(text), names, meant);
    return complain("\"%s\" is no %s, there are: %s%s", text, what, list, meant);
}

static int read_word(const char *text, const char *what, const struct word *words, int *value)
{
    enum { MOST_WORDS = 8 };
    const char *names[MOST_WORDS + 1] = {NULL};

    for (int i = 0; words[i].name && i < MOST_WORDS; i++) {
        names[i] = words[i].name;
        if (strcmp(text, words[i].name) == 0) {
            *value = words[i].value;
            return 0;
        }
    }
    return complain_of_name(what, text, names);
}

static int read_space(const char *text, const struct perf_space **space)
{
    *space = perf_space_find(text);
    if (*space)
        return 0;
    return strcmp(text, "cuda") == 0 ? complain("built without CUDA")
                                     : complain("\"%s\" is not host or cuda", text);
}

/* A build may lack some of these peers. */
static int read_peer(const char *text, const struct perf_peer_kind **peer)
{
    static const char *const names[] = {"none",         "mpi",           "mpi-blocks", "nccl",
                                        "nccl-counted", "nccl-alltoall", NULL};
    int i = 0;

    *peer = perf_peer_find(text);
    if (*peer || strcmp(text, names[0]) == 0)
        return 0;
    while (names[i] && strcmp(text, names[i]) != 0)
        i++;
    return names[i] ? complain("--peer %s: built without it", text)
                    : complain_of_name("peer", text, names);
}

/* Reads TYPE:COUNT up to the next comma; *text is behind it then, or NULL at the end. */
static int read_field(const char **text, struct perf_field *field)
{
    size_t length = strcspn(*text, ","), type = strcspn(*text, ":");
    char word[64];
    int64_t count;

    if (type >= length || length >= sizeof(word))
        return complain("\"%.*s\" is no field, want TYPE:COUNT", (int)length, *text);
    snprintf(word, sizeof(word), "%.*s", (int)type, *text);
    if (read_word(word, "datatype", datatype_words, &field->datatype))
        return -1;
    snprintf(word, sizeof(word), "%.*s", (int)(length - type - 1), *text + type + 1);
    if (read_number(word, 1, INT32_MAX / 8, &count))
        return -1;
    field->count = (int)count;
    *text = (*text)[length] ? *text + length + 1 : NULL;
    return 0;
}

/* Adds fields to the list. The rows are bytes then, as far as they are filled and compared. */
static int read_fields(const char *text, struct perf_options *options)
{
    options->datatype_name = text;
    options->datatype = EPX_BYTE;
    while (text) {
        if (options->num_fields == EPX_MAX_FIELDS)
            return complain("at most %d fields", EPX_MAX_FIELDS);
        if (read_field(&text, &options->fields[options->num_fields++]))
            return -1;
    }
    return 0;
}

static int read_size_option(int option, const char *text, struct perf_options *options)
{
    switch (option) {
    case 't': return read_span(text, 0, INT32_MAX / 64, &options->tokens);
    case 'm': return read_span(text, 1, INT32_MAX, &options->row_bytes);
    case 'H': return read_number(text, 1, INT32_MAX / 8, &options->hidden);
    case 'k': return read_number(text, 1, 64, &options->top_k);
    case 'e': return read_number(text, 1, INT32_MAX / 64, &options->experts);
    case 'a': return read_number(text, 1, 1 << 20, &options->alignment);
    case 'i': return read_number(text, 1, 1 << 24, &options->iterations);
    case 'x': return read_number(text, 0, 1 << 24, &options->warmup);
    case OPTION_TESTS: return read_number(text, 0, 1 << 20, &options->tests);
    case OPTION_ROWS_PER_EXPERT: return read_number(text, 1, INT32_MAX, &options->rows_per_expert);
    case OPTION_BATCH: return read_number(text, 1, 1000, &options->batch);
    case OPTION_MAX_SMS: return read_number(text, 1, 1024, &options->max_sms);
    default: return read_number(text, 0, INT32_MAX, &options->seed);
    }
}

static int read_option(int option, const char *text, struct perf_options *options)
{
    switch (option) {
    case 's': options->skew = text; return 0;
    case 'T':
        options->datatype_name = text;
        return read_word(text, "datatype", datatype_words, &options->datatype);
    case OPTION_FIELDS: return read_fields(text, options);
    case 'l': return read_word(text, "layout", layout_words, &options->layout);
    case 'r': return read_word(text, "receive buffer", place_words, &options->place);
    case 'd': return read_space(text, &options->space);
    case 'c': options->check = 1; return 0;
    case 'f': options->full = 1; return 0;
    case 'h': options->usage = 1; return 0;
    case OPTION_TRANSPORT: options->transport = text; return 0;
    case OPTION_PEER: return read_peer(text, &options->peer);
    case OPTION_GRAPH: options->graph = 1; return 0;
    case OPTION_CEILING: options->ceiling = 1; return 0;
    case OPTION_OVERLAP: options->overlap = 1; return 0;
    case OPTION_JSON: options->json = text; return 0;
    case OPTION_EXPLAIN: options->explain = 1; return 0;
    case '?': return complain("an option is wrong, see epx_perf --help");
    default: return read_size_option(option, text, options);
    }
}

static int check_space(struct perf_options *options)
{
    if (options->graph && !options->space->replay)
        return complain("--graph needs -d cuda");
    if (options->ceiling && !options->space->ceiling)
        return complain("--ceiling is for -d cuda: on host memory the ceiling is the copy");
    if (options->overlap && !options->space->gemm)
        return complain("--overlap needs -d cuda; -f measures overlap on host memory too");
    if (options->overlap && options->full)
        return complain("--overlap and --full measure overlap in two ways: ask for one");
    if (options->batch == 0)
        options->batch = options->graph ? GRAPH_BATCH : 1;
    return 0;
}

/* Operations that route have another set of ids each, if ids are drawn and a peer can follow. */
static int count_id_sets(const struct perf_options *options)
{
    int drawn = strncmp(options->skew, "file:", 5) != 0 && strcmp(options->skew, "even") != 0;

    if (!options->verb->routes || !drawn || perf_peer_is_counted(options->peer))
        return 1;
    return options->graph && options->batch < PERF_MOST_ID_SETS ? (int)options->batch
                                                                : PERF_MOST_ID_SETS;
}

static int check_layout(const struct perf_options *options)
{
    if (options->alignment & (options->alignment - 1))
        return complain("alignment %lld is not a power of two", (long long)options->alignment);
    if (options->layout != EPX_EXPERT_MAJOR && options->alignment > 1)
        return complain("the rank and the slab layout have alignment 1");
    if (options->layout != EPX_EXPERT_SLAB && options->rows_per_expert)
        return complain("--rows-per-expert is for the slab layout");
    return 0;
}

/* A row has the bytes of all its fields. */
static int check_fields(struct perf_options *options)
{
    int64_t bytes = 0;

    if (options->num_fields == 0)
        return 0;
    if (!options->verb->takes_fields)
        return complain("--fields is for dispatch and route-dispatch");
    if (options->datatype != EPX_BYTE)
        return complain("--fields takes the place of --datatype");
    for (int f = 0; f < options->num_fields; f++)
        bytes +=
            (int64_t)options->fields[f].count * perf_datatype_bytes(options->fields[f].datatype);
    if (bytes > INT32_MAX)
        return complain("a row of %lld bytes is too long", (long long)bytes);
    options->row_bytes.min = options->row_bytes.max = bytes;
    return 0;
}

/* Checks what depends on several options. */
static int check_options(struct perf_options *options)
{
    int bytes = perf_datatype_bytes(options->datatype);
    int adds = options->verb->sums;

    if (check_fields(options))
        return -1;
    if (options->row_bytes.min == 0)
        options->row_bytes.min = options->row_bytes.max = options->hidden * bytes;
    if (options->row_bytes.min % bytes)
        return complain("rows of %lld bytes are not whole elements of %d",
                        (long long)options->row_bytes.min, bytes);
    if (check_layout(options))
        return -1;
    if (adds && options->datatype <= EPX_FLOAT8_E5M2)
        return complain("%s cannot be added: %s needs float16, bfloat16, float32 or float64",
                        options->datatype_name, options->verb->name);
    if (options->peer)
        options->peer = perf_peer_on(options->peer, options->space);
    if (options->peer && perf_peer_refuses(options))
        return complain("--peer %s: %s", perf_peer_name(options->peer), perf_peer_refuses(options));
    if (check_space(options))
        return -1;
    options->id_sets = count_id_sets(options);
    return 0;
}

static int read_verb(int num, char **arguments, struct perf_options *options)
{
    const char *names[PERF_MOST_VERBS + 1];

    perf_verb_names(names);
    options->verb = num ? perf_verb_find(arguments[0]) : NULL;
    if (!options->verb)
        return complain_of_name("sub-command", arguments[0], names);
    if (num > 1)
        return complain("one sub-command wanted, but \"%s\" follows %s", arguments[1],
                        arguments[0]);
    return 0;
}

/* Before getopt puts the arguments in another order. */
static void copy_arguments(char **argv, struct perf_options *options)
{
    const size_t length = sizeof(options->command_line);
    size_t used = (size_t)snprintf(options->command_line, length, "epx_perf");

    for (int i = 1; argv[i] && used < length; i++)
        used += (size_t)snprintf(options->command_line + used, length - used, " %s", argv[i]);
}

int perf_options_read(int argc, char **argv, int rank, struct perf_options *options)
{
    static const struct perf_options defaults = {.tokens = {4096, 4096},
                                                 .hidden = 2048,
                                                 .top_k = 8,
                                                 .experts = 64,
                                                 .alignment = 1,
                                                 .iterations = 20,
                                                 .warmup = 3,
                                                 .seed = 1,
                                                 .datatype_name = "float32",
                                                 .datatype = EPX_FLOAT32,
                                                 .layout = EPX_EXPERT_MAJOR,
                                                 .place = PERF_PLACE_WINDOW,
                                                 .space = &perf_space_host,
                                                 .skew = "uniform"};
    int option;

    *options = defaults;
    copy_arguments(argv, options);
    speaks = opterr = rank == 0;
    while ((option =
                getopt_long(argc, argv, "t:m:H:k:e:s:T:l:a:r:d:i:x:cfh", long_options, NULL)) != -1)
        if (read_option(option, optarg, options)) {
            if (option == '?' && speaks)
                option_say_meant("epx_perf", argv[optind - 1], long_options);
            return -1;
        }
    if (options->usage || options->explain)
        return 0;
    if (read_verb(argc - optind, argv + optind, options))
        return -1;
    return check_options(options);
}
