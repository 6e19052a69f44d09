/* plan.h - the limits of all accounts, made before the first allocation: arithmetic on plain numbers.
 *
 * A plan gives each account a floor (the minimum for the model to run) and a limit (the most it may ever
 * hold). The limits together stay below the ceiling, so no combination of full accounts passes it. The pools
 * get the rest after all other limits. The server sets the same limits that `plateau plan` prints.
 *
 * A model computes in the memory of one domain: its weights, workspace, vision encoder, image embeddings and
 * pools lie there. The rest is the machine's, whatever the domain, with what host code keeps of the
 * workspace. Each domain has a ceiling of its own. A model on several devices has weights, a workspace and
 * parts of all pages and states on each: as many pages as the fullest one has room for.
 * Pure; any thread. */
#ifndef PLATEAU_MEMORY_PLAN_H
#define PLATEAU_MEMORY_PLAN_H

#include "base/page_tokens.h"
#include "memory/accounts.h"
#include "memory/domain.h"
#include "memory/placement.h"

/* A device's memory, as the plan sees it. */
struct plan_domain {
    const char *name; /* outlives the plan */
    uint64_t ceiling_bytes;
    uint64_t context_bytes; /* the driver's context, of the process: counted once; 0: none, or not measured */
};

/* Memory of the process, independent of its models. */
struct plan_process {
    uint64_t ceiling_bytes; /* ceiling of the machine's memory */
    /* The other domains that models may compute in. */
    struct plan_domain devices[DOMAINS_MAX];
    uint32_t device_count;
    uint64_t heap_bytes;                   /* the allocator's own memory, data of libraries */
    uint64_t threads_bytes;                /* stacks */
    uint64_t network_bytes, body_bytes;    /* connections, all of them open; bodies that arrive */
    uint64_t connection_bytes;             /* one of them; for reports */
    uint64_t text_floor_bytes, text_bytes; /* requests from their JSON to their reply */
    uint64_t responses_bytes;              /* stored responses; 0: none are stored */
    uint64_t conversations_bytes;          /* heads of conversations; 0: none are kept */
    uint64_t history_bytes;                /* figures of the last 30 days and log lines; 0: none are kept */
    uint64_t pull_bytes;                   /* the process that pulls a model; 0: none are pulled */
    uint64_t media_bytes;                  /* images and videos being prepared; 0: no model reads images */
    uint64_t ssd_staging_bytes, ssd_table_bytes; /* buffers and table of the SSD tier; 0: no SSD tier */
    uint64_t shared_bytes;                       /* the tier that servers share; 0: none */
};

struct plan_window {
    uint32_t tokens;
    uint64_t page_bytes;
};

/* The part of a model on a device beside plan_model.domain. */
struct plan_shard {
    uint32_t domain;
    uint64_t weight_bytes, workspace_bytes, recorded_bytes;
    uint64_t page_bytes, state_bytes;                /* parts of a page of each group, and of a state */
    uint64_t window_page_bytes[PAGE_GROUPS_MAX - 1]; /* part of plan_window.page_bytes */
};

/* Memory of one model with `seqs` sequences in its batch. */
struct plan_model {
    const char *name;
    uint32_t domain; /* 0: it computes in the machine's memory; i: in that of devices[i - 1] */
    uint32_t context_max, page_tokens, seqs, queue;
    uint64_t weight_bytes;
    uint64_t experts_bytes; /* experts in the machine's memory, of a model that computes elsewhere */
    bool mapped;            /* they are pages of a packed file */
    uint64_t mtp_bytes;     /* weights of the MTP head; 0: no head, or not used */
    bool mtp_mapped;        /* the head is part of weight_bytes; mtp_bytes: of its draft vocabulary */
    /* The draft model: weights and workspace in the memory of its domain, and in the machine's beside that
     * tables and the host's part of the workspace; zeros: there is none. */
    uint64_t draft_bytes, draft_host_bytes;
    uint64_t loading_bytes;   /* temporary, during the load: before the pools need theirs */
    uint64_t workspace_bytes; /* bytes of a step's workspace, in the memory of its domain */
    uint64_t host_bytes;      /* bytes of the workspace in the machine's memory beside that; 0 where it is the
                               * machine's */
    /* Recorded steps, in the memory of its domain, and in the machine's beside that; 0: it has none there. */
    uint64_t recorded_bytes, recorded_host_bytes;
    uint64_t tables_bytes, tokenizer_bytes;
    uint64_t page_bytes,
        state_bytes; /* page_bytes: a page of each group; state_bytes 0: no recurrent state */
    /* The groups of layers with a window, which are a part of page_bytes. Of these a sequence has no more
     * pages than the window and a step's tokens touch. */
    struct plan_window windows[PAGE_GROUPS_MAX - 1];
    uint32_t window_count;
    bool windows_only;                              /* no layer has full attention */
    uint32_t step_tokens;                           /* tokens of a step, all sequences; not looked at without
                                                     * windows */
    uint64_t engine_bytes;                          /* tables and logits with empty pools */
    uint64_t engine_page_bytes, engine_state_bytes; /* and per page and state of the pools */
    uint64_t job_bytes, job_token_bytes;            /* most bytes of a request's block, and per token */
    /* Most bytes of the matcher of a request with a grammar, up to matcher_bytes_max; zeros: no grammars.
     * Planned for the whole batch where there is room. */
    uint64_t matcher_bytes, matcher_token_bytes, matcher_bytes_max;
    /* To encode one image of the largest size; the vision encoder's weights are counted above. */
    uint64_t vision_bytes;
    uint64_t image_bytes;     /* features of one image of that size; 0: the model reads no images */
    bool has_vision, has_mtp; /* in the checkpoint */
    bool has_grammars;        /* tables_bytes has its vocabulary for grammars */
    struct plan_shard beside[SHARDS_MAX - 1];
    uint32_t beside_count;
};

