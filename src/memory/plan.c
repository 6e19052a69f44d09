/* plan.c - floors first, then the rest.
 *
 * A sequence's length decides its pages and its block, and both only grow with it. So the longest sequence
 * that fits is found by bisection. Blocks of requests get room for all sequences of the batch at full length.
 * The queue gets up to a sixteenth of the ceiling: queued requests are usually short, and one that finds no
 * room is refused with Retry-After. */
#include "memory/plan.h"

#include "memory/units.h"

#include "base/check.h"

#include <errno.h>

#define SNAPSHOTS_MAX 1024
#define REQUESTS_PART 16 /* of the ceiling, for queued requests */
#define IMAGES_PART   16 /* of the ceiling, and at most a quarter of the rest; the default */
#define SPARE_UNITS   2  /* blocks start and end within commit units, in each pool */

static uint64_t pages_of(const struct plan_model *m, uint64_t tokens)
{
    ASSERT(m->page_tokens > 0);
    return DIV_UP(tokens, m->page_tokens);
}

static uint64_t in_units(uint64_t bytes)
{
    return bytes ? ROUND_UP(bytes, (uint64_t)UNIT_BYTES) + UNIT_BYTES : 0;
}

static uint64_t job_bytes(const struct plan_model *m, uint32_t length)
{
    return m->job_bytes + m->job_token_bytes * length;
}

static uint64_t seqs_states(const struct plan_model *m, const struct plan_wish *w)
{
    return m->state_bytes ? (uint64_t)m->seqs * (w->prefix_cache_bytes ? 2 : 1) : 0;
}

/* States of the sequences, and of snapshots, of which there are never more. */
static uint64_t states_most(const struct plan_model *m, const struct plan_wish *w)
{
    return seqs_states(m, w) + (m->state_bytes && w->prefix_cache_bytes ? SNAPSHOTS_MAX : 0);
}

/* Pages for one sequence and the states of the batch: with these every admitted request can finish. */
static uint64_t pools_floor(const struct plan_model *m, const struct plan_wish *w, uint32_t length)
{
    return in_units(pages_of(m, length) * m->page_bytes) + in_units(seqs_states(m, w) * m->state_bytes);
}

uint64_t plan_process_bytes(const struct plan_process *p)
{
    return p->heap_bytes + p->threads_bytes + p->network_bytes + p->body_bytes + p->text_bytes +
           p->media_bytes + p->ssd_staging_bytes + p->ssd_table_bytes;
}

static uint64_t model_fixed_bytes(const struct plan_model *m)
{
    return m->weight_bytes + m->mtp_bytes + m->workspace_bytes + m->vision_bytes + m->image_bytes +
           m->tables_bytes + m->tokenizer_bytes;
}

/* Everything but pools, requests and the engine's tables for pages and states. */
static uint64_t fixed_bytes(const struct plan_process *p, const struct plan_model *m)
{
    return plan_process_bytes(p) + model_fixed_bytes(m) + m->engine_bytes;
}

static uint64_t requests_bytes(const struct plan_process *p, const struct plan_model *m, uint32_t length)
{
    uint64_t one = job_bytes(m, length), all = one * ((uint64_t)m->seqs + m->queue);
    return MIN_OF(all, MAX_OF(one * m->seqs, p->ceiling_bytes / REQUESTS_PART));
}

static uint64_t tables_bytes(const struct plan_model *m, uint64_t pages, uint64_t states)
{
    return pages * m->engine_page_bytes + states * m->engine_state_bytes;
}

static uint64_t needed_bytes(const struct plan_process *p, const struct plan_model *m,
                             const struct plan_wish *w, uint32_t length)
{
    ASSERT(length > 0);
    uint64_t running = requests_bytes(p, m, length) + pools_floor(m, w, length) +
                       tables_bytes(m, pages_of(m, length), states_most(m, w));
    return fixed_bytes(p, m) + MAX_OF(running, m->loading_bytes);
}

static bool fits(const struct plan_process *p, const struct plan_model *m, const struct plan_wish *w,
                 uint32_t length)
{
    return needed_bytes(p, m, w, length) <= p->ceiling_bytes;
}

/* The longest sequence that fits, at most `most`; 0: none. */
static uint32_t longest(const struct plan_process *p, const struct plan_model *m, const struct plan_wish *w,
                        uint32_t most)
{
    uint32_t low = 0, high = most;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (fits(p, m, w, middle))
            low = middle;
        else
            high = middle - 1;
    }
    ASSERT(low == 0 || fits(p, m, w, low));
    ASSERT(low == most || !fits(p, m, w, low + 1));
    return low;
}

/* The requested size of the embedding cache, in addition to the place of the largest image. */
static uint64_t images_asked(const struct plan_model *m, const struct plan_wish *w)
{
    bool asked = m->image_bytes > 0 && w->image_cache_bytes != PLAN_ALL;
    return asked && w->image_cache_bytes > m->image_bytes ? w->image_cache_bytes - m->image_bytes : 0;
}

