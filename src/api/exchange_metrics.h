/* exchange_metrics.h - where an exchange counts: its model's metrics, and its tenant's share of them. */
#ifndef PLATEAU_API_EXCHANGE_METRICS_H
#define PLATEAU_API_EXCHANGE_METRICS_H

#include "api/exchange.h"

/* Before its model is known: those of the first one. */
struct metrics *exchange_metrics(struct exchange *x);
struct metrics_counts *exchange_metrics_own(struct exchange *x);

/* For the model, and for the tenant. */
#define EXCHANGE_COUNT(x, field)                                                                             \
    do {                                                                                                     \
        exchange_metrics(x)->counts.field++;                                                                 \
        exchange_metrics_own(x)->field++;                                                                    \
    } while (0)

#endif
