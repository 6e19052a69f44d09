/* settings.h - what the process and its models are to be run with: one struct that the table of settings
 * (settings_table.h) fills, by name.
 *
 * A front fills it from its own sources: `plateau` from flags, environment and files. Texts are borrowed from
 * the source, or kept until settings_done(). */
#ifndef PLATEAU_HOST_SETTINGS_H
#define PLATEAU_HOST_SETTINGS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Commands of the program, which settings are for. */
enum setting_command {
    COMMAND_SERVE = 1,
    COMMAND_GENERATE = 2,
    COMMAND_CHAT = 4,
    COMMAND_PLAN = 8,
    COMMAND_CACHE = 16,
    COMMAND_STATUS = 32,
    COMMAND_LOAD = 64,
    COMMAND_UNLOAD = 128,
    COMMAND_CLEAR = 256,
    COMMAND_TRIM = 512,
    COMMAND_ANY = 15,    /* that has to do with models */
    COMMAND_ADMIN = 992, /* that asks a server */
    COMMAND_EVERY = 1023
};

struct engine_live;

#define SETTINGS_KEYS_MAX   16
#define SETTINGS_MODELS_MAX 16
#define SETTINGS_ALL                                                                                         \
    UINT64_MAX /* of prefix_cache and image_cache: the rest; of mtp and draft_vocab: not given */

struct settings {
    const char *model;                           /* directory; NULL: the bundled one */
    const char *models[SETTINGS_MODELS_MAX + 1]; /* of serve and plan: NULL ends them; the first is `model` */
    const char *host, *log_level, *compute, *config, *env_file, *system, *history, *trim, *template_kwargs,
        *spec;
    /* NULL ends each. */
    const char *api_keys[SETTINGS_KEYS_MAX + 1], *admin_keys[SETTINGS_KEYS_MAX + 1],
        *api_key_files[SETTINGS_KEYS_MAX + 1], *admin_key_files[SETTINGS_KEYS_MAX + 1],
        *images[SETTINGS_KEYS_MAX + 1], *model_dirs[SETTINGS_KEYS_MAX + 1], *aliases[SETTINGS_KEYS_MAX + 1],
        *pins[SETTINGS_KEYS_MAX + 1], *metrics_keys[SETTINGS_KEYS_MAX + 1],
        *metrics_key_files[SETTINGS_KEYS_MAX + 1], *admin_listens[SETTINGS_KEYS_MAX + 1];
    const char *metrics_listen; /* NULL: nowhere */
    const char *socket, *url;   /* of the commands that ask a server; NULL: the one of this machine */
    const char *ssd_dir;        /* NULL: no SSD tier */
    const char *media_dir;      /* NULL: none */
    uint64_t media_memory, media_threads, media_timeout_s, max_images, max_media_bytes, max_media_pixels,
        max_video_s, max_video_frames;
    bool allow_remote_media;
    uint64_t ssd_limit, ssd_staging;
    uint64_t mtp, draft_vocab; /* SETTINGS_ALL: not given */
    uint64_t port, memory_limit, prefix_cache, text_limit, threads;
    uint64_t max_image_pixels, image_cache; /* pixels 0: no images */
    uint64_t max_num_seqs, max_model_len, max_tokens_default, max_queue, queue_timeout_s, step_ms,
        slow_client_s, stuck_s;
    uint64_t max_body_bytes, max_header_bytes, max_connections, connections_per_ip, max_requests,
        max_request_bytes, json_depth, prep_threads;
    uint64_t idle_timeout_s, keepalive_s, drain_s, ttl_s, load_timeout_s;
    uint64_t model_limit; /* of a section: the model's own ceiling */
    uint64_t max_tokens, seed, top_k;
    double temperature, top_p, min_p, repetition_penalty;
    bool raw, think, hide_reasoning, ignore_eos, json, allow_open, pinned, mtp_optimistic;
    const char *argument; /* first argument without option: the prompt of generate, the action of cache */
    bool help;
    struct settings_text *texts;         /* texts of the files */
    bool config_secret, env_file_secret; /* a secret was among it */
    struct settings_section *sections;
    const struct engine_live *engine_live; /* with serve: the live values, which may change; NULL: none */
};

/* The defaults of the table. settings_done() is due afterwards. */
int settings_defaults(struct settings *ret, struct err *e);
/* A copy of `text` that lives until settings_done(); NULL: no memory. */
const char *settings_keep(struct settings *s, const char *text);
/* Frees what it keeps, overwritten. Zeroed is fine. */
void settings_done(struct settings *s);

/* The names of the sections [model NAME], in the order in which they came; NULL after the last. */
const char *settings_section(const struct settings *s, uint32_t index);
/* What holds for one model: `s`, changed by what its section says (`section` NULL: it has none). What only a
 * section may say is neutral without one. Borrows its texts from `s`; needs no settings_done. 0 or
 * -EINVAL. */
int settings_of_model(const struct settings *s, const char *section, struct settings *ret, struct err *e);

/* A changed setting; values of secrets are hidden. */
struct settings_change {
    const char *name, *from, *to; /* valid during the call */
    bool live;                    /* it may change while the command runs */
};
/* Calls `tell` for each setting of the command in which `from` and `to` differ, in the table's order;
 * sections follow, each by its name. */
void settings_compare(enum setting_command command, const struct settings *from, const struct settings *to,
                      void (*tell)(void *arg, const struct settings_change *change), void *arg);

#endif
