/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_link.h - what the files behind ucx_links.h share: the worker and the links of a communicator,
 * and how a link is lost.
 */
#ifndef EPX_TRANSPORT_UCX_UCX_LINK_H
#define EPX_TRANSPORT_UCX_UCX_LINK_H

#include "transport/ucx/ucx_context.h"
#include "transport/ucx/ucx_links.h"

enum { EPX_MESSAGE_DATA, EPX_MESSAGE_LETTER };

/*
 * A random number that the ranks of a communicator share. Every message carries it, and one without
 * it is ignored: who can connect to a worker but not read what the ranks send cannot end the
 * communicator.
 */
struct epx_key {
    uint64_t words[2];
};

/* The header of a message of data; fixed while the message is under way. */
struct epx_message_tag {
    struct epx_key key;
    uint64_t number;
    int32_t sender, unused;
};

/*
 * A message that came, for the collective of its number or the next one: EMPTY -> HERE when UCX
 * hands it over, -> FETCHING -> FETCHED if its bytes are still at the sender, -> EMPTY when taken.
 */
enum epx_arrival_state {
    EPX_ARRIVAL_EMPTY,
    EPX_ARRIVAL_HERE,
    EPX_ARRIVAL_FETCHING,
    EPX_ARRIVAL_FETCHED
};

struct epx_arrival {
    enum epx_arrival_state state;
    uint64_t number;
    void *data; /* UCX's; NULL = an empty message */
    size_t bytes;
    int at_sender;
    struct epx_link *link;
};

/* The message that is waited for, and where it goes; number 0 = none. */
struct epx_due {
    uint64_t number;
    void *data;
    size_t bytes;
};

/*
 * A HELLO greets at creation. An ASK is answered with the rank's position. An END ends the
 * communicator here as well. A BYE says that the rank has freed the communicator: what its endpoint
 * reports later is no error.
 */
enum epx_ucx_letter {
    EPX_LETTER_HELLO,
    EPX_LETTER_ASK,
    EPX_LETTER_ANSWER,
    EPX_LETTER_END,
    EPX_LETTER_BYE,
    EPX_NUM_LETTERS
};

/* A letter is not sent again while the last one of its kind is under way: both would say the
 * same. */
struct epx_outgoing {
    struct epx_letter_head {
        struct epx_key key;
        int32_t kind, sender;
        uint64_t position;
    } head;
    int under_way;
};

struct epx_link {
    struct epx_links *links;
    int rank;
    ucp_ep_h endpoint; /* NULL to this rank itself */
    int reports;       /* UCX tells when the connection breaks */
    ucp_rkey_h memory; /* the key to the rank's memory, if that is mapped */
    struct epx_message_tag tag;
    struct epx_arrival arrivals[2]; /* of even and of odd numbers */
    struct epx_due due;
    struct epx_outgoing letters[EPX_NUM_LETTERS];
    unsigned heard;    /* a bit for each kind of letter that came; ANSWER: since the last probe */
    uint64_t position; /* told by the last ANSWER */
    int closed;        /* closed here: what UCX reports later is no error */
};

struct epx_links {
    struct epx_comm *comm;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_mem_h memory;
    struct epx_key key;
    int warned;            /* of a message without the key */
    struct epx_link *link; /* [R] */
    char *exchange;        /* addresses or keys of all ranks; MPI reads and writes them */
    int in_flight;         /* messages of data that UCX still reads */
    uint64_t position;
    int ended, lost; /* by an END; a link was lost, which the peers do not know yet */
    char message[EPX_MAX_ERROR_STRING], sent_message[EPX_MAX_ERROR_STRING];
};

/* Local: set the worker's handlers for messages of data and for letters. */
int epx_links_take_messages(struct epx_links *links);
int epx_links_take_letters(struct epx_links *links);
/* Local, of a communicator that has ended: gives UCX back what came and nobody took. */
void epx_links_forget(struct epx_links *links);

/* Whether a message has the key of the communicator; if not, warns once. In constant time. */
int epx_links_know(struct epx_links *links, const struct epx_key *key);

/* Marks a link as lost, which ends the communicator; only the first loss counts. */
void epx_link_lose(struct epx_link *link, const char *format, ...) EPX_PRINTF(2, 3);
/* Loses a link because of an error that UCX reports, unless its rank said BYE or it was closed
 * here. */
void epx_link_report(struct epx_link *link, ucs_status_t status);

/* Sends HELLO to all and waits for theirs: afterwards no rank waits for another to connect. */
int epx_links_greet(struct epx_links *links);
/* Sends BYE to all: a peer that is still in the last collective would take a closed connection for
 * an error. */
void epx_links_part(struct epx_links *links);

#endif
