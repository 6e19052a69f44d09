/* settings.h - what the process and its models are to be run with: one struct that the table of settings
 * (settings_table.h) fills, by name.
 *
 * A front fills it from its own sources: `plateau` from flags, environment and files. Texts are borrowed
 * from the source, or kept until settings_done(). */
#ifndef PLATEAU_HOST_SETTINGS_H
#define PLATEAU_HOST_SETTINGS_H

#include "host/setting_command.h"

#include "api/api.h"
#include "base/err.h"
#include "http/http_server.h"
#include "registry/model_settings.h"
#include "registry/registry.h"
#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

/* --- the settings of host/ itself; NULL ends each list --- */

#define SETTINGS_KEYS_MAX   64
#define SETTINGS_MODELS_MAX 16

/* planning.c: memory and threads of the process; 0: what planning.c decides. device_choice.c: device. */
struct process_settings {
    const char *device; /* NULL: auto */
    uint64_t memory_limit, device_memory_limit, text_limit, media_memory, response_store, conversation_store;
    uint64_t drain_grace_ns; /* how long a server that is told to stop still takes requests */
    uint32_t threads;
    uint32_t passed_over; /* no setting: devices of `auto` that the model does not fit on */
    bool allow_pull;
};

/* The cache that servers share: see shared_tier_opts. */
struct shared_settings {
    const char *address, *secret_file;
    uint64_t limit_bytes;
    size_t staging_bytes;
};

/* KV events. */
struct event_settings {
    const char *endpoint, *replay, *topic; /* see kv_events_opts; endpoint NULL: none are published */
    uint64_t buffer_bytes;
};

/* models.c: which models. */
struct models_settings {
    const char *model;                          /* directory; NULL: the bundled one */
    const char *named[SETTINGS_MODELS_MAX + 1]; /* models of serve and plan; the first is `model` */
    const char *dirs[SETTINGS_KEYS_MAX + 1], *aliases[SETTINGS_KEYS_MAX + 1], *pins[SETTINGS_KEYS_MAX + 1];
    const char *warm[SETTINGS_KEYS_MAX + 1]; /* [KEY=]FILE */
    const char *default_model;               /* NULL: none */
    bool hub_cache;                          /* every model of the hub's cache */
};

/* keys.c */
struct key_settings {
    const char *api_keys[SETTINGS_KEYS_MAX + 1], *admin_keys[SETTINGS_KEYS_MAX + 1],
        *metrics_keys[SETTINGS_KEYS_MAX + 1], *api_key_files[SETTINGS_KEYS_MAX + 1],
        *admin_key_files[SETTINGS_KEYS_MAX + 1], *metrics_key_files[SETTINGS_KEYS_MAX + 1],
        *origins[SETTINGS_KEYS_MAX + 1];
    bool allow_open;
};

/* listeners.c */
struct listener_settings {
    const char *admin[SETTINGS_KEYS_MAX + 1];
    const char *metrics; /* NULL: nowhere */
};

/* The commands chat and generate; temperature, top-p and top-k are the model's. */
struct answer_settings {
    const char *system, *images[SETTINGS_KEYS_MAX + 1];
    uint64_t seed; /* 0: drawn */
    uint32_t max_tokens;
    bool raw, think, ignore_eos;
};

/* The command parse. */
struct parse_settings {
    const char *template, *tools; /* files; tools NULL: none */
    uint64_t chunk;               /* bytes; 0: all at once */
    bool describe;                /* the format, instead of an output */
};

/* The command pull. */
struct pull_settings {
    const char *include[SETTINGS_KEYS_MAX + 1]; /* patterns of further files */
    uint32_t stall_s;
    bool anyway;
};

/* The command bench. */
struct bench_settings {
    const char *name; /* the model's name at the server of --url; NULL: the model's */
    uint32_t tokens;
    bool quick, csv;
};

/* The command eval. */
struct eval_settings {
    const char *text, *reference; /* a file; a model's directory, NULL: none */
    uint32_t context, chunks;     /* chunks 0: all */
};

/* --- all of them --- */

struct settings {
    /* Options of the modules: each reads its own, and fields without a setting are zero here. */
    struct http_server_opts http;
    struct api_opts api;
    struct registry_opts registry;
    struct store_opts store;       /* dir NULL: no SSD tier */
    struct shared_settings shared; /* address NULL: no shared cache */
    struct event_settings events;
    struct model_options model;
    struct process_settings process;
    struct models_settings models;
    struct key_settings keys;
    struct listener_settings listeners;
    struct answer_settings answer;
    struct parse_settings parse;
    struct eval_settings eval;
    struct pull_settings pull;
    struct bench_settings bench;
    /* Settings of a front: its sources, its screen, and the server that it asks. */
    const char *config, *env_file, *log_level, *log_format, *history;
    const char *socket, *url; /* server that commands ask; NULL: the one of this machine */
    char *const *rest;        /* launch: the client's arguments, after --; ends with NULL; NULL: none */
    const char *argument;     /* first argument without option: the prompt of generate, the action of cache */
    bool hide_reasoning, stats, local, print, names, json, yes, force, help, help_all;
    struct settings_text *texts;         /* texts of the files */
    bool config_secret, env_file_secret; /* a secret was among it */
    struct settings_section *sections;
};

/* The defaults of the table. settings_done() is due afterwards. */
int settings_defaults(struct settings *ret, struct err *e);
/* Copies the settings that some of these commands take; their texts stay borrowed. */
void settings_take(unsigned of_commands, const struct settings *from, struct settings *to);
/* A copy of `text` that lives until settings_done(); NULL: no memory. */
const char *settings_keep(struct settings *s, const char *text);
/* Frees what it keeps, overwritten. Zeroed is fine. */
void settings_done(struct settings *s);

/* The names of the sections [model NAME], in the order in which they came; NULL after the last. */
const char *settings_section(const struct settings *s, uint32_t index);
/* Whether --warm is given, for the process or for a model. */
bool settings_warm(const struct settings *s);
/* Makes the settings of one model: `s`, changed by its section (`section` NULL: it has none). Settings that
 * only a section may have are neutral without one. Borrows its texts from `s`; needs no settings_done. 0 or
 * -EINVAL. */
int settings_of_model(const struct settings *s, const char *section, struct settings *ret, struct err *e);

/* The setting of that name may not exceed its value at the start, for which memory was planned, and `now`
 * does. */
bool settings_exceed(const char *name, const struct settings *now, const struct settings *started);

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
