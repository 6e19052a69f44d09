/* wire_results.h - what the dialects without tokens share: embeddings, rerank, score. For wire_*.c. */
#ifndef PLATEAU_API_WIRE_RESULTS_H
#define PLATEAU_API_WIRE_RESULTS_H

#include "api/request/field.h"

#include "gen/part.h"

struct buf;

struct exchange;

/* Fields of all three: the model, truncation, labels. */
extern const struct field_group fields_results;

/* No part ever comes. */
part_sink_fn results_part;

/* `"id":...,"object":...,"created":...,"model":...` */
void results_write_head(const struct exchange *x, const char *object, struct buf *ret);
/* `"usage":{...}` */
void results_write_usage(const struct exchange *x, struct buf *ret);
/* The items of all choices, in order, with commas. */
void results_write_items(const struct exchange *x, struct buf *ret);
/* A whole reply: a list of these items, and the usage. */
void results_write_list(struct exchange *x, struct buf *ret);

/* A number of a vector or a score: nine digits, which parse to the same float. */
void results_write_float(struct buf *ret, float value);

/* Checks that `documents` is a text or a list of texts and counts its entries; `name` is its field. */
bool results_check_texts(const json_t *texts, const char *name, uint32_t *count, struct reject *why);

#endif
