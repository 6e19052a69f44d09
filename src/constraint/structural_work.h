/* structural_work.h - structural tags from inside: for the files structural*.c. */
#ifndef PLATEAU_CONSTRAINT_STRUCTURAL_WORK_H
#define PLATEAU_CONSTRAINT_STRUCTURAL_WORK_H

#include "constraint/structural.h"

#include "grammar/grammar_expr.h"

#include <jansson.h>

struct structural_work {
    struct grammar_builder *b;
    struct rx_store *s;
    const struct schema_opts *opts;
    const struct structural_tokens *tokens;
    struct err *e;
    int error;                         /* the first one */
    uint32_t depth, formats, compared; /* compared: bytes of texts that may overlap */
    const char *list;                  /* the name of a list of tags, for messages */
    char at[160];                      /* the place, for messages */
    size_t at_len;
};

/* Texts that free text may not have. */
struct structural_stops {
    struct slice all[STRUCTURAL_STOPS_MAX];
    uint32_t count;
};

/* Keeps the first failure, with the place. */
int structural_fail(struct structural_work *w, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends to the place. Returns what structural_leave() takes to cut it off again. */
size_t structural_enter(struct structural_work *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void structural_leave(struct structural_work *w, size_t before);

static inline struct expr structural_none(void)
{
    return expr_rx(RX_NONE);
}

/* ---- structural_text.c: texts of tags, and the free text between them ---- */

/* Whether an added token stands anywhere in the text. */
bool structural_has_token(const struct structural_work *w, struct slice text);
struct expr structural_literal(struct structural_work *w, struct slice text);
/* Texts that have a token are left out: free text has no tokens. */
void structural_add_stop(struct structural_work *w, struct structural_stops *stops, struct slice text);
/* Any text without stops in which none begins that one of `ends`, right after it, would complete. */
rx_id structural_free_text(struct structural_work *w, const struct structural_stops *stops,
                           const struct slice *ends, uint32_t end_count);

/* ---- structural_read.c: members of a format ---- */

/* A string of at most STRUCTURAL_TEXT_BYTES_MAX bytes. */
bool structural_is_text(struct structural_work *w, const json_t *value, const char *name, struct slice *ret);
bool structural_text_of(struct structural_work *w, const json_t *format, const char *name, struct slice *ret);
/* The text of a tag's begin or end: a string, or {"type": "token", "token": TEXT}. */
bool structural_tag_text(struct structural_work *w, const json_t *value, const char *name, struct slice *ret);
const json_t *structural_list_of(struct structural_work *w, const json_t *format, const char *name);
bool structural_flag_of(struct structural_work *w, const json_t *format, const char *name, bool other);
/* The texts of `excludes`, or of its older name, and the ends of the tag around it. */
bool structural_excludes(struct structural_work *w, const json_t *format, const struct structural_stops *ends,
                         struct structural_stops *ret);
/* Refuses members that are not among `names`, separated by spaces. `type` always is. */
bool structural_only(struct structural_work *w, const json_t *format, const char *names);
/* A token by its text. */
struct expr structural_token(struct structural_work *w, const json_t *format);

#endif
