/* options.h - one table of options makes parsing, help, environment names and configuration keys.
 *
 * An option is set in one of four places, in this order of precedence: its flag (--max-queue 8), its
 * environment name (PLATEAU_MAX_QUEUE=8), that name in the file of --env-file, or its key in the file of
 * --config (max-queue = 8). Options that may be given several times add up over all places. The environment
 * may hold options of every command. A file holds only options of the command that it was named for, or is
 * refused. */
#ifndef PLATEAU_CLI_OPTIONS_H
#define PLATEAU_CLI_OPTIONS_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum option_command {
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

#define OPTIONS_KEYS_MAX   16
#define OPTIONS_MODELS_MAX 16
#define OPTIONS_ALL                                                                                          \
    UINT64_MAX /* of prefix_cache and image_cache: the rest; of mtp and draft_vocab: not given */

struct options {
    const char *model;                          /* directory; NULL: the bundled one */
    const char *models[OPTIONS_MODELS_MAX + 1]; /* of serve and plan: NULL ends them; the first is `model` */
    const char *host, *log_level, *compute, *config, *env_file, *system, *history, *trim, *template_kwargs,
        *spec;
    /* NULL ends each. */
    const char *api_keys[OPTIONS_KEYS_MAX + 1], *admin_keys[OPTIONS_KEYS_MAX + 1],
        *api_key_files[OPTIONS_KEYS_MAX + 1], *admin_key_files[OPTIONS_KEYS_MAX + 1],
        *images[OPTIONS_KEYS_MAX + 1], *model_dirs[OPTIONS_KEYS_MAX + 1], *aliases[OPTIONS_KEYS_MAX + 1],
        *pins[OPTIONS_KEYS_MAX + 1], *metrics_keys[OPTIONS_KEYS_MAX + 1],
        *metrics_key_files[OPTIONS_KEYS_MAX + 1], *admin_listens[OPTIONS_KEYS_MAX + 1];
    const char *metrics_listen; /* NULL: nowhere */
    const char *socket, *url;   /* of the commands that ask a server; NULL: the one of this machine */
    const char *ssd_dir;        /* NULL: no SSD tier */
    const char *media_dir;      /* NULL: none */
    uint64_t media_memory, media_threads, media_timeout_s, max_images, max_media_bytes, max_media_pixels,
        max_video_s, max_video_frames;
    bool allow_remote_media;
    uint64_t ssd_limit, ssd_staging;
    uint64_t mtp, draft_vocab; /* OPTIONS_ALL: not given */
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
    struct options_text *texts;          /* texts of the files */
    bool config_secret, env_file_secret; /* a secret was among it */
    struct options_section *sections;
    const struct engine_live *engine_live; /* with serve: the live values, which may change; NULL: none */
};

/* Fills `ret` from defaults, file, environment and argv (argv[0] is the command's name). Texts are borrowed
 * from argv and the environment, or live until options_done. 0 or -EINVAL (e names option, value and bounds);
 * options_done either way. */
int options_parse(enum option_command command, int argc, char **argv, struct options *ret, struct err *e);
/* Zeroed is fine. */
void options_done(struct options *o);

/* The names of the file's sections [model NAME], in its order; NULL after the last. */
const char *options_section(const struct options *o, uint32_t index);
/* What holds for one model: `o`, changed by what its section says (`section` NULL: it has none). What only a
 * section may say is neutral without one. Borrows its texts from `o`; needs no options_done. 0 or -EINVAL. */
int options_of_model(const struct options *o, const char *section, struct options *ret, struct err *e);

/* Overwrites the values of secret options, because process lists show argv. Their parsed values are gone
 * then. */
void options_hide(enum option_command command, int argc, char **argv);

/* A changed option; values of secrets are hidden. */
struct options_change {
    const char *name, *from, *to; /* valid during the call */
    bool live;                    /* it may change while the command runs */
};
/* Calls `tell` for each option of the command in which `from` and `to` differ, in the table's order;
 * sections follow, each by its name. */
void options_compare(enum option_command command, const struct options *from, const struct options *to,
                     void (*tell)(void *arg, const struct options_change *change), void *arg);

/* Logs a warning for each variable of the environment that begins with PLATEAU_ and is neither an option nor
 * known otherwise, with the closest name. */
void options_check_environment(void);

/* Sets the log's level: --log-level, else `otherwise`. 0 or -EINVAL. */
int options_log_level(const struct options *o, enum log_level otherwise, struct err *e);

/* The command's options as help text, in groups. */
void options_help(enum option_command command, FILE *f);

#endif
