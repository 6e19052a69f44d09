/* wire.h - one dialect: how its bodies are read and its replies are written.
 *
 * A new dialect is a file with such a table, a kind (request.h) with a row in wire.c and in routes.c, and its
 * bit in the table of fields. Network thread, but for `read`. */
#ifndef PLATEAU_API_WIRE_H
#define PLATEAU_API_WIRE_H

#include "api/exchange.h"
#include "api/reject_http.h"
#include "api/reply.h"

struct wire {
    const char *route;                 /* "/v1/chat/completions" */
    const char *id_prefix;             /* of the reply's id: "chatcmpl" */
    const char *object, *chunk_object; /* what a reply and a piece of it call themselves */
    bool parses;                       /* a reply is a message: reasoning and calls are parsed */
    /* Checks the fields of a body together, after each was read by itself. Prep thread. */
    bool (*read)(struct request *r, struct reject *why);
    /* Collects a part of a choice. In a stream it may write what was collected before (reply_flush()). */
    part_sink_fn *part;
    /* Whole: the reply, when all choices are over. */
    void (*whole)(struct exchange *x, struct buf *ret);
    /* In pieces, into x->out: once before the first piece (NULL: nothing); a choice's collected output, if it
     * has some; its end; the usage of all choices. */
    void (*begin)(struct exchange *x);
    void (*flush)(struct reply *r);
    void (*finish)(struct reply *r);
    void (*usage)(struct exchange *x);
    /* The error as a body, and as an event of a stream. */
    reject_write_fn *error;
    const char *ping;        /* sent as a comment when a stream is silent */
    const char *done_marker; /* the last event of a stream; NULL: none */
};

extern const struct wire wire_chat, wire_completion;

/* NULL: requests of this kind generate nothing. */
const struct wire *wire_of(enum request_kind kind);

#endif
