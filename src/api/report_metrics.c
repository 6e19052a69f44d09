/* report_metrics.c - Prometheus' text format. Names of vLLM for metrics that it has too. */
#include "api/report.h"

#include "base/check.h"
#include "base/clock.h"
#include "memory/footprint.h"

#include <stdio.h>

typedef unsigned long long ull;

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* ---- memory ---- */

static void write_kind(struct buf *b, struct slice path, const char *kind, uint64_t bytes)
{
    buf_puts(b, "plateau_memory_bytes{account=");
    metrics_write_label(b, path);
    buf_printf(b, ",kind=\"%s\"} %llu\n", kind, (ull)bytes);
}

static void write_memory(struct api *a, struct buf *b)
{
    struct footprint f;
    char path[512];
    size_t ends[16] = {0}; /* end of the path at each depth */
    uint32_t count = report_read_accounts(a);
    head(b, "plateau_memory_bytes", "gauge", "Bytes of each account of the memory ledger.");
    for (uint32_t i = 0; i < count; i++) {
        const struct account_numbers *n = &a->accounts[i];
        uint32_t depth = MIN_OF(n->depth, (uint32_t)COUNT_OF(ends) - 1);
        size_t at = depth > 0 ? ends[depth - 1] : 0;
        snprintf(path + at, sizeof(path) - at, "%s%s", depth > 0 ? "/" : "", n->name);
        ends[depth] = strlen(path);
        struct slice s = slice_of(path);
        write_kind(b, s, "used", n->used);
        write_kind(b, s, "reserved", n->reserved);
        write_kind(b, s, "planned", n->planned);
        write_kind(b, s, "peak", n->peak);
        if (n->limit != ACCOUNT_NO_LIMIT)
            write_kind(b, s, "limit", n->limit);
    }
    head(b, "plateau_memory_unaccounted_bytes", "gauge",
         "Resident bytes minus bytes in accounts; may be negative.");
    buf_printf(b, "plateau_memory_unaccounted_bytes %lld\n", (long long)report_unaccounted(a));
    footprint_read(&f);
    head(b, "process_resident_memory_bytes", "gauge", "Resident memory: anonymous, file and shared.");
    buf_printf(b, "process_resident_memory_bytes %llu\n",
               (ull)(f.rss_anon_bytes + f.rss_file_bytes + f.rss_shmem_bytes));
    head(b, "plateau_rss_anon_bytes", "gauge", "Resident anonymous memory.");
    buf_printf(b, "plateau_rss_anon_bytes %llu\n", (ull)f.rss_anon_bytes);
    head(b, "plateau_heap_bytes", "gauge", "Resident bytes of the heap.");
    buf_printf(b, "plateau_heap_bytes %llu\n", (ull)f.heap_bytes);
}

/* ---- engines ---- */

static void write_value(const struct api *a, struct buf *b, const char *name, uint32_t model,
                        const char *more, double value)
{
    buf_printf(b, "%s{model_name=", name);
    metrics_write_label(b, slice_of(api_model_id(a, model)));
    buf_printf(b, "%s} %.15g\n", more, value);
}

static double seconds(uint64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

/* One family of samples over all models; the expression reads *n, the model's entry of `array`. */
#define EACH_OF(array, name, type, help, expression)                                                         \
    do {                                                                                                     \
        head(b, name, type, help);                                                                           \
        for (uint32_t i = 0; i < count; i++) {                                                               \
            const __typeof__(*(array)) *n = &(array)[i];                                                     \
            write_value(a, b, name, i, "", (double)(expression));                                            \
        }                                                                                                    \
    } while (0)
#define EACH_MODEL(...) EACH_OF(numbers, __VA_ARGS__)

static void write_pool(const struct api *a, struct buf *b, uint32_t model, const char *pool,
                       const struct engine_pool_numbers *p)
{
    static const char *const kinds[] = {"active", "cached", "peak", "limit"};
    const uint64_t bytes[] = {p->active_bytes, p->cached_bytes, p->peak_bytes, p->limit_bytes};
    char more[64];
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        snprintf(more, sizeof(more), ",pool=\"%s\",kind=\"%s\"", pool, kinds[i]);
        write_value(a, b, "plateau_pool_bytes", model, more, (double)bytes[i]);
    }
}

