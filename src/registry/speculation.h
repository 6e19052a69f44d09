/* speculation.h - from what options say about guesses, and what a model has, to who guesses how far.
 *
 * Plain data, no state. */
#ifndef PLATEAU_REGISTRY_SPECULATION_H
#define PLATEAU_REGISTRY_SPECULATION_H

#include "engine/engine.h"

/* AUTO: the model's head where it has one, and behind its guess the sequence's own past; else nobody. */
enum speculation_way { SPECULATION_AUTO, SPECULATION_MTP, SPECULATION_NGRAM, SPECULATION_OFF };

#define SPECULATION_DRAFTS_MTP   3 /* of a row's step, when nobody says how many: what pays is measured */
#define SPECULATION_DRAFTS_NGRAM 5
#define SPECULATION_DRAFTS_ANY   (-1)

struct speculation {
    enum speculation_way way;
    int head_drafts;      /* at most, by the head; 0: never, and it is not loaded; SPECULATION_DRAFTS_ANY: not
                      * said */
    uint32_t draft_vocab; /* as in model_parts */
    bool optimistic;      /* the head's are kept without comparing */
    bool always;          /* whether it pays or not */
};

/* "auto", "mtp", "ngram", "off". False on anything else. */
bool speculation_parse(const char *name, enum speculation_way *ret);

/* Who guesses in a model that has a head, or none. */
struct engine_guessing speculation_guessing(const struct speculation *s, bool has_head);
/* What of the model that asks for; other parts are left as they are. */
void speculation_parts(const struct speculation *s, const struct engine_guessing *g,
                       struct model_parts *parts);
/* "off", "ngram", "mtp", "mtp+ngram". */
const char *speculation_name(const struct engine_guessing *g);

#endif
