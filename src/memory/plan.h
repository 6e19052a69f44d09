/* plan.h - where every byte will go, before the first is taken: arithmetic on plain numbers.
 *
 * A plan gives each account a floor (what the model cannot run without) and a limit (the most it may ever
 * hold). The limits together are no more than the ceiling, so no combination of full accounts passes it. What
 * is left when all else has its limit is the pools'. Whoever serves sets the same limits that were printed.
 * Pure; any thread. */
#ifndef PLATEAU_MEMORY_PLAN_H
#define PLATEAU_MEMORY_PLAN_H

#include "memory/ledger.h"

/* Of the process, whatever it serves. */
struct plan_process {
    uint64_t ceiling_bytes;
    uint64_t heap_bytes;                   /* what the allocator keeps for itself, libraries' data */
    uint64_t threads_bytes;                /* stacks */
    uint64_t network_bytes, body_bytes;    /* connections, all of which may be open; bodies that arrive */
    uint64_t connection_bytes;             /* one of them; for the reader */
    uint64_t text_floor_bytes, text_bytes; /* requests from their JSON to their reply */
    uint64_t media_bytes;                  /* images and videos on their way; 0: no model sees any */
    uint64_t ssd_staging_bytes, ssd_table_bytes; /* of the SSD tier; 0: there is none */
};

/* Of one model with so many rows. */
struct plan_model {
    const char *name;
    uint32_t context_max, page_tokens, rows, queue;
    uint64_t weight_bytes;
    uint64_t mtp_bytes;       /* weights of the MTP head; 0: none, or it is not used */
    uint64_t loading_bytes;   /* besides, while it is loaded: before the pools need theirs */
    uint64_t workspace_bytes; /* of a step */
    uint64_t tables_bytes, tokenizer_bytes;
    uint64_t page_bytes, state_bytes;               /* state_bytes 0: no recurrent state */
    uint64_t engine_bytes;                          /* tables and logits with pools of no size */
    uint64_t engine_page_bytes, engine_state_bytes; /* and for each page and state of theirs */
    uint64_t job_bytes, job_token_bytes;            /* of a request's block, at most */
    /* To encode one image of the largest size; the vision encoder's weights are among the others. */
    uint64_t vision_bytes;
    uint64_t image_bytes;     /* what one of that size looks like to the model; 0: it sees nothing */
    bool has_vision, has_mtp; /* in the checkpoint */
};

#define PLAN_ALL UINT64_MAX
#define PLAN_CONTEXT_LEAST                                                                                   \
    1024 /* a model that cannot have so much is of little use: it is asked for, or refused */

#define PLAN_IMAGES_MOST ((uint64_t)256 << 20)

struct plan_wish {
    uint32_t max_model_len;      /* 0: the model's own, or what fits */
    uint64_t prefix_cache_bytes; /* PLAN_ALL: what is left; 0: none */
    /* Of what images look like, beyond use: PLAN_ALL: PLAN_IMAGES_MOST or a sixteenth of the ceiling, if
     * so much is left; 0: none. */
    uint64_t image_cache_bytes;
    /* A context that nobody asked for takes at most so many bytes of pools, or PLAN_CONTEXT_LEAST tokens; 0:
     * what fits. With several models, one must not have the whole machine set aside for it. */
    uint64_t context_bytes_max;
};

struct plan_line {
    const char *name, *note; /* note: may be empty */
    enum account_class class;
    uint32_t depth; /* 0: the process's own accounts and the model; 1: the model's; 2: its pools' */
    uint64_t floor_bytes, limit_bytes;
};
#define PLAN_LINES_MAX 28

struct plan {
    uint64_t ceiling_bytes, floor_bytes, limit_bytes; /* limit: of all accounts together */
    uint64_t loading_bytes;
    uint32_t max_model_len, rows, queue;
    uint32_t pages_max, states_max;
    /* What a load sets aside before it begins: all that the model cannot run without, its engine's tables
     * whole; and of that the pools' and one request's part. */
    uint64_t load_bytes, pools_floor_bytes, job_bytes;
    /* Limits. */
    uint64_t model_bytes, pools_bytes, kv_bytes, state_bytes, prefix_cache_bytes, requests_bytes,
        engine_bytes;
    uint64_t images_bytes, image_cache_bytes; /* of images_bytes, what may stay when nobody uses it */
    struct plan_process process;
    struct plan_model model;
    struct plan_line lines[PLAN_LINES_MAX];
    uint32_t line_count;
};

/* The model's numbers with so many rows. */
typedef void plan_model_fn(void *arg, uint32_t rows, struct plan_model *ret);

struct plan_refusal {
    uint64_t needed_bytes;         /* at least */
    uint32_t context_max, context; /* context: what would fit with all rows; 0: nothing does */
    /* How many rows would fit with the context that was asked for (or the least); 0: none. */
    uint32_t seqs_max;
};

/* What all accounts of the process take at most. */
uint64_t plan_process_bytes(const struct plan_process *p);

/* 0; -ENOMEM: it does not fit, `why` says by how much and the plan's limits are what it needs; -EINVAL: the
 * model was made for fewer tokens. Of those sequences that fit the longest is planned when none was asked
 * for. */
int plan_make(const struct plan_process *process, plan_model_fn *model, void *arg, uint32_t rows,
              const struct plan_wish *wish, struct plan *ret, struct plan_refusal *why);

#endif
