/* chat_tables.h - known formats: their descriptions, and the texts in a template that tell them. For the
 * files that find a chat_syntax. */
#ifndef PLATEAU_CHAT_CHAT_TABLES_H
#define PLATEAU_CHAT_CHAT_TABLES_H

#include "chat/chat_syntax.h"

#define CHAT_HINTS_MAX 3

struct chat_tool_format {
    const char *name;
    bool first;                        /* its hints are looked for before the template is rendered */
    const char *hints[CHAT_HINTS_MAX]; /* all of them stand in the template; none: never found by hints */
    const char *reasoning;             /* its reasoning format; NULL: found apart */
    struct chat_syntax syntax;
};

struct chat_reasoning_format {
    const char *name;
    const char *hint; /* in the template; NULL: never found */
    const char *open, *close;
};

/* In the order in which they are tried. */
extern const struct chat_tool_format chat_tool_formats[];
extern const uint32_t chat_tool_format_count;
extern const struct chat_reasoning_format chat_reasoning_formats[];
extern const uint32_t chat_reasoning_format_count;

#endif
