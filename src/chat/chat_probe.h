/* chat_probe.h - a chat format read off its template: the template is rendered with sentinels, and what it
 * writes around them are the markers. */
#ifndef PLATEAU_CHAT_CHAT_PROBE_H
#define PLATEAU_CHAT_CHAT_PROBE_H

#include <jansson.h>
#include <stdbool.h>

struct arena;
struct buf;
struct chat_syntax;
struct chat_template;

/* Finds out how the template takes earlier calls; nothing changes when it takes none. */
void chat_probe_history(const struct chat_template *t, struct arena *scratch, struct chat_syntax *ret);
/* Fills the tool part of `ret`; its texts live in `a`. False: the template writes no calls, or not in a way
 * that is understood. */
bool chat_probe_tools(const struct chat_template *t, struct arena *a, struct arena *scratch,
                      struct chat_syntax *ret);
/* Fills the markers of reasoning. */
bool chat_probe_reasoning(const struct chat_template *t, struct arena *a, struct arena *scratch,
                          struct chat_syntax *ret);
/* Renders the prompt of an ordinary request, with `tools` (NULL: none), into `ret`. False: the template
 * refuses it. */
bool chat_probe_prompt(const struct chat_template *t, struct arena *scratch, const json_t *tools,
                       struct buf *ret);

#endif
