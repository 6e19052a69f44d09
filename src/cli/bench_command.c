/* bench_command.c - the command bench: what a client of a server sees. Prompts are words drawn anew, so that
 * nothing of them is in a prefix cache, but for the second request of each length. Times are the client's.
 * Without a server of the model it starts one: both ways measure with the same requests. */
#include "base/bytes_text.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench_server.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/remote.h"
#include "cli/stream_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 8
#define SHORT_WORDS 16 /* of the prompts before a decode */
#define ROUNDS      3
#define BODY_MAX    ((size_t)1 << 20)
#define WORD_TOKENS 3 /* about, of a drawn word */
#define ROWS_MAX    4
#define LOOK_MS     50   /* between looks whether a server is ready */
#define LEFT_MS     1000 /* from an unload to a look at what stayed */

static const uint32_t clients_of[ROWS_MAX] = {1, 2, 4, 8};
static const uint32_t tokens_of[] = {128, 512, 4096};

struct bench {
    const struct settings *o;
    struct remote remote;
    struct bench_server own;
    uint64_t seed, drawn;
};

/* ---- one request ---- */

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
static void write_prompt(struct bench *b, uint32_t words, struct buf *ret)
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

static void write_body(const struct bench *b, struct slice prompt, uint32_t tokens, struct buf *ret)
{
    json_t *body = json_pack("{s:s, s:s%, s:i, s:f, s:b, s:b, s:{s:b}}", "model", b->remote.id, "prompt",
                             prompt.ptr, prompt.len, "max_tokens", (int)tokens, "temperature", 0.0, "stream",
                             1, "ignore_eos", 1, "stream_options", "include_usage", 1);
    admin_write_json(body, ret);
    buf_putc(ret, 0);
    json_decref(body);
}

