/* wire_results.h - what the dialects without tokens share: embeddings, rerank, score. For wire_*.c. */
#ifndef PLATEAU_API_WIRE_RESULTS_H
#define PLATEAU_API_WIRE_RESULTS_H

#include "api/request/field.h"

#include "gen/reply_part.h"

struct buf;

struct exchange;

/* Fields of all three: the model, truncation, labels. */
extern const struct field_group fields_results;

/* No part ever comes. */
reply_part_fn results_part;

/* Begins a whole reply, whose results follow; `object` NULL: it has no such member. */
struct json_out results_begin(const struct exchange *x, const char *object, struct buf *ret);
/* Ends it with its usage. */
void results_end(const struct exchange *x, struct json_out *j);
/* Writes a whole reply: a list of the items of all choices, and the usage. */
void results_write_list(struct exchange *x, struct buf *ret);

/* Checks that `documents` is a text or a list of texts and counts its entries; `name` is its field. */
bool results_check_texts(const json_t *texts, const char *name, uint32_t *count, struct reject *why);

#endif
