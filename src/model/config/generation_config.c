/* generation_config.c - end tokens. A qwen3_5 text config lists only the end of text; generation_config.json
 * lists the end of the turn as well. The latter wins whenever it names any. */
#include "model/config/generation_config.h"

#include "model/config/json_read.h"

#include "base/check.h"
#include "weights/model_json.h"

#include <errno.h>

#define ID_MAX (UINT32_MAX - 1)

static void read_eos(struct json_read *r, struct generation_defaults *g)
{
    json_read_ids(r, "eos_token_id", ID_MAX, g->eos_ids, COUNT_OF(g->eos_ids), &g->eos_count);
}

static void read_defaults(struct json_read *r, struct generation_defaults *g)
{
    read_eos(r, g);
    g->has_temperature = json_read_get(r, "temperature") != NULL;
    g->has_top_k = json_read_get(r, "top_k") != NULL;
    g->has_top_p = json_read_get(r, "top_p") != NULL;
    g->has_min_p = json_read_get(r, "min_p") != NULL;
    g->has_repetition_penalty = json_read_get(r, "repetition_penalty") != NULL;
    g->has_max_new_tokens = json_read_get(r, "max_new_tokens") != NULL;
    g->temperature = json_read_f64_or(r, "temperature", 0, 100, 1);
    g->top_k = json_read_u32_or(r, "top_k", 0, INT32_MAX, 0);
    g->top_p = json_read_f64_or(r, "top_p", 0, 1, 1);
    g->min_p = json_read_f64_or(r, "min_p", 0, 1, 0);
    g->repetition_penalty = json_read_f64_or(r, "repetition_penalty", 0.01, 100, 1);
    g->max_new_tokens = json_read_u32_or(r, "max_new_tokens", 0, INT32_MAX, 0);
    g->do_sample = json_read_bool_or(r, "do_sample", g->has_temperature);
}

int generation_config_load(struct model_files *files, struct generation_defaults *ret, struct err *e)
{
    struct generation_defaults g = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    json_t *config = NULL, *generation = NULL;
    int r = model_json(files, "config.json", &config, e);
    if (r == 0) {
        struct json_read top = {.fallback = config, .where = "config.json", .e = e};
        top.object = json_read_text_part(&top, config);
        read_eos(&top, &g);
        r = top.error;
    }
    if (r == 0) {
        r = model_json(files, "generation_config.json", &generation, e);
        if (r == -ENOENT)
            r = err_set(e, 0, "%s",
                        ""); /* base checkpoints lack the file; the reader below then finds nothing */
    }
    if (r == 0) {
        struct json_read own = {.object = generation, .where = "generation_config.json", .e = e};
        read_defaults(&own, &g);
        r = own.error;
    }
    json_decref(config);
    json_decref(generation);
    if (r == 0)
        *ret = g;
    return r;
}