#define PLAN_ALL           UINT64_MAX
#define PLAN_CONTEXT_LEAST 1024 /* the least useful context: a model gets at least this, or is refused */

#define PLAN_IMAGES_MOST ((uint64_t)256 << 20)
/* Without --host-cache the tables of the prefix cache's pages take at most PLAN_TABLES_LEAST + weights /
 * PLAN_TABLES_PART. */
#define PLAN_TABLES_LEAST ((uint64_t)16 << 20)
#define PLAN_TABLES_PART  64

#define PLAN_RESERVE_DEFAULT UINT32_MAX

#define PLAN_AGENTS_MOST 512
#define PLAN_AGENT_ENDS  2 /* snapshots of an agent's place, cache/agents.h */

struct plan_wish {
    uint32_t max_model_len; /* 0: the model's own limit, or the longest that fits */
    /* Tokens that only compactions may use: beyond max_model_len, as far as the model's limit and the memory
     * allow, else part of the context, at most half. PLAN_RESERVE_DEFAULT: a sixteenth of a context of at
     * least 8192 tokens, at most 4096. */
    uint32_t reserve;
    /* Number of agents, and tokens of each one's pages, which are reserved with snapshots at their ends
     * beside the pages of one sequence. agent_tokens 0, or more than the context: the context. */
    uint32_t agents, agent_tokens;
    /* PLAN_ALL: the rest, as far as the tables of its pages stay small; 0: no prefix cache. */
    uint64_t prefix_cache_bytes;
    /* Features of images that no sequence uses. PLAN_ALL: PLAN_IMAGES_MOST or a sixteenth of the model's
     * ceiling, if that much is left; 0: none. */
    uint64_t image_cache_bytes;
    uint64_t grammar_cache_bytes; /* at most; less where little is left */
    uint64_t pinned_cache_bytes;  /* at most; a model that computes in the machine's memory has none */
    /* A default context takes at most this many bytes of pools, or PLAN_CONTEXT_LEAST tokens; 0: the longest
     * that fits. With several models, one must not have the whole machine reserved for it. */
    uint64_t context_bytes_max;
};

struct plan_line {
    const char *name, *note; /* note: may be empty */
    enum account_class class;
    enum account_id account; /* ACCOUNT_MODEL: the model's own */
    uint32_t domain; /* plan_model.domain; the lines of a domain stand together, the machine's first */
    uint32_t depth;  /* 0: the process's own accounts and the model; 1: the model's; 2: its pools' */
    uint64_t floor_bytes, limit_bytes;
};
/* Lines of the process, of the model in the machine and on its device, and on each device beside that. */
#define PLAN_LINES_MAX (13 + 12 + 15 + 8 * (SHARDS_MAX - 1))

/* The part of a plan on a device. */
struct plan_device {
    uint32_t domain;  /* plan_model.domain */
    const char *name; /* NULL: the model computes in the machine's memory */
    uint64_t ceiling_bytes, floor_bytes, limit_bytes;
    uint64_t context_bytes;                  /* bytes of floor and limit that the process has once */
    uint64_t model_bytes;                    /* the limit of the model's account there */
    uint64_t load_bytes;                     /* bytes that a load reserves there */
    uint64_t pools_bytes, pools_floor_bytes; /* limit and floor of the pools, of a device beside the first */
};

