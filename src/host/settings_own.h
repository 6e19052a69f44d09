/* settings_own.h - the settings of host/ itself. NULL ends each list. */
#ifndef PLATEAU_HOST_SETTINGS_OWN_H
#define PLATEAU_HOST_SETTINGS_OWN_H

#include <stdbool.h>
#include <stdint.h>

#define SETTINGS_KEYS_MAX   16
#define SETTINGS_MODELS_MAX 16

/* planning.c: memory and threads of the process; 0: what planning.c decides. device_choice.c: device. */
struct process_settings {
    const char *device; /* NULL: auto */
    uint64_t memory_limit, device_memory_limit, text_limit, media_memory;
    uint32_t threads;
};

/* models.c: which models. */
struct models_settings {
    const char *model;                          /* directory; NULL: the bundled one */
    const char *named[SETTINGS_MODELS_MAX + 1]; /* of serve and plan; the first is `model` */
    const char *dirs[SETTINGS_KEYS_MAX + 1], *aliases[SETTINGS_KEYS_MAX + 1], *pins[SETTINGS_KEYS_MAX + 1];
};

/* keys.c */
struct key_settings {
    const char *api_keys[SETTINGS_KEYS_MAX + 1], *admin_keys[SETTINGS_KEYS_MAX + 1],
        *metrics_keys[SETTINGS_KEYS_MAX + 1], *api_key_files[SETTINGS_KEYS_MAX + 1],
        *admin_key_files[SETTINGS_KEYS_MAX + 1], *metrics_key_files[SETTINGS_KEYS_MAX + 1];
    bool allow_open;
};

/* listeners.c */
struct listener_settings {
    const char *admin[SETTINGS_KEYS_MAX + 1];
    const char *metrics; /* NULL: nowhere */
};

/* The command parse. */
struct parse_settings {
    const char *template, *tools; /* files; tools NULL: none */
    uint64_t chunk;               /* bytes; 0: all at once */
    bool describe;                /* the format, instead of an output */
};

/* answer.c, and the prompts of its callers; temperature, top-p and top-k are the model's. */
struct answer_settings {
    const char *system, *images[SETTINGS_KEYS_MAX + 1];
    uint64_t seed; /* 0: drawn */
    uint32_t max_tokens;
    bool raw, think, ignore_eos;
};

#endif
