/* keys.h - from options to the keys that open the server. */
#ifndef PLATEAU_CLI_KEYS_H
#define PLATEAU_CLI_KEYS_H

#include "api/keyring.h"
#include "cli/key_pipes.h"
#include "cli/options.h"

/* The keys of --api-key, --admin-key, --metrics-key and of the files of --api-key-file and so on; the log
 * warns about a file that other users may read or change. Pipes among them are read once, into `pipes`. 0,
 * -EINVAL, -ENOMEM, or an error of a file. */
int keys_open(const struct options *o, struct key_pipes *pipes, struct keyring **ret, struct err *e);

/* The host is a loopback address, or "localhost". */
bool keys_host_is_loopback(const char *host);
/* -EINVAL when other machines could reach the models without a key and --allow-open is missing. */
int keys_check(const struct options *o, const struct keyring *k, struct err *e);

#endif
