/* report_status.c - models and requests now: the state of exchanges, joined with the numbers that engines
 * published last. */
#include "api/report.h"

#include "api/exchange.h"

#include "base/check.h"
#include "base/clock.h"

struct totals {
    uint32_t active, waiting;
};

static void write_speculation(const struct drafting_opts *g, const struct report_model *n, struct buf *ret)
{
    buf_puts(ret, ",\"speculation\":{");
    report_speculation(g, ret);
    buf_putc(ret, ',');
    gauges_write_members(&report_model_gauges, "speculation", n, ret);
    buf_puts(ret, ",\"accepted_per_position\":[");
    for (uint32_t i = 0; i < g->drafts_max; i++)
        buf_printf(ret, i ? ",%llu" : "%llu", (ull)n->engine.accepted_at[i]);
    buf_puts(ret, "]}");
}

static void write_objects(const struct report_model *n, struct buf *ret)
{
    const struct gauge_table *t = &report_model_gauges;
    gauges_write_object(t, "cache", n, ret);
    buf_putc(ret, ',');
    gauges_write_object(t, "images", n, ret);
    buf_puts(ret, ",\"pools\":{");
    gauges_write_object(t, "kv", n, ret);
    buf_putc(ret, ',');
    gauges_write_object(t, "state", n, ret);
    buf_puts(ret, "},");
    gauges_write_object(t, "trims", n, ret);
}

/* The same for a model that is not loaded: all zero. */
static void write_model(struct api *a, uint32_t index, struct report_model *n, struct buf *ret)
{
    struct lease look = {0};
    bool loaded = registry_look(a->opts.registry, index, &look) == 0;
    report_read_model(a, index, n);
    buf_putc(ret, '{');
    json_write_member(ret, "id", api_model_id(a, index));
    report_model_state(a, index, true, ret);
    if (loaded) {
        buf_printf(ret, ",\"compute\":\"%s\",\"exact\":%s,\"max_model_len\":%u", look.model->compute,
                   look.model->exact ? "true" : "false", look.model->max_model_len);
        write_speculation(&look.model->drafting, n, ret);
    }
    registry_look_away(&look);
    buf_putc(ret, ',');
    gauges_write_members(&report_model_gauges, "model", n, ret);
    buf_putc(ret, ',');
    write_objects(n, ret);
    buf_putc(ret, '}');
}

/* Jobs of all engines into a->jobs, up to its size. */
static uint32_t read_jobs(struct api *a)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        uint32_t room = API_JOBS_SHOWN_MAX - count;
        struct lease look;
        if (registry_look(a->opts.registry, i, &look) < 0)
            continue;
        uint32_t have = engine_jobs(look.model->engine, a->jobs + count, room);
        registry_look_away(&look);
        count += MIN_OF(have, room);
    }
    return count;
}

static const struct job_numbers *find_job(const struct api *a, uint32_t count, struct request_id id)
{
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(&a->jobs[i].id, &id, sizeof(id)) == 0)
            return &a->jobs[i];
    return NULL;
}

/* The jobs of one exchange together: the furthest phase, the sums. */
struct work {
    const char *phase;
    uint32_t prompt_tokens, prompt_done, tokens, cached_tokens, draft_tokens, accepted_tokens;
    uint32_t images, images_done; /* the same for all choices */
    uint64_t bytes, image_bytes;
};

static struct work work_of(struct exchange *x, uint32_t job_count)
{
    static const char *const phases[] = {"receiving", "preparing", "loading", "queued", "sending"};
    struct work w = {.phase = phases[x->phase]};
    enum job_phase furthest = JOB_QUEUED;
    if (x->phase == EXCHANGE_PREPARING)
        return w; /* The prep thread owns everything else. */
    w.bytes = x->gen.memory.reserved;
    if (x->phase == EXCHANGE_WAITING && x->waits == WAIT_IMAGES)
        w.phase = "media";
    if (x->phase == EXCHANGE_WAITING && x->waits == WAIT_GRAMMAR)
        w.phase = "preparing";
    for (uint32_t i = 0; i < x->gen.choice_count; i++) {
        const struct choice *c = &x->gen.choices[i];
        const struct job_numbers *j = find_job(x->api, job_count, c->job_id);
        w.prompt_tokens += x->gen.prompts[c->prompt_index].count;
        w.tokens += c->tokens;
        if (!j)
            continue;
        w.prompt_done += j->prompt_done;
        w.cached_tokens += j->cached_tokens;
        w.draft_tokens += j->drafted_tokens;
        w.accepted_tokens += j->accepted_tokens;
        w.images = j->images;
        w.images_done = MAX_OF(w.images_done, j->images_done);
        w.image_bytes = j->image_bytes;
        w.bytes += j->bytes;
        if (j->phase != JOB_QUEUED && (furthest == JOB_QUEUED || j->phase == JOB_DECODING))
            furthest = j->phase;
    }
    if (x->phase == EXCHANGE_RUNNING)
        w.phase =
            w.tokens > 0 && furthest == JOB_QUEUED ? job_phase_name(JOB_DECODING) : job_phase_name(furthest);
    return w;
}

/* Fraction of a request's images that are read; frames of a video count as parts of it. */
static double media_part_done(const struct exchange *x)
{
    struct media_progress p = media_task_progress(x->gen.task);
    double of_this = p.frames > 0 ? (double)MIN_OF(p.frames_decoded, p.frames) / (double)p.frames : 0;
    return MIN_OF(((double)p.parts_done + of_this) / p.parts, 1.0);
}

