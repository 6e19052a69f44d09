/* chat_format.h - the output of a chat model as events: reasoning, content, tool calls.
 *
 * Works on decoded text as it streams in; holds back only text that may still become markup. The markup
 * itself is never emitted. Memory: at most `bytes_max` for the call being read. One thread at a time. */
#ifndef PLATEAU_TEXT_CHAT_FORMAT_H
#define PLATEAU_TEXT_CHAT_FORMAT_H

#include "base/buf.h"

#include <jansson.h>

enum chat_format {
    CHAT_FORMAT_PLAIN,    /* content only */
    CHAT_FORMAT_QWEN_XML, /* Qwen3.5, Qwen3-Coder: <think> and <tool_call><function=N><parameter=K>V */
};

enum chat_event_kind {
    CHAT_REASONING,      /* text: more reasoning */
    CHAT_CONTENT,        /* text: more content */
    CHAT_TOOL_BEGIN,     /* text: the function's name; index: 0, 1, ... */
    CHAT_TOOL_ARGUMENTS, /* text: the next piece of the arguments' JSON object; the pieces of a call
                            concatenate to it */
    CHAT_TOOL_END        /* the call is complete */
};

struct chat_event {
    enum chat_event_kind kind;
    uint32_t index;
    struct slice text; /* valid during the call of the sink */
};

typedef void chat_sink_fn(void *arg, const struct chat_event *event);

struct chat_parser_opts {
    enum chat_format format;
    bool in_reasoning; /* the prompt ended inside <think> */
    bool parse_tools;  /* false: tool markup is ordinary content (no tools were offered) */
    /* The request's tools: types of arguments come from their schemas; NULL: none. Borrowed. */
    const json_t *tools;
    size_t bytes_max;
    const struct charge *charge;
    chat_sink_fn *sink;
    void *sink_arg;
};

struct chat_parser;
/* 0 or -ENOMEM. */
int chat_parser_create(const struct chat_parser_opts *opts, struct chat_parser **ret);
void chat_parser_free(struct chat_parser *p);

/* The next decoded text, valid UTF-8, any split. 0, -E2BIG (a call is larger than bytes_max) or -ENOMEM. */
int chat_parser_push(struct chat_parser *p, struct slice text);
/* The output is over: emits the text held back; an unfinished call's complete parameters are kept and its
 * object closed. */
int chat_parser_finish(struct chat_parser *p);
/* Number of calls begun until now. */
uint32_t chat_parser_calls(const struct chat_parser *p);

/* True when this rendered prompt ends inside a think block (its last "<think>" comes after its last
 * "</think>"). */
bool chat_prompt_in_reasoning(struct slice rendered);

/* Writes `s` as a JSON string with its quotes: UTF-8 kept, control characters escaped. */
void json_write_string(struct buf *ret, struct slice s);
/* Writes "name":"value", after a comma unless its object begins here. NULL: null. */
void json_write_member(struct buf *ret, const char *name, const char *value);
/* Writes a jansson value compactly, object keys in their order, doubles in the shortest form that parses to
 * the same value. */
void json_write_value(struct buf *ret, const json_t *value);

#endif
