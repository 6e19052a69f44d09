/* launch_clients.h - coding agents that `launch` knows, and the settings that point each at a server.
 *
 * Settings are variables of the environment and arguments, never files of the user. Pure; any thread. */
#ifndef PLATEAU_CLI_LAUNCH_CLIENTS_H
#define PLATEAU_CLI_LAUNCH_CLIENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a client finds its model. */
struct launch_target {
    const char *url; /* without a slash at its end, and without /v1 */
    const char *key; /* any text if the server has no keys */
    const char *model;
    uint32_t context; /* tokens; 0: the server does not say */
};

struct launch_client {
    const char *name;       /* the client, and its program */
    const char *get;        /* command that installs it */
    uint32_t prompt_tokens; /* least context in which its first prompt and a short reply fit; 0: not known */
    /* Adds variables to the object `env` (null: the variable is removed) and arguments, which precede the
     * user's, to the list `args`. False: no memory. */
    bool (*settings)(const struct launch_target *p, json_t *env, json_t *args);
};

extern const struct launch_client launch_clients[];
extern const size_t launch_client_count;

/* NULL: none has the name. */
const struct launch_client *launch_client_find(const char *name);

#endif
