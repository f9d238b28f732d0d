/* SPDX-License-Identifier: BSD-3-Clause */
/* control.c - letters, whoever made the control plane. */
#include "control/control.h"

int epx_mailbox_open(const struct epx_control *control, enum epx_tag tag, size_t most_bytes,
                     int num_spare, struct epx_mailbox **mailbox)
{
    EPX_TRY(control->ops->open(control->state, tag, most_bytes, num_spare, mailbox));
    (*mailbox)->ops = control->ops;
    return EPX_SUCCESS;
}

void epx_mailbox_close(struct epx_mailbox *mailbox)
{
    if (mailbox)
        mailbox->ops->close(mailbox);
}

int epx_mailbox_send(struct epx_mailbox *mailbox, int rank, const void *letter, size_t bytes)
{
    return mailbox->ops->send(mailbox, rank, letter, bytes, 0);
}

int epx_mailbox_send_confirmed(struct epx_mailbox *mailbox, int rank, const void *letter,
                               size_t bytes)
{
    return mailbox->ops->send(mailbox, rank, letter, bytes, 1);
}

int epx_mailbox_take(struct epx_mailbox *mailbox, const void **letter)
{
    return mailbox->ops->take(mailbox, letter);
}

void epx_mailbox_flush(struct epx_mailbox *mailbox, int64_t bound_ms)
{
    mailbox->ops->flush(mailbox, bound_ms);
}
