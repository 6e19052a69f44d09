/* api_history.c - the figures, the last requests and the last lines of the log that reports show. */
#include "api/api_state.h"
#include "api/report/figures.h"
#include "api/report/trace.h"

#include "base/log_ring.h"

/* All parts lie in memory of their own; the log's stays with the process. */
uint64_t api_history_bytes(void)
{
    return figures_bytes() + trace_bytes() + LOG_RING_BYTES;
}

int api_history_open(struct api *a)
{
    if (!a->opts.history)
        return 0;
    struct charge charge = account_charge(a->opts.history);
    int r = charge_take(&charge, LOG_RING_BYTES);
    if (r < 0)
        return r;
    r = figures_create(a->opts.history, &a->figures);
    if (r == 0)
        r = trace_create(a->opts.history, &a->trace);
    if (r == 0) {
        log_ring_start();
        return 0;
    }
    figures_free(a->figures);
    a->figures = NULL;
    charge_give(&charge, LOG_RING_BYTES);
    return r;
}

void api_history_close(struct api *a)
{
    if (!a->figures)
        return;
    struct charge charge = account_charge(a->opts.history);
    log_ring_stop();
    figures_free(a->figures);
    trace_free(a->trace);
    charge_give(&charge, LOG_RING_BYTES);
}
