/* draft_length.c - the draft lengths of a step, greedy by gain.
 *
 * Draft tokens of all sequences are sorted by their chance of acceptance. A prefix of that order is the best
 * choice for its number of draft tokens, so the best of all choices is the best prefix. Time is looked up by
 * number of sequences and of draft tokens, in a table of moving averages with straight lines between
 * measured points. Beyond the last point the line continues from an optimistic start, and no further than
 * twice as far. So new ground is entered step by step, and left as soon as its cost is known.
 *
 * The first samples count by the least of them, because one delayed step would otherwise rule a length out.
 * For the same reason a much smaller sample is trusted sooner than a much larger one. The faded counts of a
 * sequence without drafts return to the average of all sequences, so it is tried again. */
#include "spec/draft_length.h"

#include "base/check.h"

#define SAMPLES_SURE   3 /* before a cost is believed */
#define FADE_SEQ       0.97f
#define FADE_ALL       0.995f
#define FADE_IDLE      0.999f
#define PRIOR_WEIGHT   4.0
#define PRIOR_CHANCE   0.6
#define HOPEFUL_SLOPE  0.1  /* time of a draft token in shares of a sequence's part of a plain step */
#define MARGIN         1.02 /* gain that makes drafting worth its overhead */
#define PROBE_AGE      256  /* steps after which a cost is old */
#define PROBE_DISTANCE 32   /* steps between two probes */
#define ALLOWANCE_MAX  8    /* plain steps */
#define CATCH_UP_SHARE 128  /* each step with drafts pays this part of the reading before */

static const uint16_t seq_classes[DRAFT_LENGTH_SEQ_CLASSES] = {
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, UINT16_MAX};
static const uint16_t draft_classes[DRAFT_LENGTH_COST_CLASSES] = {0, 1,  2,  3,  4,  5,  6,         7,
                                                                  8, 10, 12, 16, 20, 24, UINT16_MAX};

static uint32_t class_of(const uint16_t *tops, uint32_t n)
{
    uint32_t i = 0;
    ASSERT(n <= UINT16_MAX); /* the last class of each table */
    while (n > tops[i])
        i++;
    return i;
}

static void measure(struct draft_length_cost *c, double ns, uint64_t step)
{
    if (c->samples < SAMPLES_SURE)
        c->ns = c->samples == 0 ? ns : MIN_OF(c->ns, ns);
    else
        c->ns += (MIN_OF(ns, 1.5 * c->ns) - c->ns) * (ns < 0.8 * c->ns ? 0.5 : 0.125);
    c->samples = MIN_OF(c->samples + 1, (uint32_t)SAMPLES_SURE);
    c->step = step;
}

static bool is_sure(const struct draft_length_cost *c)
{
    return c->samples == SAMPLES_SURE;
}

/* ---- cost ---- */

/* Time of steps with this number of sequences, as a line through the measured points. */
struct line {
    uint32_t seqs;
    const struct draft_length_cost *costs;
    double plain_ns;
    uint32_t last;     /* the furthest class that is sure */
    uint32_t furthest; /* draft tokens that may be tried */
};

static double drafts_of_class(uint32_t class)
{
    return class + 1 < DRAFT_LENGTH_COST_CLASSES ? draft_classes[class] : 2.0 * draft_classes[class - 1];
}

static struct line line_of(const struct draft_length *b, uint32_t seqs)
{
    struct line l = {.seqs = seqs, .costs = b->costs[class_of(seq_classes, seqs)]};
    l.plain_ns = l.costs[0].ns;
    for (uint32_t i = 1; i < DRAFT_LENGTH_COST_CLASSES; i++)
        if (is_sure(&l.costs[i]))
            l.last = i;
    l.furthest = l.last ? 2 * (uint32_t)drafts_of_class(l.last) : seqs;
    return l;
}

static double line_ns(const struct line *l, uint32_t drafts)
{
    uint32_t low = class_of(draft_classes, drafts), high = low;
    while (low > 0 && !is_sure(&l->costs[low]))
        low--;
    while (high < l->last && !is_sure(&l->costs[high]))
        high++;
    double from = drafts_of_class(low), at_from = l->costs[low].ns;
    if (high > low && high <= l->last)
        return at_from + (l->costs[high].ns - at_from) * (drafts - from) / (drafts_of_class(high) - from);
    if (drafts <= from)
        return at_from;
    double slope =
        low > 0 ? MAX_OF((at_from - l->plain_ns) / from, 0) : HOPEFUL_SLOPE * l->plain_ns / l->seqs;
    return at_from + slope * (drafts - from);
}