static void write_media(const struct exchange *x, struct buf *ret)
{
    static const char *const states[] = {"made", "fetching", "waiting", "working", "done"};
    struct media_progress p = media_task_progress(x->gen.task);
    buf_printf(ret,
               ",\"media\":{\"state\":\"%s\",\"parts\":%u,\"parts_done\":%u,\"bytes_fetched\":%llu,"
               "\"frames\":%llu,\"frames_decoded\":%llu}",
               states[media_task_state(x->gen.task)], p.parts, p.parts_done, (ull)p.bytes_fetched,
               (ull)p.frames, (ull)p.frames_decoded);
}

static double progress_of(const struct exchange *x, const struct work *w)
{
    uint64_t wanted = (uint64_t)x->gen.max_tokens * x->gen.choice_count;
    if (x->phase == EXCHANGE_WAITING && x->waits == WAIT_IMAGES)
        return media_part_done(x);
    if (w->tokens > 0 && wanted > 0)
        return (double)w->tokens / (double)wanted;
    return w->prompt_tokens > 0 ? (double)w->prompt_done / w->prompt_tokens : 0;
}

static void write_request(struct exchange *x, uint32_t job_count, struct totals *totals, struct buf *ret)
{
    struct work w = work_of(x, job_count);
    bool known = x->phase != EXCHANGE_PREPARING;
    if (strcmp(w.phase, job_phase_name(JOB_QUEUED)) == 0)
        totals->waiting++;
    else
        totals->active++;
    buf_printf(ret, "{\"id\":\"%s\",\"route\":\"%s\",\"key\":\"%s\",\"client\":\"%s\"", x->id_text, x->route,
               x->who.key, x->who.client);
    json_write_member(ret, "model",
                      known && x->model_index >= 0 ? api_model_id(x->api, (uint32_t)x->model_index) : NULL);
    buf_printf(ret,
               ",\"phase\":\"%s\",\"progress\":%.4f,\"prompt_tokens\":%u,\"tokens\":%u,\"cached_tokens\":%u,"
               "\"draft_tokens\":%u,\"accepted_tokens\":%u,\"images\":%u,\"images_done\":%u,\"choices\":%u,"
               "\"bytes\":%llu,\"age_seconds\":%.3f,\"client_connected\":%s",
               w.phase, known ? progress_of(x, &w) : 0.0, w.prompt_tokens, w.tokens, w.cached_tokens,
               w.draft_tokens, w.accepted_tokens, w.images, w.images_done, known ? x->gen.choice_count : 0,
               (ull)(w.bytes + w.image_bytes), (double)(clock_now_ns() - x->arrived_ns) / (double)NS_PER_S,
               x->http ? "true" : "false");
    if (x->phase == EXCHANGE_WAITING && x->waits == WAIT_IMAGES)
        write_media(x, ret);
    buf_putc(ret, '}');
}

static void add_cache(struct engine_numbers *sum, const struct engine_numbers *n)
{
    sum->cache_bytes += n->cache_bytes;
    sum->cache_bytes_max += n->cache_bytes_max;
    sum->cache_pages += n->cache_pages;
    sum->cache_snapshots += n->cache_snapshots;
    sum->cached_tokens += n->cached_tokens;
    sum->fetched_tokens += n->fetched_tokens;
    sum->pending_trim_bytes += n->pending_trim_bytes;
    sum->images_bytes += n->images_bytes;
    sum->images_bytes_max += n->images_bytes_max;
    sum->images_kept += n->images_kept;
    sum->images_encoded += n->images_encoded;
    sum->images_found += n->images_found;
}

void report_status(struct api *a, struct buf *ret)
{
    struct totals totals = {0};
    uint32_t jobs = read_jobs(a);
    bool first = true;
    struct engine_numbers cache = {0};
    buf_puts(ret, "{\"models\":[");
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        if (i > 0)
            buf_putc(ret, ',');
        struct report_model n;
        write_model(a, i, &n, ret);
        add_cache(&cache, &n.engine);
    }
    buf_puts(ret, "],\"requests\":[");
    LIST_EACH(it, &a->exchanges) {
        if (!first)
            buf_putc(ret, ',');
        first = false;
        write_request(LIST_ENTRY(it, struct exchange, all), jobs, &totals, ret);
    }
    buf_printf(
        ret,
        "],\"active_requests\":%u,\"waiting_requests\":%u,\"engine_jobs\":%u,\"streams\":%u,"
        "\"uptime_seconds\":%.1f,\"pending_trim_bytes\":%llu,\"caches\":{\"host\":{\"limit_bytes\":%llu,"
        "\"bytes\":%llu,\"pages\":%u,\"snapshots\":%u,\"hit_tokens\":%llu},\"ssd\":",
        totals.active, totals.waiting, jobs, atomic_load(&a->streams_now),
        (double)(clock_now_ns() - a->started_ns) / (double)NS_PER_S, (ull)cache.pending_trim_bytes,
        (ull)report_cache_limit(a, cache.cache_bytes_max), (ull)cache.cache_bytes, cache.cache_pages,
        cache.cache_snapshots, (ull)(cache.cached_tokens - cache.fetched_tokens));
    report_ssd(a, cache.fetched_tokens, ret);
    buf_printf(
        ret,
        ",\"images\":{\"limit_bytes\":%llu,\"bytes\":%llu,\"kept\":%u,\"encoded\":%llu,\"found\":%llu}}"
        ",",
        (ull)cache.images_bytes_max, (ull)cache.images_bytes, cache.images_kept, (ull)cache.images_encoded,
        (ull)cache.images_found);
    report_media(a, ret);
    buf_putc(ret, ',');
    report_holders(a, ret);
    buf_putc(ret, ',');
    report_guard(a, ret);
    buf_putc(ret, '}');
}
