/* tool_insert.h - tools that come within a conversation, written where they came. On prep threads.
 *
 * The head of a prompt has the tools of the first turn. One that comes later is a part of the message that
 * brings it, {"type": "tools", "tools": [...], "lead": TEXT}, so that no token before it changes and the
 * prefix cache has them all. Here the part becomes a text: the lead, and what the template writes for each
 * tool at the head. */
#ifndef PLATEAU_GEN_TOOL_INSERT_H
#define PLATEAU_GEN_TOOL_INSERT_H

#include <stdbool.h>

struct arena;
struct chat_template_input;
struct chat_template_limits;
struct gen;

#define TOOL_INSERT_TYPE  "tools" /* type of a part that brings tools */
#define TOOL_INSERT_LATER "later" /* true in a part that no message of the client brings */

/* Replaces the parts of the request's messages. Some conversations have all tools in force at the head, as
 * request.head_tools; the parts become the names of their tools, or leave if no message brings them:
 * - if the head had no tool: the model would not read how it calls one;
 * - if turns may be dropped, with the tools in them;
 * - if the template has no words for one of the tools.
 * `in` and `limits` serve the prompt's rendering, too. False: g->reject has the error. */
bool tool_insert(struct gen *g, struct arena *scratch, const struct chat_template_input *in,
                 const struct chat_template_limits *limits);

#endif
