/* plan.c - floors first, then the rest.
 *
 * A sequence's length decides its pages and its block, and both only grow with it. So the longest sequence
 * that fits is found by bisection. Blocks of requests get room for all sequences of the batch at full length.
 * The queue gets up to a sixteenth of the ceiling: queued requests are usually short, and one that finds no
 * room is refused with Retry-After.
 *
 * All sums are kept for two places: the machine, and the domain in which the model computes. They are one
 * place where that domain is the machine's, so that a plan for it is the plan of one ceiling. */
#include "memory/plan.h"

#include "memory/plan_lines.h"
#include "memory/plan_pages.h"
#include "memory/plan_shards.h"

#include "base/check.h"

#include <errno.h>

#define SNAPSHOTS_MAX  1024
#define REQUESTS_PART  16 /* the ceiling divided by this is for queued requests */
#define GRAMMARS_PART  32 /* the ceiling divided by this is left by a default context to compiled grammars */
#define GRAMMARS_LEAST ((uint64_t)4 << 20) /* before images get more than was asked for */
#define IMAGES_PART    16 /* default: the ceiling divided by this, and at most a quarter of the rest */
/* The default reserve for compactions: a summary and its request, in a context that agents use. */
#define RESERVE_PART          16
#define RESERVE_MOST          4096
#define RESERVE_CONTEXT_LEAST 8192

static uint64_t job_bytes(const struct plan_model *m, uint32_t length)
{
    return m->job_bytes + m->job_token_bytes * length;
}

static uint64_t matcher_bytes(const struct plan_model *m, uint32_t length)
{
    return MIN_OF(m->matcher_bytes + m->matcher_token_bytes * length, m->matcher_bytes_max);
}

/* States of the sequences, and of snapshots, of which there are never more. */
static uint64_t states_most(const struct plan_model *m, const struct plan_wish *w)
{
    return plan_seqs_states(m, w) + (m->state_bytes && w->prefix_cache_bytes ? SNAPSHOTS_MAX : 0);
}

struct placement_names plan_places(const struct plan_process *p, const char *list[PLAN_PLACES_MAX])
{
    ASSERT(p->device_count < PLAN_PLACES_MAX);
    list[0] = "cpu";
    for (uint32_t i = 0; i < p->device_count; i++)
        list[i + 1] = p->devices[i].name;
    return (struct placement_names){list, p->device_count + 1};
}

static struct plan_need need_of(const struct plan_model *m, uint64_t machine, uint64_t computing)
{
    return m->domain == 0 ? (struct plan_need){machine + computing, 0}
                          : (struct plan_need){machine, computing};
}

static uint64_t model_computing_bytes(const struct plan_model *m)
{
    return m->weight_bytes + m->mtp_bytes + m->draft_bytes + m->workspace_bytes + m->recorded_bytes +
           m->vision_bytes + m->image_bytes;
}

static uint64_t model_machine_bytes(const struct plan_model *m)
{
    ASSERT(m->domain > 0 || m->experts_bytes == 0);
    return m->experts_bytes + m->host_bytes + m->recorded_host_bytes + m->draft_host_bytes + m->tables_bytes +
           m->tokenizer_bytes;
}

/* Everything but pools, requests and the engine's tables for pages and states. */
static struct plan_need fixed_bytes(const struct plan_process *p, const struct plan_model *m)
{
    struct plan_need fixed = need_of(m, plan_process_bytes(p, 0) + model_machine_bytes(m) + m->engine_bytes,
                                     model_computing_bytes(m));
    if (m->domain > 0)
        fixed.device += plan_process_bytes(p, m->domain);
    return fixed;
}

static uint64_t requests_bytes(const struct plan_process *p, const struct plan_model *m, uint32_t length)
{
    uint64_t one = job_bytes(m, length), all = one * ((uint64_t)m->seqs + m->queue);
    return MIN_OF(all, MAX_OF(one * m->seqs, p->ceiling_bytes / REQUESTS_PART));
}

