/* speculation.h - chooses drafter and draft length from the options and the model's parts.
 *
 * Plain data, no state. */
#ifndef PLATEAU_REGISTRY_SPECULATION_H
#define PLATEAU_REGISTRY_SPECULATION_H

#include <stdbool.h>
#include <stdint.h>

struct model_parts;

/* AUTO: the draft model if one is given, else the MTP head where the model has one, with n-gram matches after
 * the draft; else no drafts. */
enum speculation_mode { SPECULATION_AUTO, SPECULATION_MTP, SPECULATION_NGRAM, SPECULATION_OFF };

#define SPECULATION_DRAFTS_MTP   3 /* default bound of a sequence's draft; the used length is measured */
#define SPECULATION_DRAFTS_NGRAM 5
#define SPECULATION_DRAFTS_MODEL 5 /* default bound with a draft model */
#define SPECULATION_DRAFTS_ANY   (-1)

struct speculation {
    enum speculation_mode way;
    int head_drafts;      /* at most, by the head or the draft model; 0: never, and it is not loaded;
                           * SPECULATION_DRAFTS_ANY: not said */
    bool draft_model;     /* one is given */
    bool eagle;           /* it is an EAGLE-3 head */
    uint32_t draft_vocab; /* model_parts.draft_vocab */
    bool optimistic;      /* the head's are kept without comparing */
    bool always;          /* whether it pays or not */
};

/* "auto", "mtp", "ngram", "off". False on anything else. */
bool speculation_parse(const char *name, enum speculation_mode *ret);

/* The drafter for a model with or without a head. */
struct drafting_opts speculation_drafting(const struct speculation *s, bool has_head);
/* The model parts that it needs; other parts stay as they are. */
void speculation_parts(const struct speculation *s, const struct drafting_opts *g, struct model_parts *parts);
/* "off", "ngram", "mtp", "draft-model", "eagle3", and the last three with "+ngram". */
const char *speculation_name(const struct drafting_opts *g);

#endif
