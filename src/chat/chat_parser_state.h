/* chat_parser_state.h - the parser of replies from inside: for the files chat_parser*.c, one per encoding.
 *
 * `pending` from `at` on is the text that is not classified yet. Each step looks at it, emits what is
 * certain, and changes the state (true), or needs more text (false). Every step decides alike however the
 * text was cut. */
#ifndef PLATEAU_CHAT_CHAT_PARSER_STATE_H
#define PLATEAU_CHAT_CHAT_PARSER_STATE_H

#include "chat/chat_format.h"
#include "chat/chat_literal.h"
#include "chat/chat_syntax.h"
#include "chat/json_stream.h"

/* Special token k stands in `pending` as this byte, which UTF-8 has nowhere, and then 0x80 + k. */
#define CHAT_SPECIAL_BYTE ((char)0xff)

enum chat_state {
    CHAT_AT_TEXT,
    CHAT_AT_REASONING,
    CHAT_AT_SECTION, /* after SECTION_BEGIN: a call, or the end */
    CHAT_AT_NAME,    /* after CALL_BEGIN */
    CHAT_AT_JSON,    /* the arguments */
    CHAT_AT_KEYS,    /* between tagged parameters */
    CHAT_AT_KEY,
    CHAT_AT_VALUE_BEGIN,
    CHAT_AT_VALUE,
    CHAT_AT_OBJECT, /* inside an object of CHAT_JSON_CALL */
    CHAT_AT_LITERAL,
    CHAT_AT_AFTER,  /* the arguments are over: CALL_END may follow */
    CHAT_AT_HEADER, /* inside the header of a channel's message */
    CHAT_AT_BODY
};

/* An object with name and arguments. */
enum chat_object_state {
    CHAT_OBJECT_BEGIN,
    CHAT_OBJECT_KEY,
    CHAT_OBJECT_COLON,
    CHAT_OBJECT_VALUE,
    CHAT_OBJECT_ARGUMENTS, /* streamed */
    CHAT_OBJECT_SKIP       /* a value that is not needed */
};

struct chat_object {
    enum chat_object_state state;
    bool named, has_arguments, begun;
    uint32_t depth;
    struct buf raw;   /* bytes of a call that has not begun; they may be text */
    struct buf early; /* arguments before the name */
};

/* Calls of another notation. */
enum chat_list_state { CHAT_LIST_BEGIN, CHAT_LIST_NAME, CHAT_LIST_ARGUMENTS, CHAT_LIST_NEXT };

struct chat_parser {
    struct chat_parser_opts opts;
    struct charge charge;
    struct slice mark[CHAT_MARKER_COUNT]; /* without white space, special tokens as their bytes; in `marks` */
    struct slice opens;
    struct buf marks;
    enum chat_state state;
    bool at_start;    /* only white space until now: reasoning may still open */
    bool skip_blank;  /* white space is markup here: after reasoning and calls */
    bool keep_indent; /* after reasoning: markup is line ends alone, and blanks before the first one */
    bool line_ended;  /* the first one was skipped */
    bool after_call;  /* no text yet after a call: ends of calls may stand twice */
    bool only_blank;  /* with reasoning_in_content: white space after reasoning, which is not emitted yet */
    bool in_section, section_lists;
    bool over; /* end of input: `pending` is the whole rest */
    bool cut;  /* and a limit ended it */
    bool in_call;
    int error;
    uint32_t calls, section_calls, parameters;
    size_t call_bytes;
    struct buf pending;
    size_t at;
    size_t scanned;    /* bytes of the rest that the waiting step has looked through; each is read once */
    size_t id_scanned; /* bytes behind ID_BEGIN, likewise */
    struct buf name, id, key, json, shown;
    /* A tagged value. */
    bool value_streams; /* a string, streamed; of CHAT_JSON: not JSON, passed on unchanged */
    bool value_json;    /* its marker says that it is JSON */
    bool value_begun;   /* its first byte was looked at */
    bool value_open;    /* its key was emitted */
    struct json_stream stream;
    struct chat_object object;
    struct chat_literal literal;
    enum chat_list_state list_state;
    bool in_list; /* [ was read */
    bool bare;    /* the call began the reply without a marker: it may be text */
    /* Channels. */
    enum chat_event_kind body;
};

/* ---- chat_parser_base.c ---- */

