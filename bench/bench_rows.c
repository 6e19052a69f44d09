/* bench_rows.c - row r has pages [r * n, (r + 1) * n) and state r. */
#include "bench_rows.h"

#include "golden/room.h"

#include "base/check.h"
#include "base/none.h"
#include "base/rng.h"
#include "compute/device.h"
#include "compute/row_sample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct row_sample;

struct bench_rows {
    struct bench_rows_opts opts;
    const struct model_shape *shape;
    uint32_t pages_per_row;
    struct room pages, states;
    float *logits;
    uint32_t *tables, *prompt, *tokens, *positions; /* tokens: [rows][1 + drafts_max] */
    uint32_t *pending;                              /* [rows]: of each one's state */
    struct model_seq *rows;
    struct model_draft_seq *drafts;
    bool samples; /* from rows of logits */
    struct row_sample *orders;
    struct row_sampled *sampled;
    struct row_samples step;
};

static uint32_t pages_per_row(uint32_t prompt, uint32_t decode_max)
{
    return DIV_UP(prompt + decode_max, PAGE_TOKENS);
}

uint64_t bench_rows_bytes(const struct model_shape *s, const struct bench_rows_opts *o)
{
    return (uint64_t)o->rows * (pages_per_row(o->prompt, o->decode_max) * s->page_bytes + s->state_bytes +
                                (uint64_t)s->vocab * (1 + o->drafts_max) * sizeof(float));
}

/* Zeroed, 64-byte aligned; one byte at least. */
static void *aligned(uint64_t bytes)
{
    size_t size = ROUND_UP(MAX_OF(bytes, (uint64_t)1), (uint64_t)64);
    void *p = aligned_alloc(64, size);
    if (p)
        memset(p, 0, size);
    return p;
}

int bench_rows_create(const struct bench_rows_opts *o, struct bench_rows **ret)
{
    struct bench_rows *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    ASSERT(o->prompt % PAGE_TOKENS == 0);
    b->opts = *o;
    b->shape = model_shape(o->model);
    b->pages_per_row = pages_per_row(o->prompt, o->decode_max);
    uint32_t pages = b->pages_per_row * o->rows;
    const struct domain *domain = model_domain(o->model);
    int r = room_make(domain, pages * b->shape->page_bytes, 0, &b->pages);
    if (r == 0)
        r = room_make(domain, o->rows * b->shape->state_bytes, 0, &b->states);
    b->logits = aligned((uint64_t)o->rows * (1 + o->drafts_max) * b->shape->vocab * sizeof(float));
    b->tables = calloc(pages, sizeof(b->tables[0]));
    b->prompt = calloc(o->prompt, sizeof(b->prompt[0]));
    b->tokens = calloc((size_t)o->rows * (1 + o->drafts_max), sizeof(b->tokens[0]));
    b->positions = calloc(o->rows, sizeof(b->positions[0]));
    b->pending = calloc(o->rows, sizeof(b->pending[0]));
    b->rows = calloc(o->rows, sizeof(b->rows[0]));
    b->drafts = calloc(o->rows, sizeof(b->drafts[0]));
    b->orders = calloc(o->rows, sizeof(b->orders[0]));
    b->sampled = calloc(o->rows, sizeof(b->sampled[0]));
    if (r < 0 || !b->logits || !b->tables || !b->prompt || !b->tokens || !b->positions || !b->pending ||
        !b->rows || !b->drafts || !b->orders || !b->sampled) {
        bench_rows_free(b);
        return -ENOMEM;
    }
    if (o->device)
        device_pin(o->device, b->sampled, o->rows * sizeof(b->sampled[0]));
    if (o->device)
        device_pin(o->device, b->logits,
                   (size_t)o->rows * (1 + o->drafts_max) * b->shape->vocab * sizeof(float));
    for (uint32_t i = 0; i < pages; i++)
        b->tables[i] = i;
    for (uint32_t i = 0; i < o->prompt; i++)
        b->prompt[i] = (uint32_t)(rng_at(1, i) % b->shape->vocab);
    *ret = b;
    return 0;
}

void bench_rows_free(struct bench_rows *b)
{
    if (!b)
        return;
    room_free(&b->pages);
    room_free(&b->states);
    if (b->opts.device && b->logits)
        device_unpin(b->opts.device, b->logits);
    if (b->opts.device && b->sampled)
        device_unpin(b->opts.device, b->sampled);
    free(b->sampled);
    free(b->orders);
    free(b->logits);
    free(b->tables);
    free(b->prompt);
    free(b->tokens);
    free(b->positions);
    free(b->pending);
    free(b->rows);
    free(b->drafts);
    free(b);
}

/* The pages of a group lie together. */
static dev_ptr group_pages(const struct bench_rows *b, uint32_t group)
{
    dev_ptr at = b->pages.at;
    for (uint32_t g = 0; g < group; g++)
        at = dev_add(at, (uint64_t)b->opts.rows * b->pages_per_row * b->shape->groups[g].page_bytes);
    return at;
}

static void fill_bases(const struct bench_rows *b, dev_ptr ret[PAGE_GROUPS_MAX])
{
    for (uint32_t g = 0; g < b->shape->group_count; g++)
        ret[g] = group_pages(b, g);
}

static void fill_tables(const struct bench_rows *b, uint32_t r, const uint32_t *ret[PAGE_GROUPS_MAX])
{
    for (uint32_t g = 0; g < b->shape->group_count; g++)
        ret[g] = b->tables + r * b->pages_per_row;
}

static void copy_pages(struct bench_rows *b, uint32_t r)
{
    for (uint32_t g = 0; g < b->shape->group_count; g++) {
        size_t bytes = b->pages_per_row * b->shape->groups[g].page_bytes;
        domain_copy(b->pages.domain, dev_add(group_pages(b, g), r * (uint64_t)bytes), group_pages(b, g),
                    bytes);
    }
}

