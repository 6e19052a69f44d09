/* report_model.h - what reports say of one model. Network thread; changes nothing. */
#ifndef PLATEAU_API_REPORT_MODEL_H
#define PLATEAU_API_REPORT_MODEL_H

#include "constraint/grammar_cache.h"
#include "engine/engine_numbers.h"
#include "registry/registry.h"

struct api;
struct gauge_table;

struct report_model {
    const char *id;
    struct registry_info info;
    uint32_t in_state[MODEL_FAILED + 1]; /* 1 for the present one */
    struct engine_numbers engine;
    struct grammar_cache_numbers grammars;
    double kv_usage;
    uint64_t looked_up_tokens, host_hit_tokens, host_hits; /* host: hits in memory */
};
void report_read_model(struct api *a, uint32_t index, struct report_model *ret);
extern const struct gauge_table report_model_gauges;

#endif
