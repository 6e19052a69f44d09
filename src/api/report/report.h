/* report.h - reports of the server's state. Network thread; changes nothing. */
#ifndef PLATEAU_API_REPORT_H
#define PLATEAU_API_REPORT_H

#include "api/report/history.h"

#include "base/log.h"

struct account_numbers;
struct api;
struct auth;
struct buf;
struct domain;
struct drafting_opts;
struct engine_numbers;
struct gauge_table;
struct json_out;
struct served_model;
struct slice;

void report_health(struct api *a, struct buf *ret);
/* all: with bytes and loads, which requests of all tenants influence. */
void report_models(struct api *a, bool all, struct buf *ret);
/* Writes one entry of report_models(); `name` is the id or an alias. */
void report_model(struct api *a, uint32_t index, struct slice name, bool all, struct json_out *j);
/* Puts the members `status`, and where they apply progress and reason. */
void report_state(struct api *a, struct json_out *j);
/* Puts the member `state`, where they apply progress and reason, and with `all` bytes and loads. */
void report_model_state(struct api *a, uint32_t index, bool all, struct json_out *j);
/* Opens the member `speculation`, and puts the drafter and the draft length. */
void report_open_speculation(const struct drafting_opts *g, struct json_out *j);
/* path: with model_path. */
void report_server_info(struct api *a, bool path, struct buf *ret);
void report_model_info(struct api *a, bool path, struct buf *ret);
/* Requests and tokens of all models, as SGLang's routers read them. */
void report_load(struct api *a, struct buf *ret);
/* The first model's tokenizer and chat template, as vLLM tells them. */
void report_tokenizer_info(struct api *a, struct buf *ret);

/* report_capabilities.c: members of a model. `m` NULL: it is not loaded. max_model_len 0:
 * unknown. */
void report_capabilities(const struct api *a, const struct served_model *m, uint32_t max_model_len,
                         struct json_out *j);

/* report_memory.c */
void report_memory(struct api *a, struct buf *ret);
/* Bytes of the process, by the system and by accounts. */
struct memory_counts {
    uint64_t resident;      /* by the system, without mapped files; 0: it does not say */
    uint64_t heap;          /* resident bytes of the allocator, by itself; 0: it does not say */
    uint64_t heap_accounts; /* bytes of accounts that count the allocator's memory */
    uint64_t heap_mapped;   /* mapped bytes that heap_accounts contains */
    uint64_t mapped;        /* bytes of all other accounts */
    uint64_t connections;   /* memory of open connections, which touch a part of it */
};
/* Resident bytes of the process that belong to no account. Negative: accounts count bytes that are not
 * resident. Connections alone make it negative by untouched_bytes at most. */
struct unaccounted {
    int64_t bytes;
    uint64_t untouched_bytes;
};
/* Pure. */
struct unaccounted report_unaccounted_of(const struct memory_counts *m);
struct unaccounted report_unaccounted(struct api *a);
/* The device whose root account accounts[index] is; NULL: it is another account. */
const struct domain *report_device_of(const struct account_numbers *accounts, uint32_t index);
/* Fills a->accounts from the ledger; returns how many. */
uint32_t report_read_accounts(struct api *a);
/* Bytes of an account that no child of it counts. */
uint64_t report_own_used(const struct account_numbers *accounts, uint32_t count, uint32_t index);

/* report_holders.c: members of an object, without its braces. */
void report_holders(struct api *a, struct json_out *j);
/* The limit on all prefixes together, when the limits of their models add up to `sum_of_models`. */
uint64_t report_cache_limit(struct api *a, uint64_t sum_of_models);
extern const struct gauge_table report_holders_gauges;

/* report_shared.c */
void report_shared(struct api *a, struct json_out *j);
extern const struct gauge_table report_shared_gauges;

/* report_ssd.c */
void report_ssd(struct api *a, uint64_t hit_tokens, struct json_out *j);
extern const struct gauge_table report_ssd_gauges;

/* report_media.c: as report_holders(). */
void report_media(struct api *a, struct json_out *j);
extern const struct gauge_table report_media_gauges;

/* report_responses.c: as report_holders(). */
void report_responses(struct api *a, struct json_out *j);
extern const struct gauge_table report_responses_gauges;

void report_conversations(struct api *a, struct json_out *j);
extern const struct gauge_table report_conversations_gauges;

/* report_events.c: as report_holders(). */
void report_events(struct api *a, struct json_out *j);
extern const struct gauge_table report_events_gauges;

/* report_guard.c: as report_holders(). */
void report_guard(struct api *a, struct json_out *j);
extern const struct gauge_table report_guard_gauges;

/* report_status.c */
void report_status(struct api *a, struct buf *ret);
/* Puts the member `caches`, from the sum over all engines that report_add_cache() makes. */
void report_caches(struct api *a, const struct engine_numbers *sum, struct json_out *j);
void report_add_cache(struct engine_numbers *sum, const struct engine_numbers *n);

/* report_requests.c: a list of the requests of one tenant, or of all (NULL), the first `max` of them. */
struct report_requests {
    uint32_t active, waiting; /* all that were meant, also those past `max` */
    uint32_t jobs;            /* jobs of all engines */
};
void report_requests(struct api *a, const uint64_t *tenant, uint32_t max, struct report_requests *n,
                     struct json_out *j);

/* report_trace.c: the last requests that ended or were refused, of one tenant or of all (NULL): the oldest
 * `max` of those with a number above `after`. */
#define REPORT_TRACE_MAX 64 /* fits into API_REPORT_BYTES */
void report_trace(struct api *a, const uint64_t *tenant, uint64_t after, uint32_t max, struct buf *ret);

/* report_overview.c: what the page shows, in one snapshot. An administrator sees everything; a tenant the
 * models' states and its own requests. */
void report_overview(struct api *a, const struct auth *who, struct buf *ret);

/* report_history.c. a->figures is there. */
void report_history(struct api *a, enum history_range range, struct buf *ret);
/* The newest `max` lines after number `after`, of level `least` and worse. */
void report_log(uint64_t after, enum log_level least, uint32_t max, struct buf *ret);

/* report_ends.c */
extern const struct gauge_table report_end_gauges;

/* report_metrics.c: the series of one tenant's requests, or those of all (NULL) and of the server. */
#define REPORT_TABLES 13
void report_metrics(struct api *a, const uint64_t *tenant, struct buf *ret);
extern const struct gauge_table *const report_tables[REPORT_TABLES];

#endif
