/* custom_tool.h - tools of chats and Responses whose input is one text.
 *
 * For the model such a tool is a function with one string, `input`, which follows the tool's regular
 * expression or Lark grammar. Its calls go to the client with the text alone. */
#ifndef PLATEAU_API_CUSTOM_TOOL_H
#define PLATEAU_API_CUSTOM_TOOL_H

#include <jansson.h>

struct buf;
struct request;
struct request_memory;
struct slice;

/* The client's format of the input. */
struct custom_format {
    const char *syntax; /* "lark" or "regex"; another one is not supported. NULL: any text */
    json_t *definition; /* the grammar; not supported unless a string */
    const char *param;  /* the name in x-ignored-fields of a grammar that is not supported */
};

/* The schema of the function's parameters, a new reference, which arguments of `name` follow. A grammar of
 * the format that is not supported has no effect, and is listed. The request's memory is entered. NULL: it
 * was refused. */
json_t *custom_tool_schema(struct request *r, struct request_memory *memory, const char *name,
                           const struct custom_format *format);
/* The function's arguments in an earlier call with this input, a new reference. NULL: no memory. */
json_t *custom_tool_arguments(json_t *input);
/* Appends the text that the model wrote as `input`, or its head where the arguments were cut; arguments that
 * have none stand for themselves. */
void custom_tool_input(struct request_memory *memory, struct slice arguments, struct buf *ret);

#endif
