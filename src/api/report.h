/* report.h - what the server says about itself. On the network thread; nothing here changes anything. */
#ifndef PLATEAU_API_REPORT_H
#define PLATEAU_API_REPORT_H

#include "api/api_state.h"

void report_health(struct api *a, struct buf *ret);
/* all: with what requests of all tenants make of a model: bytes, loads. */
void report_models(struct api *a, bool all, struct buf *ret);
/* As one entry of the list; `name` is the id or an alias. */
void report_model(struct api *a, uint32_t index, struct slice name, bool all, struct buf *ret);
/* "state":"ready", and what belongs to it: progress, reason, with `all` bytes and loads. */
void report_model_state(struct api *a, uint32_t index, bool all, struct buf *ret);
/* Who drafts tokens ahead, and how far: members of an object, without its braces. */
void report_speculation(const struct engine_drafting *g, struct buf *ret);
void report_server_info(struct api *a, struct buf *ret);
void report_model_info(struct api *a, struct buf *ret);

/* report_memory.c */
void report_memory(struct api *a, struct buf *ret);
/* Bytes that the process holds in memory and no account names; negative when accounts count what is not
 * resident. */
int64_t report_unaccounted(struct api *a);
/* Fills a->accounts from the ledger; returns how many. */
uint32_t report_read_accounts(struct api *a);

/* report_holders.c: members of an object, without its braces. */
void report_holders(struct api *a, struct buf *ret);
/* What prefixes may hold together, when their models' own limits add up to so much. */
uint64_t report_cache_limit(struct api *a, uint64_t sum_of_models);
void report_holders_metrics(struct api *a, struct buf *ret);

/* report_ssd.c */
void report_ssd(struct api *a, uint64_t hit_tokens, struct buf *ret);
void report_ssd_metrics(struct api *a, struct buf *ret);

/* report_media.c: as report_holders(). */
void report_media(struct api *a, struct buf *ret);
void report_media_metrics(struct api *a, struct buf *ret);

/* report_guard.c: as report_holders(). */
void report_guard(struct api *a, struct buf *ret);
void report_guard_metrics(struct api *a, struct buf *ret);

/* report_status.c */
void report_status(struct api *a, struct buf *ret);

/* report_metrics.c */
void report_metrics(struct api *a, struct buf *ret);

/* report_own.c: the series of one tenant's requests. */
void report_own_metrics(struct api *a, uint64_t tenant, struct buf *ret);

#endif
