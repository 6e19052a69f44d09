/* watch.h - finds models that have work and make no progress.
 *
 * Stuck: no layer of a step has finished for --stuck seconds though a sequence could be computed. The log has
 * a line when that starts, with the requests of the step, and one when it ends. Network thread. */
#ifndef PLATEAU_API_WATCH_H
#define PLATEAU_API_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct api;

/* Watch on one model's engine. */
struct watch {
    bool stuck; /* state at the last check */
    uint64_t since_ns, times;
};

/* About every 250 ms. */
void watch_models(struct api *a, uint64_t now_ns);

#endif
