/* bench_measure.c - what a client of a server sees. Prompts are words drawn anew, so that nothing of them is
 * in a prefix cache, but for the second request of each length. Times are the client's.
 *
 * A pass over what the machine can do precedes each round, while the server has no request. A share is the
 * median of such pairs: other work on the machine slows both. */
#include "cli/bench/bench_measure.h"

#include "cli/admin_client.h"
#include "cli/bench/bench_results.h"
#include "cli/chat/remote.h"
#include "cli/chat/stream_client.h"
#include "cli/interrupt.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/rng.h"
#include "host/machine_limits.h"

#include <errno.h>

#define SHORT_WORDS 16 /* words of the prompts before a decode */
#define ROUNDS      3
#define BODY_MAX    ((size_t)1 << 20)
#define WORD_TOKENS 3 /* about, of a drawn word */

static const uint32_t clients_of[BENCH_DECODES_MAX] = {1, 2, 4, BENCH_CLIENTS_MAX};
static const uint32_t tokens_of[BENCH_PREFILLS_MAX] = {128, 512, 4096};

_Static_assert(ROUNDS *(BENCH_DECODES_MAX + 1) <= COUNT_OF(((struct bench_measure *)0)->reads),
               "and a warm-up");
_Static_assert(ROUNDS *BENCH_PREFILLS_MAX <= COUNT_OF(((struct bench_measure *)0)->multiplies), "rounds");

/* ---- requests ---- */

struct measured {
    uint64_t began_ns, first_ns, last_ns;
    struct stream_usage usage;
};

static double first_ms(const struct measured *m)
{
    return (double)(m->first_ns - m->began_ns) / NS_PER_MS;
}

static void on_event(void *arg, const json_t *data)
{
    struct measured *m = arg;
    if (json_array_size(json_object_get(data, "choices")) > 0) {
        m->last_ns = clock_now_ns();
        if (m->first_ns == 0)
            m->first_ns = m->last_ns;
    }
    (void)stream_usage_of(data, &m->usage);
}

/* Words of letters alone. */
static void write_prompt(struct bench_measure *b, uint32_t words, struct buf *ret)
{
    for (uint32_t i = 0; i < words; i++) {
        uint64_t draw = rng_at(b->seed, ++b->drawn);
        if (i > 0)
            buf_putc(ret, ' ');
        for (unsigned k = 3 + draw % 4; k > 0; k--) {
            draw /= 26;
            buf_putc(ret, (char)('a' + draw % 26));
        }
    }
}

/* A request of a prompt of its own, as a text that ends in a zero. */
static void write_request(struct bench_measure *b, uint32_t words, uint32_t tokens, struct buf *ret)
{
    struct buf prompt;
    buf_init(&prompt, BODY_MAX, NULL);
    buf_init(ret, BODY_MAX, NULL);
    write_prompt(b, words, &prompt);
    json_t *body = json_pack("{s:s, s:s%, s:i, s:f, s:b, s:b, s:{s:b}}", "model", b->remote->id, "prompt",
                             prompt.ptr, prompt.len, "max_tokens", (int)tokens, "temperature", 0.0, "stream",
                             1, "ignore_eos", 1, "stream_options", "include_usage", 1);
    admin_write_json(body, ret);
    buf_putc(ret, 0);
    json_decref(body);
    buf_done(&prompt);
}

/* `count` requests at once, each with a body of its own. */
static int ask(const struct bench_measure *b, struct buf *bodies, uint32_t count, struct measured *ret,
               struct err *e)
{
    struct stream_request requests[BENCH_CLIENTS_MAX];
    ASSERT(count <= BENCH_CLIENTS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = (struct measured){.began_ns = clock_now_ns()};
        requests[i] = (struct stream_request){.client = &b->remote->client,
                                              .path = "/v1/completions",
                                              .body = bodies[i].ptr,
                                              .event = on_event,
                                              .arg = &ret[i]};
    }
    int r = stream_client_run(requests, count, interrupt_pending, e);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        if (requests[i].result < 0)
            r = err_set(e, requests[i].result, "%s", requests[i].e.text);
        else if (ret[i].first_ns == 0 || ret[i].usage.completion_tokens == 0)
            r = err_set(e, -EPROTO, "%s sent no tokens, or no usage", remote_where(b->remote));
    }
    return r;
}

/* ---- figures ---- */

static uint32_t rounds_of(const struct bench_measure *b)
{
    return b->quick ? 1 : ROUNDS;
}

/* Measures how fast the machine reads now; 0: not measured. */
static double read_now(struct bench_measure *b)
{
    ASSERT(b->read_count < COUNT_OF(b->reads));
    return b->limits ? b->reads[b->read_count++] = machine_limits_read(b->limits) : 0;
}

static double multiply_now(struct bench_measure *b)
{
    ASSERT(b->multiply_count < COUNT_OF(b->multiplies));
    return b->limits ? b->multiplies[b->multiply_count++] = machine_limits_multiply(b->limits) : 0;
}

static double share_of(double value, double limit)
{
    return limit > 0 ? value / limit : 0;
}

