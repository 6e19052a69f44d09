/* responses.h - OpenAI's Responses: declarations that its files share.
 *
 * responses_request.c reads the fields. responses_items.c and responses_tools.c convert items and tools to
 * the form that templates expect. wire_responses.c writes replies. */
#ifndef PLATEAU_API_RESPONSES_H
#define PLATEAU_API_RESPONSES_H

#include "api/request/request.h"
#include "api/request/tool_set.h"

#include "gen/request_memory.h"

struct exchange;
struct json_out;
struct request_id;

/* The request's key of lists with the client's tools that items bring. `tools` keeps those of the request,
 * which the reply repeats. */
#define RESPONSES_BROUGHT "plateau:brought"
/* Name of the function that stands for a search for tools, which the client runs, and its type. */
#define RESPONSES_SEARCH "tool_search"

bool responses_check(struct request *r, struct reject *why);
bool responses_convert(struct request *r, const struct request_limits *limits, struct request_memory *memory,
                       struct reject *why);
extern const struct field_group *const responses_groups[];
/* Form of /v1/responses/compact: the reply is a summary. Nothing is stored. */
bool responses_check_compact(struct request *r, struct reject *why);
/* Form of /v1/responses/input_tokens, which stores nothing. */
extern const struct request_form responses_count_form;

/* A request that is being converted: its memory is entered. */
struct responses_conversion {
    struct request *request;
    const struct request_limits *limits;
    struct request_memory *memory;
    struct reject *why;
    json_t *names;  /* names of functions, by the id of their call */
    json_t *stored; /* items of stored responses, by their id; each response is parsed once. NULL: none yet */
    size_t tools;   /* tools seen until now, in namespaces and items too */
    bool defers;    /* deferred tools wait for an item that brings them */
    json_t *parts;  /* parts of the message whose item brings tools; NULL: the request's tools are read */
    const char *lead; /* text before their definitions; NULL: none */
    bool last;        /* the item is the last one of the input */
    bool triggered;   /* the item before it was a trigger of a compaction */
    struct tool_set set;
    char at[64]; /* "input[0].content[1]", for errors */
};

/* Refuses the request: no memory. Returns false. */
static inline bool responses_no_memory(const struct responses_conversion *c)
{
    return request_memory_reject(c->memory, c->why);
}
/* responses_items.c: `instructions` and `input` become one list, in r->gen.messages. */
bool responses_convert_items(struct responses_conversion *c);
/* responses_reference.c: each item_reference of the input becomes the stored item that it names. */
bool responses_resolve(struct responses_conversion *c);
/* responses_keep.c: the input as JSON, in r->kept, where the reply will be stored. */
bool responses_keep_input(struct responses_conversion *c);
/* The items before the input, with previous_response_id: a list, which the caller frees, or NULL where there
 * are none. False: refused. */
bool responses_previous(struct responses_conversion *c, json_t **ret);
/* "resp_..."; false: it is not one. */
bool responses_parse_id(struct slice text, struct request_id *ret);
/* responses_content.c: the parts of a message or of a call's output, appended to `parts`. */
bool responses_add_content(struct responses_conversion *c, json_t *parts, json_t *content);
bool responses_add_words(const struct responses_conversion *c, json_t *parts, struct slice words);
/* responses_tools.c: `tools` of the body, declared in c->set. */
bool responses_convert_tools(struct responses_conversion *c);
/* Appends the tools of an item to the parts of its message, after `lead` unless it is NULL. */
bool responses_bring_tools(struct responses_conversion *c, json_t *parts, json_t *tools, const char *lead);

/* ---- tools, by the name that the model knows ---- */

#define RESPONSES_NAME_BYTES 256

/* The name of a function in a namespace, as the model sees it; `space` may be NULL. False: too long. */
bool responses_flat_name(const char *space, const char *name, char ret[RESPONSES_NAME_BYTES]);
/* True if the client runs a search for tools under that name. */
bool responses_is_search(const struct request *r, struct slice flat);
/* The client's own tool of that name, and the namespace that it is in (NULL: none). NULL: there is none. */
const json_t *responses_find_tool(const struct request *r, struct slice flat, const char **space);

/* ---- replies ---- */

/* responses_reply.c: puts the member usage. */
void responses_write_usage(const struct exchange *x, struct json_out *j);
/* An item of type compaction, the reply's `index`-th. */
void responses_write_summary(const struct exchange *x, uint32_t index, struct slice text, const char *key,
                             struct json_out *j);

#endif
