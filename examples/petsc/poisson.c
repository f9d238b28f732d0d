/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * poisson.c - a program of PETSc that knows nothing of EPX: it solves Poisson's equation on a
 * square with a Krylov method, reads what lies beyond the edges of each rank's part, and reverses
 * the solution from the first point to the last.
 *
 *   mpicc poisson.c $(pkg-config --cflags --libs PETSc) -o poisson
 *   mpiexec -n 4 ./poisson -da_grid_x 200 -da_grid_y 200 -ksp_type cg
 *   mpiexec -n 4 ./poisson -da_grid_x 200 -da_grid_y 200 -ksp_type cg \
 *       -dll_append "$(pkg-config --variable=libdir epx)/epx/libepx_petsc.so" -sf_type epx
 */
#include <petscdmda.h>
#include <petscksp.h>

static PetscErrorCode make_grid(DM *grid)
{
    PetscFunctionBeginUser;
    PetscCall(DMDACreate2d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR,
                           33, 29, PETSC_DECIDE, PETSC_DECIDE, 1, 1, NULL, NULL, grid));
    PetscCall(DMSetFromOptions(*grid));
    PetscCall(DMSetUp(*grid));
    PetscFunctionReturn(0);
}

/* The row of one point: 4 times itself less its neighbours; beyond the edge these are 0. */
static PetscErrorCode fill_row(Mat matrix, const DMDALocalInfo *info, PetscInt i, PetscInt j)
{
    const MatStencil row = {.i = i, .j = j};
    MatStencil columns[5] = {row};
    PetscScalar values[5] = {4.0};
    PetscInt num = 1;

    PetscFunctionBeginUser;
    for (PetscInt side = 0; side < 4; side++) {
        const PetscInt x = i + (side == 0) - (side == 1), y = j + (side == 2) - (side == 3);

        if (x < 0 || x >= info->mx || y < 0 || y >= info->my)
            continue;
        values[num] = -1.0;
        columns[num++] = (MatStencil){.i = x, .j = y};
    }
    PetscCall(MatSetValuesStencil(matrix, 1, &row, num, columns, values, INSERT_VALUES));
    PetscFunctionReturn(0);
}

static PetscErrorCode make_matrix(DM grid, Mat *matrix)
{
    DMDALocalInfo info;

    PetscFunctionBeginUser;
    PetscCall(DMCreateMatrix(grid, matrix));
    PetscCall(DMDAGetLocalInfo(grid, &info));
    for (PetscInt j = info.ys; j < info.ys + info.ym; j++)
        for (PetscInt i = info.xs; i < info.xs + info.xm; i++)
            PetscCall(fill_row(*matrix, &info, i, j));
    PetscCall(MatAssemblyBegin(*matrix, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(*matrix, MAT_FINAL_ASSEMBLY));
    PetscFunctionReturn(0);
}

static PetscErrorCode fill_right_side(DM grid, Vec b)
{
    DMDALocalInfo info;
    PetscScalar **value;

    PetscFunctionBeginUser;
    PetscCall(DMDAGetLocalInfo(grid, &info));
    PetscCall(DMDAVecGetArray(grid, b, &value));
    for (PetscInt j = info.ys; j < info.ys + info.ym; j++)
        for (PetscInt i = info.xs; i < info.xs + info.xm; i++)
            value[j][i] = 1.0 + (7 * i + 3 * j) % 11;
    PetscCall(DMDAVecRestoreArray(grid, b, &value));
    PetscFunctionReturn(0);
}

static PetscErrorCode solve(DM grid, Vec x)
{
    PetscReal residual;
    PetscInt iterations;
    KSP solver;
    Mat matrix;
    Vec b;

    PetscFunctionBeginUser;
    PetscCall(make_matrix(grid, &matrix));
    PetscCall(VecDuplicate(x, &b));
    PetscCall(fill_right_side(grid, b));
    PetscCall(KSPCreate(PETSC_COMM_WORLD, &solver));
    PetscCall(KSPSetOperators(solver, matrix, matrix));
    PetscCall(KSPSetFromOptions(solver));
    PetscCall(KSPSolve(solver, b, x));
    PetscCall(KSPGetIterationNumber(solver, &iterations));
    PetscCall(KSPGetResidualNorm(solver, &residual));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%d iterations, residual %.17g\n", (int)iterations,
                          (double)residual));
    PetscCall(KSPDestroy(&solver));
    PetscCall(VecDestroy(&b));
    PetscCall(MatDestroy(&matrix));
    PetscFunctionReturn(0);
}

