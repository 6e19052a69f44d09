/* exchange_metrics.c - while a prep thread works on it, its model may change. */
#include "api/exchange_metrics.h"

struct metrics *exchange_metrics(struct exchange *x)
{
    bool known = x->phase != EXCHANGE_PREPARING && x->model_index >= 0;
    return &x->api->metrics[known ? x->model_index : 0];
}

struct metrics_counts *exchange_metrics_own(struct exchange *x)
{
    uint32_t model = (uint32_t)(exchange_metrics(x) - x->api->metrics);
    return tenants_counts(x->api->tenants, x->gen.tenant, model);
}
