/* options.h - one table of options makes parsing, help, environment names and configuration keys.
 *
 * An option is set by its flag (--max-queue 8), its environment name (PLATEAU_MAX_QUEUE=8) or its key in the file that --config
 * names (max-queue = 8); the flag wins over the environment, that over the file. */
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
    COMMAND_ANY = 15
};

#define OPTIONS_KEYS_MAX   16
#define OPTIONS_MODELS_MAX 16
#define OPTIONS_ALL        UINT64_MAX /* of host_cache: what is left */

struct options {
    const char *model;                          /* directory; NULL: the bundled one */
    const char *models[OPTIONS_MODELS_MAX + 1]; /* of plan: NULL ends them; the first is `model` */
    const char *host, *alias, *log_level, *compute, *config, *system, *history, *trim;
    /* NULL ends each. */
    const char *api_keys[OPTIONS_KEYS_MAX + 1], *admin_keys[OPTIONS_KEYS_MAX + 1],
        *api_key_files[OPTIONS_KEYS_MAX + 1], *admin_key_files[OPTIONS_KEYS_MAX + 1];
    uint64_t port, memory_limit, host_cache, text_limit, threads;
    uint64_t max_num_seqs, max_model_len, max_tokens_default, max_queue, queue_timeout_s, step_ms,
        slow_client_s, stuck_s;
    uint64_t max_body_bytes, max_header_bytes, max_connections, max_requests, max_request_bytes, json_depth,
        prep_threads;
    uint64_t idle_timeout_s, keepalive_s, drain_s;
    uint64_t max_tokens, seed, top_k;
    double temperature, top_p;
    bool raw, think, hide_reasoning, ignore_eos, json, allow_open;
    const char *argument; /* what is no option: the prompt of generate */
    bool help;
};

/* Fills `ret` from defaults, file, environment and argv (argv[0] is the command's name). Texts are borrowed from argv, the
 * environment, or kept until the process ends. 0 or -EINVAL (e names option, value and bounds). */
int options_parse(enum option_command command, int argc, char **argv, struct options *ret, struct err *e);

/* Sets the log's level: --log-level, else `otherwise`. 0 or -EINVAL. */
int options_log_level(const struct options *o, enum log_level otherwise, struct err *e);

/* The command's options as a person reads them, in groups. */
void options_help(enum option_command command, FILE *f);

#endif
