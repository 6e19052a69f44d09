/* exchange.h - the network half of a request, from its header to the last byte of its reply.
 *
 *     receiving ──▶ preparing ──▶ running ──▶ sending ──▶ (gone)
 *                    │     ▲
 *                    ▼     │
 *                    waiting            for a model: wait.h; for images: media_request.h;
 *                                       for room for a grammar: grammar_request.h
 *
 * The network thread owns it, except while it is `preparing`. Then a prep thread owns it, and the network
 * thread touches only `http`, `cancelled` and the list. When the client leaves, `http` becomes NULL. The
 * exchange is freed at once or, while it is preparing, when the prep thread returns it. exchange_free() is
 * the one destructor; it stops the running jobs. */
#ifndef PLATEAU_API_EXCHANGE_H
#define PLATEAU_API_EXCHANGE_H

#include "api/access/client_ids.h"
#include "api/prep_queue.h"
#include "api/reply.h"
#include "api/report/trace.h"
#include "api/request/request.h"
#include "api/wire/responses_page.h"

#include "base/buf.h"
#include "engine/stream.h"
#include "gen/gen.h"
#include "registry/registry.h"

struct api;
struct prompt_compared;
struct reject_envelope;

enum exchange_phase {
    EXCHANGE_RECEIVING,
    EXCHANGE_PREPARING,
    EXCHANGE_WAITING,
    EXCHANGE_RUNNING,
    EXCHANGE_SENDING
};

/* Where a prep thread goes on. */
enum exchange_stage { EXCHANGE_AT_BODY, EXCHANGE_AT_MODEL, EXCHANGE_AT_GEN };

/* Cause of the wait in the phase EXCHANGE_WAITING. */
enum exchange_wait { WAIT_NONE, WAIT_LOAD, WAIT_UNLOAD, WAIT_IMAGES, WAIT_GRAMMAR };

/* Totals over all choices, for the log line at the end of the request. */
struct exchange_sums {
    uint32_t choices, prompt_tokens, cached_tokens, tokens;
    uint64_t queued_ns, prefill_ns, decode_ns; /* the longest of each; choice_times() */
    enum finish_reason end;                    /* finish reason of the last choice */
};

/* Options of a REQUEST_ITEMS. */
struct exchange_list {
    char id[64]; /* id of the response; cut where it is longer, which no id is */
    struct responses_page page;
    char *after; /* page.after, in the request's memory; NULL: none */
};

/* A request's properties that follow from its route. */
struct exchange_route {
    const char *path;
    enum request_kind kind;
    const struct wire *wire;                /* dialect of REQUEST_GENERATE and REQUEST_RENDER; else NULL */
    const struct reject_envelope *envelope; /* envelope of its errors */
    bool audited;                           /* an admin's order: its result is logged */
};

struct exchange {
    /* Constant. */
    struct api *api;
    char id_text[33];
    struct client_ids given;
    const char *route; /* its path in the table of routes */
    enum request_kind kind;
    const struct wire *wire; /* dialect of REQUEST_GENERATE and REQUEST_RENDER; else NULL */
    const struct reject_envelope *envelope;
    struct audit who;
    uint64_t arrived_ns;

    /* Network thread. */
    struct list all; /* api.exchanges */
    enum exchange_phase phase;
    struct http_request *http; /* NULL: the client has gone */
    enum reply_stage reply_stage;
    /* The result of an admin's order is still to be logged. Not a stage: an order that was begun is logged
     * with its own result, even when its client has left or was answered before. */
    bool audit_owed;

    /* Any thread. The client has left or the request was cancelled: do not submit. Not a stage: the prep
     * thread polls it while the network thread owns `reply_stage`. */
    _Atomic bool cancelled;

    /* Owned by the prep queue while it waits for a prep thread. */
    struct prep_entry entry;

