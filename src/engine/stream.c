/* stream.c - a ring of tokens, a finish record and two flags in one word.
 *
 * `signals` says whether a wake is pending (WOKEN) and whether the job is over (FINISHED). They share a
 * word so that finishing and waking is one step. With two words, the exchange could see the end, release
 * its half and be woken afterwards, with a message that points at freed memory. A token in the ring is the
 * head of a struct stream_token, with the requested number of alternatives. */
#include "engine/stream.h"

#include "base/check.h"
#include "base/hex.h"
#include "base/rng.h"
#include "base/threads/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WOKEN = 1, FINISHED = 2 };

struct stream {
    /* Constant. */
    struct request_id id;
    struct mailbox *wake;
    void *user;
    uint32_t top_max, values_max;
    float *values; /* [values_max]: written before FINISHED is set */
    struct charge charge;
    bool charged;
    size_t bytes;
    /* Both sides. */
    atomic_int refs;
    atomic_uint signals;
    atomic_bool closed;
    atomic_bool admitted; /* `admission` is written before */
    struct stream_admission admission;
    _Atomic uint64_t first_token_ns;
    struct stream_finish finish; /* written before FINISHED is set */
    struct ring ring;            /* the job puts, the exchange takes */
};

void request_id_text(struct request_id id, char ret[33])
{
    hex_text(id.bytes, sizeof(id.bytes), ret);
}

bool request_id_parse(const char *text, size_t len, struct request_id *ret)
{
    struct request_id id;
    if (len != 2 * sizeof(id.bytes) || !hex_bytes(text, sizeof(id.bytes), id.bytes))
        return false;
    *ret = id;
    return true;
}

struct request_id request_id_new(void)
{
    struct request_id id;
    rng_secret(id.bytes, sizeof(id.bytes));
    return id;
}

const char *stream_finish_name(enum finish_reason r)
{
    static const char *const names[] = {
        [FINISH_STOP] = "stop",
        [FINISH_LENGTH] = "length",
        [FINISH_REPETITION] = "repetition",
        [FINISH_ABORTED] = "aborted",
        [FINISH_TOO_SLOW] = "client_too_slow",
        [FINISH_QUEUE_TIMEOUT] = "queue_timeout",
        [FINISH_MEMORY_TAKEN] = "memory_short",
        [FINISH_LEASE_REFUSED] = "lease_refused",
        [FINISH_AGENTS_FULL] = "agents_full",
        [FINISH_SHUTDOWN] = "shutdown",
        [FINISH_ERROR] = "error",
    };
    ASSERT((size_t)r < COUNT_OF(names));
    return names[r];
}

/* ---- life ---- */

int stream_create(const struct stream_opts *opts, struct stream **ret)
{
    ASSERT(opts->top_max <= SAMPLER_TOP_MAX);
    uint32_t element =
        offsetof(struct stream_token, top) + opts->top_max * sizeof(struct sampler_alternative);
    size_t head = ROUND_UP(sizeof(struct stream), (size_t)64);
    size_t ring = ROUND_UP(ring_bytes(STREAM_TOKENS, element), (size_t)64);
    size_t values = ROUND_UP(opts->values_max * sizeof(float), (size_t)64);
    size_t bytes = head + ring + values;
    int r = charge_take(opts->charge, bytes);
    if (r < 0)
        return r;
    struct stream *s = aligned_alloc(64, bytes);
    if (!s) {
        charge_give(opts->charge, bytes);
        return -ENOMEM;
    }
    memset(s, 0, head);
    s->id = opts->id;
    s->wake = opts->wake;
    s->user = opts->user;
    s->top_max = opts->top_max;
    s->values_max = opts->values_max;
    s->values = (float *)((char *)s + head + ring);
    memset(s->values, 0, values);
    s->charged = opts->charge != NULL;
    if (opts->charge)
        s->charge = *opts->charge;
    s->bytes = bytes;
    atomic_init(&s->refs, 2);
    atomic_init(&s->signals, 0);
    atomic_init(&s->closed, false);
    atomic_init(&s->first_token_ns, 0);
    ring_init(&s->ring, STREAM_TOKENS, element, (char *)s + head);
    *ret = s;
    return 0;
}

