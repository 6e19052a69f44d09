/* report_model.c - the numbers of models: of their loads, and those that their engines published last. */
#include "api/report/report_model.h"

#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/metrics.h"
#include "api/report/report.h"

#include "base/check.h"
#include "constraint/grammar_cache.h"
#include "engine/engine_numbers.h"

static void read_grammars(struct api *a, uint32_t index, struct grammar_cache_numbers *ret)
{
    struct model_lease look;
    if (registry_peek(a->opts.registry, index, &look) < 0)
        return;
    if (look.model->grammars)
        grammar_cache_numbers(look.model->grammars, ret);
    registry_release_peek(&look);
}

void report_read_model(struct api *a, uint32_t index, struct report_model *ret)
{
    const struct engine_numbers *n = &ret->engine;
    uint64_t hits = a->metrics[index].counts.cache_hits;
    *ret = (struct report_model){.id = api_model_id(a, index)};
    registry_info(a->opts.registry, index, &ret->info);
    ret->in_state[ret->info.state] = 1;
    api_engine_numbers(a, index, &ret->engine);
    read_grammars(a, index, &ret->grammars);
    ret->kv_usage = n->usage;
    ret->looked_up_tokens = n->cache_bytes_max ? n->prompt_tokens : 0;
    ret->host_hit_tokens = n->cached_tokens - MIN_OF(n->fetched_tokens + n->pinned_tokens, n->cached_tokens);
    ret->host_hits = hits - MIN_OF(n->fetched_hits + n->pinned_hits, hits);
}

/* vLLM's labels that routers read, one sample with the value 1. */
static void write_cache_config(const struct gauge *g, const void *numbers, struct buf *ret)
{
    const struct report_model *m = numbers;
    buf_printf(ret, "%s{model_name=", g->series);
    gauges_write_label(slice_of(m->id), ret);
    buf_printf(ret, ",block_size=\"%d\",num_gpu_blocks=\"%u\",enable_prefix_caching=\"%s\"} 1\n", PAGE_TOKENS,
               m->engine.pages_max, m->engine.cache_bytes_max > 0 ? "True" : "False");
}

static const char *state_name(uint32_t state)
{
    return registry_state_name((enum model_state)state);
}