/* The rate of all clients, between the first token of any and the last of any. */
static double rate_of(const struct measured *m, uint32_t count)
{
    uint64_t first = UINT64_MAX, last = 0, tokens = 0;
    for (uint32_t i = 0; i < count; i++) {
        first = MIN_OF(first, m[i].first_ns);
        last = MAX_OF(last, m[i].last_ns);
        tokens += m[i].usage.completion_tokens - 1; /* the first comes with the prompt */
    }
    return last > first ? (double)tokens * NS_PER_S / (double)(last - first) : 0;
}

/* Bytes of weights a second, if each step has a token of each client; 0: not known. */
static double read_rate(const struct bench_measure *b, uint32_t clients, double tokens_s)
{
    const bool known = b->limits && (clients == 1 || !b->work.routed);
    return known ? (double)b->work.token_bytes * tokens_s / clients : 0;
}

static int decode_once(struct bench_measure *b, uint32_t clients, struct measured *ret, struct err *e)
{
    struct buf bodies[BENCH_CLIENTS_MAX];
    for (uint32_t i = 0; i < clients; i++)
        write_request(b, SHORT_WORDS, b->tokens, &bodies[i]);
    int r = ask(b, bodies, clients, ret, e);
    for (uint32_t i = 0; i < clients; i++)
        buf_done(&bodies[i]);
    return r;
}

static int decode(struct bench_measure *b, uint32_t clients, struct bench_decode *ret, struct err *e)
{
    struct measured m[BENCH_CLIENTS_MAX];
    double rates[ROUNDS], shares[ROUNDS], firsts[ROUNDS * BENCH_CLIENTS_MAX];
    const uint32_t rounds = rounds_of(b);
    for (uint32_t k = 0; k < rounds; k++) {
        const double limit = read_now(b);
        int r = decode_once(b, clients, m, e);
        if (r < 0)
            return r;
        for (uint32_t i = 0; i < clients; i++)
            firsts[k * clients + i] = first_ms(&m[i]);
        rates[k] = rate_of(m, clients);
        shares[k] = share_of(read_rate(b, clients, rates[k]), limit);
    }
    *ret = (struct bench_decode){.clients = clients,
                                 .tokens = b->tokens,
                                 .tokens_s = median_of(rates, rounds),
                                 .first_ms = median_of(firsts, rounds * clients),
                                 .read_share = median_of(shares, rounds)};
    ret->read_bytes_s = read_rate(b, clients, ret->tokens_s);
    return 0;
}

/* Operations a second of a prompt whose first token came after `ms`. */
static double multiply_rate(const struct bench_measure *b, uint32_t tokens, double ms)
{
    return b->limits ? model_work_prefill(b->work, tokens) * 1000 / ms : 0;
}

/* Sends each prompt twice: it is computed, then found in the prefix cache. */
static int prefill(struct bench_measure *b, uint32_t tokens, struct bench_prefill *ret, struct err *e)
{
    double cold[ROUNDS], found[ROUNDS], shares[ROUNDS];
    const uint32_t rounds = rounds_of(b);
    struct measured m[2] = {{0}};
    for (uint32_t k = 0; k < rounds; k++) {
        struct buf body;
        const double limit = multiply_now(b);
        write_request(b, tokens / WORD_TOKENS, 1, &body);
        int r = ask(b, &body, 1, &m[0], e);
        r = r == 0 ? ask(b, &body, 1, &m[1], e) : r;
        buf_done(&body);
        if (r < 0)
            return r;
        cold[k] = first_ms(&m[0]);
        found[k] = first_ms(&m[1]);
        shares[k] = share_of(multiply_rate(b, m[0].usage.prompt_tokens, cold[k]), limit);
    }
    *ret = (struct bench_prefill){.tokens = m[0].usage.prompt_tokens,
                                  .found_tokens = m[1].usage.cached_tokens,
                                  .cold_ms = median_of(cold, rounds),
                                  .found_ms = median_of(found, rounds),
                                  .multiply_share = median_of(shares, rounds)};
    ret->operations_s = multiply_rate(b, ret->tokens, ret->cold_ms);
    return 0;
}

int bench_measure_run(struct bench_measure *b, struct bench_results *ret, struct err *e)
{
    struct bench_decode warm;
    int r = decode(b, 1, &warm, e);
    for (uint32_t i = 0; i < COUNT_OF(clients_of) && r == 0; i++)
        if (!b->quick || clients_of[i] == 1 || clients_of[i] == BENCH_CLIENTS_MAX)
            r = decode(b, clients_of[i], &ret->decodes[ret->decode_count++], e);
    for (uint32_t i = 0; i < COUNT_OF(tokens_of) && r == 0; i++)
        /* Words have fewer tokens in some vocabularies, and more in none. */
        if (!b->remote->context || 2 * tokens_of[i] <= b->remote->context)
            r = prefill(b, tokens_of[i], &ret->prefills[ret->prefill_count++], e);
    if (r == 0 && b->limits) {
        ret->threads = machine_limits_threads(b->limits);
        ret->machine_read_bytes_s = median_of(b->reads, b->read_count);
        ret->machine_operations_s = b->multiply_count ? median_of(b->multiplies, b->multiply_count) : 0;
    }
    return r;
}