static struct plan_need needed_bytes(const struct plan_process *p, const struct plan_model *m,
                                     const struct plan_wish *w, uint32_t length)
{
    ASSERT(length > 0);
    struct plan_need all = fixed_bytes(p, m);
    struct plan_need running =
        need_of(m,
                requests_bytes(p, m, length) +
                    plan_tables_bytes(m, plan_pages_floor(m, w, length), states_most(m, w)),
                plan_pools_floor(m, w, length));
    all.machine += MAX_OF(running.machine, m->loading_bytes);
    all.device += running.device;
    return all;
}

static bool fits(const struct plan_process *p, const struct plan_model *m, const struct plan_wish *w,
                 uint32_t length)
{
    struct plan_need need = needed_bytes(p, m, w, length);
    return need.machine <= p->ceiling_bytes &&
           (m->domain == 0 || need.device <= plan_ceiling_bytes(p, m->domain)) &&
           plan_shards_full(p, m, w, length) == m->beside_count;
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

static uint64_t grammars_asked(const struct plan_process *p, const struct plan_model *m,
                               const struct plan_wish *w)
{
    return m->has_grammars ? MIN_OF(w->grammar_cache_bytes, p->ceiling_bytes / GRAMMARS_PART) : 0;
}

static uint64_t grammars_least(const struct plan_process *p, const struct plan_model *m,
                               const struct plan_wish *w)
{
    return MIN_OF(grammars_asked(p, m, w), GRAMMARS_LEAST);
}

/* As `longest()`, but leaves room for kept images and grammars if a useful context remains, and keeps pools
 * within the limit of the wish. */
static uint32_t longest_unasked(const struct plan_process *p, const struct plan_model *m,
                                const struct plan_wish *w)
{
    uint32_t low = MIN_OF(m->context_max, PLAN_CONTEXT_LEAST), high = 0;
    uint64_t images = images_asked(m, w), grammars = grammars_asked(p, m, w);
    const uint64_t keep[][2] = {
        {images, grammars}, {images, grammars_least(p, m, w)}, {images, 0}, {0, grammars}, {0, 0}};
    for (size_t i = 0; i < COUNT_OF(keep) && high < low; i++) {
        struct plan_model keeping = *m;
        keeping.image_bytes += keep[i][0];
        keeping.tables_bytes += keep[i][1];
        high = longest(p, &keeping, w, m->context_max);
    }
    while (w->context_bytes_max && low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (plan_pools_floor(m, w, middle) <= w->context_bytes_max)
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

/* Returns the rest of `left` after one sequence's pages and their tables. */
static uint64_t room_beside(const struct plan *p, const struct plan_wish *w, uint64_t left, bool pools,
                            bool tables)
{
    const struct plan_model *m = &p->model;
    uint64_t taken = pools ? plan_pools_floor(m, w, p->max_model_len) : 0;
    if (tables)
        taken += plan_tables_bytes(m, plan_pages_floor(m, w, p->max_model_len), states_most(m, w));
    return left > taken ? left - taken : 0;
}

/* Gives compiled grammars the bytes that a default context has left to them, or half of the rest. */
static uint64_t share_grammars(struct plan *ret, const struct plan_wish *w, uint64_t left)
{
    const struct plan_model *m = &ret->model;
    uint64_t room = room_beside(ret, w, left, m->domain == 0, true);
    uint64_t kept = MIN_OF(grammars_asked(&ret->process, m, w), room);
    ret->grammars_bytes = m->has_grammars ? MIN_OF(w->grammar_cache_bytes, MAX_OF(room / 2, kept)) : 0;
    return ret->grammars_bytes;
}

/* Requests of the whole batch have grammars, as far as there is room: at most half of the rest. */
static uint64_t share_matchers(struct plan *ret, const struct plan_wish *w, uint64_t left)
{
    const struct plan_model *m = &ret->model;
    uint64_t one = job_bytes(m, ret->max_model_len) + matcher_bytes(m, ret->max_model_len);
    uint64_t room = room_beside(ret, w, left, m->domain == 0, true);
    uint64_t more = one * m->seqs > ret->requests_bytes ? one * m->seqs - ret->requests_bytes : 0;
    more = m->has_grammars ? MIN_OF(more, room / 2) : 0;
    ret->requests_bytes += more;
    ASSERT(more <= left);
    return more;
}

/* In addition to the largest image, whose place is guaranteed: a part of the rest after one sequence's
 * pages. */
static uint64_t share_images(struct plan *ret, const struct plan_wish *w, uint64_t left)
{
    const struct plan_model *m = &ret->model;
    uint64_t wanted = w->image_cache_bytes;
    uint64_t room = room_beside(ret, w, left, true, m->domain == 0);
    if (m->domain == 0 && wanted == PLAN_ALL)
        room -= MIN_OF(room, grammars_least(&ret->process, m, w));
    if (m->image_bytes == 0)
        return 0;
    if (wanted == PLAN_ALL) {
        wanted = MIN_OF(plan_ceiling_bytes(&ret->process, m->domain) / IMAGES_PART, PLAN_IMAGES_MOST);
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

/* Returns the bytes that the fixed parts and requests leave. */
static struct plan_need left_bytes(const struct plan *p)
{
    struct plan_need fixed = fixed_bytes(&p->process, &p->model);
    uint64_t device = p->model.domain ? plan_ceiling_bytes(&p->process, p->model.domain) : 0;
    ASSERT(p->ceiling_bytes >= fixed.machine + p->requests_bytes && device >= fixed.device);
    return (struct plan_need){p->ceiling_bytes - fixed.machine - p->requests_bytes, device - fixed.device};
}

/* Pages that the prefix cache may have beside those of sequences. Of a small model the machine's memory would
 * hold so many that their tables, which a load sets aside, were larger than the model. */
static uint64_t cached_pages(const struct plan_model *m, uint64_t wanted_bytes)
{
    if (wanted_bytes != PLAN_ALL)
        return wanted_bytes / m->page_bytes;
    uint64_t tables = PLAN_TABLES_LEAST + m->weight_bytes / PLAN_TABLES_PART;
    return m->engine_page_bytes ? tables / m->engine_page_bytes : UINT32_MAX;
}

/* The pools get the rest, as far as sequences and cache can use it; tables grow with them. */
static void share_out(struct plan *ret, const struct plan_wish *w)
{
    const struct plan_model *m = &ret->model;
    struct plan_need left = left_bytes(ret);
    uint64_t *computing = m->domain ? &left.device : &left.machine;
    *computing -= share_images(ret, w, *computing);
    left.machine -= share_matchers(ret, w, left.machine);
    left.machine -= share_grammars(ret, w, left.machine);
    uint64_t states = plan_seqs_states(m, w), states_bytes = plan_state_floor(m, w);
    uint64_t pages_least = plan_pages_floor(m, w, ret->max_model_len);
    uint64_t pages_seqs = pages_least + plan_pages_of(m, ret->max_model_len) * (m->seqs - 1);
    uint32_t windows_seqs = m->seqs - 1 + plan_windows_floor(w);
    uint64_t snapshots = 0;
    if (w->prefix_cache_bytes && m->state_bytes)
        snapshots = MIN_OF(MIN_OF(w->prefix_cache_bytes, *computing) / m->state_bytes, SNAPSHOTS_MAX);
    snapshots = MAX_OF(plan_shards_fit_snapshots(ret, w, snapshots), plan_agents_states(m, w));
    uint64_t windows = plan_windows_bytes(m, ret->max_model_len, windows_seqs, 0);
    uint64_t pages = plan_pages_left(m, left, states_bytes + windows, states + snapshots);
    pages = MIN_OF(pages, pages_seqs + cached_pages(m, w->prefix_cache_bytes));
    pages = plan_shards_fit_pages(ret, w, pages, states + snapshots, windows_seqs);
    pages = MIN_OF(MAX_OF(pages, pages_least), UINT32_MAX - 1);
    ret->pages_max = (uint32_t)pages;
    ret->states_max = (uint32_t)(states + snapshots);
    plan_shards_share(ret, windows_seqs, pages - MIN_OF(pages, pages_seqs));
    uint64_t tables = plan_tables_bytes(m, pages, states + snapshots);
    ret->engine_bytes = m->engine_bytes + tables;
    ret->kv_bytes =
        plan_in_units(pages * plan_full_page_bytes(m)) +
        plan_windows_bytes(m, ret->max_model_len, windows_seqs, pages - MIN_OF(pages, pages_seqs));
    ret->state_bytes = plan_in_units(ret->states_max * m->state_bytes);
    ASSERT(left.machine >= tables);
    left.machine -= tables;
    if (m->domain > 0)
        ret->pinned_cache_bytes = MIN_OF(w->pinned_cache_bytes, left.machine);
    ret->pools_bytes = MIN_OF(*computing, ret->kv_bytes + ret->state_bytes);
    ret->kv_bytes = MIN_OF(ret->kv_bytes, ret->pools_bytes);
    ret->state_bytes = MIN_OF(ret->state_bytes, ret->pools_bytes);
    ret->prefix_cache_bytes = MIN_OF(w->prefix_cache_bytes, ret->pools_bytes);
    ASSERT(ret->kv_bytes <= ret->pools_bytes && ret->state_bytes <= ret->pools_bytes);
    ASSERT(ret->prefix_cache_bytes <= ret->pools_bytes);
    ASSERT(ret->pages_max >= pages_least);
    ASSERT(ret->states_max >= states + plan_agents_states(m, w));
    ASSERT(ret->pools_bytes >= plan_pools_floor(m, w, ret->max_model_len));
}

/* ---- lines ---- */

static void add(struct plan *p, uint32_t depth, const char *name, enum account_class class, uint64_t floor,
                uint64_t limit, const char *note)
{
    plan_lines_add(p, 0, depth, name, class, floor, limit, note);
}

static void add_process(struct plan *p)
{
    const struct plan_process *o = &p->process;
    add(p, 0, "heap", ACCOUNT_ANON, o->heap_bytes, o->heap_bytes, "allocator and libraries");
    add(p, 0, "threads", ACCOUNT_ANON, o->threads_bytes, o->threads_bytes, "stacks");
    add(p, 0, "network", ACCOUNT_ANON, o->network_bytes, o->network_bytes + o->body_bytes,
        "connections and incoming bodies");
    add(p, 0, "text", ACCOUNT_ANON, o->text_floor_bytes, o->text_bytes, "requests from JSON to reply");
    if (o->responses_bytes > 0)
        add(p, 0, "responses", ACCOUNT_ANON, 0, o->responses_bytes, "stored responses");
    if (o->conversations_bytes > 0)
        add(p, 0, "conversations", ACCOUNT_ANON, 0, o->conversations_bytes, "tools at the heads of prompts");
    if (o->history_bytes > 0)
        add(p, 0, "history", ACCOUNT_ANON, o->history_bytes, o->history_bytes,
            "figures of 30 days, log lines");
    if (o->pull_bytes > 0)
        add(p, 0, "pull", ACCOUNT_FILE, 0, o->pull_bytes, "a process that fetches a model");
    if (o->media_bytes > 0) {
        add(p, 0, "media", ACCOUNT_ANON, 0, o->media_bytes, "images and videos of requests");
        add(p, 1, "video", ACCOUNT_FILE, 0, o->media_bytes, "part of it: ffmpeg and its input files");
    }
    if (o->shared_bytes > 0)
        add(p, 0, "shared cache", ACCOUNT_ANON, o->shared_bytes, o->shared_bytes,
            "to and from the store that servers share");
    if (o->ssd_staging_bytes == 0)
        return;
    add(p, 0, "ssd staging", ACCOUNT_ANON, o->ssd_staging_bytes, o->ssd_staging_bytes,
        "to and from the SSD tier");
    add(p, 0, "ssd table", ACCOUNT_ANON, o->ssd_table_bytes, o->ssd_table_bytes, "index of its files");
}

/* A line of the model: in the machine's memory (BESIDE: only of a model that computes elsewhere), or in that
 * of the domain in which it computes. NOWHERE: the model has none. */
enum { MACHINE, BESIDE, COMPUTING, NOWHERE };

struct model_line {
    int where;
    uint32_t depth;
    const char *name;
    uint64_t floor, limit;
    const char *note;
    bool mapped; /* pages of a file */
};

static enum account_class class_of(uint32_t domain)
{
    return domain == 0 ? ACCOUNT_ANON : ACCOUNT_DEVICE;
}

/* The model's lines in one domain. */
static void add_lines_of(struct plan *p, uint32_t domain, const struct model_line *lines, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if ((lines[i].where == COMPUTING ? p->model.domain : 0) == domain &&
            (lines[i].where != BESIDE || p->model.domain > 0) && lines[i].where != NOWHERE)
            plan_lines_add(p, domain, lines[i].depth, lines[i].name,
                           lines[i].mapped ? ACCOUNT_FILE : class_of(domain), lines[i].floor, lines[i].limit,
                           lines[i].note);
}

/* Between the first line of each domain and its pools. */
static void add_parts(struct plan *p, uint32_t domain, uint64_t engine)
{
    const struct plan_model *m = &p->model;
    const char *vision = m->vision_bytes ? "encoding one image; weights are above"
                         : m->has_vision ? "left out"
                                         : "the model has none";
    const char *mtp = m->mtp_mapped  ? "draft vocabulary; the MTP head is in weights, kv and state"
                      : m->mtp_bytes ? "the MTP head; more of it in kv and state"
                      : m->has_mtp   ? "in the checkpoint, not loaded"
                                     : "the model has none";
    const uint64_t draft = m->draft_bytes + (m->domain == 0 ? m->draft_host_bytes : 0);
    const char *images =
        m->image_bytes ? "image embeddings, see --image-cache" : "the model has no vision encoder";
    const struct model_line lines[] = {
        {COMPUTING, 1, "weights", m->weight_bytes, m->weight_bytes,
         m->mapped ? "of the packed file, shared by processes" : "packed", m->mapped},
        {m->experts_bytes ? BESIDE : NOWHERE, 1, "experts", m->experts_bytes, m->experts_bytes,
         "computed by the CPU, see --place"},
        {MACHINE, 1, "loading", 0, 0, "only while loading, see below"},
        {COMPUTING, 1, "workspace", m->workspace_bytes, m->workspace_bytes, "of one step"},
        {BESIDE, 1, "workspace", m->host_bytes, m->host_bytes, "the host's part"},
        {m->recorded_bytes ? COMPUTING : NOWHERE, 1, "recorded steps", m->recorded_bytes, m->recorded_bytes,
         "kernels of steps that come again"},
        {m->recorded_host_bytes ? BESIDE : NOWHERE, 1, "recorded steps", m->recorded_host_bytes,
         m->recorded_host_bytes, "the host's part"},
        {COMPUTING, 1, "vision", m->vision_bytes, m->vision_bytes, vision},
        {COMPUTING, 1, "images", m->image_bytes, p->images_bytes, images},
        {COMPUTING, 1, "mtp", m->mtp_bytes, m->mtp_bytes, mtp},
        {m->draft_bytes ? COMPUTING : NOWHERE, 1, "draft", draft, draft,
         "the draft model; more of it in kv, see below"},
        {m->draft_bytes ? BESIDE : NOWHERE, 1, "draft", m->draft_host_bytes, m->draft_host_bytes,
         "the draft model's tables"},
        {MACHINE, 1, "tables", m->tables_bytes, m->tables_bytes, "the layers"},
        {MACHINE, 1, "tokenizer", m->tokenizer_bytes, m->tokenizer_bytes, "and the chat template"},
        {MACHINE, 1, "grammars", 0, p->grammars_bytes,
         m->has_grammars ? "compiled, see --grammar-cache" : "none"},
        {MACHINE, 1, "engine", engine, p->engine_bytes, "tables, logits, stack"},
        {MACHINE, 1, "requests", p->job_bytes, p->requests_bytes, "tokens and samplers"},
        {p->pinned_cache_bytes ? BESIDE : NOWHERE, 1, "pinned cache", 0, p->pinned_cache_bytes,
         "pages and states that the device evicted"}};
    add_lines_of(p, domain, lines, COUNT_OF(lines));
}

static void add_pools(struct plan *p, uint32_t domain, const struct plan_wish *w)
{
    const struct plan_model *m = &p->model;
    uint64_t kv = plan_kv_floor(m, w, p->max_model_len), state = plan_state_floor(m, w);
    const struct model_line lines[] = {
        {COMPUTING, 1, "pools", kv + state, p->pools_bytes, "these together, units of 2 MiB"},
        {COMPUTING, 2, "kv", kv, p->kv_bytes, "pages of 32 tokens"},
        {COMPUTING, 2, "state", state, p->state_bytes,
         m->state_bytes ? "recurrent states of requests" : "the model has none"},
        {COMPUTING, 2, "snapshots", 0, m->state_bytes ? p->prefix_cache_bytes : 0,
         m->state_bytes ? "recurrent states in the prefix cache" : "the model has none"},
        {COMPUTING, 2, "prefix cache", 0, p->prefix_cache_bytes, "pages that only the prefix cache holds"},
        {COMPUTING, 2, "leases", 0, p->prefix_cache_bytes / 2,
         "prefixes of sessions, from the prefix cache"}};
    add_lines_of(p, domain, lines, COUNT_OF(lines));
}

/* `engine`: its tables for one sequence. */
static void plan_model(struct plan *p, const struct plan_wish *w, uint64_t engine, struct plan_need *floor)
{
    const struct plan_model *m = &p->model;
    p->job_bytes =
        MIN_OF(job_bytes(m, p->max_model_len) + matcher_bytes(m, p->max_model_len), p->requests_bytes);
    p->pools_floor_bytes = plan_pools_floor(m, w, p->max_model_len);
    uint64_t machine = model_machine_bytes(m), computing = model_computing_bytes(m);
    uint64_t host = p->engine_bytes + p->requests_bytes + p->grammars_bytes + p->pinned_cache_bytes;
    struct plan_need limit =
        need_of(m, machine + host, computing - m->image_bytes + p->images_bytes + p->pools_bytes);
    struct plan_need fixed = need_of(m, machine, computing);
    struct plan_need running = need_of(m, p->engine_bytes + p->job_bytes, p->pools_floor_bytes);
    *floor = need_of(m, machine + engine + p->job_bytes, computing + p->pools_floor_bytes);
    p->model_bytes = limit.machine;
    p->load_bytes = MIN_OF(fixed.machine + MAX_OF(running.machine, m->loading_bytes), p->model_bytes);
    if (m->domain > 0)
        p->device = plan_lines_device(p, m->domain, floor->device, limit.device);
    plan_shards_plan(p, w);
}

static void add_model(struct plan *p, const struct plan_wish *w)
{
    const struct plan_model *m = &p->model;
    uint64_t engine = m->engine_bytes + plan_tables_bytes(m, plan_pages_floor(m, w, p->max_model_len),
                                                          plan_seqs_states(m, w) + plan_agents_states(m, w));
    struct plan_need floor;
    plan_model(p, w, engine, &floor);
    add(p, 0, m->name, ACCOUNT_ANON, floor.machine, p->model_bytes, "");
    add_parts(p, 0, engine);
    add_pools(p, 0, w);
    if (m->domain == 0)
        return;
    if (p->device.context_bytes > 0)
        plan_lines_add(p, m->domain, 0, "context", ACCOUNT_DEVICE, p->device.context_bytes,
                       p->device.context_bytes, "the driver's, with the kernels");
    plan_lines_add(p, m->domain, 0, m->name, ACCOUNT_DEVICE, floor.device, p->device.model_bytes, "");
    add_parts(p, m->domain, engine);
    add_pools(p, m->domain, w);
    plan_shards_add(p, w);
}

/* Sums the machine's lines. */
static void sum(struct plan *p)
{
    for (uint32_t i = 0; i < p->line_count; i++) {
        if (p->lines[i].depth > 0 || p->lines[i].domain > 0)
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
    p->engine_bytes =
        m->engine_bytes + plan_tables_bytes(m, plan_pages_floor(m, w, p->max_model_len), states_most(m, w));
    p->kv_bytes = plan_kv_floor(m, w, p->max_model_len);
    p->state_bytes = plan_state_floor(m, w);
    p->pools_bytes = p->kv_bytes + p->state_bytes;
    p->images_bytes = m->image_bytes;
}

/* The most agents that fit with this context. */
static uint32_t most_agents(const struct plan_process *process, const struct plan_model *m,
                            const struct plan_wish *w, uint32_t length)
{
    struct plan_wish fewer = *w;
    ASSERT(length > 0);
    ASSERT(w->agents == 0 || w->prefix_cache_bytes > 0);
    while (fewer.agents > 0 && !fits(process, m, &fewer, length))
        fewer.agents--;
    return fewer.agents;
}

static void explain(struct plan *p, plan_model_fn *model, void *arg, const struct plan_wish *w,
                    struct plan_refusal *why)
{
    const struct plan_process *process = &p->process;
    const struct plan_model *m = &p->model;
    struct plan_need need = needed_bytes(process, m, w, p->max_model_len);
    bool device = m->domain > 0 && need.device > plan_ceiling_bytes(process, m->domain);
    *why = (struct plan_refusal){.domain = device ? m->domain : 0,
                                 .needed_bytes = device ? need.device : need.machine,
                                 .context_max = m->context_max,
                                 .context = longest(process, m, w, m->context_max),
                                 .seqs_max = most_seqs(process, model, arg, p->seqs, w, p->max_model_len),
                                 .agents_max = most_agents(process, m, w, p->max_model_len)};
    const uint32_t full = plan_shards_full(process, m, w, p->max_model_len);
    if (why->needed_bytes <= plan_ceiling_bytes(process, why->domain) && full < m->beside_count) {
        why->domain = m->beside[full].domain;
        why->needed_bytes = plan_shards_needed(process, m, w, p->max_model_len, full);
    }
    why->ceiling_bytes = plan_ceiling_bytes(process, why->domain);
    ASSERT(why->needed_bytes > why->ceiling_bytes);
    ASSERT(why->seqs_max <= p->seqs);
    if (why->context < MIN_OF(m->context_max, PLAN_CONTEXT_LEAST))
        why->context = 0;
}

/* ---- the context ---- */

static uint32_t reserve_of(const struct plan_wish *w, uint32_t length)
{
    uint32_t tokens = w->reserve;
    ASSERT(length > 0);
    if (tokens == PLAN_RESERVE_DEFAULT)
        tokens = length < RESERVE_CONTEXT_LEAST ? 0 : MIN_OF(length / RESERVE_PART, (uint32_t)RESERVE_MOST);
    return MIN_OF(tokens, length / 2);
}

/* Sets p->max_model_len and p->reserve. The reserve lies beyond a requested context, if there is room. */
static void plan_length(const struct plan_process *process, const struct plan_wish *w, struct plan *p)
{
    const struct plan_model *m = &p->model;
    uint32_t asked = w->max_model_len;
    p->max_model_len =
        asked ? asked : MAX_OF(longest_unasked(process, m, w), MIN_OF(m->context_max, PLAN_CONTEXT_LEAST));
    p->reserve = reserve_of(w, p->max_model_len);
    uint32_t beyond = MIN_OF(p->reserve, m->context_max - p->max_model_len);
    if (asked && fits(process, m, w, asked + beyond))
        p->max_model_len += beyond;
    ASSERT(p->max_model_len > p->reserve && p->max_model_len <= m->context_max);
}

static void plan_agents(const struct plan_wish *w, struct plan *p)
{
    struct plan_wish none = *w;
    none.agents = 0;
    p->agents = w->agents;
    p->agent_tokens = w->agents ? plan_agent_tokens(w, p->max_model_len) : 0;
    p->agents_bytes = plan_pools_floor(&p->model, w, p->max_model_len) -
                      plan_pools_floor(&p->model, &none, p->max_model_len);
    ASSERT(w->agents > 0 || p->agents_bytes == 0);
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
    ASSERT(wish->agents == 0 || wish->prefix_cache_bytes > 0);
    plan_length(process, wish, &p);
    plan_agents(wish, &p);
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
    ASSERT(!ok || p.device.limit_bytes <= p.device.ceiling_bytes);
    for (uint32_t i = 0; ok && i < m->beside_count; i++)
        ASSERT(p.beside[i].limit_bytes <= p.beside[i].ceiling_bytes);
    *ret = p;
    return ok ? 0 : -ENOMEM;
}
