/* chat_format.h - the output of a chat model as events: reasoning, content, tool calls.
 *
 * One parser for all formats, which runs on the description of the model's (chat_syntax.h). Works on
 * decoded text as it streams in; of running text it holds back only a possible marker, and white space
 * before that. Markers are never emitted. Memory: at most `bytes_max` for the call being read. One thread
 * at a time.
 *
 * Arguments come in pieces of at most CHAT_PIECE_BYTES_MAX bytes: JSON and strings while the model writes
 * them, other tagged values when they are complete. When the model ends its output inside a call, its
 * complete parameters stay, a string that has begun is closed, and so is the object. When a limit or a stop
 * string cuts the output there, nothing is closed: half a text must not look whole. Arguments that are not
 * JSON are passed on as written. */
#ifndef PLATEAU_CHAT_CHAT_FORMAT_H
#define PLATEAU_CHAT_CHAT_FORMAT_H

#include "base/buf.h"

#include <jansson.h>

struct chat_syntax;

#define CHAT_PIECE_BYTES_MAX 64
/* White space before a marker that is not emitted. */
#define CHAT_BLANKS_MAX 64

enum chat_event_kind {
    CHAT_REASONING,      /* text: more reasoning */
    CHAT_CONTENT,        /* text: more content */
    CHAT_TOOL_BEGIN,     /* text: the function's name; index: 0, 1, ... */
    CHAT_TOOL_ARGUMENTS, /* text: the next piece of the arguments' JSON object; the pieces of a call
                            concatenate to it */
    CHAT_TOOL_END        /* the call is over */
};

struct chat_event {
    enum chat_event_kind kind;
    uint32_t index;
    struct slice text; /* valid during the call of the sink */
    struct slice id;   /* CHAT_TOOL_BEGIN: the id that the model gave the call; empty: none */
    bool cut;          /* CHAT_TOOL_END: the output was cut inside the call, whose arguments stay open */
};

typedef void chat_sink_fn(void *arg, const struct chat_event *event);

struct chat_parser_opts {
    const struct chat_syntax *syntax; /* borrowed */
    bool in_reasoning;                /* the prompt ended inside reasoning */
    bool parse_tools;                 /* false: tool markup is ordinary content (no tools were offered) */
    /* Markers that are single tokens are matched only by chat_parser_push_special(); false: all markers are
     * text. */
    bool by_token;
    bool hide_special; /* leave out special tokens that are not markers */
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

/* The next decoded text, valid UTF-8, any split. 0, -E2BIG (a call is larger than bytes_max), -ENOMEM, or
 * -EPROTO (a fault of the parser). */
int chat_parser_push(struct chat_parser *p, struct slice text);
/* The next piece is special token `index` of the syntax. Its text is the syntax's: where it is not a marker
 * it counts as text. With by_token. */
int chat_parser_push_special(struct chat_parser *p, uint32_t index);
/* How an output ends: `cut` by a limit or a stop string, or by the model. */
enum chat_end { CHAT_END_BY_MODEL, CHAT_END_CUT };
/* The output is over: emits the text held back; an unfinished call's complete parameters are kept and its
 * object closed. Of an output that was cut, the arguments stay open; the head of a marker and a call without
 * its whole name are dropped, because they are markup and not text. */
int chat_parser_finish(struct chat_parser *p, enum chat_end end);
/* The next text is reasoning. */
bool chat_parser_reasons(const struct chat_parser *p);
/* Number of calls begun until now. */
uint32_t chat_parser_calls(const struct chat_parser *p);

#endif