/* As longest(), but leaves room for kept images if a useful context remains, and keeps pools within the limit
 * of the wish. */
static uint32_t longest_unasked(const struct plan_process *p, const struct plan_model *m,
                                const struct plan_wish *w)
{
    uint32_t low = MIN_OF(m->context_max, PLAN_CONTEXT_LEAST), high = 0;
    struct plan_model keeping = *m;
    keeping.image_bytes += images_asked(m, w);
    high = longest(p, &keeping, w, m->context_max);
    if (high < low)
        high = longest(p, m, w, m->context_max);
    while (w->context_bytes_max && low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (pools_floor(m, w, middle) <= w->context_bytes_max)
            low = middle;
        else
            high = middle - 1;
    }
    ASSERT(high <= m->context_max);
    return high;
}

static uint32_t most_seqs(const struct plan_process *p, plan_model_fn *model, void *arg, uint32_t seqs,
                          const struct plan_wish *w, uint32_t length)
{
    struct plan_model m;
    while (seqs > 0) {
        model(arg, seqs, &m);
        ASSERT(m.seqs == seqs);
        if (fits(p, &m, w, length))
            return seqs;
        seqs--;
    }
    return 0;
}

/* ---- the rest ---- */

/* In addition to the largest image, whose place is guaranteed: a part of the rest after one sequence's
 * pages. */
static uint64_t share_images(struct plan *ret, const struct plan_wish *w, uint64_t left)
{
    const struct plan_model *m = &ret->model;
    uint64_t wanted = w->image_cache_bytes,
             taken = pools_floor(m, w, ret->max_model_len) +
                     tables_bytes(m, pages_of(m, ret->max_model_len), states_most(m, w));
    uint64_t room = left > taken ? left - taken : 0;
    if (m->image_bytes == 0)
        return 0;
    if (wanted == PLAN_ALL) {
        wanted = MIN_OF(ret->ceiling_bytes / IMAGES_PART, PLAN_IMAGES_MOST);
        room /= 4;
    }
    uint64_t more = wanted > m->image_bytes ? MIN_OF(wanted - m->image_bytes, room) : 0;
    ret->images_bytes = m->image_bytes + more;
    ret->image_cache_bytes = MIN_OF(wanted, ret->images_bytes);
    ASSERT(more <= left);
    ASSERT(ret->images_bytes >= m->image_bytes);
    ASSERT(ret->image_cache_bytes <= ret->images_bytes);
    return more;
}

/* The pools get the rest, as far as sequences and cache can use it; tables grow with them. */
static void share_out(struct plan *ret, const struct plan_wish *w)
{
    ASSERT(ret->ceiling_bytes >= fixed_bytes(&ret->process, &ret->model) + ret->requests_bytes);
    const struct plan_model *m = &ret->model;
    uint64_t left = ret->ceiling_bytes - fixed_bytes(&ret->process, m) - ret->requests_bytes;
    left -= share_images(ret, w, left);
    uint64_t states = seqs_states(m, w), states_bytes = in_units(states * m->state_bytes);
    uint64_t pages_seqs = pages_of(m, ret->max_model_len) * m->seqs;
    uint64_t per_page = m->page_bytes + m->engine_page_bytes;
    uint64_t spare = SPARE_UNITS * (uint64_t)UNIT_BYTES;
    uint64_t snapshots = 0;
    if (w->prefix_cache_bytes && m->state_bytes)
        snapshots = MIN_OF(MIN_OF(w->prefix_cache_bytes, left) / m->state_bytes, SNAPSHOTS_MAX);
    uint64_t taken = states_bytes + spare + tables_bytes(m, 0, states + snapshots);
    uint64_t pages = left > taken ? (left - taken) / per_page : 0;
    uint64_t wanted =
        w->prefix_cache_bytes == PLAN_ALL ? UINT64_MAX - pages_seqs : w->prefix_cache_bytes / m->page_bytes;
    pages = MIN_OF(pages, pages_seqs + wanted);
    pages = MIN_OF(MAX_OF(pages, pages_of(m, ret->max_model_len)), UINT32_MAX - 1);
    ret->pages_max = (uint32_t)pages;
    ret->states_max = (uint32_t)(states + snapshots);
    ret->engine_bytes = m->engine_bytes + tables_bytes(m, pages, states + snapshots);
    ret->kv_bytes = in_units(pages * m->page_bytes);
    ret->state_bytes = in_units(ret->states_max * m->state_bytes);
    ASSERT(left >= tables_bytes(m, pages, states + snapshots));
    uint64_t pools = left - tables_bytes(m, pages, states + snapshots);
    ret->pools_bytes = MIN_OF(pools, ret->kv_bytes + ret->state_bytes);
    ret->kv_bytes = MIN_OF(ret->kv_bytes, ret->pools_bytes);
    ret->state_bytes = MIN_OF(ret->state_bytes, ret->pools_bytes);
    ret->prefix_cache_bytes = MIN_OF(w->prefix_cache_bytes, ret->pools_bytes);
    ASSERT(ret->kv_bytes <= ret->pools_bytes && ret->state_bytes <= ret->pools_bytes);
    ASSERT(ret->prefix_cache_bytes <= ret->pools_bytes);
    ASSERT(ret->pages_max >= pages_of(m, ret->max_model_len));
    ASSERT(ret->states_max >= states);
    ASSERT(ret->pools_bytes >= pools_floor(m, w, ret->max_model_len));
}

