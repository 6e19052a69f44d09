/* request.h - a client's request, checked as far as that is possible without the model.
 *
 * request_parse() is a pure function: a body to a struct request, or to the sentence that refuses it. A form
 * says how: its groups of fields (field.h), and what is checked when all fields are known. */
#ifndef PLATEAU_API_REQUEST_H
#define PLATEAU_API_REQUEST_H

#include "base/buf.h"
#include "gen/gen_request.h"

struct reject;
struct request_memory;
struct responses_store;
struct responses_items;

#define REQUEST_STOP_BYTES_MAX 256 /* ENGINE_STOP_STRING_BYTES_MAX */
#define REQUEST_TOOLS_MAX      512
#define REQUEST_IGNORED_BYTES  256
#define REQUEST_TOKENS_MAX     ((int64_t)1 << 24)

enum request_kind {
    REQUEST_GENERATE, /* generates in a dialect: wire.h */
    REQUEST_TOKENIZE,
    REQUEST_DETOKENIZE,
    REQUEST_TEMPLATE,
    REQUEST_COUNT_TOKENS, /* Messages' count_tokens */
    REQUEST_ITEMS,        /* /v1/responses/{id}/input_items: without a body */
    REQUEST_INPUT_TOKENS, /* Responses' input_tokens */
    REQUEST_RENDER,       /* a dialect's .../render: what REQUEST_GENERATE would compute */
    REQUEST_CLEAR,        /* /api/hot-cache/clear: its body may be empty */
    REQUEST_CLEAR_SSD,    /* /api/ssd-cache/clear: likewise */
    REQUEST_TRIM,         /* /api/trim: likewise */
    REQUEST_LOAD,         /* /v1/models/{id}/load: likewise */
    REQUEST_UNLOAD,       /* /v1/models/{id}/unload: likewise */
    REQUEST_KIND_COUNT
};

/* Frees memory or disk, and needs no model. */
static inline bool request_reclaims(enum request_kind kind)
{
    return kind == REQUEST_CLEAR || kind == REQUEST_CLEAR_SSD || kind == REQUEST_TRIM;
}

struct request;
struct request_form;
struct field_group;

struct request_limits {
    uint32_t json_depth_max;
    uint32_t choices_max; /* prompts x n */
    uint32_t texts_max;   /* texts of an output without tokens */
    /* True: a field without a place in `form` is one of another route, and is refused. NULL: it is ignored as
     * an unknown one. */
    bool (*elsewhere)(const struct request_form *form, const char *name);
    struct responses_store *responses; /* NULL: none are stored */
    uint64_t tenant;                   /* whose stored responses may be referred to */
    const char *id;                    /* the request's id, for ids of stored items; NULL: none */
};

/* How the bodies of one route are read. */
struct request_form {
    const struct field_group *const *groups; /* ends with NULL */
    const char *api; /* a field of another route of this API is refused; NULL: ignored */
    enum gen_output output;
    bool parses;             /* see gen_request.parses */
    bool may_be_empty;       /* no body: {} */
    bool compacts;           /* the reply is a summary of the conversation */
    bool may_have_no_output; /* max_tokens may be 0: gen_request.prompt_only */
    /* The fields together, after each was read by itself. NULL: nothing to check. */
    bool (*check)(struct request *r, struct reject *why);
    /* After all checks: messages to the form that templates expect. NULL: they have it. */
    bool (*convert)(struct request *r, const struct request_limits *limits, struct request_memory *memory,
                    struct reject *why);
};

/* The first parts of a message, and the bytes of their texts. */
struct request_texts {
    size_t message, parts, bytes;
};