static void write_pools(struct api *a, const struct engine_numbers *numbers, uint32_t count, struct buf *b)
{
    head(b, "plateau_pool_bytes", "gauge",
         "Pools of KV pages and recurrent states: active (in use or prefix cache), cached (committed and "
         "free), peak, limit.");
    for (uint32_t i = 0; i < count; i++) {
        write_pool(a, b, i, "kv", &numbers[i].kv);
        write_pool(a, b, i, "state", &numbers[i].state);
    }
}

static void write_engines(struct api *a, const struct engine_numbers *numbers, uint32_t count, struct buf *b)
{
    EACH_MODEL("vllm:num_requests_running", "gauge", "Sequences in the batch.", n->running);
    EACH_MODEL("vllm:num_requests_waiting", "gauge", "Requests in the queue.", n->waiting);
    EACH_MODEL("vllm:kv_cache_usage_perc", "gauge", "KV cache usage; 1 is full.",
               n->pages_max ? (double)n->pages_used / n->pages_max : 0);
    EACH_MODEL("vllm:num_preemptions_total", "counter", "Preemptions: sequences that gave up their pages.",
               n->preemptions);
    EACH_MODEL("vllm:prompt_tokens_total", "counter", "Prompt tokens, cached ones included.",
               n->prompt_tokens);
    EACH_MODEL("vllm:generation_tokens_total", "counter", "Tokens generated.", n->completion_tokens);
    EACH_MODEL("plateau_engine_steps_total", "counter", "Steps (forward passes).", n->steps);
    EACH_MODEL("plateau_engine_step_errors_total", "counter", "Steps that failed.", n->step_errors);
    EACH_MODEL("plateau_engine_busy_seconds_total", "counter", "Time that the engine spent in steps.",
               seconds(n->busy_ns));
    EACH_MODEL("plateau_engine_last_step_seconds", "gauge", "Duration of the last step.",
               seconds(n->last_step_ns));
    EACH_MODEL("plateau_pages_committed", "gauge", "KV pages with committed memory.", n->pages_committed);
}

/* Splits a counter by tier: hits from the SSD tier, hits in memory. */
static void write_tiers(const struct api *a, struct buf *b, const char *name, uint32_t model, uint64_t all,
                        uint64_t ssd)
{
    write_value(a, b, name, model, ",tier=\"host\"", (double)(all > ssd ? all - ssd : 0));
    write_value(a, b, name, model, ",tier=\"ssd\"", (double)ssd);
}

static void write_caches(struct api *a, const struct engine_numbers *numbers, uint32_t count, struct buf *b)
{
    EACH_MODEL("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
               n->cache_bytes_max ? n->prompt_tokens : 0);
    EACH_MODEL("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
               n->cached_tokens);
    head(b, "plateau_cache_hit_tokens_total", "counter", "Prompt tokens found in the prefix cache, by tier.");
    for (uint32_t i = 0; i < count; i++)
        write_tiers(a, b, "plateau_cache_hit_tokens_total", i, numbers[i].cached_tokens,
                    numbers[i].fetched_tokens);
    head(b, "plateau_cache_hits_total", "counter", "Choices with a prefix cache hit, by tier.");
    for (uint32_t i = 0; i < count; i++)
        write_tiers(a, b, "plateau_cache_hits_total", i, a->metrics[i].counts.cache_hits,
                    numbers[i].fetched_hits);
    EACH_MODEL("plateau_cache_bytes", "gauge", "Bytes of cached prefixes that no request uses.",
               n->cache_bytes);
    EACH_MODEL("plateau_cache_limit_bytes", "gauge", "Limit of the cached prefixes of this model.",
               n->cache_bytes_max);
    EACH_MODEL("plateau_cache_pages", "gauge", "Pages in the prefix cache.", n->cache_pages);
    EACH_MODEL("plateau_cache_snapshots", "gauge", "Recurrent states (snapshots) in the prefix cache.",
               n->cache_snapshots);
    EACH_MODEL("plateau_cache_pages_evicted_total", "counter", "Pages evicted from the prefix cache.",
               n->cache_pages_evicted);
    EACH_MODEL("plateau_cache_snapshots_evicted_total", "counter",
               "Recurrent states (snapshots) evicted from the prefix cache.", n->cache_snapshots_evicted);
    EACH_MODEL("plateau_ssd_fetching", "gauge", "Requests waiting for the SSD tier.", n->fetching);
    EACH_MODEL("plateau_ssd_fetches_total", "counter", "Prefixes requested from the SSD tier.", n->fetches);
    EACH_MODEL("plateau_ssd_fetches_failed_total", "counter",
               "Prefixes of which the SSD tier delivered only a part.", n->fetches_failed);
}