/* ---- lines ---- */

static void add(struct plan *p, uint32_t depth, const char *name, enum account_class class, uint64_t floor,
                uint64_t limit, const char *note)
{
    ASSERT(p->line_count == 0 ? depth == 0 : depth <= p->lines[p->line_count - 1].depth + 1);
    ASSERT(p->line_count < PLAN_LINES_MAX);
    p->lines[p->line_count++] = (struct plan_line){name, note, class, accounts_of(name), depth, floor, limit};
}

static void add_process(struct plan *p)
{
    const struct plan_process *o = &p->process;
    add(p, 0, "heap", ACCOUNT_ANON, o->heap_bytes, o->heap_bytes, "allocator and libraries");
    add(p, 0, "threads", ACCOUNT_ANON, o->threads_bytes, o->threads_bytes, "stacks");
    add(p, 0, "network", ACCOUNT_ANON, o->network_bytes, o->network_bytes + o->body_bytes,
        "connections and incoming bodies");
    add(p, 0, "text", ACCOUNT_ANON, o->text_floor_bytes, o->text_bytes, "requests from JSON to reply");
    if (o->media_bytes > 0) {
        add(p, 0, "media", ACCOUNT_ANON, 0, o->media_bytes, "images and videos of requests");
        add(p, 1, "video", ACCOUNT_FILE, 0, o->media_bytes, "part of it: ffmpeg and its input files");
    }
    if (o->ssd_staging_bytes == 0)
        return;
    add(p, 0, "ssd staging", ACCOUNT_ANON, o->ssd_staging_bytes, o->ssd_staging_bytes,
        "to and from the SSD tier");
    add(p, 0, "ssd table", ACCOUNT_ANON, o->ssd_table_bytes, o->ssd_table_bytes, "index of its files");
}

static void add_pools(struct plan *p, const struct plan_wish *w)
{
    const struct plan_model *m = &p->model;
    uint64_t kv = in_units(pages_of(m, p->max_model_len) * m->page_bytes);
    uint64_t state = in_units(seqs_states(m, w) * m->state_bytes);
    add(p, 1, "pools", ACCOUNT_ANON, kv + state, p->pools_bytes, "these together, units of 2 MiB");
    add(p, 2, "kv", ACCOUNT_ANON, kv, p->kv_bytes, "pages of 32 tokens");
    add(p, 2, "state", ACCOUNT_ANON, state, p->state_bytes,
        m->state_bytes ? "recurrent states of requests" : "the model has none");
    add(p, 2, "snapshots", ACCOUNT_ANON, 0, m->state_bytes ? p->prefix_cache_bytes : 0,
        m->state_bytes ? "recurrent states in the prefix cache" : "the model has none");
    add(p, 2, "prefix cache", ACCOUNT_ANON, 0, p->prefix_cache_bytes,
        "pages that only the prefix cache holds");
}

