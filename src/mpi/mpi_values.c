/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_values.c - info objects, statuses, datatypes, and Fortran's handles. */
#include "mpi/mpi_parts.h"

int epx_mpi_read_info(MPI_Info info, void (*look)(void *arg, const char *key, const char *value),
                      void *arg)
{
    char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
    int keys = 0, found;

    if (info != MPI_INFO_NULL)
        EPX_TRY_MPI(MPI_Info_get_nkeys(info, &keys));
    for (int i = 0; i < keys; i++) {
        EPX_TRY_MPI(MPI_Info_get_nthkey(info, i, key));
        EPX_TRY_MPI(MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found));
        if (found)
            look(arg, key, value);
    }
    return EPX_SUCCESS;
}

int epx_mpi_create_info(MPI_Info *info)
{
    EPX_TRY_MPI(MPI_Info_create(info));
    return EPX_SUCCESS;
}

int epx_mpi_set_info(MPI_Info info, const char *key, const char *value)
{
    EPX_TRY_MPI(MPI_Info_set(info, key, value));
    return EPX_SUCCESS;
}

void epx_mpi_free_info(MPI_Info *info)
{
    MPI_Info_free(info);
}

void epx_mpi_set_elements(MPI_Status *status, int64_t elements)
{
    MPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)elements);
    MPI_Status_set_cancelled(status, 0);
}

int64_t epx_mpi_get_elements(const MPI_Status *status)
{
    MPI_Count elements = 0;

    MPI_Get_elements_x(status, MPI_BYTE, &elements);
    return (int64_t)elements;
}

const char *epx_mpi_datatype_name(int datatype, const char **wanted)
{
    static const struct {
        MPI_Datatype given;
        const char *name, *wanted;
    } types[] = {
        {MPI_BYTE, "MPI_BYTE", "EPX_BYTE"},
        {MPI_CHAR, "MPI_CHAR", "EPX_BYTE"},
        {MPI_INT8_T, "MPI_INT8_T", "EPX_BYTE"},
        {MPI_UINT8_T, "MPI_UINT8_T", "EPX_BYTE"},
        {MPI_FLOAT, "MPI_FLOAT", "EPX_FLOAT32"},
        {MPI_DOUBLE, "MPI_DOUBLE", "EPX_FLOAT64"},
        {MPI_INT, "MPI_INT", "rows of EPX_BYTE"},
        {MPI_INT32_T, "MPI_INT32_T", "rows of EPX_BYTE"},
        {MPI_LONG, "MPI_LONG", "rows of EPX_BYTE"},
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if ((int)(intptr_t)types[i].given == datatype) {
            *wanted = types[i].wanted;
            return types[i].name;
        }
    return NULL;
}

MPI_Comm epx_mpi_comm_of(int handle)
{
    return MPI_Comm_f2c(handle);
}

MPI_Info epx_mpi_info_of(int handle)
{
    return MPI_Info_f2c(handle);
}

MPI_Errhandler epx_mpi_errhandler_of(int handle)
{
    return MPI_Errhandler_f2c(handle);
}

int epx_mpi_handle_of(MPI_Info info)
{
    return (int)MPI_Info_c2f(info);
}
