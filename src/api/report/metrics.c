/* metrics.c - fixed buckets, the same as vLLM's, so that panels of its dashboards keep their meaning. */
#include "api/report/metrics.h"

#include "api/report/gauge.h"

#include "base/check.h"
#include "base/clock.h"

static const double ttft_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                     1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
static const double per_token_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4,
                                          0.5,  0.75,  1.0,  2.5,   5.0, 7.5,  10.0, 20.0, 40.0};
static const double request_bounds[] = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                        5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                        60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
static const double token_bounds[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                      1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};

const char *metrics_end_name(uint32_t end)
{
    static const char *const names[] = {[FINISH_STOP] = "stop",
                                        [FINISH_LENGTH] = "length",
                                        [FINISH_REPETITION] = "repetition",
                                        [FINISH_ABORTED] = "abort",
                                        [FINISH_TOO_SLOW] = "client_too_slow",
                                        [FINISH_QUEUE_TIMEOUT] = "queue_timeout",
                                        [FINISH_MEMORY_TAKEN] = "memory_short",
                                        [FINISH_LEASE_REFUSED] = "lease_refused",
                                        [FINISH_AGENTS_FULL] = "agents_full",
                                        [FINISH_SHUTDOWN] = "shutdown",
                                        [FINISH_ERROR] = "error"};
    ASSERT(end < COUNT_OF(names));
    return names[end];
}

void metrics_init(struct metrics *m)
{
#define SECONDS_OF(n, h, b) {.name = n, .help = h, .bounds = b, .bound_count = COUNT_OF(b)}
    *m = (struct metrics){
        .histograms =
            {
                [METRICS_TTFT] = SECONDS_OF("vllm:time_to_first_token_seconds",
                                            "From a request's arrival to its first token.", ttft_bounds),
                [METRICS_PER_TOKEN] = SECONDS_OF("vllm:time_per_output_token_seconds",
                                                 "Time per token after the first.", per_token_bounds),
                [METRICS_E2E] = SECONDS_OF("vllm:e2e_request_latency_seconds",
                                           "From a request's arrival to its last byte.", request_bounds),
                [METRICS_QUEUE] =
                    SECONDS_OF("vllm:request_queue_time_seconds", "Time in the queue.", request_bounds),
                [METRICS_PREFILL] = SECONDS_OF("vllm:request_prefill_time_seconds",
                                               "Time spent on the prompt.", request_bounds),
                [METRICS_DECODE] = SECONDS_OF("vllm:request_decode_time_seconds", "Time spent on the output.",
                                              request_bounds),
                [METRICS_PROMPT_TOKENS] =
                    SECONDS_OF("vllm:request_prompt_tokens", "Tokens of a prompt.", token_bounds),
                [METRICS_GENERATION_TOKENS] =
                    SECONDS_OF("vllm:request_generation_tokens", "Tokens of an output.", token_bounds),
            },
    };
#undef SECONDS_OF
}

void metrics_observe(struct metrics *m, enum metrics_kind kind, double value)
{
    struct metrics_histogram *h = &m->histograms[kind];
    uint32_t i = 0;
    while (i < h->bound_count && value > h->bounds[i])
        i++;
    h->counts[i]++;
    h->sum += value;
}

static double seconds(uint64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

static void count(struct metrics_counts *n, const struct stream_finish *f)
{
    n->finished[f->reason]++;
    n->prompt_tokens += f->prompt_tokens;
    n->completion_tokens += f->completion_tokens;
    n->cached_tokens += f->cached_tokens;
    n->cache_hits += f->cached_tokens > 0;
    n->reasoning_loops += f->reasoning_loops;
}

void metrics_finish(struct metrics *m, struct metrics_counts *own, const struct stream_finish *f)
{
    ASSERT(f->reason <= FINISH_ERROR);
    count(&m->counts, f);
    count(own, f);
    metrics_observe(m, METRICS_QUEUE, seconds(f->queued_ns));
    /* A vector or a score: a prompt that was read to its end. */
    if (f->completion_tokens == 0 && f->reason != FINISH_STOP)
        return;
    metrics_observe(m, METRICS_PREFILL, seconds(f->prefill_ns));
    if (f->completion_tokens == 0) {
        metrics_observe(m, METRICS_PROMPT_TOKENS, f->prompt_tokens);
        return;
    }
    metrics_observe(m, METRICS_DECODE, seconds(f->decode_ns));
    metrics_observe(m, METRICS_PROMPT_TOKENS, f->prompt_tokens);
    metrics_observe(m, METRICS_GENERATION_TOKENS, f->completion_tokens);
    if (f->completion_tokens > 1)
        metrics_observe(m, METRICS_PER_TOKEN, seconds(f->decode_ns) / (f->completion_tokens - 1));
}

static void write_histogram(const struct metrics_histogram *h, struct slice label, struct buf *ret)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i <= h->bound_count; i++) {
        total += h->counts[i];
        buf_printf(ret, "%s_bucket{model_name=", h->name);
        gauges_write_label(label, ret);
        if (i < h->bound_count)
            buf_printf(ret, ",le=\"%g\"} %llu\n", h->bounds[i], (ull)total);
        else
            buf_printf(ret, ",le=\"+Inf\"} %llu\n", (ull)total);
    }
    buf_printf(ret, "%s_sum{model_name=", h->name);
    gauges_write_label(label, ret);
    buf_printf(ret, "} %.9g\n%s_count{model_name=", h->sum, h->name);
    gauges_write_label(label, ret);
    buf_printf(ret, "} %llu\n", (ull)total);
}

void metrics_write_histograms(const struct metrics *const *models, const struct slice *labels, uint32_t count,
                              struct buf *ret)
{
    for (uint32_t kind = 0; kind < METRICS_KIND_COUNT && count > 0; kind++) {
        const struct metrics_histogram *h = &models[0]->histograms[kind];
        gauges_write_head(h->name, "histogram", h->help, ret);
        for (uint32_t i = 0; i < count; i++)
            write_histogram(&models[i]->histograms[kind], labels[i], ret);
    }
}
