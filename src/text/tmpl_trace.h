/* tmpl_trace.h - which bytes of a rendering belong to which message.
 *
 * A template is a program and may do anything, but nearly all write one message after the other in a loop. So
 * the run tells which message a loop has taken up and how long the output is then; what is written until the
 * next one is that message's. Drafts, for cuts: a wrong one costs reuse, never a token. Part of a rendering,
 * in its arena. */
#ifndef PLATEAU_TEXT_TMPL_TRACE_H
#define PLATEAU_TEXT_TMPL_TRACE_H

#include "text/tmpl_value.h"

#define TMPL_TRACE_NONE UINT32_MAX

/* From the first byte to behind the last; from == to: it wrote nothing. */
struct tmpl_span {
    size_t from, to;
};

struct tmpl_trace {
    /* Constant. */
    const struct tmpl_text *out; /* what is written elsewhere, by a macro, is not followed */
    struct tmpl_span *spans;     /* [count] */
    uint32_t count;
    /* Where the run is. */
    uint32_t current; /* message, or NONE */
    size_t since;     /* what lies behind is nobody's yet */
    uint32_t loops;   /* around the statement that runs */
    bool in_loop;     /* a loop over messages runs: it says which one, assignments do not */
    size_t asked_at;  /* length of the output when add_generation_prompt was looked up last */
};

/* Marks the items of `messages` as what is to be followed. False: no memory. */
bool tmpl_trace_init(struct tmpl_trace *t, struct arena *a, const struct tmpl_text *out,
                     const struct tmpl_value *messages);
/* The message that v is; NONE: it is none. */
uint32_t tmpl_trace_message(const struct tmpl_value *v);
/* From here on the output is this message's (NONE: nobody's). */
void tmpl_trace_take_up(struct tmpl_trace *t, uint32_t message);

#endif
