/* machine_limits.c - the yardsticks of the benchmarks, with workers of their own. The pool of a server in
 * another process sleeps while it has no request, so both measure the same cores. */
#include "host/machine_limits.h"

#include "host/runtime.h"
#include "kernel/yardsticks.h"

#include "kernel/workers.h"
#include "model/model_work.h"
#include "weights/model_files.h"

#include <errno.h>
#include <stdlib.h>

struct machine_limits {
    struct workers *workers;
    struct yardsticks yard;
};

int machine_limits_open(struct machine_limits **ret)
{
    struct machine_limits *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    int r = workers_create(workers_default_count(), NULL, &l->workers);
    if (r == 0)
        r = yardsticks_init(&l->yard, l->workers, YARDSTICK_BYTES_SMALL);
    if (r < 0) {
        machine_limits_close(l);
        return r;
    }
    *ret = l;
    return 0;
}

void machine_limits_close(struct machine_limits *l)
{
    if (!l)
        return;
    yardsticks_done(&l->yard);
    workers_free(l->workers);
    free(l);
}

uint32_t machine_limits_threads(const struct machine_limits *l)
{
    return workers_count(l->workers);
}

bool machine_limits_in_cache(uint64_t bytes)
{
    return bytes < 4 * (uint64_t)yardsticks_cache_bytes();
}

double machine_limits_read(struct machine_limits *l)
{
    workers_turn_begin(l->workers);
    const double seconds = yardsticks_read_once(&l->yard);
    workers_turn_end(l->workers);
    return seconds > 0 ? (double)l->yard.bytes / seconds : 0;
}

double machine_limits_multiply(struct machine_limits *l)
{
    const double operations = yardsticks_fma_flop(&l->yard);
    if (operations <= 0)
        return 0;
    workers_turn_begin(l->workers);
    const double seconds = yardsticks_fma_once(&l->yard);
    workers_turn_end(l->workers);
    return seconds > 0 ? operations / seconds : 0;
}

int machine_limits_work(const char *model, struct model_work *ret, struct err *e)
{
    char dir[RUNTIME_DIR_BYTES], id[RUNTIME_ID_BYTES];
    struct model_files *files = NULL;
    struct model_shape shape;
    int r = runtime_find_model(model, NULL, dir, id, e);
    if (r == 0)
        r = model_files_open(dir, &files, e);
    if (r == 0)
        r = model_probe(files, NULL, &shape, e);
    model_files_close(files);
    if (r == 0)
        *ret = model_work_of(&shape);
    return r;
}
