/* tokens.c - decoding sequences first, then chunks of prompts.
 *
 * Decoding sequences get their token whatever the budget is, so a prompt never takes one from them. Sequences
 * that are held back for their grammar's time (matching.h) get none in this plan. Draft
 * tokens have a limit of their own, shared by all sequences in order of rank. A chunk of a prompt ends at a
 * page's end, so that its pages can join the prefix cache, and never passes a cut; chunk_of() has the
 * exceptions. The first prompt gets at least one page, whatever the budget is, or all of its tokens if they
 * are computed at once. */
#include "sched/tokens.h"

#include "sched/matching.h"
#include "sched/seq_cache.h"
#include "sched/secure.h"

#include "base/check.h"

#define SEQ SCHED_SEQ

static void plan_seq(struct sched *s, struct sched_seq *seq, uint32_t count, uint32_t drafts)
{
    ASSERT(count > 0 && s->seq_count < s->opts.seqs_max && seq->done + count <= seq->tokens);
    count += drafts;
    s->seqs[s->seq_count++] = (struct sched_step_seq){.seq = seq,
                                                      .from = seq->done,
                                                      .count = count,
                                                      .drafts = drafts,
                                                      .samples = seq->done + count - drafts == seq->tokens,
                                                      .state_in = seq->state_in,
                                                      .state_out = seq->state};
    s->tokens += count;
    ASSERT(seq->done + count <= seq->page_count * PAGE_TOKENS);
    ASSERT(s->tokens <= s->opts.tokens_max);
}

static void plan_decoding(struct sched *s)
{
    uint32_t drafts_left = s->opts.drafts_max;
    LIST_EACH(it, &s->running) {
        struct sched_seq *seq = SEQ(it);
        if (seq->phase != SCHED_DECODING || seq->secured != s->plan_number || seq->paused ||
            sched_can_go(seq) == 0 || matching_holds(s, seq))
            continue;
        uint32_t drafts = MIN_OF(MIN_OF(seq->drafts, drafts_left), sched_drafts_max(seq));
        ASSERT(seq->tokens < seq->tokens_limit && sched_has_page_for_next(seq));
        plan_seq(s, seq, 1, drafts);
        drafts_left -= drafts;
    }
}

static uint32_t left(const struct sched_seq *seq)
{
    ASSERT(seq->done <= seq->tokens);
    return seq->tokens - seq->done;
}

bool tokens_prompt_before(const struct sched_seq *a, const struct sched_seq *b, uint64_t now_ns)
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
        struct sched_seq *seq = SEQ(it);
        if (seq->phase != SCHED_PREFILLING || seq->paused || seq->secured != s->plan_number ||
            sched_can_go(seq) == 0 || matching_holds(s, seq))
            continue;
        uint32_t at = count++;
        for (; at > 0 && tokens_prompt_before(seq, s->prompts[at - 1], s->now_ns); at--)
            s->prompts[at] = s->prompts[at - 1];
        ASSERT(at < s->opts.seqs_max);
        s->prompts[at] = seq;
    }
    return count;
}

/* Takes pages until `count` tokens have room; returns how many have. */
static uint32_t extend(struct sched *s, struct sched_seq *seq, uint32_t count)
{
    uint32_t pages = DIV_UP(seq->done + count, PAGE_TOKENS);
    ASSERT(seq->page_count * PAGE_TOKENS >= seq->done);
    if (pages > seq->page_count)
        seq_cache_prepare(&s->opts, pages - seq->page_count);
    while (seq->page_count < pages && secure_page(s, seq))
        ;
    return MIN_OF(count, seq->page_count * PAGE_TOKENS - seq->done);
}

/* A chunk that would end inside a span ends in front of it. */
static uint32_t outside_spans(const struct sched_seq *seq, uint32_t count)
{
    const uint32_t end = seq->done + count;
    ASSERT(end <= seq->tokens);
    for (uint32_t i = 0; i < seq->span_count && seq->spans[i].first < end; i++)
        if (end < seq->spans[i].end)
            return seq->spans[i].first > seq->done ? seq->spans[i].first - seq->done : 0;
    return count;
}

/* Tokens of the sequence's next chunk. It ends at a page's end, unless it takes all tokens that can be
 * computed, every token takes a row of logits, or a span is there. 0: no whole page fits, or not all of an
 * `at_once`. */
static uint32_t page_chunk(const struct sched *s, const struct sched_seq *seq, uint32_t tokens_left,
                           uint32_t logits_left)
{
    ASSERT(seq->done < seq->tokens);
    uint32_t to_cut = seq_cache_next_cut(&s->opts, seq) - seq->done, can = sched_can_go(seq);
    if (seq->at_once)
        return can <= tokens_left ? can : 0;
    uint32_t count = MIN_OF(MIN_OF(can, tokens_left), to_cut);
    if (seq->logits_all)
        return MIN_OF(count, MIN_OF(logits_left + 1, s->opts.logits_chunk_max));
    uint32_t end = (seq->done + count) / PAGE_TOKENS * PAGE_TOKENS;
    return count == can ? count : end > seq->done ? end - seq->done : 0;
}

/* As `page_chunk()`, but with all tokens of the span in which it begins, of which `room` must have place. */
static uint32_t chunk_of(const struct sched *s, const struct sched_seq *seq, uint32_t tokens_left,
                         uint32_t room, uint32_t logits_left)
{
    uint32_t count = page_chunk(s, seq, seq->at_once ? room : tokens_left, logits_left);
    uint32_t least = sched_least(seq);
    if (seq->span_count == 0)
        return count;
    ASSERT(!seq->logits_all && (least == 1 || least <= sched_can_go(seq)));
    count = outside_spans(seq, count);
    if (least > 1 && count < least)
        return least <= room ? least : 0;
    return count;
}

static void plan_prompts(struct sched *s, uint32_t budget)
{
    uint32_t count = order_prompts(s);
    uint32_t most = s->opts.tokens_max - s->tokens;
    uint32_t tokens_left = budget > s->tokens ? budget - s->tokens : 0;
    /* Every sequence has one row of logits, and every draft token; the rest is for sequences with
     * logits_all. */
    ASSERT(s->opts.logits_max >= s->opts.drafts_max + s->seq_count + count);
    uint32_t logits_left = s->opts.logits_max - s->opts.drafts_max - s->seq_count - count;
    /* At least one page of the first prompt, whatever the budget says. */
    tokens_left = MIN_OF(MAX_OF(tokens_left, PAGE_TOKENS), most);
    for (uint32_t i = 0; i < count; i++) {
        struct sched_seq *seq = s->prompts[i];
        /* The first prompt's span is computed whatever the budget says. */
        bool first = seq->at_once ? s->seq_count == 0 : i == 0 && seq->span_count > 0;
        uint32_t room = first ? most : tokens_left;
        uint32_t chunk = chunk_of(s, seq, tokens_left, room, logits_left);
        if (chunk == 0)
            continue;
        chunk = outside_spans(seq, extend(s, seq, chunk));
        if (chunk == 0)
            continue;
        plan_seq(s, seq, chunk, 0);
        ASSERT(chunk > 0 && chunk <= room);
        tokens_left -= MIN_OF(chunk, tokens_left);
        if (seq->logits_all)
            logits_left -= chunk - 1;
    }
}

void tokens_plan(struct sched *s, uint32_t budget)
{
    plan_decoding(s);
    plan_prompts(s, budget);
    if (s->seq_count > 0 || !s->holds)
        return;
    /* The sequences for which others were held back cannot run themselves. */
    ASSERT(s->tokens == 0);
    s->holds = false;
    plan_decoding(s);
    plan_prompts(s, budget);
}
