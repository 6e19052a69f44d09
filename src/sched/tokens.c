#include "sched/tokens.h"

#include "sched/row_cache.h"
#include "sched/secure.h"

#include "base/check.h"

#define ROW SCHED_ROW

static void plan_row(struct sched *s, struct sched_row *row, uint32_t count, uint32_t drafts)
{
    ASSERT(count > 0 && s->row_count < s->opts.rows_max && row->done + count <= row->tokens);
    count += drafts;
    s->rows[s->row_count++] = (struct sched_step_row){.row = row,
                                                      .from = row->done,
                                                      .count = count,
                                                      .drafts = drafts,
                                                      .samples = row->done + count - drafts == row->tokens,
                                                      .state_in = row->state_in,
                                                      .state_out = row->state};
    s->tokens += count;
    ASSERT(row->done + count <= row->page_count * PAGE_TOKENS);
    ASSERT(s->tokens <= s->opts.tokens_max);
}

static void plan_decoding(struct sched *s)
{
    uint32_t drafts_left = s->opts.drafts_max;
    LIST_EACH(it, &s->running) {
        struct sched_row *row = ROW(it);
        if (row->phase != SCHED_DECODING || row->secured != s->plan_number || row->paused ||
            sched_can_go(row) == 0)
            continue;
        uint32_t drafts = MIN_OF(MIN_OF(row->drafts, drafts_left), sched_drafts_max(row));
        ASSERT(row->tokens < row->tokens_limit && sched_has_page_for_next(row));
        plan_row(s, row, 1, drafts);
        drafts_left -= drafts;
    }
}

static uint32_t left(const struct sched_row *row)
{
    ASSERT(row->done <= row->tokens);
    return row->tokens - row->done;
}

bool tokens_prompt_before(const struct sched_row *a, const struct sched_row *b, uint64_t now_ns)
{
    int turn = share_compare_prompts(a->share, b->share);
    if (turn != 0)
        return turn < 0;
    bool a_old = now_ns - a->served_ns >= SCHED_AGE_NS, b_old = now_ns - b->served_ns >= SCHED_AGE_NS;
    if (a_old != b_old)
        return a_old;
    if (a_old && a->served_ns != b->served_ns)
        return a->served_ns < b->served_ns;
    return left(a) != left(b) ? left(a) < left(b) : sched_goes_before(a, b);
}

/* Fills s->prompts in order; returns how many. */
static uint32_t order_prompts(struct sched *s)
{
    uint32_t count = 0;
    LIST_EACH(it, &s->running) {
        struct sched_row *row = ROW(it);
        if (row->phase != SCHED_PREFILLING || row->paused || row->secured != s->plan_number ||
            sched_can_go(row) == 0)
            continue;
        uint32_t at = count++;
        for (; at > 0 && tokens_prompt_before(row, s->prompts[at - 1], s->now_ns); at--)
            s->prompts[at] = s->prompts[at - 1];
        ASSERT(at < s->opts.rows_max);
        s->prompts[at] = row;
    }
    return count;
}

/* Takes pages until `count` tokens have room; returns how many have. */
static uint32_t extend(struct sched *s, struct sched_row *row, uint32_t count)
{
    uint32_t pages = DIV_UP(row->done + count, PAGE_TOKENS);
    ASSERT(row->page_count * PAGE_TOKENS >= row->done);
    if (pages > row->page_count)
        row_cache_prepare(&s->opts, pages - row->page_count);
    while (row->page_count < pages && secure_page(s, row))
        ;
    return MIN_OF(count, row->page_count * PAGE_TOKENS - row->done);
}

/* Up to a page's end, unless it is the rest of what can go or every token takes a row of logits. */
static uint32_t chunk_of(const struct sched *s, const struct sched_row *row, uint32_t tokens_left,
                         uint32_t logits_left)
{
    ASSERT(row->done < row->tokens);
    uint32_t to_cut = row_cache_next_cut(row) - row->done;
    uint32_t can = sched_can_go(row), count = MIN_OF(MIN_OF(can, tokens_left), to_cut);
    if (row->logits_all)
        return MIN_OF(count, MIN_OF(logits_left + 1, s->opts.logits_chunk_max));
    uint32_t end = (row->done + count) / PAGE_TOKENS * PAGE_TOKENS;
    return count == can ? count : end > row->done ? end - row->done : 0;
}

static void plan_prompts(struct sched *s, uint32_t budget)
{
    uint32_t count = order_prompts(s);
    uint32_t most = s->opts.tokens_max - s->tokens;
    uint32_t tokens_left = budget > s->tokens ? budget - s->tokens : 0;
    /* Every row has one row of logits, and every draft; these are for those that want more. */
    ASSERT(s->opts.logits_max >= s->opts.drafts_max + s->row_count + count);
    uint32_t logits_left = s->opts.logits_max - s->opts.drafts_max - s->row_count - count;
    /* At least one page of the first prompt, whatever the budget says. */
    tokens_left = MIN_OF(MAX_OF(tokens_left, PAGE_TOKENS), most);
    for (uint32_t i = 0; i < count; i++) {
        struct sched_row *row = s->prompts[i];
        uint32_t chunk = chunk_of(s, row, tokens_left, logits_left);
        if (chunk == 0)
            continue;
        chunk = extend(s, row, chunk);
        plan_row(s, row, chunk, 0);
        ASSERT(chunk > 0 && chunk <= tokens_left);
        tokens_left -= chunk;
        if (row->logits_all)
            logits_left -= chunk - 1;
    }
}

void tokens_plan(struct sched *s, uint32_t budget)
{
    plan_decoding(s);
    plan_prompts(s, budget);
}
