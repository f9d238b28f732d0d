/* SPDX-License-Identifier: BSD-3-Clause */
/* comm_end.h - how a communicator ends: by what this rank has seen, or was told. */
#ifndef EPX_CORE_HEALTH_COMM_END_H
#define EPX_CORE_HEALTH_COMM_END_H

#include "core/comm.h"

/* Who tells of the peers now. */
const struct epx_liveness *epx_comm_liveness(const struct epx_comm *comm);
/* Hears from one who tells of the peers whether the communicator has ended. */
void epx_comm_listen(struct epx_comm *comm, const struct epx_liveness *liveness);
/* Lets the control plane move and hears the peers; ends the communicator if a rank gave up, or is
 * lost. */
void epx_comm_hear(struct epx_comm *comm);

/* Ends the communicator on all ranks: everything in flight and everything later fails. */
void epx_comm_give_up(struct epx_comm *comm, const char *message);
/* Local: finishes the communicator on this rank; every other rank learns of the end by its own
 * means. */
void epx_comm_finish(struct epx_comm *comm, const char *message);
/* Completes what may complete of a finished communicator. */
void epx_comm_drain_finished(struct epx_comm *comm);
/* Writes the message, of EPX_MAX_ERROR_STRING bytes, about a rank that did not answer in time. */
void epx_comm_describe_silence(const struct epx_comm *comm, const char *operation, int culprit,
                               char *message);

#endif
