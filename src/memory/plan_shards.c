/* plan_shards.c - a device beside the first is planned as a model of its own, whose pages and states have
 * other sizes. */
#include "memory/plan_shards.h"

#include "memory/plan_lines.h"
#include "memory/plan_pages.h"

#include "base/check.h"

/* The model's pages and states as a device beside the first has them. */
static struct plan_model view_of(const struct plan_model *m, uint32_t index)
{
    struct plan_model view = *m;
    const struct plan_shard *s = &m->beside[index];
    ASSERT(index < m->beside_count);
    view.domain = s->domain;
    view.page_bytes = s->page_bytes;
    view.state_bytes = s->state_bytes;
    for (uint32_t i = 0; i < m->window_count; i++)
        view.windows[i].page_bytes = s->window_page_bytes[i];
    return view;
}

static uint64_t beside_fixed(const struct plan_shard *s)
{
    ASSERT(s->domain > 0);
    return s->weight_bytes + s->workspace_bytes + s->recorded_bytes;
}

uint64_t plan_shards_needed(const struct plan_process *p, const struct plan_model *m,
                            const struct plan_wish *w, uint32_t length, uint32_t index)
{
    const struct plan_model view = view_of(m, index);
    ASSERT(length > 0);
    return plan_process_bytes(p, view.domain) + beside_fixed(&m->beside[index]) +
           plan_pools_floor(&view, w, length);
}

/* The first device beside the first that refuses; beside_count: all of them have room. */
uint32_t plan_shards_full(const struct plan_process *p, const struct plan_model *m, const struct plan_wish *w,
                          uint32_t length)
{
    uint32_t i = 0;
    while (i < m->beside_count &&
           plan_shards_needed(p, m, w, length, i) <= plan_ceiling_bytes(p, m->beside[i].domain))
        i++;
    return i;
}

/* Bytes that the fixed parts leave on a device beside the first. */
static uint64_t beside_left(const struct plan *p, uint32_t index)
{
    ASSERT(index < p->model.beside_count);
    const struct plan_shard *s = &p->model.beside[index];
    const uint64_t ceiling = plan_ceiling_bytes(&p->process, s->domain),
                   fixed = plan_process_bytes(&p->process, s->domain) + beside_fixed(s);
    ASSERT(ceiling >= fixed);
    return ceiling - fixed;
}

/* Snapshots and pages for which all devices have room. */
uint64_t plan_shards_fit_snapshots(const struct plan *p, const struct plan_wish *w, uint64_t snapshots)
{
    for (uint32_t i = 0; i < p->model.beside_count; i++)
        snapshots = MIN_OF(snapshots, MIN_OF(w->prefix_cache_bytes, beside_left(p, i)) /
                                          MAX_OF(p->model.beside[i].state_bytes, (uint64_t)1));
    return snapshots;
}

uint64_t plan_shards_fit_pages(const struct plan *p, const struct plan_wish *w, uint64_t pages,
                               uint64_t states, uint32_t windows_seqs)
{
    for (uint32_t i = 0; i < p->model.beside_count; i++) {
        const struct plan_model view = view_of(&p->model, i);
        const struct plan_need left = {UINT64_MAX, beside_left(p, i)};
        const uint64_t others =
            plan_state_floor(&view, w) + plan_windows_bytes(&view, p->max_model_len, windows_seqs, 0);
        pages = MIN_OF(pages, plan_pages_left(&view, left, others, states));
    }
    return pages;
}

/* The pools of the other devices: as many pages and states as there are on the first. */
void plan_shards_share(struct plan *ret, uint32_t windows_seqs, uint64_t cached)
{
    for (uint32_t i = 0; i < ret->model.beside_count; i++) {
        const struct plan_model view = view_of(&ret->model, i);
        const uint64_t kv = plan_in_units(ret->pages_max * plan_full_page_bytes(&view)) +
                            plan_windows_bytes(&view, ret->max_model_len, windows_seqs, cached),
                       state = plan_in_units(ret->states_max * view.state_bytes);
        ret->beside[i].pools_bytes = MIN_OF(beside_left(ret, i), kv + state);
    }
}

void plan_shards_plan(struct plan *p, const struct plan_wish *w)
{
    for (uint32_t i = 0; i < p->model.beside_count; i++) {
        const struct plan_shard *s = &p->model.beside[i];
        const struct plan_model view = view_of(&p->model, i);
        const uint64_t floor = plan_pools_floor(&view, w, p->max_model_len),
                       limit = MAX_OF(p->beside[i].pools_bytes, floor);
        p->beside[i] = plan_lines_device(p, s->domain, beside_fixed(s) + floor, beside_fixed(s) + limit);
        p->beside[i].pools_bytes = limit;
        p->beside[i].pools_floor_bytes = floor;
    }
}

/* Adds the lines of a device beside the first. */
static void add_lines_of(struct plan *p, uint32_t index, const struct plan_wish *w)
{
    const struct plan_shard *s = &p->model.beside[index];
    const struct plan_device *d = &p->beside[index];
    const struct plan_model view = view_of(&p->model, index);
    const uint64_t kv = plan_kv_floor(&view, w, p->max_model_len), state = plan_state_floor(&view, w);
    if (d->context_bytes > 0)
        plan_lines_add(p, s->domain, 0, "context", ACCOUNT_DEVICE, d->context_bytes, d->context_bytes,
                       "the driver's, with the kernels");
    plan_lines_add(p, s->domain, 0, p->model.name, ACCOUNT_DEVICE, d->load_bytes, d->model_bytes, "");
    plan_lines_add(p, s->domain, 1, "weights", ACCOUNT_DEVICE, s->weight_bytes, s->weight_bytes, "packed");
    plan_lines_add(p, s->domain, 1, "workspace", ACCOUNT_DEVICE, s->workspace_bytes, s->workspace_bytes,
                   "of one step");
    if (s->recorded_bytes > 0)
        plan_lines_add(p, s->domain, 1, "recorded steps", ACCOUNT_DEVICE, s->recorded_bytes,
                       s->recorded_bytes, "kernels of steps that come again");
    plan_lines_add(p, s->domain, 1, "pools", ACCOUNT_DEVICE, kv + state, d->pools_bytes,
                   "parts of all pages and states");
    plan_lines_add(p, s->domain, 2, "kv", ACCOUNT_DEVICE, kv, d->pools_bytes, "pages of 32 tokens");
    plan_lines_add(p, s->domain, 2, "state", ACCOUNT_DEVICE, state, d->pools_bytes,
                   s->state_bytes ? "recurrent states" : "the model has none");
}

void plan_shards_add(struct plan *p, const struct plan_wish *w)
{
    for (uint32_t i = 0; i < p->model.beside_count; i++)
        add_lines_of(p, i, w);
}
