/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_moe_options.c - the command line of epx_moe: its options, their defaults and bounds. */
#include "epx_moe.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: epx_moe [options] TEXT-FILE\n"
    "  -c, --capacity-factor N  receive rows, in parts of an even load; 0: room for all (0)\n"
    "  -d, --hidden N           elements of a token's row (64)\n"
    "  -e, --experts N          experts of all ranks (16)\n"
    "  -f, --ffn N              elements between the two matrices of an expert (128)\n"
    "  -i, --steps N            steps (one pass over the text, but at most 16)\n"
    "  -k, --top-k N            experts of a token (4)\n"
    "  -l, --layout L           order of received rows: expert or rank (expert)\n"
    "  -p, --threshold P        leave out experts that are less probable (0.05)\n"
    "  -r, --rate R             learning rate (0.5)\n"
    "  -s, --seed N             of the initial weights (1)\n"
    "  -t, --tokens N           most tokens of a rank in a step (512)\n"
    "  -h, --help               this text\n";

static const struct option long_options[] = {
    {"capacity-factor", required_argument, NULL, 'c'},
    {"hidden", required_argument, NULL, 'd'},
    {"experts", required_argument, NULL, 'e'},
    {"ffn", required_argument, NULL, 'f'},
    {"steps", required_argument, NULL, 'i'},
    {"top-k", required_argument, NULL, 'k'},
    {"layout", required_argument, NULL, 'l'},
    {"threshold", required_argument, NULL, 'p'},
    {"rate", required_argument, NULL, 'r'},
    {"seed", required_argument, NULL, 's'},
    {"tokens", required_argument, NULL, 't'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Both leave the value alone and answer 0 if the text is no number between the bounds. */
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
    return end != text && !*end && !errno && *text != '-';
}

static int parse_layout(const char *text, EPX_Layout *layout)
{
    *layout = strcmp(text, "rank") == 0 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    return *layout == EPX_RANK_MAJOR || strcmp(text, "expert") == 0;
}

static int parse_option(int letter, struct moe_options *o)
{
    switch (letter) {
    case 'c': return parse_double(optarg, 1e6, &o->capacity_factor);
    case 'd': return parse_int(optarg, 1, 1 << 20, &o->hidden);
    case 'e': return parse_int(optarg, 1, 1 << 20, &o->num_experts);
    case 'f': return parse_int(optarg, 1, 1 << 20, &o->ffn);
    case 'h': return o->help = 1;
    case 'i': return parse_int(optarg, 0, INT_MAX, &o->steps);
    case 'k': return parse_int(optarg, 1, 64, &o->top_k);
    case 'l': return parse_layout(optarg, &o->layout);
    case 'p': return parse_double(optarg, 1, &o->threshold);
    case 'r': return parse_double(optarg, 1e6, &o->rate);
    case 's': return parse_seed(optarg, &o->seed);
    case 't': return parse_int(optarg, 1, 1 << 24, &o->max_tokens);
    default: return 0;
    }
}

/* What MPI counts with an int must fit one. */
static const char *check_options(const struct moe_options *o)
{
    if (o->top_k > o->num_experts)
        return "--top-k is more than --experts";
    if ((double)o->max_tokens * o->hidden > INT_MAX)
        return "--tokens times --hidden is too large";
    if (2.0 * o->num_experts * o->hidden * o->ffn > INT_MAX)
        return "--experts times --hidden times --ffn is too large";
    return NULL;
}

static const char *long_name(int letter)
{
    const struct option *option = long_options;

    while (option->val != letter)
        option++;
    return option->name;
}

static int complain(const struct moe_options *o, const char *what)
{
    if (o->speaks)
        fprintf(stderr, "epx_moe: %s, see epx_moe --help\n", what);
    return 0;
}

int moe_options_parse(int argc, char **argv, struct moe_options *o)
{
    const char *wrong;
    char what[128];
    int letter;

    opterr = o->speaks;
    while ((letter = getopt_long(argc, argv, "c:d:e:f:hi:k:l:p:r:s:t:", long_options, NULL)) !=
           -1) {
        if (letter == '?')
            return complain(o, "an option is wrong");
        if (parse_option(letter, o))
            continue;
        snprintf(what, sizeof(what), "--%s cannot be \"%.60s\"", long_name(letter), optarg);
        return complain(o, what);
    }
    if (o->help)
        return 1;
    wrong = optind != argc - 1 ? "give one text file" : check_options(o);
    if (wrong)
        return complain(o, wrong);
    o->file = argv[optind];
    return 1;
}

void moe_options_usage(void)
{
    fputs(usage, stdout);
}
