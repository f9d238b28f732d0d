/* SPDX-License-Identifier: BSD-3-Clause */
/* api_init.c - functions of no communicator: versions, and the texts of errors. */
#include "config.h"

#include <stdio.h>

#include "api/profile.h"
#include "base/status.h"
#include "transport/transport.h"

EPX_PROFILED(Get_version)
EPX_PROFILED(Get_library_version)
EPX_PROFILED(Error_string)
EPX_PROFILED(Get_error_message)

/*
 * EPX_Get_version - get the version of the interface.
 *
 * Local. Works before MPI_Init and after MPI_Finalize.
 * Output: major, minor, patch.
 * Errors: EPX_ERR_ARG for a NULL argument.
 * See also: EPX_Get_library_version.
 */
int EPX_Get_version(int *major, int *minor, int *patch)
{
    epx_status_enter(__func__);
    EPX_FAIL_IF(!major || !minor || !patch, EPX_ERR_ARG, "an argument is NULL");
    *major = EPX_VERSION_MAJOR;
    *minor = EPX_VERSION_MINOR;
    *patch = EPX_VERSION_PATCH;
    return EPX_SUCCESS;
}

/*
 * EPX_Get_library_version - describe this build of the library: its version and transports.
 *
 * Local. Works before MPI_Init and after MPI_Finalize.
 * Output: version, of EPX_MAX_LIBRARY_VERSION_STRING bytes; resultlen, its length without NUL.
 * Errors: EPX_ERR_ARG for a NULL argument.
 */
int EPX_Get_library_version(char *version, int *resultlen)
{
    char transports[EPX_MAX_LIBRARY_VERSION_STRING / 2], text[EPX_MAX_LIBRARY_VERSION_STRING];

    epx_status_enter(__func__);
    EPX_FAIL_IF(!version || !resultlen, EPX_ERR_ARG, "an argument is NULL");
    epx_transport_list(transports, sizeof(transports));
    snprintf(text, sizeof(text), PACKAGE_NAME " " PACKAGE_VERSION ", transports%s", transports);
    epx_status_copy(version, resultlen, EPX_MAX_LIBRARY_VERSION_STRING, text);
    return EPX_SUCCESS;
}

/*
 * EPX_Error_string - get the text of an error code.
 *
 * Local. Works before MPI_Init and after MPI_Finalize. The values behind an error are in
 * EPX_Comm_get_error_message.
 * Input: errorcode. Output: string, of EPX_MAX_ERROR_STRING bytes; resultlen, its length.
 * Errors: EPX_ERR_ARG for an unknown code or a NULL argument.
 */
int EPX_Error_string(int errorcode, char *string, int *resultlen)
{
    epx_status_enter(__func__);
    EPX_FAIL_IF(!string || !resultlen, EPX_ERR_ARG, "an argument is NULL");
    EPX_FAIL_IF(!epx_status_text(errorcode), EPX_ERR_ARG, "errorcode is %d", errorcode);
    epx_status_copy(string, resultlen, EPX_MAX_ERROR_STRING, epx_status_text(errorcode));
    return EPX_SUCCESS;
}

/*
 * EPX_Get_error_message - get the last error of the calling thread, with its values.
 *
 * Local. Works before MPI_Init and after MPI_Finalize; for errors that leave no communicator to
 * ask, such as those of EPX_Comm_create.
 * Output: string, of EPX_MAX_ERROR_STRING bytes, empty before the first error; resultlen, its
 * length.
 * Errors: EPX_ERR_ARG for a NULL argument.
 * See also: EPX_Comm_get_error_message, EPX_Error_string.
 */
int EPX_Get_error_message(char *string, int *resultlen)
{
    if (!string || !resultlen) {
        epx_status_enter(__func__);
        return epx_fail(EPX_ERR_ARG, "an argument is NULL");
    }
    epx_status_copy(string, resultlen, EPX_MAX_ERROR_STRING, epx_status_message());
    return EPX_SUCCESS;
}