    /* Prep thread while preparing, network thread after it. */
    enum exchange_stage stage;
    enum exchange_wait waits; /* set by what begins the wait */
    struct gen gen;           /* its work polls `cancelled`, and has a deadline */
    struct buf body;
    struct request request;
    int model_index; /* in the registry, with a lease that of its replica; -1: not known yet */
    struct registry_replicas replicas; /* engines that may serve it; of an order: all that it is for */
    struct model_lease lease;
    struct registry_unloading unloading;     /* sums over the replicas, without `ticket` */
    uint64_t tickets[REGISTRY_REPLICAS_MAX]; /* tickets of registry_unload(); 0: none was unloaded */
    bool order_goes_on;      /* a load or an unload was begun, which ends without this request */
    uint64_t waits_since_ns; /* network thread; 0: the wait has not been checked yet */
    unsigned status;         /* status of a reply that needs no engine; 200 */
    struct reply *replies;   /* one for each choice, from before they are submitted */
    uint32_t reply_count;
    void *own; /* wire.own_bytes for each of them */
    struct exchange_list list;
    struct prompt_compared *compared; /* owned: parts of its prompt; NULL: not compared */
    struct cache_miss cache_miss;     /* from its admission on */
    struct buf reply;                 /* a reply that needs no engine */
    uint64_t reclaimed_bytes;         /* bytes that an admin's order returned to the system */

    /* Network thread, running. */
    uint32_t choices_over;
    struct buf out;                /* chunks that the connection has not taken yet */
    enum finish_reason cut_reason; /* how cancelled sequences end: FINISH_ABORTED or FINISH_TOO_SLOW */
    uint64_t written_ns;           /* time of the stream's last write */
    uint64_t submitted_ns;         /* when its choices went to the engine */
    uint64_t first_token_ns;       /* clock time; 0: none yet */
    struct exchange_sums sums;
    const char *code;             /* code of the error in the answer; static */
    struct trace_refusal refusal; /* that error */
    struct trace_clock clock;
};

/* A new exchange of `http`, receiving. 0 or -ENOMEM (the account or the system). */
int exchange_create(struct api *a, struct http_request *http, const struct exchange_route *route,
                    struct request_id id, const struct auth *auth, struct exchange **ret);
/* The one destructor: from every phase but `preparing`. NULL is fine. */
void exchange_free(struct exchange *x);

/* The body has arrived: queues it for a prep thread, or answers that the queue is full. */
void exchange_receive(struct exchange *x);
/* A prep thread returns it. */
void exchange_prepared(struct exchange *x);
/* While it waits: at each change of a model and at each tick. Continues or answers when the wait is over. */
void exchange_poll(struct exchange *x, uint64_t now_ns);
/* Takes tokens and writes what the connection takes. */
void exchange_pump(struct exchange *x);
/* About every 250 ms. */
void exchange_tick(struct exchange *x, uint64_t now_ns);
/* Its connection has ended: x may be freed afterwards. */
void exchange_ended(struct exchange *x, bool completed);
/* Ends it from outside, by DELETE or shutdown: answers the client with `why`, stops the sequences. */
void exchange_cancel(struct exchange *x, const struct reject *why);

/* The model's name in replies: as the request gave it, or the id. */
static inline const char *exchange_model_name(const struct exchange *x)
{
    return x->request.model ? x->request.model : x->gen.model->id;
}

/* False: draft tokens are kept without comparing them with the sampled ones, and the reply has to say so. */
static inline bool exchange_is_exact(const struct exchange *x)
{
    return x->kind != REQUEST_GENERATE || !x->gen.model || !x->gen.model->drafting.optimistic ||
           !x->request.gen.speculative;
}

/* sessions.c, on a prep thread: the client has the session that its request continues. False: the reject has
 * the reason. The engine refuses a session that ends later. */
bool sessions_check(struct exchange *x);

/* The streams of the choices from `from` on that are submitted: their wake-ups find them from now on. */
void exchange_watch_choices(struct exchange *x, uint32_t from);
/* The choice of a stream that sent a wake-up. NULL: the stream has been released. */
struct choice *exchange_find_choice(struct api *a, const struct stream *s);

#endif
