/* trace.h - what became of the last requests: who sent them, how long each phase took, and how they ended.
 *
 * TRACE_RECORDS of them, in memory of a fixed size (trace_bytes(): at most 200 KiB) of the account `history`.
 * When all are taken, the tenant that has most of them loses its oldest one: the requests of one tenant push
 * out no other's. A request that computed something leaves a record, and one that was refused. Each refusal
 * is a line of the log too. Refusals of a client beyond its lines of a minute (line_limit.h) have no line,
 * and one record together, which counts them. Network thread. */
#ifndef PLATEAU_API_TRACE_H
#define PLATEAU_API_TRACE_H

#include "api/access/audit.h"
#include "api/access/client_ids.h"

#include "memory/ledger.h"

#define TRACE_RECORDS       200
#define TRACE_MESSAGE_BYTES 200 /* bytes of a refusal's message, with the terminating zero */

/* Phases of a request, as the reports name them. */
enum trace_phase {
    TRACE_RECEIVING,
    TRACE_PREPARING,
    TRACE_MEDIA,
    TRACE_LOADING,
    TRACE_QUEUED,
    TRACE_PREFILLING,
    TRACE_DECODING,
    TRACE_SENDING,
    TRACE_PHASES
};
const char *trace_phase_name(enum trace_phase p);

/* The time that a request spent in each phase. */
struct trace_clock {
    enum trace_phase phase;
    uint64_t since_ns;
    uint64_t ns[TRACE_PHASES];
};
/* The request is in `phase` from now on. */
void trace_turn_to(struct trace_clock *c, enum trace_phase phase, uint64_t now_ns);

/* Why a request was refused; zeros: it was not. */
struct trace_refusal {
    unsigned status;
    const char *code; /* constant; NULL: the HTTP layer refused it */
    char param[64], message[TRACE_MESSAGE_BYTES];
};
/* `status`: as the client gets it. */
void trace_refusal_of(struct trace_refusal *ret, unsigned status, const struct reject *why);

/* Why it found less in the prefix cache than an earlier turn of its conversation could have left:
 * turns/cache_miss.h finds it. */
#define CACHE_MISS_NAME_BYTES 48
struct cache_miss {
    /* The part: "model", "system", "tools[2]", "messages[5]". "rendering": the parts are the same and the
     * tokens are not. "evicted": both are the same. "unknown": a conversation with replies of which no turn
     * is known. Empty: nothing was lost. */
    char part[24];
    char at[CACHE_MISS_NAME_BYTES]; /* the member of the part; may be empty */
    uint32_t character, within;     /* prompt_difference; within 0: not known */
    const char *side;               /* constant: "client" or "server" changed it; NULL: nothing was changed */
    const char *cause;              /* constant: of an eviction, or of an unknown turn; NULL: neither */
    char whom[CACHE_MISS_NAME_BYTES]; /* beneficiary: "own", "another_tenant", a model's name; may be empty */
    uint32_t seconds;                 /* since the eviction; since all turns are known */
    uint32_t lost_tokens;
};

struct trace_record {
    uint64_t number; /* set by trace_add(): rises from record to record */
    uint64_t first;  /* the number of records before `untold` rose */
    uint64_t tenant;
    char id[33];
    struct client_ids given;
    struct audit who;
    int32_t model;   /* in the registry; -1: none was found */
    const char *end; /* constant: how the generation ended; NULL: there was none */
    struct trace_refusal refusal;
    uint32_t untold; /* refused requests of a client in a minute; the record is that of the last. 0: of one */
    double ended_s;  /* since 1970 */
    uint64_t total_ns, first_token_ns, phase_ns[TRACE_PHASES]; /* first token: since its arrival; 0: none */
    uint32_t choices, prompt_tokens, cached_tokens, tokens;
    struct cache_miss cache_miss;
};

struct trace;

size_t trace_bytes(void);
/* 0 or -ENOMEM (the account or the system). */
int trace_create(struct account *account, struct trace **ret);
/* NULL is fine. */
void trace_free(struct trace *t);

/* Keeps a request that was not refused. NULL is fine. */
void trace_add(struct trace *t, const struct trace_record *r, uint64_t now_ns);
/* Keeps a refused one, and logs it with the name of its model (NULL: none). If its client has had its lines,
 * only counts it, in a record that gets a new number. NULL is fine. */
void trace_refused(struct trace *t, const struct trace_record *r, const char *model, uint64_t now_ns);
/* About every 250 ms: tells each minute how many refusals were left out. NULL is fine. */
void trace_tick(struct trace *t, uint64_t now_ns);

/* The oldest record with a number above `after`, of one tenant or of all (NULL). NULL: there is none. */
const struct trace_record *trace_next(const struct trace *t, uint64_t after, const uint64_t *tenant);
/* The newest one's number, 0 without one. */
uint64_t trace_last(const struct trace *t, const uint64_t *tenant);

#endif