void stream_release(struct stream *s)
{
    int before = atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel);
    ASSERT(before > 0);
    if (before > 1)
        return;
    struct charge charge = s->charge;
    bool charged = s->charged;
    size_t bytes = s->bytes;
    free(s);
    if (charged)
        charge_give(&charge, bytes);
}

struct request_id stream_id(const struct stream *s)
{
    return s->id;
}

void *stream_user(const struct stream *s)
{
    return s->user;
}

uint32_t stream_top_max(const struct stream *s)
{
    return s->top_max;
}

/* ---- exchange side ---- */

void stream_wake_clear(struct stream *s)
{
    atomic_fetch_and_explicit(&s->signals, ~(unsigned)WOKEN, memory_order_acq_rel);
}

bool stream_take(struct stream *s, struct stream_token *ret)
{
    if (!ring_take(&s->ring, ret))
        return false;
    ASSERT(offsetof(struct stream_token, top) + ret->top_count * sizeof(ret->top[0]) <=
           s->ring.element_bytes);
    return true;
}

bool stream_finished(struct stream *s, struct stream_finish *ret)
{
    if (atomic_load_explicit(&s->signals, memory_order_acquire) != FINISHED || ring_count(&s->ring) > 0)
        return false;
    *ret = s->finish;
    return true;
}

void stream_close(struct stream *s)
{
    atomic_store_explicit(&s->closed, true, memory_order_release);
}

const float *stream_values(const struct stream *s)
{
    return s->values;
}

/* ---- job side ---- */

float *stream_result(struct stream *s, uint32_t *values_max)
{
    *values_max = s->values_max;
    return s->values;
}

bool stream_put(struct stream *s, const struct stream_token *t)
{
    ASSERT(offsetof(struct stream_token, top) + t->top_count * sizeof(t->top[0]) <= s->ring.element_bytes);
    return ring_put(&s->ring, t);
}

uint32_t stream_free_tokens(const struct stream *s)
{
    return STREAM_TOKENS - ring_count(&s->ring);
}

/* Sets the flags and sends the message that WOKEN stands for. */
static void signal_exchange(struct stream *s, unsigned flags)
{
    flags |= s->wake ? WOKEN : 0;
    unsigned before = atomic_fetch_or_explicit(&s->signals, flags, memory_order_acq_rel);
    if (!s->wake || before & WOKEN)
        return;
    /* A closed mailbox has no reader. A full one breaks the promise in stream_opts: then the next token
     * sends the message. */
    if (mailbox_put(s->wake, &s) < 0)
        stream_wake_clear(s);
}

void stream_finish(struct stream *s, const struct stream_finish *f)
{
    s->finish = *f;
    signal_exchange(s, FINISHED);
}

void stream_wake(struct stream *s)
{
    signal_exchange(s, 0);
}

bool stream_closed(const struct stream *s)
{
    return atomic_load_explicit(&s->closed, memory_order_acquire);
}

atomic_bool *stream_closed_flag(struct stream *s)
{
    return &s->closed;
}

void stream_admit(struct stream *s, const struct stream_admission *a)
{
    ASSERT(!atomic_load_explicit(&s->admitted, memory_order_relaxed));
    s->admission = *a;
    atomic_store_explicit(&s->admitted, true, memory_order_release);
}

bool stream_admitted(const struct stream *s, struct stream_admission *ret)
{
    bool admitted = atomic_load_explicit(&s->admitted, memory_order_acquire);
    *ret = admitted ? s->admission : (struct stream_admission){0};
    return admitted;
}

void stream_note_first_token(struct stream *s, uint64_t now_ns)
{
    ASSERT(now_ns > 0 && atomic_load_explicit(&s->first_token_ns, memory_order_relaxed) == 0);
    atomic_store_explicit(&s->first_token_ns, now_ns, memory_order_relaxed);
}

uint64_t stream_first_token_ns(const struct stream *s)
{
    return atomic_load_explicit(&s->first_token_ns, memory_order_relaxed);
}