static void forward(struct bench_rows *b, uint32_t count)
{
    struct model_step step = {
        .seqs = b->rows, .seq_count = count, .states = b->states.at, .logits = b->logits};
    b->step = (struct row_samples){.rows = b->orders, .sampled = b->sampled};
    if (b->samples)
        step.samples = &b->step;
    fill_bases(b, step.pages);
    int r = model_forward(b->opts.model, &step);
    ASSERT(r == 0);
}

/* The first `tokens` of the prompt for row r. */
static struct model_seq prompt_row(struct bench_rows *b, uint32_t r, uint32_t tokens)
{
    struct model_seq seq = {.tokens = b->prompt,
                            .token_count = tokens,
                            .state_in = NONE,
                            .state_out = r,
                            .logits_from = tokens - 1};
    fill_tables(b, r, seq.pages);
    return seq;
}

void bench_rows_prefill(struct bench_rows *b)
{
    b->rows[0] = prompt_row(b, 0, b->opts.prompt);
    b->pending[0] = 0;
    forward(b, 1);
    b->positions[0] = b->opts.prompt;
}

void bench_rows_tail(struct bench_rows *b, uint32_t tokens)
{
    uint32_t before = b->opts.prompt - tokens;
    b->rows[0] = (struct model_seq){.tokens = b->prompt + before,
                                    .token_count = tokens,
                                    .position = before,
                                    .state_in = 0,
                                    .state_out = 0,
                                    .logits_from = tokens - 1};
    fill_tables(b, 0, b->rows[0].pages);
    forward(b, 1);
}

void bench_rows_invent(struct bench_rows *b)
{
    enum { FINITE = 0x3c }; /* 0.0115 in f32 and bf16 */
    for (uint32_t g = 0; g < b->shape->group_count; g++)
        memset((void *)(uintptr_t)group_pages(b, g).at, FINITE,
               b->pages_per_row * b->shape->groups[g].page_bytes);
    b->pending[0] = 0;
    b->positions[0] = b->opts.prompt;
}

void bench_rows_spread(struct bench_rows *b)
{
    for (uint32_t r = 0; r < b->opts.rows; r++) {
        b->positions[r] = b->opts.prompt;
        b->pending[r] = b->pending[0];
        if (r == 0)
            continue;
        copy_pages(b, r);
        if (b->shape->state_bytes)
            domain_copy(b->states.domain, dev_add(b->states.at, r * b->shape->state_bytes), b->states.at,
                        b->shape->state_bytes);
    }
}

static uint32_t *row_tokens(struct bench_rows *b, uint32_t r)
{
    return b->tokens + (size_t)r * (1 + b->opts.drafts_max);
}

void bench_rows_samples(struct bench_rows *b, const struct row_sample *d)
{
    b->samples = d && b->shape->samples;
    for (uint32_t r = 0; b->samples && r < b->opts.rows; r++)
        b->orders[r] = *d;
}

/* Rows [0, count) with `tokens` of theirs each; the first is known. */
static void set_rows(struct bench_rows *b, uint32_t count, uint32_t tokens, bool keep_pending)
{
    for (uint32_t r = 0; r < count; r++) {
        ASSERT(b->positions[r] + tokens <= b->opts.prompt + b->opts.decode_max);
        b->rows[r] = (struct model_seq){.tokens = row_tokens(b, r),
                                        .token_count = tokens,
                                        .position = b->positions[r],
                                        .state_in = r,
                                        .pending = b->pending[r],
                                        .state_out = r,
                                        .keep_pending = keep_pending};
        fill_tables(b, r, b->rows[r].pages);
        b->pending[r] = 0;
    }
}

static void know_next(struct bench_rows *b, uint32_t count)
{
    for (uint32_t r = 0; r < count; r++)
        row_tokens(b, r)[0] = (uint32_t)(rng_at(2 + r, b->positions[r]) % b->shape->vocab);
}

void bench_rows_decode(struct bench_rows *b, uint32_t count)
{
    know_next(b, count);
    set_rows(b, count, 1, false);
    for (uint32_t r = 0; r < count; r++)
        b->positions[r]++;
    forward(b, count);
}

void bench_rows_mixed(struct bench_rows *b, uint32_t count, uint32_t tokens)
{
    ASSERT(count < b->opts.rows && tokens <= b->opts.prompt);
    know_next(b, count);
    set_rows(b, count, 1, false);
    if (tokens > 0)
        b->rows[count] = prompt_row(b, b->opts.rows - 1, tokens);
    forward(b, count + (tokens > 0));
}

void bench_rows_draft(struct bench_rows *b, uint32_t count, uint32_t ahead)
{
    know_next(b, count);
    for (uint32_t r = 0; r < count; r++) {
        b->drafts[r] = (struct model_draft_seq){.token = row_tokens(b, r)[0],
                                                .position = b->positions[r],
                                                .state = r,
                                                .pending = b->pending[r],
                                                .count = ahead,
                                                .drafts = row_tokens(b, r) + 1};
        fill_tables(b, r, b->drafts[r].pages);
    }
    struct model_draft d = {.seqs = b->drafts, .seq_count = count, .states = b->states.at};
    fill_bases(b, d.pages);
    int r = model_draft(b->opts.model, &d);
    ASSERT(r == 0);
}

void bench_rows_verify(struct bench_rows *b, uint32_t count, uint32_t ahead, uint32_t right)
{
    set_rows(b, count, 1 + ahead, true);
    forward(b, count);
    for (uint32_t r = 0; r < count; r++) {
        b->pending[r] = 1 + right;
        b->positions[r] += 1 + right;
    }
}
