/* watch.h - which models have something to compute and do not get on with it.
 *
 * Stuck: no layer of a step has finished for --stuck seconds though something could be computed. It is told
 * when it begins, with the requests that the step has, and when it is over. Network thread. */
#ifndef PLATEAU_API_WATCH_H
#define PLATEAU_API_WATCH_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct api;

/* Of one model. */
struct watch {
    bool stuck; /* as it was at the last look */
    uint64_t since_ns, times;
};

/* About every 250 ms. */
void watch_models(struct api *a, uint64_t now_ns);
/* Whether the model is stuck now, and for how long no layer has finished. */
bool watch_is_stuck(struct api *a, uint32_t model, uint64_t *silent_ns);
void watch_write_metrics(struct api *a, struct buf *ret);

#endif
