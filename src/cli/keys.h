/* keys.h - from options to the keys that open the server. */
#ifndef PLATEAU_CLI_KEYS_H
#define PLATEAU_CLI_KEYS_H

#include "api/keyring.h"
#include "cli/key_pipes.h"
#include "cli/options.h"

/* The keys of --api-key, --admin-key, --metrics-key and of the files of --api-key-file and so on; a file that
 * others may read or change is told of in the log. Pipes among them are read once, into `pipes`. 0, -EINVAL,
 * -ENOMEM, or what was wrong with a file. */
int keys_open(const struct options *o, struct key_pipes *pipes, struct keyring **ret, struct err *e);

/* The host is a loopback address, or "localhost". */
bool keys_host_is_loopback(const char *host);
/* -EINVAL when others could reach the models without a key and nobody has said that they may. */
int keys_check(const struct options *o, const struct keyring *k, struct err *e);

#endif
