/* chat.h - a conversation: the messages, and the next answer to them.
 *
 * Each turn sends all messages. A failed turn is removed; a stopped turn stays, with the text of its
 * answer. Main thread only. */
#ifndef PLATEAU_CLI_CHAT_H
#define PLATEAU_CLI_CHAT_H

#include "cli/chat/attach.h"
#include "cli/chat/remote.h"

struct chat_screen;

#define CHAT_MESSAGE_BYTES_MAX ((size_t)16 << 20)

struct chat {
    const struct remote *remote; /* source of answers; borrowed */
    struct chat_screen *screen;
    json_t *messages;          /* array; the first may be the system message */
    struct attach attached;    /* in the order of the messages; at the end, those of the next message */
    uint64_t seed, draws;      /* draws: answers made again, each with a seed of its own */
    uint32_t answers;          /* ever */
    struct remote_answer last; /* end of the last answer, with answers > 0 */
    bool failed, leave;        /* something did not work; /exit */
};

/* 0 or -ENOMEM. On failure nothing remains. */
int chat_open(struct chat *c, const struct remote *remote, struct chat_screen *screen, struct err *e);
/* Forgets the conversation. */
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
