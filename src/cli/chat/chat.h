/* chat.h - a conversation: the messages, and the next answer to them.
 *
 * Each turn sends all messages. A failed turn is removed; a stopped turn stays, with the text of its
 * answer. Main thread only. */
#ifndef PLATEAU_CLI_CHAT_H
#define PLATEAU_CLI_CHAT_H

#include "gen/request_memory.h"
#include "host/answer.h"
#include "host/attach.h"

#include <jansson.h>

struct chat_screen;
struct remote;

#define CHAT_MESSAGE_BYTES_MAX      ((size_t)16 << 20)
#define CHAT_CONVERSATION_BYTES_MAX ((size_t)256 << 20)

/* Source of answers: a model loaded here, or one that a server has. Borrowed by the conversation. */
struct chat_source {
    const struct settings *settings;
    struct runtime *rt;          /* NULL: the server's */
    const struct remote *remote; /* NULL: loaded here */
    struct ledger *ledger;
    struct account *text; /* pays for the conversation */
    uint32_t context;     /* tokens; 0: unknown */
};

struct chat {
    struct chat_source from;
    struct chat_screen *screen;
    struct answerer answerer;     /* answers of a model loaded here */
    struct request_memory memory; /* memory of the messages' JSON */
    json_t *messages;             /* array; the first may be the system message */
    struct attach attached;       /* in the order of the messages; at the end, those of the next message */
    uint64_t seed, draws;         /* draws: answers made again, each with a seed of its own */
    uint32_t answers;             /* ever */
    struct stream_finish last;    /* end of the last answer, with answers > 0 */
    bool failed, leave;           /* something did not work; /exit */
};

/* 0 or -ENOMEM. On failure nothing remains. */
int chat_open(struct chat *c, const struct chat_source *from, struct chat_screen *screen, struct err *e);
/* The conversation is forgotten to the last byte. */
void chat_close(struct chat *c);

/* NULL or an empty text removes it. 0, -EINVAL (invalid UTF-8), -ENOMEM. */
int chat_set_system(struct chat *c, struct slice text, struct err *e);
/* Forgets everything but the system message. */
void chat_reset(struct chat *c);
/* Attached, and not in a message yet. */
uint32_t chat_waiting(const struct chat *c);
/* Forgets them. */
void chat_detach(struct chat *c);
/* Sends a user message with its attachments and prints the reply. Without a reply the attachments stay. 0, or
 * the error that prevented it. */
int chat_say(struct chat *c, struct slice text, struct err *e);
/* Drops the last message's answer and makes another. 0, -ENOENT (no message), or as chat_say. */
int chat_retry(struct chat *c, struct err *e);

/* Runs a line that begins with a /, or says that it is not a command. False: the line is a message. */
bool chat_command(struct chat *c, struct slice line);

#endif