/* Time of one pass of the head with `seqs` sequences; of several measured points the nearest. */
static double pass_ns(const struct draft_length *b, uint32_t seqs)
{
    uint32_t at = class_of(seq_classes, seqs);
    for (uint32_t d = 0; d < DRAFT_LENGTH_SEQ_CLASSES; d++) {
        if (d <= at && b->passes[at - d].samples)
            return b->passes[at - d].ns;
        if (at + d < DRAFT_LENGTH_SEQ_CLASSES && b->passes[at + d].samples)
            return b->passes[at + d].ns;
    }
    return 0;
}

/* ---- gain ---- */

/* A choice under way: how many tokens a step is expected to give, and in what time. */
struct choice {
    const struct draft_length *draft_length;
    struct draft_length_seq *seqs;
    uint32_t count, drafts_max;
    struct line line;
    /* Average acceptance of all sequences, by draft_length_seq.source. */
    double prior[DRAFT_SOURCES][DRAFT_LENGTH_DEPTH_MAX];
    uint32_t at_depth[DRAFT_LENGTH_DEPTH_MAX]; /* sequences with a draft token of the head at each position */
    uint32_t drafts;
    double tokens, draft_ns;
};

static void find_prior(const struct draft_length_hits *all, double prior[DRAFT_LENGTH_DEPTH_MAX])
{
    double chance = PRIOR_CHANCE;
    for (uint32_t k = 0; k < DRAFT_LENGTH_DEPTH_MAX; k++) {
        chance = ((double)all->accepted[k] + 2 * chance) / ((double)all->tried[k] + 2);
        prior[k] = chance;
    }
}

static void clear_choice(struct choice *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        c->seqs[i].drafts = 0;
        c->seqs[i].reached = 1;
    }
    for (uint32_t k = 0; k < DRAFT_LENGTH_DEPTH_MAX; k++)
        c->at_depth[k] = 0;
    c->drafts = 0;
    c->tokens = c->count;
    c->draft_ns = 0;
}

/* The chance that the sequence's next draft token and all before it are accepted; 0: its draft may not
 * grow. */
static double next_chance(const struct choice *c, const struct draft_length_seq *r)
{
    if (r->drafts == r->drafts_max)
        return 0;
    uint32_t at = r->drafts;
    return r->reached * ((double)r->hits->accepted[at] + PRIOR_WEIGHT * c->prior[r->source][at]) /
           ((double)r->hits->tried[at] + PRIOR_WEIGHT);
}

static void add_draft(struct choice *c, struct draft_length_seq *r)
{
    uint32_t *seqs = &c->at_depth[r->drafts];
    bool by_head = r->source == DRAFT_DRAFTER || (r->source == DRAFT_PAST && r->drafts == 0);
    r->reached = next_chance(c, r);
    r->drafts++;
    if (by_head && c->draft_ns == 0)
        c->draft_ns = c->draft_length->caught_up_ns / CATCH_UP_SHARE;
    if (by_head) {
        c->draft_ns -= *seqs ? pass_ns(c->draft_length, *seqs) : 0;
        c->draft_ns += pass_ns(c->draft_length, ++*seqs);
    }
    c->drafts++;
    c->tokens += r->reached;
}

static double choice_ns(const struct choice *c)
{
    return line_ns(&c->line, c->drafts) + c->draft_ns;
}

/* The sequence with the best chance for its next draft token; NULL: no draft may grow. */
static struct draft_length_seq *best_next(const struct choice *c)
{
    struct draft_length_seq *ret = NULL;
    double best = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        double chance = next_chance(c, &c->seqs[i]);
        if (chance > best) {
            best = chance;
            ret = &c->seqs[i];
        }
    }
    return ret;
}

/* Returns the tokens per ns. */
static double choose_best(struct choice *c)
{
    struct draft_length_seq *picked[DRAFT_LENGTH_DRAFTS_MAX], *r;
    uint32_t most = MIN_OF(c->drafts_max, c->line.furthest), best = 0, n = 0;
    double plain = c->count / c->line.plain_ns, score = MARGIN * plain;
    clear_choice(c);
    while (n < most && (r = best_next(c)) != NULL) {
        picked[n++] = r;
        add_draft(c, r);
        if (c->tokens > score * choice_ns(c)) {
            score = c->tokens / choice_ns(c);
            best = n;
        }
    }
    for (; n > best; n--)
        picked[n - 1]->drafts--;
    c->drafts = best;
    return best ? score : plain;
}

/* ---- lengths without recent measurements ---- */

static void choose_depth(struct choice *c, uint32_t depth)
{
    clear_choice(c);
    for (uint32_t i = 0; i < c->count; i++)
        while (c->seqs[i].drafts < MIN_OF(depth, c->seqs[i].drafts_max) && c->drafts < c->drafts_max)
            add_draft(c, &c->seqs[i]);
}

