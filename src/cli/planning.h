/* planning.h - from options and a model's directory to the plan that is printed, and that a run keeps to. */
#ifndef PLATEAU_CLI_PLANNING_H
#define PLATEAU_CLI_PLANNING_H

#include "cli/options.h"
#include "engine/engine.h"
#include "memory/footprint.h"
#include "memory/plan.h"

struct planning {
    const struct options *options;
    uint32_t rows, queue, workers;
    bool serves; /* there are connections and prep threads */
    /* Filled by planning_make. */
    struct model_shape shape;
    uint64_t tokenizer_bytes;
    const char *ceiling_from; /* which of its bounds makes the ceiling */
    struct plan plan;
};

#define PLANNING_STEP_TOKENS 512 /* of one step; what a step takes of workspace */

/* Tokens of one step for so many rows. */
uint32_t planning_step_tokens(uint32_t rows);
/* The engine's options as far as a plan knows them: the same for who plans and who creates. */
struct engine_opts planning_engine_opts(const struct options *o, uint32_t rows, uint32_t queue);
/* Reads headers, loads nothing. 0, what model_probe() said, or -ENOMEM and -EINVAL when it does not fit: e has numbers, and the
 * context and the rows that would. `name` is the model's id. */
int planning_make(struct planning *p, const char *dir, const char *name, struct err *e);
/* The account's limit in the plan, by its name. */
uint64_t planning_limit(const struct planning *p, const char *account);

#endif