#define OF(field)         GAUGE_OF(struct report_model, field)
#define E(field)          OF(engine.field)
#define ITEMS(field, ...) GAUGE_ITEMS(struct report_model, field, __VA_ARGS__)
#define POOL(pool, kind_, place_)                                                                            \
    {                                                                                                        \
        E(pool.kind_##_bytes), MEMBER(#pool, place_, #kind_ "_bytes"),                                       \
            GAUGE("plateau_pool_bytes",                                                                      \
                  "Pools of KV pages and recurrent states: active (in use or prefix cache), cached "         \
                  "(committed and free), peak, limit."),                                                     \
            .labels = "pool=\"" #pool "\",kind=\"" #kind_ "\""                                               \
    }
#define PAGES(kind_, number, place_)                                                                         \
    {                                                                                                        \
        E(group_##kind_[number]), MEMBER("kv", place_, "group_" #number "_pages_" #kind_),                   \
            GAUGE("plateau_kv_pages",                                                                        \
                  "KV pages by group of attention layers (0: full attention): used by sequences, cached "    \
                  "(only the prefix cache holds them)."),                                                    \
            .labels = "group=\"" #number "\",kind=\"" #kind_ "\""                                            \
    }
#define MODEL(...) MEMBER("model", __VA_ARGS__)
#define HIT_TOKENS                                                                                           \
    COUNTER("plateau_cache_hit_tokens_total", "Prompt tokens found in the prefix cache, by tier.")
#define HITS COUNTER("plateau_cache_hits_total", "Choices with a prefix cache hit, by tier.")

static const struct gauge rows[] = {
    {ITEMS(in_state, GAUGE_U32, MODEL_FAILED + 1, "state", state_name),
     GAUGE("plateau_model_state", "1 for the model's present state, else 0.")},
    {OF(info.reserved_bytes), MEMBER("load", 1, "reserved_bytes"),
     GAUGE("plateau_model_reserved_bytes", "Bytes reserved in the model's account.")},
    {OF(info.used_bytes), MEMBER("load", 2, "used_bytes"), NOTE("Bytes in use in the model's account.")},
    {OF(info.waiters), MODEL(2, "waiting_for_load"),
     GAUGE("plateau_model_waiting_for_load", "Requests waiting for the model to load.")},
    {OF(info.leases), MODEL(1, "leases"), NOTE("Requests that use the model.")},
    {OF(info.idle_ns), .unit = GAUGE_SECONDS, MODEL(3, "idle_seconds"),
     NOTE("Time since the last of them ended.")},
    {OF(info.loads), MEMBER("load", 3, "loads"), COUNTER("plateau_model_loads_total", "Successful loads.")},
    {OF(info.unloads), MEMBER("load", 4, "unloads"), COUNTER("plateau_model_unloads_total", "Unloads.")},
    {OF(info.failures), MEMBER("load", 5, "load_failures"),
     COUNTER("plateau_model_load_failures_total", "Loads that failed.")},
    {OF(info.load_ns), .unit = GAUGE_SECONDS, MEMBER("load", 6, "load_seconds"),
     GAUGE("plateau_model_load_seconds", "Duration of the last load.")},

    {E(running), MODEL(4, "running"), GAUGE("vllm:num_requests_running", "Sequences in the batch.")},
    {E(waiting), MODEL(5, "waiting"), GAUGE("vllm:num_requests_waiting", "Requests in the queue.")},
    {OF(kv_usage), GAUGE("vllm:kv_cache_usage_perc", "KV cache usage; 1 is full.")},
    {E(preemptions), MODEL(14, "preemptions"),
     COUNTER("vllm:num_preemptions_total", "Preemptions: sequences that gave up their pages.")},
    {E(prompt_tokens), MODEL(12, "prompt_tokens"),
     COUNTER("vllm:prompt_tokens_total", "Prompt tokens, cached ones included.")},
    {E(completion_tokens), MODEL(13, "completion_tokens"),
     COUNTER("vllm:generation_tokens_total", "Tokens generated.")},
    {E(steps), MODEL(11, "steps"), COUNTER("plateau_engine_steps_total", "Steps (forward passes).")},
    {E(step_errors), MODEL(15, "step_errors"),
     COUNTER("plateau_engine_step_errors_total", "Steps that failed.")},
    {E(busy_ns), .unit = GAUGE_SECONDS,
     COUNTER("plateau_engine_busy_seconds_total", "Time that the engine spent in steps.")},
    {E(last_step_ns), .unit = GAUGE_MS, MODEL(16, "last_step_ms"),
     GAUGE("plateau_engine_last_step_seconds", "Duration of the last step.")},
    {E(idle), MODEL(17, "idle"), NOTE("Whether nothing is to be computed.")},
    {E(pages_used), MODEL(7, "pages_used"), NOTE("KV pages of sequences.")},
    {E(pages_committed), MODEL(8, "pages_committed"),
     GAUGE("plateau_pages_committed", "KV pages with committed memory.")},
    {E(pages_max), MODEL(9, "pages_max"), NOTE("KV pages that may exist.")},
    {.write = write_cache_config,
     GAUGE("vllm:cache_config_info", "1; the labels are tokens of a KV page and pages that may exist.")},
    {E(states_used), MODEL(10, "states_used"), NOTE("Recurrent states of sequences.")},

    {E(drafts), MEMBER("speculation", 1, "drafts"),
     COUNTER("vllm:spec_decode_num_drafts_total", "Drafts of speculative decoding.")},
    {E(draft_tokens), MEMBER("speculation", 2, "draft_tokens"),
     COUNTER("vllm:spec_decode_num_draft_tokens_total", "Draft tokens of speculative decoding.")},
    {E(accepted_tokens), MEMBER("speculation", 3, "accepted_tokens"),
     COUNTER("vllm:spec_decode_num_accepted_tokens_total", "Accepted draft tokens.")},
    {ITEMS(engine.accepted_at, GAUGE_U64, DRAFT_LENGTH_DEPTH_MAX, "position", NULL),
     COUNTER("vllm:spec_decode_num_accepted_tokens_per_pos_total",
             "Accepted draft tokens by position in the draft; 0 is the first.")},

    PAGES(used, 0, 5),
    PAGES(used, 1, 6),
    PAGES(used, 2, 7),
    PAGES(used, 3, 8),
    PAGES(cached, 0, 9),
    PAGES(cached, 1, 10),
    PAGES(cached, 2, 11),
    PAGES(cached, 3, 12),
    POOL(kv, active, 1),
    POOL(kv, cached, 2),
    POOL(kv, peak, 3),
    POOL(kv, limit, 4),
    POOL(state, active, 1),
    POOL(state, cached, 2),
    POOL(state, peak, 3),
    POOL(state, limit, 4),

    {OF(looked_up_tokens),
     COUNTER("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.")},
    {E(cached_tokens), MEMBER("cache", 5, "hit_tokens"),
     COUNTER("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.")},
    {OF(host_hit_tokens), HIT_TOKENS, .labels = "tier=\"host\""},
    {E(pinned_tokens), HIT_TOKENS, .labels = "tier=\"pinned\""},
    {E(fetched_tokens), HIT_TOKENS, .labels = "tier=\"ssd\""},
    {OF(host_hits), HITS, .labels = "tier=\"host\""},
    {E(pinned_hits), HITS, .labels = "tier=\"pinned\""},
    {E(fetched_hits), HITS, .labels = "tier=\"ssd\""},
    {E(pinned.bytes), MEMBER("cache", 8, "pinned_bytes"),
     GAUGE("plateau_pinned_cache_bytes", "Bytes of pinned memory for what the prefix cache evicted.")},
    {E(pinned.bytes_max), MEMBER("cache", 9, "pinned_limit_bytes"),
     GAUGE("plateau_pinned_cache_limit_bytes", "Limit of that memory.")},
    {E(pinned.pages), MEMBER("cache", 10, "pinned_pages"),
     GAUGE("plateau_pinned_cache_pages", "Pages in pinned memory.")},
    {E(pinned.snapshots), MEMBER("cache", 11, "pinned_snapshots"),
     GAUGE("plateau_pinned_cache_snapshots", "Recurrent states (snapshots) in pinned memory.")},
    {E(pinned.written),
     COUNTER("plateau_pinned_cache_writes_total", "Pages and snapshots that came to pinned memory.")},
    {E(pinned.read),
     COUNTER("plateau_pinned_cache_reads_total", "Pages and snapshots read from pinned memory.")},
    {E(pinned.evictions),
     COUNTER("plateau_pinned_cache_evictions_total", "Pages and snapshots evicted from pinned memory.")},
    {E(cache_bytes), MEMBER("cache", 2, "bytes"),
     GAUGE("plateau_cache_bytes", "Bytes of cached prefixes that no request uses.")},
    {E(cache_bytes_max), MEMBER("cache", 1, "limit_bytes"),
     GAUGE("plateau_cache_limit_bytes", "Limit of the cached prefixes of this model.")},
    {E(cache_pages), MEMBER("cache", 3, "pages"), GAUGE("plateau_cache_pages", "Pages in the prefix cache.")},
    {E(cache_snapshots), MEMBER("cache", 4, "snapshots"),
     GAUGE("plateau_cache_snapshots", "Recurrent states (snapshots) in the prefix cache.")},
    {E(cache_pages_evicted), MEMBER("cache", 6, "pages_evicted"),
     COUNTER("plateau_cache_pages_evicted_total", "Pages evicted from the prefix cache.")},
    {E(cache_snapshots_evicted), MEMBER("cache", 7, "snapshots_evicted"),
     COUNTER("plateau_cache_snapshots_evicted_total",
             "Recurrent states (snapshots) evicted from the prefix cache.")},
    {E(unstored), MEMBER("cache", 17, "unstored"),
     GAUGE("plateau_ssd_unstored", "Pages and recurrent states that the SSD tier is yet to get.")},
    {E(sessions), MEMBER("cache", 12, "sessions"),
     GAUGE("plateau_cache_sessions", "Sessions that hold a prefix, or have one computed.")},
    {E(leased_bytes), MEMBER("cache", 13, "session_bytes"),
     GAUGE("plateau_cache_session_bytes", "Bytes of prefixes that sessions hold.")},
    {E(promised_bytes),
     GAUGE("plateau_cache_session_promised_bytes", "Bytes promised to sessions and not held yet.")},
    {E(lease_bytes_max), MEMBER("cache", 14, "session_limit_bytes"),
     GAUGE("plateau_cache_session_limit_bytes", "Limit of what sessions hold.")},
    {E(wishes), MEMBER("cache", 15, "wishes"),
     GAUGE("plateau_cache_wishes", "Prefixes that requests wished to be kept.")},
    {E(wished_bytes), MEMBER("cache", 16, "wished_bytes"),
     GAUGE("plateau_cache_wished_bytes", "Bytes of prefixes that requests wished to be kept.")},
    {E(sessions_opened), COUNTER("plateau_cache_sessions_total", "Sessions that were opened.")},
    {E(sessions_refused),
     COUNTER("plateau_cache_sessions_refused_total", "Sessions, and their growth, that did not fit.")},
    {E(leases_expired),
     COUNTER("plateau_cache_leases_expired_total", "Sessions and wishes whose time had come.")},
    {E(wishes_dropped),
     COUNTER("plateau_cache_wishes_dropped_total", "Wishes that ended before their time, for room.")},
    {E(agents), MEMBER("agents", 1, "active"), GAUGE("plateau_agents", "Agents with a place.")},
    {E(agents_running), MEMBER("agents", 2, "running"),
     GAUGE("plateau_agents_running", "Agents whose requests run.")},
    {E(agents_max), MEMBER("agents", 3, "limit"),
     GAUGE("plateau_agents_limit", "Places of agents, --agents.")},
    {E(agent_tokens), MEMBER("agents", 4, "tokens"),
     GAUGE("plateau_agent_tokens", "Tokens of prefixes that places hold for their agents.")},
    {E(agent_tokens_max), MEMBER("agents", 5, "context"),
     GAUGE("plateau_agent_context_tokens", "Tokens that a place has room for.")},
    {E(agents_taken), COUNTER("plateau_agents_total", "Agents that got a place.")},
    {E(agents_refused), MEMBER("agents", 6, "refused"),
     COUNTER("plateau_agents_refused_total", "Requests refused because all places were taken.")},
    {E(agents_expired), COUNTER("plateau_agents_expired_total", "Places that became free by idle time.")},
    {E(fetching), MODEL(6, "fetching"),
     GAUGE("plateau_ssd_fetching", "Requests waiting for the SSD tier or pinned memory.")},
    {E(fetches),
     COUNTER("plateau_ssd_fetches_total", "Prefixes requested from the SSD tier or pinned memory.")},
    {E(fetches_failed), COUNTER("plateau_ssd_fetches_failed_total", "Prefixes of which only a part came.")},

    {OF(grammars.entries), MEMBER("grammars", 1, "entries"),
     GAUGE("plateau_grammar_cache_entries", "Compiled grammars and schemas in the cache.")},
    {OF(grammars.used), MEMBER("grammars", 2, "used"),
     GAUGE("plateau_grammar_cache_used", "Of these, the ones that requests use.")},
    {OF(grammars.hits), MEMBER("grammars", 3, "hits"),
     COUNTER("plateau_grammar_cache_hits_total", "Requests whose grammar was compiled already.")},
    {OF(grammars.compiled), MEMBER("grammars", 4, "compiled"),
     COUNTER("plateau_grammar_compiled_total", "Grammars and schemas compiled.")},
    {OF(grammars.refused), MEMBER("grammars", 5, "refused"),
     COUNTER("plateau_grammar_refused_total", "Grammars and schemas that do not compile.")},
    {OF(grammars.evicted), MEMBER("grammars", 6, "evicted"),
     COUNTER("plateau_grammar_cache_evicted_total", "Compiled grammars evicted from the cache.")},
    {E(masks), MEMBER("grammars", 7, "masks"),
     COUNTER("plateau_grammar_masks_total", "Masks of tokens made for constrained decoding.")},
    {E(mask_ns), .unit = GAUGE_SECONDS, MEMBER("grammars", 8, "mask_seconds"),
     COUNTER("plateau_grammar_mask_seconds_total", "Wall time spent making them.")},
    {E(mask_max_ns), .unit = GAUGE_MS, MEMBER("grammars", 9, "longest_mask_ms"),
     GAUGE("plateau_grammar_mask_seconds_max", "Time of the longest mask.")},

    {E(images_encoded), MEMBER("images", 4, "encoded"),
     COUNTER("plateau_vision_images_encoded_total", "Images that the vision encoder computed.")},
    {E(images_found), MEMBER("images", 5, "found"),
     COUNTER("plateau_vision_cache_hits_total", "Images whose embeddings were found in the cache.")},
    {E(images_evicted), MEMBER("images", 6, "evicted"),
     COUNTER("plateau_vision_cache_evicted_total", "Images whose embeddings were evicted from the cache.")},
    {E(images_kept), MEMBER("images", 3, "kept"),
     GAUGE("plateau_vision_cache_images", "Images with cached embeddings.")},
    {E(images_bytes), MEMBER("images", 2, "bytes"),
     GAUGE("plateau_vision_cache_bytes", "Bytes of cached image embeddings.")},
    {E(images_bytes_max), MEMBER("images", 1, "limit_bytes"),
     GAUGE("plateau_vision_cache_limit_bytes", "Limit of the cached image embeddings.")},
    {E(encoding_bytes), MEMBER("images", 10, "encoding_bytes"),
     GAUGE("plateau_vision_encoding_bytes", "Memory of the vision encoder's activations.")},
    {E(encode_ns), .unit = GAUGE_SECONDS, MEMBER("images", 7, "encode_seconds"),
     COUNTER("plateau_vision_encode_seconds_total", "Time spent encoding images.")},
    {E(encode_slices), MEMBER("images", 8, "slices"),
     COUNTER("plateau_vision_encode_slices_total", "Slices of image encoding between steps.")},
    {E(encode_slice_max_ns), .unit = GAUGE_MS, MEMBER("images", 9, "longest_slice_ms"),
     GAUGE("plateau_vision_encode_slice_seconds_max", "Duration of the longest slice of image encoding.")},

    {E(pending_trim_bytes), MEMBER("trims", 1, "pending_bytes"),
     GAUGE("plateau_pending_trim_bytes", "Free pool memory that is due to return to the system.")},
    {E(trim.trims), MEMBER("trims", 2, "count"),
     COUNTER("plateau_trims_total", "Trims: times that pools returned free memory.")},
    {E(trim.units), MEMBER("trims", 3, "units"),
     COUNTER("plateau_trim_units_total", "Commit units of 2 MiB returned by trims.")},
    {E(trim.bytes), MEMBER("trims", 4, "bytes"),
     COUNTER("plateau_trim_bytes_total", "Bytes returned by trims.")},
    {E(trim.moves), MEMBER("trims", 5, "moves"),
     COUNTER("plateau_trim_moves_total", "Cached pages and states moved to empty a commit unit.")},
    {E(walks), COUNTER("plateau_invariant_walks_total", "Checks of all invariants at rest.")},
    {E(walk_ns), .unit = GAUGE_SECONDS,
     GAUGE("plateau_invariant_walk_seconds", "Duration of the last of them.")},
    {E(trim.slices), MEMBER("trims", 6, "slices"),
     COUNTER("plateau_trim_slices_total", "Pieces that trims were done in.")},
    {E(trim.slice_ns), .unit = GAUGE_SECONDS,
     COUNTER("plateau_trim_slice_seconds_total", "Time that they took.")},
    {E(trim.slice_max_ns), .unit = GAUGE_MS, MEMBER("trims", 7, "longest_slice_ms"),
     GAUGE("plateau_trim_slice_seconds_max", "Duration of the longest trim slice.")},
    {E(units_recommitted), MEMBER("trims", 8, "units_recommitted"),
     COUNTER("plateau_units_recommitted_total",
             "Commit units returned and committed again within a second.")},
    {E(reclaims), MEMBER("trims", 9, "memory_short"),
     COUNTER("plateau_memory_short_total", "Times that the prefix cache shrank because memory was short.")},
};

static bool read_numbers(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    if (!tenant)
        report_read_model(a, model, ret);
    return !tenant;
}

const struct gauge_table report_model_gauges = {
    "Of a model", rows, COUNT_OF(rows), true, sizeof(struct report_model), read_numbers};
