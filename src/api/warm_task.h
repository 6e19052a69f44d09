/* warm_task.h - one request of a --warm file: checked, or its prefix computed on the calling thread. */
#ifndef PLATEAU_API_WARM_TASK_H
#define PLATEAU_API_WARM_TASK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct api;
struct model_lease;
struct mailbox;
struct warm_request;

struct warm_task_opts {
    struct api *api;
    struct mailbox *news; /* gets the streams of its jobs */
    const _Atomic bool *stopping;
    const char *path; /* the file, for the log */
    int model;        /* -1: the request names it */
    uint64_t tenant;
};

/* Reads and checks the request, and returns its model; -EINVAL with the line and the reason. With a lease on
 * that model it computes the prefix, and the log says how that ended. */
int warm_task(const struct warm_task_opts *opts, const struct warm_request *r,
              const struct model_lease *lease, struct err *e);
/* True: the server stops, or the leased model drains. */
bool warm_task_is_ending(const struct warm_task_opts *opts, const struct model_lease *lease);

#endif
