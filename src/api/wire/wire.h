/* wire.h - one dialect: how its bodies are read and its replies are written.
 *
 * A new dialect is a file wire_NAME.c with its fields and such a table, and its name in WIRES. Network
 * thread, but for `form`. */
#ifndef PLATEAU_API_WIRE_H
#define PLATEAU_API_WIRE_H

#include "api/reject_http.h"
#include "api/request/request.h"

#include "gen/reply_part.h"

struct exchange;
struct http_request;
struct reply;

/* Common parts of the dialects of one API: errors, and the frame of a stream. The functions write whole
 * events into x->out. */
struct wire_frame {
    struct reject_envelope envelope;
    const char *id_header; /* has the request's id, besides x-request-id; NULL: none */
    /* The error as the last event of a stream. */
    void (*fail)(struct exchange *x, const struct reject *why);
    /* The stream has been silent. It may open the reply first (reply_begin()). */
    void (*ping)(struct exchange *x);
    /* After the ends of all choices. */
    void (*end)(struct exchange *x);
};

struct wire {
    const char *route; /* "/v1/chat/completions" */
    const struct wire_frame *frame;
    struct request_form form; /* form of its bodies; read on a prep thread */
    const char *budget_field; /* field of the thinking budget; NULL: thinking_token_budget */
    /* Notes what the request's headers ask for without effect. NULL: nothing. */
    void (*note_headers)(struct request *r, const struct http_request *http);
    const char *id_prefix;             /* prefix of the reply's id: "chatcmpl" */
    const char *object, *chunk_object; /* "object" of a reply, and of a piece of it */
    size_t own_bytes;                  /* size of reply.own: the dialect's own state of a choice, zero at
                                        * first */
    /* On a prep thread, of a stream: writes the refusal as events, after which the reply ends. Nothing is
     * written when it is an HTTP error as any other. NULL: it always is. */
    void (*refuse)(struct exchange *x, const struct reject *why, struct buf *ret);
    /* On a prep thread, before the first part, while the prompts' ids are there. NULL: nothing. */
    void (*open)(struct reply *r);
    /* Collects a part of a choice. Before output of another kind it calls reply_turn(). */
    reply_part_fn *part;
    /* A choice of an output without tokens is over and ended well. Takes its result: text goes to
     * reply.items, so that the text of many is not written at once. */
    void (*result)(struct reply *r);
    /* Whole: the reply, when all choices are over. A dialect that lists reasoning, text and calls in order
     * writes each to reply.items when the next begins. */
    void (*whole)(struct exchange *x, struct buf *ret);
    /* In pieces, into x->out: once before the first piece (NULL: nothing); a choice's collected output, if it
     * has some; its end. gen_usage() has the counts of tokens at any time. */
    void (*begin)(struct exchange *x);
    bool begins_admitted; /* begin() does not wait for a piece: only for the admission of all choices */
    void (*flush)(struct reply *r);
    void (*finish)(struct reply *r);
};

/* The frames of OpenAI's dialects and of Messages. */
extern const struct wire_frame openai_frame, messages_frame;

/* All dialects. */
#define WIRES(X)                                                                                             \
    X(wire_chat)                                                                                             \
    X(wire_completion)                                                                                       \
    X(wire_messages)                                                                                         \
    X(wire_responses)                                                                                        \
    X(wire_compact) X(wire_session) X(wire_embeddings) X(wire_rerank) X(wire_rerank_v2) X(wire_score)

#define WIRE_EXTERN(name) extern const struct wire name;
WIRES(WIRE_EXTERN)
#undef WIRE_EXTERN

/* NULL: there are not so many. */
const struct wire *wire_at(size_t i);
/* Whether a route of the same API has this field: for request_limits.elsewhere. */
bool wire_has_elsewhere(const struct request_form *form, const char *name);

#endif
