/* keyring.h - the keys that open the server, and what each is called.
 *
 * A ring is filled once and then only read, by any thread. It keeps digests, not keys: what a key was cannot
 * be read from memory, and comparing takes the same time whatever was sent. At most KEYRING_KEYS_MAX keys,
 * 136 bytes each.
 *
 * A key has a name for the log (never the key itself) and a tenant, a number that decides whose prefixes and
 * requests are whose. With a name the tenant follows from it, so a key can be changed and its owner stays the
 * same, over restarts as well; without one it follows from the key.
 *
 * A line of a key file: [NAME] KEY [weight=N] [priority=FIRST..LAST]. The fields follow the key, in any
 * order, each at most once. */
#ifndef PLATEAU_API_KEYRING_H
#define PLATEAU_API_KEYRING_H

#include "base/err.h"
#include "base/slice.h"

#include <sys/types.h>

struct keyring;

#define KEYRING_KEYS_MAX       1024
#define KEYRING_KEY_BYTES_MAX  1024
#define KEYRING_NAME_BYTES     65 /* with the terminating zero */
#define KEYRING_FILE_BYTES_MAX ((size_t)1 << 20)

/* What a key opens: the models; everything; the series of all tenants in /metrics and nothing else. */
enum keyring_door { KEYRING_MODELS, KEYRING_ADMIN, KEYRING_METRICS };
#define KEYRING_DOORS 3

#define KEYRING_WEIGHT_MAX   1000
#define KEYRING_PRIORITY_MAX 1000

struct key {
    char name[KEYRING_NAME_BYTES];
    uint64_t tenant; /* never 0 */
    uint32_t weight; /* the tenant's share of the machine; 1 to KEYRING_WEIGHT_MAX, 1 by default */
    /* The range that a request's priority is clamped to; a smaller number goes first. Within
     * +-KEYRING_PRIORITY_MAX, first <= last. By default 0 to KEYRING_PRIORITY_MAX; of an admin's key all. */
    int32_t priority_first, priority_last;
};

/* 0 or -ENOMEM. */
int keyring_create(struct keyring **ret);
/* NULL is fine. */
void keyring_free(struct keyring *k);

/* Adds a key with the default fields. Without a name (NULL) it is called after `source`. Given again with the
 * same name and fields it counts once. 0, -EINVAL (not 1 to KEYRING_KEY_BYTES_MAX visible ASCII characters, a
 * bad name, or there under another name or with other fields), -ENOSPC. The message never quotes a key. */
int keyring_add(struct keyring *k, enum keyring_door door, const char *name, struct slice key,
                const char *source, struct err *e);
/* Adds what a file says: a key to a line, as above. Empty lines, and what follows a # that begins a word, say
 * nothing. `source` names the text in messages and unnamed keys. As keyring_add, and -EINVAL when there is no
 * key in it. */
int keyring_parse(struct keyring *k, enum keyring_door door, struct slice text, const char *source,
                  struct err *e);

/* The first key of such a text as it stands there; empty: there is none. For who sends one. */
struct slice keyring_first(struct slice text);

/* What is wrong with who may read a file of keys. */
enum keyring_exposure { KEYRING_PRIVATE, KEYRING_READABLE, KEYRING_WRITABLE };
/* Of a file's mode. */
enum keyring_exposure keyring_exposure_of(mode_t mode);
/* keyring_parse of a regular file. Also -EFBIG (more than KEYRING_FILE_BYTES_MAX), and what the system
 * said. */
int keyring_read(struct keyring *k, enum keyring_door door, const char *path, enum keyring_exposure *exposure,
                 struct err *e);

/* The tenant that these bytes name; `kind` (at most 7 letters) keeps names, keys and addresses apart.
 * bytes.len <= KEYRING_KEY_BYTES_MAX. */
uint64_t keyring_tenant(const char *kind, struct slice bytes);

/* k NULL: 0. */
uint32_t keyring_count(const struct keyring *k, enum keyring_door door);
/* The entry of `given` at each door; NULL: there is none. k may be NULL. */
struct keyring_found {
    const struct key *at[KEYRING_DOORS];
};
struct keyring_found keyring_find(const struct keyring *k, struct slice given);

#endif
