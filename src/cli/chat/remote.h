/* remote.h - a model that a server has, for chat: found, described, and asked over OpenAI's API. Main
 * thread. */
#ifndef PLATEAU_CLI_REMOTE_H
#define PLATEAU_CLI_REMOTE_H

#include "cli/admin_client.h"

#include "gen/choice.h"

#define REMOTE_ID_BYTES 256

struct remote {
    const struct settings *settings;
    struct admin_client client;
    char id[REMOTE_ID_BYTES];
    uint32_t context; /* tokens; 0: the server does not say */
    bool text_only;   /* the server says that the model takes neither images nor videos */
};

/* The server of --url, and its model: the one named by `o`, else its first that is not
 * the bundled one. 0, -ENOENT (it has no such model:
 * `e` lists those it has), or an error of admin_client_ask. remote_close() either way. */
int remote_open(const struct settings *o, struct remote *ret, struct err *e);
/* A server of this user on this machine that has the model named by `o`, or without a name any. False: there
 * is none, or an option says that the model is to be loaded here. */
bool remote_find(const struct settings *o, struct remote *ret);
/* One line on standard error if `o` has an API key that goes nowhere: there is no --url. */
void remote_note_key(const struct settings *o);
void remote_close(struct remote *r);
/* Where it is, for people. */
const char *remote_where(const struct remote *r);

/* Asks for an answer to `messages`; its parts go to the sink. stopped() ends it (FINISH_ABORTED). Times in
 * *ret are as seen from here: prefill is the time until the first part. 0, or an error of stream_request. */
int remote_answer(const struct remote *r, json_t *messages, uint64_t seed, bool (*stopped)(void),
                  part_sink_fn *sink, void *sink_arg, struct stream_finish *ret, struct err *e);

#endif
