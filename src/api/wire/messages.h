/* messages.h - Anthropic's Messages: declarations that its files share.
 *
 * messages_request.c reads the fields. messages_blocks.c and messages_tools.c convert messages and tools to
 * the form that templates expect. wire_messages.c writes replies, messages_errors.c errors. */
#ifndef PLATEAU_API_MESSAGES_H
#define PLATEAU_API_MESSAGES_H

#include "api/request/field.h"
#include "api/request/request.h"
#include "api/request/tool_set.h"

#include "gen/request_memory.h"

struct http_request;
struct http_wording;
struct json_out;

/* ---- errors, and the frame of streams ---- */

/* The reject_envelope of Messages: {"type":"error","error":{"type","message"},"request_id"} */
unsigned messages_status(const struct reject *why);
void messages_write_error(const struct reject *why, const char *id, struct buf *ret);
/* Whether a path is of this API: its errors have this envelope, also before a body is read. */
bool messages_owns(struct slice path);
/* Words a refusal of the HTTP layer. */
void messages_word(struct http_request *r, struct http_wording *w);

/* ---- requests ---- */

extern const struct field_group *const messages_groups[];
/* POST /v1/messages/count_tokens: the same fields, none of them required but messages. */
extern const struct request_form messages_count_form;

/* Lists the beta features of the header anthropic-beta that the server does not have. */
void messages_note_betas(struct request *r, const struct http_request *http);

bool messages_check(struct request *r, struct reject *why);
bool messages_convert(struct request *r, const struct request_limits *limits, struct request_memory *memory,
                      struct reject *why);

/* A request that is being converted: its memory is entered. */
struct messages_conversion {
    struct request *request;
    struct request_memory *memory;
    struct reject *why;
    json_t *names; /* names of functions, by the id of their call */
    size_t head;   /* messages of the field `system`: 0 or 1 */
    size_t tools;  /* seen until now, with the members of toolsets and those in messages */
    bool defers;   /* deferred tools wait for a message that brings them */
    struct tool_set set;
    char at[64]; /* "messages[0].content[1]", for errors */
};

/* Refuses the request: no memory. Returns false. */
static inline bool messages_no_memory(const struct messages_conversion *c)
{
    return request_memory_reject(c->memory, c->why);
}
/* messages_cache.c: the time to keep the prefix, from a cache_control of the head (system and tools) or
 * behind it. */
void messages_keep(struct request *r, const json_t *control, bool head);
/* Notes a cache_control of `holder` as a cut of the prefix cache. */
void messages_mark(struct request *r, const json_t *holder, size_t message, size_t bytes);
/* messages_blocks.c: `system` and `messages` of the body become one list, in r->gen.messages. */
bool messages_convert_blocks(struct messages_conversion *c);
/* messages_tools.c: `tools` of the body, declared in c->set. */
bool messages_convert_tools(struct messages_conversion *c);
/* Blocks of type tool_addition (`adds`) and tool_removal: what they say of the tools, appended to `parts`. */
bool messages_change_tools(struct messages_conversion *c, json_t *parts, const json_t *block, bool adds);
/* A block of type tool_reference. */
bool messages_refer_to_tool(struct messages_conversion *c, json_t *parts, const json_t *block);
/* The toolset that the tool of that name is a member of; NULL: none. */
const char *messages_toolset_of(const struct request *r, struct slice name);

/* ---- compaction ---- */

field_read_fn messages_read_compaction, messages_read_edits;
/* After the blocks: the reply is a summary, if the request says so or grows too long. */
bool messages_ask_summary(struct messages_conversion *c);
/* The block; without text the summary is still to come. */
void messages_write_compaction(const struct request *r, struct slice text, const char *key,
                               struct json_out *j);

/* ---- signatures of thinking ---- */

#define MESSAGES_SIGNATURE_BYTES 96 /* with its terminating zero */

/* HMAC-SHA-256 over blocks, each with the result before it: plain data, so that nothing has to be freed. */
struct messages_signature {
    unsigned char digest[32], block[256];
    uint32_t used; /* bytes used of `block` */
};

void messages_signature_begin(struct messages_signature *s);
void messages_signature_add(struct messages_signature *s, struct slice text);
/* Depends on the text and on a key of this process, not on how the text was split. */
void messages_signature_end(struct messages_signature *s, char ret[MESSAGES_SIGNATURE_BYTES]);

#endif
