/* chat_generic.h - tools and their results for a template that knows neither, as text of messages.
 *
 * A message of the system lists the tools as JSON and says how a call is written, in the format `generic` of
 * chat_tables.c. A result of a tool becomes a turn of the user. Earlier calls stand in the content of their
 * messages already: chat_history.h. */
#ifndef PLATEAU_CHAT_CHAT_GENERIC_H
#define PLATEAU_CHAT_CHAT_GENERIC_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct chat_mark;

struct chat_generic_opts {
    const json_t *tools;     /* NULL: none are offered */
    bool without_system;     /* the template refuses the role: its text leads the first turn of the user */
    struct chat_mark *marks; /* marks of `messages`; they follow their messages */
    uint32_t mark_count;
};

/* A new list in `*ret`, for rendering. It shares the messages that stay alike; `messages` does not change.
 * 0 or -ENOMEM. */
int chat_generic_messages(json_t *messages, const struct chat_generic_opts *opts, json_t **ret);

#endif
