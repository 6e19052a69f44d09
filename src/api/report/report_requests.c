/* report_requests.c - requests now: the state of exchanges, joined with the numbers that engines published
 * last. */
#include "api/api_state.h"
#include "api/exchange.h"
#include "api/report/report.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "engine/engine_numbers.h"
#include "gen/choice.h"

/* Jobs of all engines into a->jobs, up to its size. */
static uint32_t read_jobs(struct api *a)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        uint32_t room = API_JOBS_SHOWN_MAX - count;
        struct model_lease look;
        if (registry_peek(a->opts.registry, i, &look) < 0)
            continue;
        uint32_t have = engine_jobs(look.model->engine, a->jobs + count, room);
        registry_release_peek(&look);
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
    uint32_t images, images_done; /* images of all choices */
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
    /* No reader holds up a request without a token: some texts have their vectors, and others follow. */
    if (furthest == JOB_PAUSED && w.tokens == 0)
        furthest = JOB_PREFILLING;
    if (x->phase == EXCHANGE_RUNNING)
        w.phase = w.tokens > 0 && furthest == JOB_QUEUED ? engine_phase_name(JOB_DECODING)
                                                         : engine_phase_name(furthest);
    return w;
}

/* Fraction of a request's images that are read; frames of a video count as parts of it. */
static double media_part_done(const struct exchange *x)
{
    struct media_progress p = media_task_progress(x->gen.task);
    double of_this = p.frames > 0 ? (double)MIN_OF(p.frames_decoded, p.frames) / (double)p.frames : 0;
    return MIN_OF(((double)p.parts_done + of_this) / p.parts, 1.0);
}

static void write_media(const struct exchange *x, struct json_out *j)
{
    static const char *const states[] = {"made", "fetching", "waiting", "working", "done"};
    struct media_progress p = media_task_progress(x->gen.task);
    json_open(j, "media");
    json_put_string(j, "state", states[media_task_state(x->gen.task)]);
    JSON_PUT_U64S(j, {"parts", p.parts}, {"parts_done", p.parts_done}, {"bytes_fetched", p.bytes_fetched},
                  {"frames", p.frames}, {"frames_decoded", p.frames_decoded});
    json_close(j);
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

static void write_request(struct exchange *x, const struct work *w, struct json_out *j)
{
    bool known = x->phase != EXCHANGE_PREPARING;
    json_open(j, NULL);
    JSON_PUT_STRINGS(j, {"id", x->id_text}, {"route", x->route}, {"key", x->who.key},
                     {"client", x->who.client});
    json_put_string(j, "model",
                    known && x->model_index >= 0 ? api_model_id(x->api, (uint32_t)x->model_index) : NULL);
    json_put_string(j, "phase", w->phase);
    json_put_fixed(j, "progress", 4, known ? progress_of(x, w) : 0);
    JSON_PUT_U64S(j, {"prompt_tokens", w->prompt_tokens}, {"tokens", w->tokens},
                  {"cached_tokens", w->cached_tokens}, {"draft_tokens", w->draft_tokens},
                  {"accepted_tokens", w->accepted_tokens}, {"images", w->images},
                  {"images_done", w->images_done}, {"choices", known ? x->gen.choice_count : 0},
                  {"bytes", w->bytes + w->image_bytes});
    json_put_fixed(j, "age_seconds", 3, (double)(clock_now_ns() - x->arrived_ns) / (double)NS_PER_S);
    json_put_bool(j, "client_connected", x->http != NULL);
    if (x->phase == EXCHANGE_WAITING && x->waits == WAIT_IMAGES)
        write_media(x, j);
    json_close(j);
}

void report_requests(struct api *a, const uint64_t *tenant, uint32_t max, struct report_requests *n,
                     struct json_out *j)
{
    uint32_t written = 0;
    *n = (struct report_requests){.jobs = read_jobs(a)};
    json_open_array(j, "requests");
    LIST_EACH(it, &a->exchanges) {
        struct exchange *x = LIST_ENTRY(it, struct exchange, all);
        if (tenant && x->gen.tenant != *tenant)
            continue;
        struct work w = work_of(x, n->jobs);
        if (strcmp(w.phase, engine_phase_name(JOB_QUEUED)) == 0)
            n->waiting++;
        else
            n->active++;
        if (written++ < max)
            write_request(x, &w, j);
    }
    json_close(j);
}