static void write_images(struct api *a, const struct engine_numbers *numbers, uint32_t count, struct buf *b)
{
    EACH_MODEL("plateau_vision_images_encoded_total", "counter", "Images that the vision encoder computed.",
               n->images_encoded);
    EACH_MODEL("plateau_vision_cache_hits_total", "counter",
               "Images whose embeddings were found in the cache.", n->images_found);
    EACH_MODEL("plateau_vision_cache_evicted_total", "counter",
               "Images whose embeddings were evicted from the cache.", n->images_evicted);
    EACH_MODEL("plateau_vision_cache_images", "gauge", "Images with cached embeddings.", n->images_kept);
    EACH_MODEL("plateau_vision_cache_bytes", "gauge", "Bytes of cached image embeddings.", n->images_bytes);
    EACH_MODEL("plateau_vision_cache_limit_bytes", "gauge", "Limit of the cached image embeddings.",
               n->images_bytes_max);
    EACH_MODEL("plateau_vision_encoding_bytes", "gauge", "Memory of the vision encoder's activations.",
               n->encoding_bytes);
    EACH_MODEL("plateau_vision_encode_seconds_total", "counter", "Time spent encoding images.",
               seconds(n->encode_ns));
    EACH_MODEL("plateau_vision_encode_slices_total", "counter", "Slices of image encoding between steps.",
               n->encode_slices);
    EACH_MODEL("plateau_vision_encode_slice_seconds_max", "gauge",
               "Duration of the longest slice of image encoding.", seconds(n->encode_slice_max_ns));
}

static void write_trims(struct api *a, const struct engine_numbers *numbers, uint32_t count, struct buf *b)
{
    EACH_MODEL("plateau_pending_trim_bytes", "gauge", "Free pool memory that is due to return to the system.",
               n->pending_trim_bytes);
    EACH_MODEL("plateau_trims_total", "counter", "Trims: times that pools returned free memory.", n->trims);
    EACH_MODEL("plateau_trim_units_total", "counter", "Commit units of 2 MiB returned by trims.",
               n->trim_units);
    EACH_MODEL("plateau_trim_bytes_total", "counter", "Bytes returned by trims.", n->trim_bytes);
    EACH_MODEL("plateau_trim_moves_total", "counter", "Cached pages and states moved to empty a commit unit.",
               n->trim_moves);
    EACH_MODEL("plateau_invariant_walks_total", "counter", "Checks of all invariants at rest.", n->walks);
    EACH_MODEL("plateau_invariant_walk_seconds", "gauge", "Duration of the last of them.",
               (double)n->walk_ns / (double)NS_PER_S);
    EACH_MODEL("plateau_trim_slices_total", "counter", "Pieces that trims were done in.", n->trim_slices);
    EACH_MODEL("plateau_trim_slice_seconds_total", "counter", "Time that they took.",
               seconds(n->trim_slice_ns));
    EACH_MODEL("plateau_trim_slice_seconds_max", "gauge", "Duration of the longest trim slice.",
               seconds(n->trim_slice_max_ns));
    EACH_MODEL("plateau_units_recommitted_total", "counter",
               "Commit units returned and committed again within a second.", n->units_recommitted);
    EACH_MODEL("plateau_memory_short_total", "counter",
               "Times that the prefix cache shrank because memory was short.", n->reclaims);
}

