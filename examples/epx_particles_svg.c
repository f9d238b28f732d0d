/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_particles_svg.c - draws the square: tiles and particles in the colour of their rank, and a
 * ring around each particle that another rank holds as a ghost, in the colour of that rank.
 */
#include "epx_particles.h"

#include <stdio.h>
#include <stdlib.h>

enum { PICTURE = 720, MARGIN = 20, LEGEND = 200, MAX_DRAWN = 20000, MAX_NAMED = 16 };

/* Ranks that are alike modulo the number of colours are drawn alike. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#b0509a",
                                      "#8a6d00", "#3a8fc8", "#5b4a9e", "#6b6b6b"};
enum { NUM_COLOURS = sizeof(colours) / sizeof(colours[0]) };

/* Points of all ranks, on rank 0, in the order of the ranks. */
struct gathered {
    int *counts, *displs; /* [num_ranks] */
    struct point *points;
};

static void gather(const struct domain *d, const struct point *points, int n, struct gathered *g)
{
    int sum = 0;
    MPI_Datatype type;

    g->counts = particles_alloc(d->num_ranks, sizeof(int));
    g->displs = particles_alloc(d->num_ranks, sizeof(int));
    MPI_Gather(&n, 1, MPI_INT, g->counts, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int r = 0; r < d->num_ranks; r++) {
        g->displs[r] = sum;
        sum += g->counts[r];
    }
    g->points = particles_alloc(sum, sizeof(struct point));
    MPI_Type_contiguous(2, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    MPI_Gatherv(points, n, type, g->points, g->counts, g->displs, type, 0, MPI_COMM_WORLD);
    MPI_Type_free(&type);
}

static void free_gathered(struct gathered *g)
{
    free(g->counts);
    free(g->displs);
    free(g->points);
}

static void draw_tiles(const struct domain *d, FILE *file)
{
    double side = (double)PICTURE / d->side;

    for (int t = 0; t < d->num_tiles; t++)
        fprintf(file,
                "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" "
                "fill-opacity=\".14\" stroke=\"#fff\" stroke-width=\".7\"/>\n",
                MARGIN + d->places[t] % d->side * side, MARGIN + d->places[t] / d->side * side,
                side, side, colours[d->owners[t] % NUM_COLOURS]);
}

/* A line wherever the tiles on both sides belong to different ranks. */
static void draw_borders(const struct domain *d, FILE *file)
{
    double side = (double)PICTURE / d->side;

    fputs("<path fill=\"none\" stroke=\"#222\" stroke-width=\"1.6\" d=\"", file);
    for (int place = 0; place < d->num_tiles; place++) {
        int x = place % d->side, y = place / d->side, owner = d->owners[d->tiles[place]];

        if (x && d->owners[d->tiles[place - 1]] != owner)
            fprintf(file, "M%.2f %.2fv%.2f", MARGIN + x * side, MARGIN + y * side, side);
        if (y && d->owners[d->tiles[place - d->side]] != owner)
            fprintf(file, "M%.2f %.2fh%.2f", MARGIN + x * side, MARGIN + y * side, side);
    }
    fprintf(file, "\"/>\n<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" %s\n", MARGIN, MARGIN,
            PICTURE, PICTURE, "fill=\"none\" stroke=\"#222\" stroke-width=\"1.6\"/>");
}

/* One point in `every`, each as large as leaves them apart. */
static void draw_points(const struct domain *d, const struct gathered *g, int every, int rings,
                        FILE *file)
{
    double radius = 0.045 * PICTURE / d->side * (rings ? 1.9 : 1);

    for (int r = 0; r < d->num_ranks; r++) {
        const char *colour = colours[r % NUM_COLOURS];

        if (rings)
            fprintf(file, "<g fill=\"none\" stroke=\"%s\" stroke-width=\"%.2f\">\n", colour,
                    radius / 3);
        else
            fprintf(file, "<g fill=\"%s\">\n", colour);
        for (int i = 0; i < g->counts[r]; i += every) {
            struct point at = g->points[g->displs[r] + i];

            fprintf(file, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\"/>\n", MARGIN + at.x * PICTURE,
                    MARGIN + at.y * PICTURE, radius);
        }
        fputs("</g>\n", file);
    }
}

static void draw_legend(const struct domain *d, const struct gathered *particles,
                        const struct gathered *ghosts, int every, FILE *file)
{
    int x = PICTURE + 2 * MARGIN, y = MARGIN + 14;

    fprintf(file, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%d particles</text>\n", x, y,
            d->opt.num_particles);
    for (int r = 0; r < d->num_ranks && r < MAX_NAMED; r++) {
        const char *colour = colours[r % NUM_COLOURS];

        y += 40;
        fprintf(file, "<circle cx=\"%d\" cy=\"%d\" r=\"5\" fill=\"%s\"/>\n", x + 6, y - 5, colour);
        fprintf(file, "<text x=\"%d\" y=\"%d\">rank %d: %d particles</text>\n", x + 20, y, r,
                particles->counts[r]);
        fprintf(file, "<circle cx=\"%d\" cy=\"%d\" r=\"5\" fill=\"none\" stroke=\"%s\"/>\n", x + 6,
                y + 12, colour);
        fprintf(file, "<text x=\"%d\" y=\"%d\">and %d ghosts</text>\n", x + 20, y + 17,
                ghosts->counts[r]);
    }
    if (d->num_ranks > MAX_NAMED)
        fprintf(file, "<text x=\"%d\" y=\"%d\">and %d more ranks</text>\n", x, y += 40,
                d->num_ranks - MAX_NAMED);
    y += 46;
    fprintf(file, "<text x=\"%d\" y=\"%d\">a dot: a particle</text>\n", x, y);
    fprintf(file, "<text x=\"%d\" y=\"%d\">a ring: this rank's copy</text>\n", x, y + 18);
    fprintf(file, "<text x=\"%d\" y=\"%d\">of another's particle</text>\n", x, y + 36);
    if (every > 1)
        fprintf(file, "<text x=\"%d\" y=\"%d\">one in %d is drawn</text>\n", x, y + 54, every);
}

static void draw(const struct domain *d, const struct gathered *particles,
                 const struct gathered *ghosts, FILE *file)
{
    int every = 1 + (d->opt.num_particles - 1) / MAX_DRAWN;
    int width = PICTURE + 2 * MARGIN + LEGEND, height = PICTURE + 2 * MARGIN;

    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"15\" fill=\"#222\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            width, height, width, height, width, height);
    draw_tiles(d, file);
    draw_borders(d, file);
    draw_points(d, particles, every, 0, file);
    draw_points(d, ghosts, every, 1, file);
    draw_legend(d, particles, ghosts, every, file);
    fputs("</svg>\n", file);
}

void particles_draw(const struct domain *d, const struct patch *p, void *file)
{
    struct gathered particles, ghosts;
    struct point *points = particles_alloc(p->num_particles, sizeof(*points));

    for (int i = 0; i < p->num_particles; i++)
        points[i] = p->particles[i].at;
    gather(d, points, p->num_particles, &particles);
    gather(d, p->ghosts, p->num_ghosts, &ghosts);
    if (d->rank == 0)
        draw(d, &particles, &ghosts, file);
    free_gathered(&particles);
    free_gathered(&ghosts);
    free(points);
}
