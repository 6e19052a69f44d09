/* tool_set.h - the tools of a conversation while it is converted.
 *
 * Some are declared by the request, some of these stand at the head of the prompt, messages bring and take
 * away others, and the rest is in force at the end.
 *
 * Tools have the form that templates expect. A message that brings one gets a part for gen/tool_insert.h the
 * first time, and a sentence later: the prompt has the definition already. One thread; the memory of the
 * request is entered. */
#ifndef PLATEAU_API_TOOL_SET_H
#define PLATEAU_API_TOOL_SET_H

#include <jansson.h>
#include <stdbool.h>

struct request;

struct tool_set {
    json_t *head;     /* a list */
    json_t *declared; /* by name: the first one of each */
    json_t *force;    /* by name, in the order in which they came */
    json_t *written;  /* by name: definitions that the prompt has */
    bool changed;     /* by a message, or some tools are not at the head */
};

/* False: no memory, here and below. */
bool tool_set_init(struct tool_set *s);
void tool_set_done(struct tool_set *s);
/* A tool of the request's list; `deferred`: it waits for a message that brings it. */
bool tool_set_declare(struct tool_set *s, json_t *tool, bool deferred);
/* The tool that was declared or brought under that name; borrowed. NULL: none. */
json_t *tool_set_find(const struct tool_set *s, const char *name);
/* Writes the name of a tool in force into `parts`, as a line. False: no memory. */
bool tool_set_name(json_t *parts, const char *name);
/* A message brings a tool: it is in force from here on. Appends to the message's parts the definition, after
 * `lead` (NULL: nothing), or a sentence if the prompt has it. */
bool tool_set_bring(struct tool_set *s, json_t *tool, const char *lead, json_t *parts);
/* A message takes a tool away, or all of them. */
bool tool_set_take(struct tool_set *s, const char *name, json_t *parts);
bool tool_set_take_all(struct tool_set *s, json_t *parts);
/* All messages until now leave the prompt: the tools of the head are in force again, and no others. */
bool tool_set_restart(struct tool_set *s);
/* As `tool_set_restart()`, but the tools in force stay so: appends their definitions to the parts of the
 * next message. */
bool tool_set_carry(struct tool_set *s, const char *lead, json_t *parts);
/* Sets the tools of the request. Its body owns them, under these names. */
bool tool_set_finish(struct tool_set *s, struct request *r);

#define TOOL_SET_TOOLS "plateau:tools"
#define TOOL_SET_HEAD  "plateau:head_tools"

#endif