/* `count` requests at once, each with a body of its own. */
static int measure(const struct bench *b, struct buf *bodies, uint32_t count, struct measured *ret,
                   struct err *e)
{
    struct stream_request requests[CLIENTS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = (struct measured){.began_ns = clock_now_ns()};
        requests[i] = (struct stream_request){.client = &b->remote.client,
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
            r = err_set(e, -EPROTO, "%s sent no tokens, or no usage", remote_where(&b->remote));
    }
    return r;
}

/* ---- figures ---- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), by_size);
    return values[count / 2];
}

struct decode {
    uint32_t clients, tokens;
    double tokens_s, first_ms;
};

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

static int decode(struct bench *b, uint32_t clients, struct decode *ret, struct err *e)
{
    struct measured m[CLIENTS_MAX];
    double rates[ROUNDS], firsts[ROUNDS * CLIENTS_MAX];
    const uint32_t rounds = b->o->bench.quick ? 1 : ROUNDS;
    int r = 0;
    *ret = (struct decode){.clients = clients, .tokens = b->o->bench.tokens};
    for (uint32_t k = 0; k < rounds && r == 0; k++) {
        struct buf bodies[CLIENTS_MAX], prompt;
        for (uint32_t i = 0; i < clients; i++) {
            buf_init(&prompt, BODY_MAX, NULL);
            buf_init(&bodies[i], BODY_MAX, NULL);
            write_prompt(b, SHORT_WORDS, &prompt);
            write_body(b, buf_slice(&prompt), ret->tokens, &bodies[i]);
            buf_done(&prompt);
        }
        r = measure(b, bodies, clients, m, e);
        for (uint32_t i = 0; i < clients; i++) {
            firsts[k * clients + i] = first_ms(&m[i]);
            buf_done(&bodies[i]);
        }
        if (r == 0)
            rates[k] = rate_of(m, clients);
    }
    if (r < 0)
        return r;
    ret->tokens_s = median(rates, rounds);
    ret->first_ms = median(firsts, rounds * clients);
    return 0;
}

struct prefill {
    uint32_t tokens, found_tokens;
    double cold_ms, found_ms;
};

/* The same prompt twice: computed, then found in the prefix cache. */
static int prefill(struct bench *b, uint32_t tokens, struct prefill *ret, struct err *e)
{
    double cold[ROUNDS], found[ROUNDS];
    const uint32_t rounds = b->o->bench.quick ? 1 : ROUNDS;
    int r = 0;
    for (uint32_t k = 0; k < rounds && r == 0; k++) {
        struct measured m[2];
        struct buf prompt, body;
        buf_init(&prompt, BODY_MAX, NULL);
        buf_init(&body, BODY_MAX, NULL);
        write_prompt(b, tokens / WORD_TOKENS, &prompt);
        write_body(b, buf_slice(&prompt), 1, &body);
        r = measure(b, &body, 1, &m[0], e);
        r = r == 0 ? measure(b, &body, 1, &m[1], e) : r;
        buf_done(&prompt);
        buf_done(&body);
        if (r < 0)
            return r;
        cold[k] = first_ms(&m[0]);
        found[k] = first_ms(&m[1]);
        *ret = (struct prefill){.tokens = m[0].usage.prompt_tokens, .found_tokens = m[1].usage.cached_tokens};
    }
    ret->cold_ms = median(cold, rounds);
    ret->found_ms = median(found, rounds);
    return r;
}

/* ---- output ---- */

struct results {
    struct decode decodes[ROWS_MAX];
    struct prefill prefills[COUNT_OF(tokens_of)];
    uint32_t decode_count, prefill_count;
    uint64_t peak_bytes, limit_bytes; /* 0: the server does not say */
    /* Of a model in a server that bench started: what it needs at least, and what all of it uses 1 s after an
     * unload. */
    uint64_t planned_bytes, left_bytes;
};

static void show_table(const struct bench *b, const struct results *s)
{
    printf("%s at %s, %u tokens an answer\n\n", b->remote.id, remote_where(&b->remote), b->o->bench.tokens);
    printf("clients   tokens/s   of each   first token\n");
    for (uint32_t i = 0; i < s->decode_count; i++) {
        const struct decode *d = &s->decodes[i];
        printf("%7u %10.1f %9.1f %10.1f ms\n", d->clients, d->tokens_s, d->tokens_s / d->clients,
               d->first_ms);
    }
    printf("\nprompt tokens   first token   tokens/s   the same again   found in the cache\n");
    for (uint32_t i = 0; i < s->prefill_count; i++) {
        const struct prefill *p = &s->prefills[i];
        printf("%13u %10.1f ms %10.1f %13.1f ms %20u\n", p->tokens, p->cold_ms, p->tokens * 1000 / p->cold_ms,
               p->found_ms, p->found_tokens);
    }
    if (s->peak_bytes)
        printf("\nmemory of the server at its peak: %s of %s\n", bytes_text(s->peak_bytes).text,
               bytes_text(s->limit_bytes).text);
    if (s->planned_bytes)
        printf("the plan: at least %s; in use 1 s after an unload: %s\n", bytes_text(s->planned_bytes).text,
               bytes_text(s->left_bytes).text);
}

/* One row for each measurement; a column that it does not have is empty. */
static void show_csv(const struct bench *b, const struct results *s)
{
    printf("model,measurement,clients,prompt_tokens,tokens,tokens_per_second,first_token_ms,found_tokens,"
           "bytes\n");
    for (uint32_t i = 0; i < s->decode_count; i++) {
        const struct decode *d = &s->decodes[i];
        printf("%s,decode,%u,,%u,%.2f,%.2f,,\n", b->remote.id, d->clients, d->tokens, d->tokens_s,
               d->first_ms);
    }
    for (uint32_t i = 0; i < s->prefill_count; i++) {
        const struct prefill *p = &s->prefills[i];
        printf("%s,prefill,1,%u,1,%.2f,%.2f,0,\n", b->remote.id, p->tokens, p->tokens * 1000 / p->cold_ms,
               p->cold_ms);
        printf("%s,found,1,%u,1,,%.2f,%u,\n", b->remote.id, p->tokens, p->found_ms, p->found_tokens);
    }
    const struct {
        const char *name;
        uint64_t bytes;
    } memory[] = {{"peak", s->peak_bytes}, {"planned", s->planned_bytes}, {"left", s->left_bytes}};
    for (size_t i = 0; i < COUNT_OF(memory); i++)
        if (memory[i].bytes)
            printf("%s,%s,,,,,,,%llu\n", b->remote.id, memory[i].name, (ull)memory[i].bytes);
}

static void show_json(const struct bench *b, const struct results *s)
{
    json_t *decodes = json_array(), *prefills = json_array();
    for (uint32_t i = 0; i < s->decode_count; i++)
        json_array_append_new(decodes,
                              json_pack("{s:i, s:i, s:f, s:f}", "clients", (int)s->decodes[i].clients,
                                        "tokens", (int)s->decodes[i].tokens, "tokens_per_second",
                                        s->decodes[i].tokens_s, "first_token_ms", s->decodes[i].first_ms));
    for (uint32_t i = 0; i < s->prefill_count; i++)
        json_array_append_new(
            prefills, json_pack("{s:i, s:f, s:f, s:i}", "prompt_tokens", (int)s->prefills[i].tokens,
                                "first_token_ms", s->prefills[i].cold_ms, "found_first_token_ms",
                                s->prefills[i].found_ms, "found_tokens", (int)s->prefills[i].found_tokens));
    json_t *all = json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:I}", "model", b->remote.id, "server",
                            b->own.pid ? "own" : remote_where(&b->remote), "decode", decodes, "prefill",
                            prefills, "peak_bytes", (json_int_t)s->peak_bytes, "planned_bytes",
                            (json_int_t)s->planned_bytes, "left_bytes", (json_int_t)s->left_bytes);
    json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(all);
}

/* ---- the command ---- */

