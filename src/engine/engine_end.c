/* engine_end.c - the end of a job, and of the engine: by order, or because its device failed. */
#include "engine/engine_state.h"

#include "base/bytes_text.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "memory/domain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- jobs ---- */

static uint64_t between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns && to_ns > from_ns ? to_ns - from_ns : 0;
}

void engine_end_job(struct engine *en, struct job *j, enum finish_reason why)
{
    ASSERT(!j->over);
    uint64_t now_ns = clock_now_ns();
    image_sched_leave(&en->image_sched, j);
    engine_leases_hold(en, j, why);
    engine_agents_hold(en, j);
    if (j->seq.phase != SCHED_NEW)
        sched_remove(en->sched, &j->seq);
    engine_leases_end(en, j);
    engine_agents_leave(en, j);
    j->over = true;
    job_release_held(j);
    j->finish.reason = why;
    j->finish.prompt_tokens = j->prompt_count;
    j->finish.completion_tokens = j->output_count;
    j->finish.drafted_tokens = j->draft.drafted_tokens;
    j->finish.accepted_tokens = j->draft.accepted_tokens;
    j->finish.cached_tokens = j->seq.cached;
    j->finish.pinned_tokens = j->seq.fetched_pinned;
    j->finish.ssd_tokens = j->seq.fetched - j->seq.fetched_pinned;
    j->finish.written_tokens = j->admitted_ns ? job_written_tokens(j) : 0;
    j->finish.lost = j->lost;
    j->finish.queued_ns = between(j->arrival_ns, j->admitted_ns ? j->admitted_ns : now_ns);
    j->finish.prefill_ns = between(j->admitted_ns, j->first_token_ns ? j->first_token_ns : now_ns);
    j->finish.decode_ns = between(j->first_token_ns, now_ns);
    en->now.finished[why]++;
    en->last_end_ns = now_ns;
    uint64_t service = between(j->admitted_ns, now_ns), before = atomic_load(&en->service_ns);
    if (service > 0)
        atomic_store(&en->service_ns, before ? before - before / 8 + service / 8 : service);
    list_remove(&j->link);
    list_push_back(&en->over, &j->link);
}

void engine_fail_job(struct engine *en, struct job *j, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(j->finish.error, sizeof(j->finish.error), format, ap);
    va_end(ap);
    engine_end_job(en, j, FINISH_ERROR);
}

/* ---- the engine ---- */

void engine_stop(struct engine *en)
{
    if (!en)
        return;
    atomic_store(&en->closing, true);
    if (en->inbox)
        mailbox_close(en->inbox);
}

void engine_wake(struct engine *en)
{
    struct engine_message m = {0};
    /* -EPIPE: the engine is closing and looks at its inbox anyway. */
    if (!atomic_exchange(&en->wake_posted, true))
        (void)mailbox_put(en->inbox, &m);
}

int engine_failure(const struct engine *en)
{
    return atomic_load(&en->failure);
}

void engine_fail(struct engine *en, int error)
{
    int none = 0;
    ASSERT(error < 0 && error != -ECANCELED);
    if (!atomic_compare_exchange_strong(&en->failure, &none, error))
        return;
    LOG_ERROR("device_failed", "model=%s error=\"%s\"", en->name,
              strerrordesc_np(-error) ? strerrordesc_np(-error) : "unknown");
    engine_stop(en);
}

void engine_say_taken(const struct engine *en, char *ret, size_t bytes_max)
{
    const struct domain *d = en->opts.device->domain;
    struct domain_figures f;
    char where[DOMAIN_HOLDER_BYTES + 160];
    if (domain_figures(d, &f))
        snprintf(where, sizeof(where), "Other programs hold %s of the %s of device %s, and %s are free",
                 bytes_text(f.others_bytes).text, bytes_text(f.total_bytes).text, d->name,
                 bytes_text(f.free_bytes).text);
    else
        snprintf(where, sizeof(where), "Other programs have the machine's memory");
    snprintf(ret, bytes_max,
             "%s: there is no memory for new requests. Running requests go on. Try again in "
             "%d s.",
             where, ENGINE_RETRY_TAKEN_S);
}

void engine_end_taken(struct engine *en, struct job *j)
{
    engine_say_taken(en, j->finish.error, sizeof(j->finish.error));
    engine_end_job(en, j, FINISH_MEMORY_TAKEN);
}

void engine_fail_with_device(struct engine *en, struct job *j)
{
    ASSERT(engine_failure(en) != 0);
    engine_fail_job(en, j,
                    "The device that computes this model failed (error %d). The model is closed; send the "
                    "request again to load it anew.",
                    -engine_failure(en));
}
