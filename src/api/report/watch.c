/* watch.c - reads each engine's clock.
 *
 * The engine's thread may be the stuck one. So all data here is published by it earlier: the time of its last
 * layer and the requests of its step. */
#include "api/report/watch.h"

#include "api/api_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_numbers.h"
#include "engine/stream.h"

#define IDS_SHOWN_MAX 8

static void tell(struct api *a, uint32_t model, uint64_t silent_ns)
{
    struct request_id ids[IDS_SHOWN_MAX];
    char text[IDS_SHOWN_MAX * 33 + 1] = "";
    uint32_t count = 0;
    struct model_lease look = {0};
    if (registry_peek(a->opts.registry, model, &look) == 0)
        count = engine_step_ids(look.model->engine, ids, IDS_SHOWN_MAX);
    registry_release_peek(&look);
    for (uint32_t i = 0; i < MIN_OF(count, (uint32_t)IDS_SHOWN_MAX); i++) {
        request_id_text(ids[i], text + i * 33);
        text[i * 33 + 32] = ',';
        text[i * 33 + 33] = 0;
    }
    if (text[0])
        text[strlen(text) - 1] = 0;
    LOG_WARN("stuck", "model=%s silent_s=%.1f requests=%u ids=%s", api_model_id(a, model),
             (double)silent_ns / (double)NS_PER_S, count, text);
}

static void watch_model(struct api *a, uint32_t model, uint64_t now_ns)
{
    struct watch *w = &a->watches[model];
    uint64_t silent_ns = 0;
    bool stuck = api_is_stuck(a, model, &silent_ns);
    if (stuck && !w->stuck) {
        w->since_ns = now_ns - silent_ns;
        w->times++;
        tell(a, model, silent_ns);
    } else if (!stuck && w->stuck) {
        LOG_INFO("unstuck", "model=%s after_s=%.1f", api_model_id(a, model),
                 (double)(now_ns - w->since_ns) / (double)NS_PER_S);
    }
    w->stuck = stuck;
}

void watch_models(struct api *a, uint64_t now_ns)
{
    for (uint32_t i = 0; i < api_model_count(a); i++)
        watch_model(a, i, now_ns);
}