/* Steps since such a choice was measured. */
static uint64_t age_of(const struct choice *c)
{
    return c->draft_length->steps - c->line.costs[class_of(draft_classes, c->drafts)].step;
}

/* Time in ns that this choice loses against `score`, in a step. */
static double loss_of(const struct choice *c, double score)
{
    return choice_ns(c) - c->tokens / score;
}

/* The draft length, the same for all, with the oldest measurement within the allowance. False: every
 * measurement is recent, or the allowance covers no length. */
static bool oldest_depth(struct choice *c, double score, uint32_t *ret)
{
    uint64_t oldest = PROBE_AGE;
    uint32_t drafts = UINT32_MAX;
    for (uint32_t depth = 0; depth <= DRAFT_LENGTH_DEPTH_MAX; depth++) {
        choose_depth(c, depth);
        if (c->drafts == drafts || c->drafts > c->line.furthest)
            break;
        drafts = c->drafts;
        if (age_of(c) > oldest && loss_of(c, score) <= c->draft_length->allowance_ns) {
            oldest = age_of(c);
            *ret = depth;
        }
    }
    return oldest > PROBE_AGE;
}

static bool probe(struct draft_length *b, struct choice *c, double score)
{
    uint32_t depth;
    if (b->steps - b->probed_step < PROBE_DISTANCE || !oldest_depth(c, score, &depth))
        return false;
    choose_depth(c, depth);
    b->allowance_ns -= MAX_OF(loss_of(c, score), 0);
    b->probed_step = b->steps;
    return true;
}

void draft_length_choose(struct draft_length *b, struct draft_length_seq *seqs, uint32_t count,
                         uint32_t drafts_max)
{
    ASSERT(drafts_max <= DRAFT_LENGTH_DRAFTS_MAX);
    struct choice c = {.draft_length = b, .seqs = seqs, .count = count, .drafts_max = drafts_max};
    clear_choice(&c);
    if (count == 0)
        return;
    c.line = line_of(b, count);
    if (!is_sure(&c.line.costs[0]))
        return;
    for (int source = 0; source < DRAFT_SOURCES; source++)
        find_prior(&b->all[source], c.prior[source]);
    double score = choose_best(&c);
    if (!probe(b, &c, score))
        choose_best(&c);
}

/* ---- measuring ---- */

void draft_length_measure_step(struct draft_length *b, uint32_t seqs, uint32_t drafts, uint64_t ns)
{
    struct draft_length_cost *costs = b->costs[class_of(seq_classes, seqs)];
    b->steps++;
    measure(&costs[class_of(draft_classes, drafts)], (double)ns, b->steps);
    b->caught_up_ns = MAX_OF(b->caught_up_ns - DRAFT_LENGTH_PROBE_SHARE * (double)ns, 0);
    if (is_sure(&costs[0]))
        b->allowance_ns =
            MIN_OF(b->allowance_ns + DRAFT_LENGTH_PROBE_SHARE * (double)ns, ALLOWANCE_MAX * costs[0].ns);
}

void draft_length_measure_draft(struct draft_length *b, uint32_t seqs, uint32_t depth, uint64_t ns)
{
    b->caught_up_ns -= b->caught_up_ns / CATCH_UP_SHARE;
    b->passed = true;
    measure(&b->passes[class_of(seq_classes, seqs)], (double)ns / depth, b->steps);
}

enum draft_length_reading draft_length_reads(const struct draft_length *b)
{
    if (!b->passed)
        return b->allowance_ns >= 0 ? DRAFT_LENGTH_READ_TRIAL : DRAFT_LENGTH_READ_NOTHING;
    return b->probed_step > 0 && b->probed_step == b->steps ? DRAFT_LENGTH_READ_TRIAL : DRAFT_LENGTH_READ;
}

void draft_length_caught_up(struct draft_length *b, bool trial, uint64_t ns)
{
    if (trial)
        b->allowance_ns -= (double)ns;
    else
        b->caught_up_ns += (double)ns;
}

static void count(struct draft_length_hits *h, float fade, uint32_t tried, uint32_t accepted)
{
    for (uint32_t k = 0; k < tried; k++) {
        h->tried[k] = fade * h->tried[k] + 1;
        h->accepted[k] = fade * h->accepted[k] + (k < accepted ? 1 : 0);
    }
}

void draft_length_count(struct draft_length *b, struct draft_length_hits *h, enum draft_source source,
                        uint32_t tried, uint32_t accepted)
{
    count(&b->all[source], FADE_ALL, tried, accepted);
    count(h, FADE_SEQ, tried, accepted);
    for (uint32_t k = tried; k < DRAFT_LENGTH_DEPTH_MAX; k++) {
        h->tried[k] *= FADE_IDLE;
        h->accepted[k] *= FADE_IDLE;
    }
}