static void write_finished(struct api *a, uint32_t count, struct buf *b)
{
    char more[64];
    head(b, "vllm:request_success_total", "counter", "Choices by finish reason.");
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t r = 0; r < METRICS_ENDS; r++) {
            snprintf(more, sizeof(more), ",finished_reason=\"%s\"", metrics_end_name(r));
            write_value(a, b, "vllm:request_success_total", i, more,
                        (double)a->metrics[i].counts.finished[r]);
        }
    }
    head(b, "vllm:prompt_tokens_cached_total", "counter", "Prompt tokens found in the prefix cache.");
    for (uint32_t i = 0; i < count; i++)
        write_value(a, b, "vllm:prompt_tokens_cached_total", i, "",
                    (double)a->metrics[i].counts.cached_tokens);
    head(b, "plateau_requests_rejected_total", "counter", "Requests answered with an error.");
    for (uint32_t i = 0; i < count; i++)
        write_value(a, b, "plateau_requests_rejected_total", i, "",
                    (double)a->metrics[i].counts.requests_rejected);
    head(b, "plateau_requests_aborted_total", "counter", "Requests whose client left before the end.");
    for (uint32_t i = 0; i < count; i++)
        write_value(a, b, "plateau_requests_aborted_total", i, "",
                    (double)a->metrics[i].counts.requests_aborted);
}

/* ---- the connection ---- */

/* Statuses of a full server: their series exist from the start, so that a rise is visible. */
static bool is_shown(unsigned status)
{
    static const unsigned statuses[] = {400, 413, 429, 503, 507};
    for (size_t i = 0; i < COUNT_OF(statuses); i++)
        if (statuses[i] == status)
            return true;
    return false;
}

static void write_http(struct api *a, struct buf *b)
{
    if (!a->server)
        return;
    struct http_counters c = http_server_counters(a->server);
    head(b, "plateau_http_requests_total", "counter", "Requests by class of their status; 0: no answer.");
    for (uint32_t i = 0; i < COUNT_OF(c.answers); i++)
        if (i != 1)
            buf_printf(b, "plateau_http_requests_total{class=\"%u\"} %llu\n", i, (ull)c.answers[i]);
    head(b, "plateau_http_refused_total", "counter", "Refused requests, by status.");
    for (uint32_t i = 0; i < COUNT_OF(c.refused); i++)
        if (c.refused[i] > 0 || is_shown(400 + i))
            buf_printf(b, "plateau_http_refused_total{status=\"%u\"} %llu\n", 400 + i, (ull)c.refused[i]);
    head(b, "plateau_http_connections", "gauge", "Open connections.");
    buf_printf(b, "plateau_http_connections %llu\n", (ull)c.connections_now);
    head(b, "plateau_http_received_bytes_total", "counter", "Received bytes of headers and bodies.");
    buf_printf(b, "plateau_http_received_bytes_total %llu\n", (ull)c.bytes_in);
    head(b, "plateau_http_sent_bytes_total", "counter", "Sent bytes of bodies.");
    buf_printf(b, "plateau_http_sent_bytes_total %llu\n", (ull)c.bytes_out);
}

/* ---- preparation ---- */

static void write_preparing(struct api *a, struct buf *b)
{
    struct prep_queue_numbers n;
    prep_queue_numbers(&a->to_prepare, &n);
    head(b, "plateau_prep_waiting", "gauge",
         "Requests waiting for a prep thread, which parses and tokenizes.");
    buf_printf(b, "plateau_prep_waiting %u\n", n.count);
    head(b, "plateau_prep_waiting_bytes", "gauge", "Bytes of the requests waiting for a prep thread.");
    buf_printf(b, "plateau_prep_waiting_bytes %llu\n", (ull)n.bytes);
    head(b, "plateau_prep_stopped_total", "counter",
         "Requests whose preparation was stopped: the client left, or the time limit was reached.");
    buf_printf(b, "plateau_prep_stopped_total %llu\n", (ull)atomic_load(&a->prep_stopped));
}

/* ---- models ---- */

