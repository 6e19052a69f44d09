/* later_tools.h - tools that a client adds to its list, or takes from it, between turns.
 *
 * The head of the prompt stays as the first turn was rendered, so that the prefix cache has it.
 * Changes become text at the end of the turn's last message, as gen/tool_insert.h writes tools that a message
 * brings. Which tools were at the head, and where further ones came, is in conversations.h. Grammar and
 * parser have the tools that the request lists. */
#ifndef PLATEAU_API_LATER_TOOLS_H
#define PLATEAU_API_LATER_TOOLS_H

#include "api/request/request.h"

struct conversations;

struct later_tools_opts {
    struct conversations *conversations;
    uint64_t tenant;
    const char *model; /* id of the model: its template wrote the head */
    bool keeps;        /* the turn is answered: the next one continues it */
};

/* Changes the request's head and messages to those of its conversation. A conversation that is not known
 * begins with the request's own. On a prep thread, once, after the messages were converted. False: no
 * memory. */
bool later_tools_insert(struct request *r, const struct later_tools_opts *opts, struct request_memory *memory,
                        uint64_t now_ns);

#endif