/* Adds the neighbours of every point; those that lie on other ranks come by the local vector. */
static PetscErrorCode add_neighbors(DM grid, Vec x, Vec sums)
{
    DMDALocalInfo info;
    PetscScalar **value, **sum;
    Vec local;

    PetscFunctionBeginUser;
    PetscCall(DMDAGetLocalInfo(grid, &info));
    PetscCall(DMGetLocalVector(grid, &local));
    PetscCall(VecSet(local, 0.0));
    PetscCall(DMGlobalToLocal(grid, x, INSERT_VALUES, local));
    PetscCall(DMDAVecGetArrayRead(grid, local, &value));
    PetscCall(DMDAVecGetArray(grid, sums, &sum));
    for (PetscInt j = info.ys; j < info.ys + info.ym; j++)
        for (PetscInt i = info.xs; i < info.xs + info.xm; i++)
            sum[j][i] = (i > 0 ? value[j][i - 1] : 0) + (i + 1 < info.mx ? value[j][i + 1] : 0) +
                        (j > 0 ? value[j - 1][i] : 0) + (j + 1 < info.my ? value[j + 1][i] : 0);
    PetscCall(DMDAVecRestoreArray(grid, sums, &sum));
    PetscCall(DMDAVecRestoreArrayRead(grid, local, &value));
    PetscCall(DMLocalToGlobal(grid, local, ADD_VALUES, sums));
    PetscCall(DMRestoreLocalVector(grid, &local));
    PetscFunctionReturn(0);
}

static PetscErrorCode reverse(Vec x, Vec reversed)
{
    PetscInt first, end, size;
    VecScatter scatter;
    IS from, to;

    PetscFunctionBeginUser;
    PetscCall(VecGetSize(x, &size));
    PetscCall(VecGetOwnershipRange(x, &first, &end));
    PetscCall(ISCreateStride(PETSC_COMM_WORLD, end - first, first, 1, &from));
    PetscCall(ISCreateStride(PETSC_COMM_WORLD, end - first, size - 1 - first, -1, &to));
    PetscCall(VecScatterCreate(x, from, reversed, to, &scatter));
    PetscCall(VecScatterViewFromOptions(scatter, NULL, "-scatter_view"));
    PetscCall(VecScatterBegin(scatter, x, reversed, INSERT_VALUES, SCATTER_FORWARD));
    PetscCall(VecScatterEnd(scatter, x, reversed, INSERT_VALUES, SCATTER_FORWARD));
    PetscCall(VecScatterDestroy(&scatter));
    PetscCall(ISDestroy(&from));
    PetscCall(ISDestroy(&to));
    PetscFunctionReturn(0);
}

/* The product with 1, 2, 3 and so on tells in which order the values are; the norm does not. */
static PetscErrorCode show(const char *what, Vec x)
{
    PetscScalar *value, sum;
    PetscReal norm;
    PetscInt first, end;
    Vec order;

    PetscFunctionBeginUser;
    PetscCall(VecDuplicate(x, &order));
    PetscCall(VecGetOwnershipRange(x, &first, &end));
    PetscCall(VecGetArray(order, &value));
    for (PetscInt i = first; i < end; i++)
        value[i - first] = i + 1;
    PetscCall(VecRestoreArray(order, &value));
    PetscCall(VecDot(x, order, &sum));
    PetscCall(VecNorm(x, NORM_2, &norm));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s: norm %.17g, product %.17g\n", what, (double)norm,
                          (double)PetscRealPart(sum)));
    PetscCall(VecDestroy(&order));
    PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
    Vec x, y;
    DM grid;

    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(make_grid(&grid));
    PetscCall(DMCreateGlobalVector(grid, &x));
    PetscCall(VecDuplicate(x, &y));
    PetscCall(solve(grid, x));
    PetscCall(show("solution", x));
    PetscCall(add_neighbors(grid, x, y));
    PetscCall(show("neighbors", y));
    PetscCall(reverse(x, y));
    PetscCall(show("reversed", y));
    PetscCall(VecDestroy(&x));
    PetscCall(VecDestroy(&y));
    PetscCall(DMDestroy(&grid));
    PetscCall(PetscFinalize());
    return 0;
}
