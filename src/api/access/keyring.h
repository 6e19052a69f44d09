/* keyring.h - the keys that open the server, and their names.
 *
 * A ring is filled once and then only read, by any thread. It keeps digests, not keys: a key cannot be read
 * from memory, and a comparison takes the same time for any input. At most KEYRING_KEYS_MAX keys, 136 bytes
 * each. A program that fills rings again keeps sealed keys: digests as text.
 *
 * A key has a name for the log (never the key itself) and a tenant: a number that owns prefixes and requests.
 * The tenant of a named key follows from its name, so a key can be replaced and its owner stays the same,
 * over restarts as well. The tenant of an unnamed key follows from the key.
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

/* Rights of a key: the models; everything; the series of all tenants in /metrics and nothing else. */
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

/* Writes the sealed form of an unnamed key: it opens a ring's doors as the key does, but no client can send
 * it, and the key does not follow from it. False with `ret` untouched: keyring_add() refuses this key. */
#define KEYRING_SEALED_BYTES 82 /* with the terminating zero */
bool keyring_seal(struct slice key, char ret[KEYRING_SEALED_BYTES]);

/* Adds a key, or an unnamed key's sealed form, with the default fields. Without a name (NULL) it is named
 * after `source`. A key added twice with the same name and fields counts once. 0, -ENOSPC, or -EINVAL: not 1
 * to KEYRING_KEY_BYTES_MAX visible ASCII characters, a bad name, or present under another name or with other
 * fields. The message never quotes a key. */
int keyring_add(struct keyring *k, enum keyring_door door, const char *name, struct slice key,
                const char *source, struct err *e);
/* Adds the keys of another ring that open this door, with their names and fields. Errors of keyring_add. */
int keyring_add_ring(struct keyring *k, enum keyring_door door, const struct keyring *from, struct err *e);
/* Adds the keys of a file's text, one per line, in the format above. Empty lines are skipped, and comments,
 * from a # that starts a word to the end of the line. `source` names the text in messages and unnamed keys.
 * Errors of keyring_add, and -EINVAL when the text has no key. */
int keyring_parse(struct keyring *k, enum keyring_door door, struct slice text, const char *source,
                  struct err *e);

/* The first key of such a text, for a client that sends it; empty: the text has none. */
struct slice keyring_first(struct slice text);

/* The exposure of a key file: which users its mode lets read or write it. */
enum keyring_exposure { KEYRING_PRIVATE, KEYRING_READABLE, KEYRING_WRITABLE };
/* From a file's mode. */
enum keyring_exposure keyring_exposure_of(mode_t mode);
/* keyring_parse of a regular file. Also -EFBIG (over KEYRING_FILE_BYTES_MAX), and errors of the system. */
int keyring_read(struct keyring *k, enum keyring_door door, const char *path, enum keyring_exposure *exposure,
                 struct err *e);

/* The tenant that these bytes name; `kind` (at most 7 letters) keeps names, keys and addresses apart.
 * bytes.len <= KEYRING_KEY_BYTES_MAX. */
uint64_t keyring_tenant(const char *kind, struct slice bytes);

/* k NULL: 0. */
uint32_t keyring_count(const struct keyring *k, enum keyring_door door);
/* The tenant of the model keys with that name; without a name, of all model keys, if they have one tenant. 0:
 * none, or several. */
uint64_t keyring_owner(const struct keyring *k, struct slice name);
/* The entry of `given` at each door; NULL: no such key there. k may be NULL. */
struct keyring_found {
    const struct key *at[KEYRING_DOORS];
};
struct keyring_found keyring_find(const struct keyring *k, struct slice given);

#endif