static void write_states(struct api *a, const struct registry_info *infos, uint32_t count, struct buf *b)
{
    char more[64];
    head(b, "plateau_model_state", "gauge", "1 for the model's present state, else 0.");
    for (uint32_t i = 0; i < count; i++) {
        for (enum model_state s = MODEL_UNLOADED; s <= MODEL_FAILED; s++) {
            snprintf(more, sizeof(more), ",state=\"%s\"", model_state_name(s));
            write_value(a, b, "plateau_model_state", i, more, infos[i].state == s);
        }
    }
}

#define EACH_INFO(...) EACH_OF(infos, __VA_ARGS__)

static void write_models(struct api *a, uint32_t count, struct buf *b)
{
    struct registry_info infos[REGISTRY_MODELS_MAX];
    for (uint32_t i = 0; i < count; i++)
        registry_info(a->opts.registry, i, &infos[i]);
    write_states(a, infos, count, b);
    EACH_INFO("plateau_model_reserved_bytes", "gauge", "Bytes reserved in the model's account.",
              n->reserved_bytes);
    EACH_INFO("plateau_model_waiting_for_load", "gauge", "Requests waiting for the model to load.",
              n->waiters);
    EACH_INFO("plateau_model_loads_total", "counter", "Successful loads.", n->loads);
    EACH_INFO("plateau_model_unloads_total", "counter", "Unloads.", n->unloads);
    EACH_INFO("plateau_model_load_failures_total", "counter", "Loads that failed.", n->failures);
    EACH_INFO("plateau_model_load_seconds", "gauge", "Duration of the last load.", seconds(n->load_ns));
}

static void write_drafts(struct api *a, const struct engine_numbers *numbers, uint32_t count, struct buf *b)
{
    char more[64];
    EACH_MODEL("vllm:spec_decode_num_drafts_total", "counter", "Drafts of speculative decoding.", n->drafts);
    EACH_MODEL("vllm:spec_decode_num_draft_tokens_total", "counter", "Draft tokens of speculative decoding.",
               n->draft_tokens);
    EACH_MODEL("vllm:spec_decode_num_accepted_tokens_total", "counter", "Accepted draft tokens.",
               n->accepted_tokens);
    head(b, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
         "Accepted draft tokens by position in the draft; 0 is the first.");
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < MODEL_DRAFTS_MAX; k++) {
            snprintf(more, sizeof(more), ",position=\"%u\"", k);
            write_value(a, b, "vllm:spec_decode_num_accepted_tokens_per_pos_total", i, more,
                        (double)numbers[i].accepted_at[k]);
        }
    }
}

void report_metrics(struct api *a, struct buf *ret)
{
    struct engine_numbers numbers[REGISTRY_MODELS_MAX];
    const struct metrics *metrics[REGISTRY_MODELS_MAX];
    struct slice labels[REGISTRY_MODELS_MAX];
    uint32_t count = api_model_count(a);
    for (uint32_t i = 0; i < count; i++) {
        api_engine_numbers(a, i, &numbers[i]);
        metrics[i] = &a->metrics[i];
        labels[i] = slice_of(api_model_id(a, i));
    }
    write_models(a, count, ret);
    write_engines(a, numbers, count, ret);
    write_drafts(a, numbers, count, ret);
    write_pools(a, numbers, count, ret);
    write_caches(a, numbers, count, ret);
    write_images(a, numbers, count, ret);
    write_trims(a, numbers, count, ret);
    report_holders_metrics(a, ret);
    report_guard_metrics(a, ret);
    report_ssd_metrics(a, ret);
    report_media_metrics(a, ret);
    write_finished(a, count, ret);
    watch_write_metrics(a, ret);
    metrics_write_histograms(metrics, labels, count, ret);
    write_http(a, ret);
    write_preparing(a, ret);
    write_memory(a, ret);
    head(ret, "process_start_time_seconds", "gauge", "Start time of the server, in seconds since 1970.");
    buf_printf(ret, "process_start_time_seconds %lld\n", (long long)a->started_s);
    head(ret, "plateau_requests", "gauge", "Requests in the server: received, prepared, computed or sent.");
    buf_printf(ret, "plateau_requests %u\n", atomic_load(&a->requests_now));
}