static void read_peak(const struct bench *b, struct results *ret)
{
    struct admin_reply reply = {0};
    struct err e;
    if (admin_client_order(&b->remote.client, "GET", "/api/memory", &reply, &e) == 0) {
        const json_t *root = json_array_get(json_object_get(reply.json, "accounts"), 0);
        ret->peak_bytes = (uint64_t)json_integer_value(json_object_get(root, "peak_bytes"));
        ret->limit_bytes = (uint64_t)json_integer_value(json_object_get(root, "limit_bytes"));
    }
    admin_reply_done(&reply);
}

/* What the plan says and what an unload leaves, of a server that only bench uses. */
static int read_memory(const struct bench *b, struct results *ret, struct err *e)
{
    struct admin_reply model = {0}, unload = {0}, after = {0};
    char path[1024], order[1024];
    int r = admin_path("/v1/models/", b->remote.id, "", path, sizeof(path));
    if (r == 0)
        r = admin_path("/v1/models/", b->remote.id, "/unload", order, sizeof(order));
    if (r == 0)
        r = admin_client_order(&b->remote.client, "GET", path, &model, e);
    if (r == 0)
        r = admin_client_order(&b->remote.client, "POST", order, &unload, e);
    if (r == 0) {
        ret->planned_bytes = (uint64_t)json_integer_value(json_object_get(model.json, "needed_bytes"));
        poll(NULL, 0, LEFT_MS);
        r = admin_client_order(&b->remote.client, "GET", "/api/memory", &after, e);
    }
    if (r == 0)
        ret->left_bytes = (uint64_t)json_integer_value(json_object_get(after.json, "used_bytes"));
    admin_reply_done(&model);
    admin_reply_done(&unload);
    admin_reply_done(&after);
    return r;
}

static int run_all(struct bench *b, struct results *ret, struct err *e)
{
    struct decode warm;
    *ret = (struct results){.decode_count = 0};
    int r = decode(b, 1, &warm, e);
    for (uint32_t i = 0; i < ROWS_MAX && r == 0; i++)
        if (!b->o->bench.quick || clients_of[i] == 1 || clients_of[i] == CLIENTS_MAX)
            r = decode(b, clients_of[i], &ret->decodes[ret->decode_count++], e);
    for (uint32_t i = 0; i < COUNT_OF(tokens_of) && r == 0; i++) {
        const uint32_t tokens = tokens_of[i];
        /* Words have fewer tokens in some vocabularies, and more in none. */
        if (b->remote.context && 2 * tokens > b->remote.context)
            continue;
        r = prefill(b, tokens, &ret->prefills[ret->prefill_count++], e);
    }
    if (r == 0)
        read_peak(b, ret);
    return r == 0 && b->own.pid ? read_memory(b, ret, e) : r;
}

/* Waits until its model is loaded. */
static int wait_ready(struct bench *b, struct err *e)
{
    for (;;) {
        struct admin_reply reply = {0};
        int r = admin_client_ask(&b->remote.client, "GET", "/health", &reply, e);
        bool ready = r == 0 && reply.status == 200;
        admin_reply_done(&reply);
        if (ready)
            return 0;
        if (interrupt_pending())
            return err_set(e, -ECANCELED, "stopped");
        if (bench_server_is_gone(&b->own))
            return err_set(e, -ECHILD, "the server of the measurement ended");
        poll(NULL, 0, LOOK_MS);
    }
}

static int start_server(struct bench *b, struct settings *o, struct err *e)
{
    int r = bench_server_start(o->models.model, &b->own, e);
    if (r < 0)
        return r;
    o->url = b->own.url;
    o->keys.api_keys[0] = b->own.key;
    o->models.model = NULL; /* it has one */
    r = remote_open(o, &b->remote, e);
    return r == 0 ? wait_ready(b, e) : r;
}

/* A server at --url, one of this machine that has the model, or one of its own. */
static int find_server(struct bench *b, struct settings *o, struct err *e)
{
    int r = 0;
    if (o->url)
        r = remote_open(o, &b->remote, e);
    else if (o->local || !remote_find(o, &b->remote))
        r = start_server(b, o, e);
    cli_hide_secrets();
    return r;
}

static int run(struct settings *o, struct err *e)
{
    struct bench b = {.o = o};
    struct results results;
    rng_secret(&b.seed, sizeof(b.seed));
    interrupt_catch();
    int r = o->json && o->bench.csv ? err_set(e, -EINVAL, "--json and --csv exclude each other")
                                    : find_server(&b, o, e);
    if (r == 0)
        r = run_all(&b, &results, e);
    if (r == 0)
        o->json ? show_json(&b, &results) : o->bench.csv ? show_csv(&b, &results) : show_table(&b, &results);
    remote_close(&b.remote);
    bench_server_stop(&b.own);
    return cli_status(r, e);
}

int command_bench(int argc, char **argv)
{
    return cli_run(COMMAND_BENCH, argc, argv, run);
}
