/* plan_pages.c - bytes of pages and states, of sequences of a length and of agents. */
#include "memory/plan_pages.h"

#include "base/check.h"

#define SPARE_UNITS 2 /* blocks start and end within commit units, in each pool */

uint64_t plan_pages_of(const struct plan_model *m, uint64_t tokens)
{
    ASSERT(m->page_tokens > 0);
    return DIV_UP(tokens, m->page_tokens);
}

uint64_t plan_in_units(uint64_t bytes)
{
    return bytes ? ROUND_UP(bytes, (uint64_t)UNIT_BYTES) + UNIT_BYTES : 0;
}

uint64_t plan_seqs_states(const struct plan_model *m, const struct plan_wish *w)
{
    return m->state_bytes ? (uint64_t)m->seqs * (w->prefix_cache_bytes ? 2 : 1) : 0;
}

uint64_t plan_agents_states(const struct plan_model *m, const struct plan_wish *w)
{
    ASSERT(w->agents <= PLAN_AGENTS_MOST);
    return m->state_bytes ? (uint64_t)w->agents * PLAN_AGENT_ENDS : 0;
}

/* A page of the layers without a window. */
uint64_t plan_full_page_bytes(const struct plan_model *m)
{
    uint64_t bytes = m->page_bytes;
    ASSERT(m->window_count < PAGE_GROUPS_MAX);
    for (uint32_t i = 0; i < m->window_count; i++)
        bytes -= m->windows[i].page_bytes;
    ASSERT(bytes <= m->page_bytes);
    return bytes;
}

uint64_t plan_window_pages(const struct plan_model *m, const struct plan_window *w, uint32_t length,
                           uint32_t seqs)
{
    uint64_t own = page_window_most(w->tokens, 1), pages = plan_pages_of(m, length);
    ASSERT(w->tokens > 0 && seqs > 0);
    ASSERT(m->step_tokens > 0);
    return MIN_OF(seqs * pages, seqs * own + plan_pages_of(m, m->step_tokens));
}

/* Bytes of window pages: those of `seqs` sequences, and `cached` pages that the prefix cache may keep. */
uint64_t plan_windows_bytes(const struct plan_model *m, uint32_t length, uint32_t seqs, uint64_t cached)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->window_count; i++) {
        const struct plan_window *w = &m->windows[i];
        bytes += plan_in_units((plan_window_pages(m, w, length, seqs) + cached) * w->page_bytes);
    }
    return bytes;
}

uint64_t plan_sequence_bytes(const struct plan_model *m, uint32_t length)
{
    const uint64_t pages = plan_pages_of(m, length);
    uint64_t bytes = pages * plan_full_page_bytes(m);
    for (uint32_t k = 0; k < m->beside_count; k++) {
        const struct plan_shard *s = &m->beside[k];
        bytes += pages * s->page_bytes;
        for (uint32_t i = 0; i < m->window_count; i++)
            bytes -= (pages - plan_window_pages(m, &m->windows[i], length, 1)) * s->window_page_bytes[i];
    }
    for (uint32_t i = 0; i < m->window_count; i++)
        bytes += plan_window_pages(m, &m->windows[i], length, 1) * m->windows[i].page_bytes;
    ASSERT(bytes >= pages * plan_full_page_bytes(m));
    return bytes;
}

uint32_t plan_agent_tokens(const struct plan_wish *w, uint32_t length)
{
    return w->agent_tokens ? MIN_OF(w->agent_tokens, length) : length;
}

/* Pages of one sequence and of all agents. */
uint64_t plan_pages_floor(const struct plan_model *m, const struct plan_wish *w, uint32_t length)
{
    return plan_pages_of(m, length) + w->agents * plan_pages_of(m, plan_agent_tokens(w, length));
}

/* Sequences that have windows of their own at least. */
uint32_t plan_windows_floor(const struct plan_wish *w)
{
    return 1 + w->agents * PLAN_AGENT_ENDS;
}

/* Bytes of plan_pages_floor(), in the units of each group's pool. */
uint64_t plan_kv_floor(const struct plan_model *m, const struct plan_wish *w, uint32_t length)
{
    return plan_in_units(plan_pages_floor(m, w, length) * plan_full_page_bytes(m)) +
           plan_windows_bytes(m, length, plan_windows_floor(w), 0);
}

uint64_t plan_state_floor(const struct plan_model *m, const struct plan_wish *w)
{
    return plan_in_units((plan_seqs_states(m, w) + plan_agents_states(m, w)) * m->state_bytes);
}

/* Pages for one sequence and the states of the batch: with these every admitted request can finish. Beside
 * them, all that agents hold. */
uint64_t plan_pools_floor(const struct plan_model *m, const struct plan_wish *w, uint32_t length)
{
    return plan_kv_floor(m, w, length) + plan_state_floor(m, w);
}

uint64_t plan_tables_bytes(const struct plan_model *m, uint64_t pages, uint64_t states)
{
    return pages * m->engine_page_bytes + states * m->engine_state_bytes;
}

/* Pages of each group for which there is room, with the states and the sequences' windows in their place. The
 * pools share their memory, so layers with a window take none from a long sequence. Without full attention
 * the windows' pages decide. */
uint64_t plan_pages_left(const struct plan_model *m, struct plan_need left, uint64_t others_bytes,
                         uint64_t states)
{
    uint64_t blocks = others_bytes + SPARE_UNITS * (uint64_t)UNIT_BYTES,
             tables = plan_tables_bytes(m, 0, states);
    uint64_t page_bytes = m->windows_only ? m->page_bytes : plan_full_page_bytes(m);
    if (m->domain == 0)
        return (left.machine - MIN_OF(blocks + tables, left.machine)) / (page_bytes + m->engine_page_bytes);
    uint64_t pages = (left.device - MIN_OF(blocks, left.device)) / page_bytes;
    uint64_t listed = left.machine - MIN_OF(tables, left.machine);
    return m->engine_page_bytes ? MIN_OF(pages, listed / m->engine_page_bytes) : pages;
}
