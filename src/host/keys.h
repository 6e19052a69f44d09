/* keys.h - from options to the keys that open the server. */
#ifndef PLATEAU_HOST_KEYS_H
#define PLATEAU_HOST_KEYS_H

#include <stdbool.h>

struct err;
struct keyring;
struct settings;

/* Files of keys that are pipes, such as a shell's <(command). A pipe can be read once, so the digests of its
 * keys are kept for reloads, in a ring for each door. Its text is overwritten at once. */
struct key_pipes {
    struct key_pipe *first;
    bool over; /* the start is: a pipe that was not read by then is refused, because reading it may wait */
};

/* Zeroed is fine. */
void key_pipes_done(struct key_pipes *p);

/* The keys of --api-key, --admin-key, --metrics-key and of the files of --api-key-file and so on; the log
 * warns about a file that other users may read or change. Pipes among them are read once, into `pipes`. 0,
 * -EINVAL, -ENOMEM, or an error of a file. */
int keys_open(const struct settings *o, struct key_pipes *pipes, struct keyring **ret, struct err *e);

/* The host is a loopback address, or "localhost". */
bool keys_host_is_loopback(const char *host);
/* -EINVAL when other machines could reach the models without a key and --allow-open is missing, or web pages
 * without a key, and for an --allow-origin that is not an origin. */
int keys_check(const struct settings *o, const struct keyring *k, struct err *e);

#endif
