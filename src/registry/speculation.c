/* speculation.c - a missing MTP head is not an error: --spec applies to all models, and each uses what it
 * has. */
#include "registry/speculation.h"

#include "base/check.h"
#include "model/model.h"
#include "spec/drafting.h"

#include <string.h>

static const char *const ways[] = {[SPECULATION_AUTO] = "auto",
                                   [SPECULATION_MTP] = "mtp",
                                   [SPECULATION_NGRAM] = "ngram",
                                   [SPECULATION_OFF] = "off"};

bool speculation_parse(const char *name, enum speculation_mode *ret)
{
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        if (strcmp(name, ways[i]) == 0) {
            *ret = (enum speculation_mode)i;
            return true;
        }
    }
    return false;
}

/* With --spec auto; another drafter leaves the draft model out. */
static struct drafting_opts by_model(const struct speculation *s)
{
    uint32_t drafts =
        s->head_drafts == SPECULATION_DRAFTS_ANY ? SPECULATION_DRAFTS_MODEL : (uint32_t)s->head_drafts;
    ASSERT(drafts <= MODEL_DRAFTS_MAX);
    enum drafting_by by = s->eagle ? DRAFTING_MTP : DRAFTING_MODEL;
    return (struct drafting_opts){.by = drafts > 0 ? by : DRAFTING_NONE,
                                  .eagle = s->eagle && drafts > 0,
                                  .drafts_max = drafts,
                                  .past = drafts > 1,
                                  .always = s->always};
}

struct drafting_opts speculation_drafting(const struct speculation *s, bool has_head)
{
    if (s->way == SPECULATION_AUTO && s->draft_model)
        return by_model(s);
    uint32_t by_head =
        s->head_drafts == SPECULATION_DRAFTS_ANY ? SPECULATION_DRAFTS_MTP : (uint32_t)s->head_drafts;
    bool wants_head = s->way == SPECULATION_AUTO || s->way == SPECULATION_MTP;
    if (wants_head && has_head && by_head > 0)
        return (struct drafting_opts){.by = DRAFTING_MTP,
                                      .drafts_max = by_head,
                                      .past = s->way == SPECULATION_AUTO && !s->optimistic && by_head > 1,
                                      .always = s->always,
                                      .optimistic = s->optimistic};
    if (s->way == SPECULATION_NGRAM)
        return (struct drafting_opts){
            .by = DRAFTING_NGRAM, .drafts_max = SPECULATION_DRAFTS_NGRAM, .always = s->always};
    return (struct drafting_opts){.by = DRAFTING_NONE};
}

void speculation_parts(const struct speculation *s, const struct drafting_opts *g, struct model_parts *parts)
{
    ASSERT((g->by == DRAFTING_NONE) == (g->drafts_max == 0));
    parts->mtp = g->by == DRAFTING_MTP;
    parts->drafts_max = g->drafts_max;
    /* Drafts accepted without verification need the whole vocabulary for the best choice. */
    parts->draft_vocab = g->optimistic ? 0 : s->draft_vocab;
}

const char *speculation_name(const struct drafting_opts *g)
{
    static const char *const names[][2] = {[DRAFTING_NONE] = {"off", "off"},
                                           [DRAFTING_NGRAM] = {"ngram", "ngram"},
                                           [DRAFTING_MTP] = {"mtp", "mtp+ngram"},
                                           [DRAFTING_MODEL] = {"draft-model", "draft-model+ngram"}};
    ASSERT((size_t)g->by < COUNT_OF(names));
    if (g->eagle)
        return g->past ? "eagle3+ngram" : "eagle3";
    return names[g->by][g->past];
}
