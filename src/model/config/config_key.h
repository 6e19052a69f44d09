/* config_key.h - a key of config.json as data: what it sets, its bounds, its default, and which values are
 * understood.
 *
 * Keys are declared by all families together (config.c), by a family, and by a block. Where a key is null its
 * `absent` counts, and where it is missing the family's defaults before that. A key that changes results
 * is declared; a value of it that is not computed is refused, by key and value. Keys that change nothing are
 * in config_unknown.c; the log names any other. */
#ifndef PLATEAU_MODEL_CONFIG_KEY_H
#define PLATEAU_MODEL_CONFIG_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config;
struct json_read;

/* One value of a key with words. */
struct key_word {
    const char *name; /* NULL: the end */
    uint32_t value;
};

enum config_key_kind {
    KEY_END,
    KEY_U32,     /* a uint32_t in [min, max], or the value of one of `words` */
    KEY_FLOAT,   /* a float, likewise */
    KEY_FLOATS,  /* `count` floats of a list, likewise; {"__float__": "Infinity"} is one */
    KEY_FLAG,    /* a bool */
    KEY_WORD,    /* a uint32_t: the value of one of `words` */
    KEY_ONLY,    /* sets nothing: the number or the bool `absent` is computed, nothing else */
    KEY_IGNORED, /* sets nothing: the reference ignores it, too */
};

struct config_key {
    enum config_key_kind kind;
    bool needed;
    bool same;            /* KEY_U32: the file may have a list, with that one number for each layer */
    const char *names[6]; /* names of one key, newest first */
    size_t at;            /* offset of the field in struct config */
    double min, max, absent;
    const struct key_word *words;
    uint32_t count;
};

#define CONFIG_U32(field, lowest, highest, otherwise, ...)                                                   \
    {                                                                                                        \
        .kind = KEY_U32, .names = {__VA_ARGS__}, .at = offsetof(struct config, field), .min = (lowest),      \
        .max = (highest), .absent = (otherwise)                                                              \
    }
#define CONFIG_U32_SAME(field, lowest, highest, otherwise, ...)                                              \
    {                                                                                                        \
        .kind = KEY_U32, .same = true, .names = {__VA_ARGS__}, .at = offsetof(struct config, field),         \
        .min = (lowest), .max = (highest), .absent = (otherwise)                                             \
    }
#define CONFIG_U32_NEEDED(field, lowest, highest, ...)                                                       \
    {                                                                                                        \
        .kind = KEY_U32, .needed = true, .names = {__VA_ARGS__}, .at = offsetof(struct config, field),       \
        .min = (lowest), .max = (highest)                                                                    \
    }
#define CONFIG_FLOAT(field, lowest, highest, otherwise, ...)                                                 \
    {                                                                                                        \
        .kind = KEY_FLOAT, .names = {__VA_ARGS__}, .at = offsetof(struct config, field), .min = (lowest),    \
        .max = (highest), .absent = (otherwise)                                                              \
    }
#define CONFIG_FLOATS(field, lowest, highest, otherwise, ...)                                                \
    {                                                                                                        \
        .kind = KEY_FLOATS, .names = {__VA_ARGS__}, .at = offsetof(struct config, field), .min = (lowest),   \
        .max = (highest), .absent = (otherwise),                                                             \
        .count = sizeof(((struct config *)NULL)->field) / sizeof(float)                                      \
    }
#define CONFIG_U32_OR(field, list, lowest, highest, otherwise, ...)                                          \
    {                                                                                                        \
        .kind = KEY_U32, .names = {__VA_ARGS__}, .at = offsetof(struct config, field), .min = (lowest),      \
        .max = (highest), .absent = (otherwise), .words = (list)                                             \
    }
#define CONFIG_FLAG(field, otherwise, ...)                                                                   \
    {                                                                                                        \
        .kind = KEY_FLAG, .names = {__VA_ARGS__}, .at = offsetof(struct config, field),                      \
        .absent = (otherwise)                                                                                \
    }
#define CONFIG_WORD(field, list, otherwise, ...)                                                             \
    {                                                                                                        \
        .kind = KEY_WORD, .names = {__VA_ARGS__}, .at = offsetof(struct config, field),                      \
        .absent = (otherwise), .words = (list)                                                               \
    }
#define CONFIG_ONLY(value, ...)                                                                              \
    {                                                                                                        \
        .kind = KEY_ONLY, .names = {__VA_ARGS__}, .absent = (value)                                          \
    }
#define CONFIG_IGNORED(...)                                                                                  \
    {                                                                                                        \
        .kind = KEY_IGNORED, .names = { __VA_ARGS__ }                                                        \
    }
#define CONFIG_KEY_END                                                                                       \
    {                                                                                                        \
        .kind = KEY_END                                                                                      \
    }

/* Reads the keys of `list` into `c`. A key of which `instead` (may be NULL) has another declaration, for the
 * same field or the same name, is left to it. The first failure sticks in r: -EINVAL, -ENOTSUP. */
void config_keys_read(struct json_read *r, const struct config_key *list, const struct config_key *instead,
                      struct config *c);

/* Marks the keys of `list` as known (json_read_know): of a block that this model does not use. */
void config_keys_know(struct json_read *r, const struct config_key *list);

#endif
