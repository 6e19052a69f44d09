/* tmpl_trace.h - which bytes of a rendering belong to which message.
 *
 * A template is a program and may do anything, but nearly all write one message after the other in a loop. So
 * the run records which message a loop has reached and the length of the output at that time. The output
 * until the next message belongs to that one. These are estimates, for cuts: a wrong one costs reuse, never a
 * token. Part of a rendering, in its arena. */
#ifndef PLATEAU_TEMPLATE_TMPL_TRACE_H
#define PLATEAU_TEMPLATE_TMPL_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct tmpl_text;
struct tmpl_value;

#define TMPL_TRACE_NONE UINT32_MAX

/* From the first byte to after the last; from == to: it wrote nothing. */
struct tmpl_span {
    size_t from, to;
};

struct tmpl_trace {
    /* Constant. */
    const struct tmpl_text *out; /* output of a macro goes elsewhere and is not recorded */
    struct tmpl_span *spans;     /* [count] */
    uint32_t count;
    /* State of the run. */
    uint32_t current; /* message, or NONE */
    size_t since;     /* output from here on belongs to no message yet */
    uint32_t loops;   /* around the statement that runs */
    bool in_loop;     /* a loop over messages runs: it names the current one, assignments do not */
    size_t asked_at;  /* length of the output at the last lookup of add_generation_prompt */
};

/* Marks the items of `messages` to be recorded. False: no memory. */
bool tmpl_trace_init(struct tmpl_trace *t, struct arena *a, const struct tmpl_text *out,
                     const struct tmpl_value *messages);
/* The index of the message that v is; NONE: not a message. */
uint32_t tmpl_trace_message(const struct tmpl_value *v);
/* From here on the output belongs to this message (NONE: to none). */
void tmpl_trace_take_up(struct tmpl_trace *t, uint32_t message);

#endif