static void add_model(struct plan *p, const struct plan_wish *w)
{
    const struct plan_model *m = &p->model;
    uint64_t requests = job_bytes(m, p->max_model_len);
    uint64_t engine = m->engine_bytes + tables_bytes(m, pages_of(m, p->max_model_len), seqs_states(m, w));
    uint64_t fixed = model_fixed_bytes(m);
    p->model_bytes =
        fixed - m->image_bytes + p->images_bytes + p->engine_bytes + p->requests_bytes + p->pools_bytes;
    p->job_bytes = requests;
    p->pools_floor_bytes = pools_floor(m, w, p->max_model_len);
    p->load_bytes = fixed + MAX_OF(p->engine_bytes + requests + p->pools_floor_bytes, m->loading_bytes);
    p->load_bytes = MIN_OF(p->load_bytes, p->model_bytes);
    add(p, 0, m->name, ACCOUNT_ANON, fixed + engine + requests + pools_floor(m, w, p->max_model_len),
        p->model_bytes, "");
    add(p, 1, "weights", ACCOUNT_ANON, m->weight_bytes, m->weight_bytes, "packed");
    add(p, 1, "loading", ACCOUNT_ANON, 0, 0, "only while loading, see below");
    add(p, 1, "workspace", ACCOUNT_ANON, m->workspace_bytes, m->workspace_bytes, "of one step");
    add(p, 1, "vision", ACCOUNT_ANON, m->vision_bytes, m->vision_bytes,
        m->vision_bytes ? "encoding one image; the encoder's weights are above"
        : m->has_vision ? "left out"
                        : "the model has none");
    add(p, 1, "images", ACCOUNT_ANON, m->image_bytes, p->images_bytes,
        m->image_bytes ? "image embeddings, see --image-cache" : "the model has no vision encoder");
    add(p, 1, "mtp", ACCOUNT_ANON, m->mtp_bytes, m->mtp_bytes,
        m->mtp_bytes ? "the MTP head; more of it in kv and state"
        : m->has_mtp ? "in the checkpoint, not loaded"
                     : "the model has none");
    add(p, 1, "tables", ACCOUNT_ANON, m->tables_bytes, m->tables_bytes, "the layers");
    add(p, 1, "tokenizer", ACCOUNT_ANON, m->tokenizer_bytes, m->tokenizer_bytes, "and the chat template");
    add(p, 1, "engine", ACCOUNT_ANON, engine, p->engine_bytes, "tables, logits, stack");
    add(p, 1, "requests", ACCOUNT_ANON, requests, p->requests_bytes, "tokens and samplers");
    add_pools(p, w);
}

static void sum(struct plan *p)
{
    for (uint32_t i = 0; i < p->line_count; i++) {
        if (p->lines[i].depth > 0)
            continue;
        p->floor_bytes += p->lines[i].floor_bytes;
        p->limit_bytes += p->lines[i].limit_bytes;
    }
    ASSERT(p->line_count > 0 && p->lines[0].depth == 0);
}

/* ---- the whole plan ---- */

static void add_lines(struct plan *p, const struct plan_wish *w)
{
    add_process(p);
    add_model(p, w);
    sum(p);
}

/* The least that it needs: no account may grow. */
static void share_least(struct plan *p, const struct plan_wish *w)
{
    const struct plan_model *m = &p->model;
    p->engine_bytes = m->engine_bytes + tables_bytes(m, pages_of(m, p->max_model_len), states_most(m, w));
    p->kv_bytes = in_units(pages_of(m, p->max_model_len) * m->page_bytes);
    p->state_bytes = in_units(seqs_states(m, w) * m->state_bytes);
    p->pools_bytes = p->kv_bytes + p->state_bytes;
    p->images_bytes = m->image_bytes;
}

static void explain(struct plan *p, plan_model_fn *model, void *arg, const struct plan_wish *w,
                    struct plan_refusal *why)
{
    const struct plan_process *process = &p->process;
    const struct plan_model *m = &p->model;
    *why = (struct plan_refusal){.needed_bytes = needed_bytes(process, m, w, p->max_model_len),
                                 .context_max = m->context_max,
                                 .context = longest(process, m, w, m->context_max),
                                 .seqs_max = most_seqs(process, model, arg, p->seqs, w, p->max_model_len)};
    ASSERT(why->needed_bytes > process->ceiling_bytes);
    ASSERT(why->seqs_max <= p->seqs);
    if (why->context < MIN_OF(m->context_max, PLAN_CONTEXT_LEAST))
        why->context = 0;
}

int plan_make(const struct plan_process *process, plan_model_fn *model, void *arg, uint32_t seqs,
              const struct plan_wish *wish, struct plan *ret, struct plan_refusal *why)
{
    struct plan p = {.process = *process, .ceiling_bytes = process->ceiling_bytes, .seqs = seqs};
    model(arg, seqs, &p.model);
    const struct plan_model *m = &p.model;
    if (wish->max_model_len > m->context_max) {
        *why = (struct plan_refusal){.context_max = m->context_max};
        return -EINVAL;
    }
    uint32_t longest_len = longest_unasked(process, m, wish);
    p.max_model_len = wish->max_model_len ? wish->max_model_len
                                          : MAX_OF(longest_len, MIN_OF(m->context_max, PLAN_CONTEXT_LEAST));
    ASSERT(p.max_model_len > 0 && p.max_model_len <= m->context_max);
    p.queue = m->queue;
    p.loading_bytes = m->loading_bytes;
    p.requests_bytes = requests_bytes(process, m, p.max_model_len);
    bool ok = fits(process, m, wish, p.max_model_len);
    if (ok) {
        share_out(&p, wish);
    } else {
        explain(&p, model, arg, wish, why);
        share_least(&p, wish);
    }
    add_lines(&p, wish);
    ASSERT(!ok || (p.limit_bytes <= p.ceiling_bytes && p.floor_bytes <= p.limit_bytes));
    *ret = p;
    return ok ? 0 : -ENOMEM;
}
