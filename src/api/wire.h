/* wire.h - one dialect: how its bodies are read and its replies are written.
 *
 * A new dialect is a file wire_NAME.c with its fields and such a table, and its name in WIRES. Network
 * thread, but for `form`. */
#ifndef PLATEAU_API_WIRE_H
#define PLATEAU_API_WIRE_H

#include "api/exchange.h"
#include "api/reject_http.h"
#include "api/reply.h"

struct wire {
    const char *route;                 /* "/v1/chat/completions" */
    struct request_form form;          /* of its bodies; read on a prep thread */
    const char *id_prefix;             /* of the reply's id: "chatcmpl" */
    const char *object, *chunk_object; /* what a reply and a piece of it call themselves */
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

/* All dialects. */
#define WIRES(X) X(wire_chat) X(wire_completion)

#define WIRE_EXTERN(name) extern const struct wire name;
WIRES(WIRE_EXTERN)
#undef WIRE_EXTERN

/* NULL: there are not so many. */
const struct wire *wire_at(size_t i);
/* Whether a route of the same API has this field: for request_limits.elsewhere. */
bool wire_has_elsewhere(const struct request_form *form, const char *name);

#endif