struct request {
    const struct request_form *form;
    json_t *root;      /* the body; owns all that points into it below */
    const char *model; /* NULL: the only model */
    struct gen_request gen;
    json_t *tokens;         /* detokenize */
    bool base64;            /* embeddings: vectors as base64 of little-endian floats */
    int64_t top_n;          /* rerank: results in the reply; 0: all */
    bool without_documents; /* rerank: the results do not repeat their documents */
    bool return_token_strs;
    bool force; /* an unload ends the sessions of its model */
    bool stream, include_usage, continuous_usage;
    bool stream_options; /* it was given */
    bool include_timings, timings_per_token;
    bool include_diagnostics;     /* usage says why the prefix cache had less than it could */
    bool diagnoses;               /* Messages: `diagnostics` was given */
    const char *previous_message; /* the id in it; NULL: none */
    bool tools_off;               /* the tools are not to be called */
    bool thinking_omitted;        /* Messages: blocks of thinking are sent without their text */
    bool stores;                  /* Responses: the reply is stored */
    json_t *customs;              /* owned: chats: an object with the names of custom tools; NULL: none */
    json_t *toolsets; /* owned: Messages: an object with the toolset of each of its tools; NULL: none */
    struct responses_items *previous; /* items of the response before this one; a reference */
    struct buf kept;                  /* items to store: the input, later the output */
    size_t kept_input;                /* bytes of the input */
    bool seals_reasoning;             /* Responses: items of reasoning have encrypted_content */
    struct request_texts texts;       /* parts that request_mark_part() has counted */
    bool return_token_ids;
    bool echo, echo_logprobs; /* completions: the text begins with the prompt; logprobs has it too */
    bool echo_logprobs_only;  /* prompt_logprobs were not requested besides */
    json_t *echoed;           /* owned: the prompt that is repeated */
    char ignored[REQUEST_IGNORED_BYTES]; /* "a, b": unknown field names; cut when the list is long */
};

/* False: `why` has the error. The caller passes `ret` to request_done() in either case. The body's bytes are
 * not needed afterwards. */
bool request_parse(const struct request_form *form, struct slice body, const struct request_limits *limits,
                   struct request_memory *memory, struct request *ret, struct reject *why);
void request_done(struct request *r);

/* Frees the values that only the prompt needed (field.prompt). The tools stay (their schemas type the
 * arguments of calls). */
void request_drop_prompt(struct request *r);
/* Frees all of the body of an answered request. Not for the network thread: ten million values take a
 * second. */
void request_drop_all(struct request *r);

/* request_prompts.c: r->gen.prompt, under the name of its field; counts the prompts. */
bool request_check_prompts(struct request *r, const char *name, struct reject *why);

/* request_messages.c: OpenAI's messages and tools, if there are some, to the form that templates expect, in
 * place. Their images and videos go to the list r->gen.media, which is made when the first is found. */
bool request_convert_messages(struct request *r, const struct request_limits *limits,
                              struct request_memory *memory, struct reject *why);
/* The arguments of a function's call, where they are the text of an object, become that object. Models and
 * clients write the empty text for no arguments. Other text stays text: the model wrote it, and agents send
 * it back. False: no memory. */
bool request_read_arguments(json_t *function, const struct request_limits *limits,
                            struct request_memory *memory);
/* A part for request_join_parts: `text` joins its two neighbours. NULL: no memory. */
json_t *request_glue(const char *text);
/* In the list of parts `message[name]` glued texts become one, and with `whole` all that stand in a row. A
 * list of one text becomes a string. False: no memory. */
bool request_join_parts(json_t *message, const char *name, bool whole, struct request_memory *memory);

/* A client's mark, unless there is one or the request has GEN_MARKS_MAX. */
void request_mark(struct request *r, size_t message, size_t bytes);
/* Messages from index `head` on leave, with all images and their own marks. */
void request_drop_messages(struct request *r, size_t head);
/* A mark after the texts of `parts`, which are those of a message so far, if the last one was made of a part
 * with a `prompt_cache_breakpoint`. The list only grows between two marks of a message: each part is counted
 * once. */
void request_mark_part(struct request *r, size_t message, const json_t *parts, const json_t *part);

/* request_tools.c: the field `tools` of chats. */
bool request_check_tools(struct request *r, const json_t *tools, struct reject *why);
/* Custom tools become functions, in place; r->customs has their names. The request's memory is entered. */
bool request_convert_tools(struct request *r, struct request_memory *memory, struct reject *why);
/* Whether the client offered the tool of that name as a custom one. */
bool request_is_custom(const struct request *r, struct slice name);

/* request_media.c: an image or a video among the parts of a message. */
/* True for a part with an image or a video, well formed or not. */
bool request_is_media(const json_t *part);
/* The entry of the list for this part, or NULL with the error. The request's memory is entered already. */
json_t *request_media_read(const json_t *part, const char *at, struct reject *why);
/* "image" or "video": the type that templates know. */
const char *request_media_type(const json_t *part);

#endif