/* The markers as they will stand in `pending`. They lie in one block, which must not move: lengths come
 * first. 0, or the buffer's error. */
int chat_make_marks(struct chat_parser *p);
/* The first failure of the parser or of one of its buffers. */
int chat_parser_error(const struct chat_parser *p);

struct slice chat_rest(const struct chat_parser *p);
void chat_consume(struct chat_parser *p, size_t bytes);
void chat_emit(struct chat_parser *p, enum chat_event_kind kind, struct slice text);
/* Emits the next `bytes` and consumes them. */
void chat_emit_rest(struct chat_parser *p, enum chat_event_kind kind, size_t bytes);
/* White space that belongs to the markup. True when there may be more of it. */
bool chat_skip_blanks(struct chat_parser *p);
/* As `chat_skip_blanks()`, but before a text: with keep_indent its first line keeps its indent. */
bool chat_skip_to_text(struct chat_parser *p);
/* `text` begins with the marker; false for a marker that there is not. */
bool chat_is_mark(const struct chat_parser *p, struct slice text, enum chat_marker m);
/* `text` may become the marker with more input, or would have if no limit had cut it. */
bool chat_may_become(const struct chat_parser *p, struct slice text, enum chat_marker m);
/* The first of these markers (a bit each) in `text` from `from` on: its place, and which; SIZE_MAX: none. */
size_t chat_find_mark(const struct chat_parser *p, struct slice text, size_t from, uint32_t marks,
                      enum chat_marker *ret);
/* Returns where the first of these markers begins in the rest; SIZE_MAX: nowhere. Looks from p->scanned on,
 * and moves it. */
size_t chat_await_mark(struct chat_parser *p, uint32_t marks, enum chat_marker *ret);
/* How many bytes at the end of `text` may be the head of one of these markers. */
size_t chat_mark_tail(const struct chat_parser *p, struct slice text, uint32_t marks);
/* How many of them are held back: at the end of input none, or those that can only be a marker's. */
size_t chat_held_tail(const struct chat_parser *p, struct slice text, uint32_t marks);
#define CHAT_MARK_BIT(m) (1u << (m))
#define CHAT_CALL_MARKS                                                                                      \
    (CHAT_MARK_BIT(CHAT_CALL_END) | CHAT_MARK_BIT(CHAT_SECTION_END) | CHAT_MARK_BIT(CHAT_CALL_BEGIN))
/* Bytes without the white space at the end, of which at most CHAT_BLANKS_MAX bytes are cut. */
size_t chat_without_blank_tail(struct slice s);
/* Special tokens as their text. */
void chat_put_text(const struct chat_parser *p, struct slice s, struct buf *ret);

/* The request offers a tool with that name; `head`: with a name that begins so. */
bool chat_is_offered(const struct chat_parser *p, struct slice name, bool head);
void chat_begin_call(struct chat_parser *p);
/* Arguments, in pieces; special tokens become the content of a JSON string. */
void chat_emit_arguments(struct chat_parser *p, struct slice text);
void chat_end_call(struct chat_parser *p);
/* The output is cut inside the call. */
void chat_cut_call(struct chat_parser *p);
/* The state after a section. */
void chat_to_text(struct chat_parser *p);
/* Reads the JSON value at p->stream on, up to a marker when it is broken; certain bytes go to
 * p->json. True: the value is over. */
bool chat_feed_json(struct chat_parser *p);

/* ---- one file per encoding ---- */

bool chat_step_name(struct chat_parser *p);
/* The output ends inside a name: it is text, unless the output was cut there. */
void chat_finish_name(struct chat_parser *p);
bool chat_step_json(struct chat_parser *p);
void chat_finish_json(struct chat_parser *p);

bool chat_step_keys(struct chat_parser *p);
bool chat_step_key(struct chat_parser *p);
bool chat_step_value_begin(struct chat_parser *p);
bool chat_step_value(struct chat_parser *p);
void chat_finish_tagged(struct chat_parser *p);

void chat_object_start(struct chat_parser *p, bool in_list, bool bare);
bool chat_step_object(struct chat_parser *p);
void chat_finish_object(struct chat_parser *p);

void chat_literal_start(struct chat_parser *p, bool bare);
bool chat_step_literal(struct chat_parser *p);
void chat_finish_literal(struct chat_parser *p);

bool chat_step_header(struct chat_parser *p);
bool chat_step_body(struct chat_parser *p);

#endif