struct plan {
    /* The machine's memory; limit: of all accounts together. */
    uint64_t ceiling_bytes, floor_bytes, limit_bytes;
    struct plan_device device;
    struct plan_device beside[SHARDS_MAX - 1]; /* [model.beside_count] */
    uint64_t loading_bytes;
    uint32_t max_model_len, seqs, queue;
    uint32_t reserve;              /* part of max_model_len for compactions, see plan_wish */
    uint32_t agents, agent_tokens; /* see plan_wish; agent_tokens: of each */
    uint64_t agents_bytes;         /* part of pools_floor_bytes */
    uint32_t pages_max, states_max;
    /* Bytes of the machine that a load reserves before it begins: the minimum for the model to run, with its
     * engine's tables whole; and the parts of that for the pools and for one request. */
    uint64_t load_bytes, pools_floor_bytes, job_bytes;
    /* Limits; model_bytes: of the model's account in the machine's memory. */
    uint64_t model_bytes, pools_bytes, kv_bytes, state_bytes, prefix_cache_bytes, requests_bytes,
        engine_bytes;
    uint64_t grammars_bytes, pinned_cache_bytes;
    uint64_t images_bytes, image_cache_bytes; /* limit of images, and the part of it for images that no
                                               * sequence uses */
    struct plan_process process;
    struct plan_model model;
    struct plan_line lines[PLAN_LINES_MAX];
    uint32_t line_count;
};

/* Context of requests that are not compactions. */
static inline uint32_t plan_context(const struct plan *p)
{
    return p->max_model_len - p->reserve;
}

/* The model's numbers with `seqs` sequences. */
typedef void plan_model_fn(void *arg, uint32_t seqs, struct plan_model *ret);

struct plan_refusal {
    uint32_t domain;                      /* whose ceiling refuses, as plan_model.domain */
    uint64_t needed_bytes, ceiling_bytes; /* least bytes of that domain that would do, and its ceiling */
    uint32_t context_max, context; /* context: the longest that would fit with all sequences; 0: none */
    /* How many sequences would fit with the requested context (or the least); 0: none. */
    uint32_t seqs_max;
    uint32_t agents_max; /* number of agents that would fit with all sequences and that context */
};

/* Pages of a group with a window that `seqs` sequences of `length` tokens have at most, during a step of
 * theirs. */
uint64_t plan_window_pages(const struct plan_model *m, const struct plan_window *w, uint32_t length,
                           uint32_t seqs);
/* Bytes of the pages of one sequence, of all groups, on all devices. */
uint64_t plan_sequence_bytes(const struct plan_model *m, uint32_t length);
/* The limits of all accounts of the process in that domain together; the machine's has 0. */
uint64_t plan_process_bytes(const struct plan_process *p, uint32_t domain);
/* The ceiling of a domain. */
uint64_t plan_ceiling_bytes(const struct plan_process *p, uint32_t domain);

/* Returns the names of the places of such a process, which lie in `list` and in its devices. */
#define PLAN_PLACES_MAX (1 + DOMAINS_MAX)
struct placement_names plan_places(const struct plan_process *p, const char *list[PLAN_PLACES_MAX]);

/* Returns the bytes that a load reserves in all domains together. */
static inline uint64_t plan_load_bytes(const struct plan *p)
{
    uint64_t bytes = p->load_bytes + p->device.load_bytes;
    for (uint32_t i = 0; i < p->model.beside_count; i++)
        bytes += p->beside[i].load_bytes;
    return bytes;
}

/* 0. -ENOMEM: it does not fit; `why` has the shortage and the plan the needed limits. -EINVAL: the model was
 *    made for fewer tokens. Without a requested length the longest that fits is planned. */
int plan_make(const struct plan_process *process, plan_model_fn *model, void *arg, uint32_t seqs,
              const struct plan_wish *wish, struct plan *ret, struct plan_refusal *why);

/* Sequences of a batch by default: PLAN_SEQS_LEAST in the machine's memory, where more of them gain little.
 * On a device the largest of 256, 128, 64, 32, 16 and 8 for which each has 300 MiB of the ceiling and 512
 * tokens of the pages, the default context is at most shortened to 32768 tokens, and a load reserves at most
 * an eighth of each ceiling more than with 8. */
#define PLAN_SEQS_LEAST 8u
#define PLAN_SEQS_MOST  256u
uint32_t plan_seqs(const struct plan_process *process, plan_model_fn *model, void *arg,
                   const struct plan_wish *wish);

#endif
