/* runtime.h - what every command that computes needs: the ledger, the workers, one model and its engine. */
#ifndef PLATEAU_CLI_RUNTIME_H
#define PLATEAU_CLI_RUNTIME_H

#include "cli/planning.h"
#include "engine/engine.h"
#include "model/generation_config.h"
#include "text/chat_template.h"

#define RUNTIME_DIR_BYTES 4096
#define RUNTIME_ID_BYTES  256

struct runtime_opts {
    uint32_t rows, queue;
    bool serves; /* over HTTP */
};

struct runtime {
    const struct options *options;
    char model_dir[RUNTIME_DIR_BYTES], model_id[RUNTIME_ID_BYTES];
    struct planning planning; /* made before anything is loaded; what runs keeps to it */
    struct ledger *ledger;
    struct account *heap, *threads, *text, *network, *model_account; /* children of the root */
    uint64_t heap_bytes;                                             /* reserved there */
    struct workers *workers;
    struct kern_ops ops;
    struct account *tokenizer_account;
    struct arena *model_text;             /* tokenizer and template */
    bool needs_tokenizer, needs_template; /* set before runtime_load: it fails early without them */
    struct tokenizer *tokenizer;          /* NULL: the directory has none */
    struct chat_template *template;       /* NULL: none */
    struct generation_defaults defaults;
    struct model *model;
    struct engine *engine;
};

/* For tests: what goes wrong in this process. NULL in the program. */
struct runtime_faults {
    struct ledger_faults ledger;
    struct engine_faults engine;
};
extern const struct runtime_faults *runtime_faults;

/* The directory of a MODEL as it was given (NULL: the bundled one) and its id, the alias or the directory's name.
 * dir: RUNTIME_DIR_BYTES, id: RUNTIME_ID_BYTES. 0, -ENOENT, -ENAMETOOLONG. */
int runtime_find_model(const char *model, const char *alias, char *dir, char *id, struct err *e);
/* How many threads compute. */
uint32_t runtime_workers(const struct options *o);

/* Finds the model, plans, opens ledger, accounts and workers. Loads nothing. -ENOMEM when the plan does not fit: e says what would.
 * On failure the runtime is closed. */
int runtime_open(const struct options *o, const struct runtime_opts *opts, struct runtime *ret,
                 struct err *e);
/* Loads the model and starts its engine. Any one thread. */
int runtime_load(struct runtime *rt, int (*progress)(void *arg, uint64_t done, uint64_t total),
                 void *progress_arg, struct err *e);
/* Closes what is open, in order, each entry whatever the others did; the ledger must be empty then. */
void runtime_close(struct runtime *rt);

#endif
