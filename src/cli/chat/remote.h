/* remote.h - a model that a server has, for chat, generate and bench: found, described, and asked over
 * OpenAI's API. The server may be one that this process started. Main thread. */
#ifndef PLATEAU_CLI_REMOTE_H
#define PLATEAU_CLI_REMOTE_H

#include "cli/admin_client.h"

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

struct own_server;

#define REMOTE_ID_BYTES 256

struct remote {
    const struct settings *settings;
    struct own_server *own; /* NULL: another process's server */
    struct admin_client client;
    char id[REMOTE_ID_BYTES];
    uint32_t context; /* tokens; 0: the server does not say */
    bool text_only;   /* the server says that the model takes neither images nor videos */
    bool chats;       /* it has a chat template, unless the server says that it has none */
};

/* The server of --url, and its model: the one named by `o`, else its first that is not
 * the bundled one. 0, -ENOENT (it has no such model:
 * `e` lists those it has), or an error of admin_client_order(). remote_close() either way. */
int remote_open(const struct settings *o, struct remote *ret, struct err *e);
/* The model of a server that this process started, which outlives it. */
void remote_open_own(const struct settings *o, struct own_server *s, struct remote *ret);
/* A server of this user on this machine that has the model named by `o`, or without a name any. False: no
 * server has it, or an option says that the model is to be loaded here. */
bool remote_find(const struct settings *o, struct remote *ret);
/* One line on standard error if `o` has an API key that goes nowhere: there is no --url. */
void remote_note_key(const struct settings *o);
void remote_close(struct remote *r);
/* Where it is, for people. */
const char *remote_where(const struct remote *r);

/* The server was this process's own, and has ended. */
bool remote_is_gone(const struct remote *r);

/* The seed of a first answer: --seed, or with 0 a random one. */
uint64_t remote_seed(const struct settings *o);

enum remote_end { REMOTE_STOP, REMOTE_LENGTH, REMOTE_LOOP, REMOTE_STOPPED };

struct remote_answer {
    enum remote_end end;
    uint32_t prompt_tokens, completion_tokens, cached_tokens;
    uint64_t first_ns, rest_ns; /* from the request to the first part of the answer, and to the last */
};

struct remote_question {
    json_t *messages;     /* rendered by the model's template */
    const json_t *prompt; /* without messages: a text, rendered by no template */
    bool plain;           /* reasoning is part of the text, with its marks */
    uint64_t seed;
    bool (*stopped)(void); /* asked while an answer runs: the user stopped it */
    void (*text)(void *arg, bool reasoning, struct slice text);
    void *arg;
};

/* Asks for an answer; q->text gets each part at once. stopped() ends it (REMOTE_STOPPED). 0; -E2BIG:
 * no room for an answer after the prompt; or an error of stream_request. */
int remote_ask(const struct remote *r, const struct remote_question *q, struct remote_answer *ret,
               struct err *e);

/* Has the server read an image or a video, as part of a message. *ret: its tokens. 0, -ECANCELED (stopped()
 * said so), or an error of stream_request, whose sentence does not name the part. */
int remote_read_part(const struct remote *r, json_t *part, bool (*stopped)(void), uint32_t *ret,
                     struct err *e);

#endif
