/* metrics.h - counters and histograms that /metrics shows, by the names that vLLM's dashboards read.
 *
 * Network thread only: every exchange ends there. What engines and the ledger count is read from them when
 * asked. */
#ifndef PLATEAU_API_METRICS_H
#define PLATEAU_API_METRICS_H

#include "base/buf.h"
#include "engine/stream.h"

#define METRICS_BUCKETS_MAX 24

/* Seconds, or tokens. */
struct metrics_histogram {
    const char *name, *help;
    const double *bounds; /* ascending */
    uint32_t bound_count;
    uint64_t counts[METRICS_BUCKETS_MAX + 1]; /* the last: above all bounds */
    double sum;
};

enum metrics_kind {
    METRICS_TTFT,
    METRICS_PER_TOKEN,
    METRICS_E2E,
    METRICS_QUEUE,
    METRICS_PREFILL,
    METRICS_DECODE,
    METRICS_PROMPT_TOKENS,
    METRICS_GENERATION_TOKENS,
    METRICS_KIND_COUNT
};

#define METRICS_ENDS (FINISH_ERROR + 1)
/* How a choice ended, as the series call it; end < METRICS_ENDS. */
const char *metrics_end_name(uint32_t end);

/* Counters of a model, or of a tenant's requests to it. */
struct metrics_counts {
    uint64_t requests_rejected, requests_aborted;
    uint64_t finished[METRICS_ENDS]; /* choices by how they ended */
    uint64_t prompt_tokens, completion_tokens;
    uint64_t reasoning_loops;           /* times that a loop ended the reasoning */
    uint64_t cached_tokens, cache_hits; /* hits: choices of which some prompt tokens were found */
};

struct metrics {
    struct metrics_histogram histograms[METRICS_KIND_COUNT];
    struct metrics_counts counts;
};

void metrics_init(struct metrics *m);
void metrics_observe(struct metrics *m, enum metrics_kind kind, double value);
/* One job is over; `own` is its tenant's. */
void metrics_finish(struct metrics *m, struct metrics_counts *own, const struct stream_finish *f);
/* All histograms of all models in Prometheus' text form: each name once, as it demands; a label is a model's
 * name. */
void metrics_write_histograms(const struct metrics *const *models, const struct slice *labels, uint32_t count,
                              struct buf *ret);

#endif
