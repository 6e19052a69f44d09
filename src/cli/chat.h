/* chat.h - a conversation: the messages so far, and the next answer to them.
 *
 * The messages are sent back whole in each turn. A turn that failed is taken back, as if it had not been
 * said; one that was stopped stays, with what had come of its answer. Main thread only. */
#ifndef PLATEAU_CLI_CHAT_H
#define PLATEAU_CLI_CHAT_H

#include "api/request_memory.h"
#include "cli/answer.h"
#include "cli/chat_screen.h"

#include <jansson.h>

#define CHAT_MESSAGE_BYTES_MAX      ((size_t)16 << 20)
#define CHAT_CONVERSATION_BYTES_MAX ((size_t)256 << 20)

struct chat {
    struct runtime *rt;
    struct chat_screen *screen;
    struct answerer answerer;
    struct request_memory memory; /* of the messages' JSON */
    json_t *messages;             /* array; the first may be the system message */
    struct attach
        attached; /* in the order of the messages; behind those that they name, what the next one will */
    uint64_t seed, draws;      /* draws: answers made again, each with a seed of its own */
    uint32_t answers;          /* ever */
    struct stream_finish last; /* of the last answer, with answers > 0 */
    bool failed, leave;        /* something did not work; /exit */
};

/* 0 or -ENOMEM. On failure nothing remains. */
int chat_open(struct chat *c, struct runtime *rt, struct chat_screen *screen, struct err *e);
/* The conversation is forgotten to the last byte. */
void chat_close(struct chat *c);

/* NULL or an empty text: none any more. 0, -EINVAL (no UTF-8), -ENOMEM. */
int chat_set_system(struct chat *c, struct slice text, struct err *e);
/* Forgets everything but the system message. */
void chat_reset(struct chat *c);
/* Attached, and not in a message yet. */
uint32_t chat_waiting(const struct chat *c);
/* Forgets them. */
void chat_detach(struct chat *c);
/* A message of the person, with what is attached, and its answer on the screen. What is attached stays so
 * when it was not answered. 0, or what kept it from being answered. */
int chat_say(struct chat *c, struct slice text, struct err *e);
/* The last message's answer is forgotten and made again. 0, -ENOENT (there is none), or as chat_say. */
int chat_retry(struct chat *c, struct err *e);

/* Does the line begin with a /? Then it is done as a command, or told to be none. */
bool chat_command(struct chat *c, struct slice line);

#endif
