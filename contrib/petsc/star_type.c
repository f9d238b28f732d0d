/* SPDX-License-Identifier: BSD-3-Clause */
/* star_type.c - registers the type epx with PETSc when PETSc loads the library, and makes, shows,
   copies and frees stars of that type. */
#include "star.h"

#define TYPE_NAME "epx"

PETSC_EXTERN PetscErrorCode PetscDLLibraryRegister_epx_petsc(void);

/* A star may get another type when it is set up already. PETSc would not set it up again, and the
   new type would know no edges: so it frees what the old type's set-up has made for both, and PETSc
   sets the star up before its next operation. */
static PetscErrorCode undo_set_up(PetscSF sf)
{
    PetscFunctionBegin;
    sf->nranks = -1;
    PetscCall(PetscFree4(sf->ranks, sf->roffset, sf->rmine, sf->rremote));
    sf->setupcalled = PETSC_FALSE;
    PetscFunctionReturn(0);
}

static PetscErrorCode star_destroy(PetscSF sf)
{
    PetscFunctionBegin;
    PetscCall(star_reset(sf)); /* refuses, and changes nothing, while an operation is in flight */
    PetscCall(undo_set_up(sf));
    PetscCall(PetscFree(sf->data));
    PetscFunctionReturn(0);
}

static PetscErrorCode show_transport(const struct star *star, PetscViewer viewer)
{
    char transport[EPX_MAX_HINT_STRING];
    int length;

    PetscFunctionBegin;
    if (star->wiring.comm) {
        PetscCallEPX(EPX_Comm_get_hint(star->wiring.comm, "epx_transport", transport, &length));
        PetscCall(PetscViewerASCIIPrintf(viewer, "  EPX transport=%s\n", transport));
    }
    PetscFunctionReturn(0);
}

static PetscErrorCode star_view(PetscSF sf, PetscViewer viewer)
{
    PetscViewerFormat format;
    PetscBool is_text;

    PetscFunctionBegin;
    PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &is_text));
    PetscCall(PetscViewerGetFormat(viewer, &format));
    if (is_text && format != PETSC_VIEWER_ASCII_MATLAB) {
        PetscCall(PetscViewerASCIIPrintf(viewer, "  MultiSF sort=%s\n",
                                         sf->rankorder ? "rank-order" : "unordered"));
        PetscCall(show_transport(sf->data, viewer));
    }
    PetscFunctionReturn(0);
}

/* PETSc has made the copy, of type epx and with the graph if that is wanted. The copy of a scatter
   of vectors becomes a star of type basic: it is made for VecScatterRemap, which changes indices
   within PETSc's own types and refuses all others. */
static PetscErrorCode star_duplicate(PetscSF sf, PetscSFDuplicateOption option, PetscSF copy)
{
    PetscFunctionBegin;
    (void)option;
    if (sf->vscat.bs > 0)
        PetscCall(PetscSFSetType(copy, PETSCSFBASIC));
    PetscFunctionReturn(0);
}

static PetscErrorCode star_get_leaf_ranks(PetscSF sf, PetscInt *num, const PetscMPIInt **ranks,
                                          const PetscInt **offsets, const PetscInt **indices)
{
    const struct star *const star = sf->data;

    PetscFunctionBegin;
    if (num)
        *num = star->num_leaf_ranks;
    if (ranks)
        *ranks = star->leaf_ranks;
    if (offsets)
        *offsets = star->root_offsets;
    if (indices)
        *indices = star->root_indices;
    PetscFunctionReturn(0);
}

static PetscErrorCode star_create(PetscSF sf)
{
    struct star *star;

    PetscFunctionBegin;
    PetscCall(undo_set_up(sf));
    sf->ops->SetUp = star_set_up;
    sf->ops->Reset = star_reset;
    sf->ops->Destroy = star_destroy;
    sf->ops->View = star_view;
    sf->ops->Duplicate = star_duplicate;
    sf->ops->GetLeafRanks = star_get_leaf_ranks;
    sf->ops->CreateEmbeddedRootSF = star_embed_roots;
    sf->ops->BcastBegin = star_bcast_begin;
    sf->ops->BcastEnd = star_bcast_end;
    sf->ops->ReduceBegin = star_reduce_begin;
    sf->ops->ReduceEnd = star_reduce_end;
    sf->ops->FetchAndOpBegin = star_fetch_begin;
    sf->ops->FetchAndOpEnd = star_fetch_end;
    PetscCall(PetscNew(&star));
    sf->data = star;
    PetscFunctionReturn(0);
}

/* A star's structure is private to a version of PETSc, and scalars and indices have lengths. */
static PetscErrorCode check_petsc(void)
{
    PetscInt major, minor, patch, release;
    size_t scalar, index;

    PetscFunctionBegin;
    PetscCall(PetscGetVersionNumber(&major, &minor, &patch, &release));
    PetscCheck(major == PETSC_VERSION_MAJOR && minor == PETSC_VERSION_MINOR, PETSC_COMM_SELF,
               PETSC_ERR_LIB, "libepx_petsc was built for PETSc %d.%d, this is %d.%d",
               PETSC_VERSION_MAJOR, PETSC_VERSION_MINOR, (int)major, (int)minor);
    PetscCall(PetscDataTypeGetSize(PETSC_SCALAR, &scalar));
    PetscCall(PetscDataTypeGetSize(PETSC_INT, &index));
    PetscCheck(scalar == sizeof(PetscScalar) && index == sizeof(PetscInt), PETSC_COMM_SELF,
               PETSC_ERR_LIB,
               "libepx_petsc was built for scalars of %d bytes and indices of %d, these are %d, %d",
               (int)sizeof(PetscScalar), (int)sizeof(PetscInt), (int)scalar, (int)index);
    PetscFunctionReturn(0);
}

/* PETSc calls this when it has loaded the library, by the option -dll_append. */
PetscErrorCode PetscDLLibraryRegister_epx_petsc(void)
{
    PetscFunctionBegin;
    PetscCall(check_petsc());
    PetscCall(PetscSFRegister(TYPE_NAME, star_create));
    PetscFunctionReturn(0);
}
