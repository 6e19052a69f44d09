/* jinja_exec.c - statements, frames, macros, and the way in.
 *
 * Names are looked up by number along the frames. Jinja2 resolves them when it compiles; walking the frames of the
 * place of definition gives the same answers: what is set in a loop or macro ends with it, `if` makes no frame.
 * A loop uses one frame for all its iterations and empties it between them.
 *
 * Statements return 0, a negative code, or one of the two jumps, which their callers hand on up to the loop. */
#include "text/jinja_exec.h"

#include "base/check.h"
#include "text/jinja_text.h"

#include <errno.h>

enum { JUMP_BREAK = 1, JUMP_CONTINUE = 2 };

struct jinja_out {
    struct buf *buf; /* NULL: a capture, into `text` */
    size_t start;    /* of what this rendering appended to buf */
    struct jinja_text text;
    struct jinja_out *outer;
};

static int exec_body(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *first);

/* ---- output ---- */

static int emit(struct jinja_run *r, struct slice s)
{
    struct jinja_out *out = r->out;
    if (!out->buf) {
        jinja_text_put(&out->text, s);
        return r->error;
    }
    if (jinja_spend_bytes(r, s.len) < 0)
        return r->error;
    if (s.len > r->limits.output_bytes_max - (out->buf->len - out->start))
        return r->error = err_set(r->e, -E2BIG, "line %u of the chat template: a text of more than %zu bytes",
                                  r->line, r->limits.output_bytes_max);
    buf_put_slice(out->buf, s);
    if (out->buf->error)
        r->error =
            err_set(r->e, out->buf->error, "line %u of the chat template: no room for the text", r->line);
    return r->error;
}

static int emit_value(struct jinja_run *r, const struct jinja_value *v)
{
    struct jinja_value text;
    if (jinja_to_str(r, v, &text) < 0)
        return r->error;
    return emit(r, jinja_slice(&text));
}

static void capture_begin(struct jinja_run *r, struct jinja_out *out)
{
    *out = (struct jinja_out){.text = {.r = r}, .outer = r->out};
    r->out = out;
}

static int capture_end(struct jinja_run *r, struct jinja_out *out, struct jinja_value *ret)
{
    r->out = out->outer;
    return jinja_text_value(&out->text, ret);
}

/* ---- frames ---- */

struct jinja_frame *jinja_frame_new(struct jinja_run *r, struct jinja_frame *parent)
{
    struct jinja_frame *f = jinja_alloc(r, sizeof(*f));
    if (f)
        f->parent = parent;
    return f;
}

int jinja_frame_set(struct jinja_run *r, struct jinja_frame *f, uint32_t symbol, const struct jinja_value *v)
{
    if (!f) {
        r->root[symbol] = *v;
        return 0;
    }
    for (uint32_t i = 0; i < f->count; i++) {
        if (f->bindings[i].symbol == symbol) {
            f->bindings[i].value = *v;
            return 0;
        }
    }
    if (f->count == f->capacity) {
        uint32_t capacity = f->capacity ? 2 * f->capacity : 4;
        struct jinja_binding *more = jinja_alloc_array(r, capacity, sizeof(*more));
        if (!more)
            return r->error;
        if (f->count)
            memcpy(more, f->bindings, f->count * sizeof(*more));
        f->bindings = more;
        f->capacity = capacity;
    }
    f->bindings[f->count++] = (struct jinja_binding){symbol, *v};
    return 0;
}

struct jinja_value jinja_frame_get(const struct jinja_run *r, const struct jinja_frame *f, uint32_t symbol)
{
    for (; f; f = f->parent)
        for (uint32_t i = 0; i < f->count; i++)
            if (f->bindings[i].symbol == symbol)
                return f->bindings[i].value;
    return r->root[symbol];
}

/* ---- assigning ---- */

static int assign(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *target,
                  const struct jinja_value *v);

static int assign_tuple(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *target,
                        const struct jinja_value *v)
{
    struct jinja_value *items;
    size_t len;
    if (jinja_iterate(r, v, &items, &len) < 0)
        return r->error;
    if (len < target->symbol)
        return jinja_fail(r, "not enough values to unpack (expected %u, got %zu)", target->symbol, len);
    if (len > target->symbol)
        return jinja_fail(r, "too many values to unpack (expected %u)", target->symbol);
    for (const struct jinja_node *n = target->first; n; n = n->next)
        if (assign(r, f, n, items++) < 0)
            return r->error;
    return 0;
}

static int assign_member(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *target,
                         const struct jinja_value *v)
{
    struct jinja_value space = jinja_frame_get(r, f, target->symbol);
    if (space.kind != VALUE_NAMESPACE)
        return jinja_fail(r, "cannot assign attribute on non-namespace object");
    return jinja_dict_put(r, &space, &target->value, v);
}

/* Depth is that of the target as written, which the parser has bounded. */
static int assign(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *target,
                  const struct jinja_value *v)
{
    if (target->kind == NODE_TUPLE)
        return assign_tuple(r, f, target, v);
    if (target->kind == NODE_MEMBER)
        return assign_member(r, f, target, v);
    return jinja_frame_set(r, f, target->symbol, v);
}

/* ---- statements ---- */

typedef int exec_fn(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n);

static int exec_text(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    (void)f;
    return emit(r, jinja_slice(&n->value));
}

static int exec_print(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    struct jinja_value v;
    if (jinja_eval(r, f, n->first, &v) < 0)
        return r->error;
    return emit_value(r, &v);
}

static int exec_if(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    for (const struct jinja_node *branch = n->first; branch; branch = branch->next) {
        struct jinja_value v = jinja_bool(true);
        if (branch->first && jinja_eval(r, f, branch->first, &v) < 0)
            return r->error;
        if (jinja_truth(&v))
            return exec_body(r, f, branch->body);
    }
    return 0;
}

/* Keeps those items for which the loop's condition holds. */
static int filter_items(struct jinja_run *r, struct jinja_frame *parent, const struct jinja_node *n,
                        struct jinja_value **items, size_t *len)
{
    size_t kept = 0;
    struct jinja_frame *f = jinja_frame_new(r, parent);
    struct jinja_value *all = *items, *some = jinja_alloc_array(r, *len, sizeof(*some));
    if (!f || !some)
        return r->error;
    for (size_t i = 0; i < *len; i++) {
        struct jinja_value v;
        f->count = 0;
        if (assign(r, f, n->first, &all[i]) < 0 || jinja_eval(r, f, n->test, &v) < 0)
            return r->error;
        if (jinja_truth(&v))
            some[kept++] = all[i];
    }
    *items = some;
    *len = kept;
    return 0;
}

static int iterate(struct jinja_run *r, const struct jinja_node *n, struct jinja_loop *loop)
{
    struct jinja_frame *f = jinja_frame_new(r, loop->frame);
    if (!f)
        return r->error;
    for (; loop->index0 < loop->len; loop->index0++) {
        struct jinja_value self = {VALUE_LOOP, {.loop = loop}};
        f->count = 0;
        if (jinja_spend(r, 1) < 0 || jinja_frame_set(r, f, SYMBOL_LOOP, &self) < 0 ||
            assign(r, f, n->first, &loop->items[loop->index0]) < 0)
            return r->error;
        int jump = exec_body(r, f, n->body);
        if (jump < 0)
            return jump;
        if (jump == JUMP_BREAK)
            break;
    }
    return 0;
}

/* A walk over `over`: the loop's own, or a recursive one at depth0. */
static int exec_loop(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                     const struct jinja_value *over, uint32_t depth0)
{
    struct jinja_loop *loop = jinja_alloc(r, sizeof(*loop));
    if (!loop)
        return r->error;
    *loop = (struct jinja_loop){.depth0 = depth0, .node = n->recursive ? n : NULL, .frame = f};
    if (jinja_iterate(r, over, &loop->items, &loop->len) < 0)
        return r->error;
    if (n->test && filter_items(r, f, n, &loop->items, &loop->len) < 0)
        return r->error;
    if (loop->len > 0)
        return iterate(r, n, loop);
    struct jinja_frame *inner = n->otherwise ? jinja_frame_new(r, f) : NULL;
    return inner ? exec_body(r, inner, n->otherwise) : r->error;
}

static int exec_for(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    struct jinja_value over;
    if (jinja_eval(r, f, n->first->next, &over) < 0)
        return r->error;
    return exec_loop(r, f, n, &over, 0);
}

int jinja_call_loop(struct jinja_run *r, const struct jinja_loop *loop, const struct jinja_value *items,
                    struct jinja_value *ret)
{
    struct jinja_out out;
    if (!loop->node)
        return jinja_fail(r, "The loop must have the 'recursive' marker to be called recursively.");
    capture_begin(r, &out);
    if (jinja_enter(r) == 0)
        exec_loop(r, loop->frame, loop->node, items, loop->depth0 + 1);
    jinja_leave(r);
    return capture_end(r, &out, ret);
}

static int exec_set(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    struct jinja_value v;
    if (jinja_eval(r, f, n->first->next, &v) < 0)
        return r->error;
    return assign(r, f, n->first, &v);
}

/* What a body prints, filtered; a jump out of it is handed on, and what was printed is lost. */
static int capture_body(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                        struct jinja_value *ret)
{
    struct jinja_out out;
    struct jinja_frame *inner = jinja_frame_new(r, f);
    if (!inner)
        return r->error;
    capture_begin(r, &out);
    int jump = exec_body(r, inner, n->body);
    if (capture_end(r, &out, ret) < 0 || jump != 0)
        return r->error ? r->error : jump;
    return jinja_eval_filters(r, f, n->filters, ret);
}

static int exec_set_block(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    struct jinja_value v;
    int jump = capture_body(r, f, n, &v);
    return jump ? jump : assign(r, f, n->first, &v);
}

static int exec_filter_block(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    struct jinja_value v;
    int jump = capture_body(r, f, n, &v);
    return jump ? jump : emit_value(r, &v);
}

static int exec_with(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    struct jinja_frame *inner = jinja_frame_new(r, f);
    if (!inner)
        return r->error;
    for (const struct jinja_node *target = n->first; target; target = target->next->next) {
        struct jinja_value v;
        if (jinja_eval(r, f, target->next->first, &v) < 0 || assign(r, inner, target, &v) < 0)
            return r->error;
    }
    return exec_body(r, inner, n->body);
}

static int exec_scope(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    struct jinja_frame *inner = jinja_frame_new(r, f);
    return inner ? exec_body(r, inner, n->body) : r->error;
}

static int macro_value(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                       struct jinja_value *ret)
{
    struct jinja_macro *m = jinja_alloc(r, sizeof(*m));
    if (!m)
        return r->error;
    m->node = n->macro;
    m->frame = f;
    *ret = (struct jinja_value){VALUE_MACRO, {.macro = m}};
    return 0;
}

static int exec_macro(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    struct jinja_value v;
    if (macro_value(r, f, n, &v) < 0)
        return r->error;
    return jinja_frame_set(r, f, n->macro->symbol, &v);
}

static int exec_call_block(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    struct jinja_value caller, v;
    if (macro_value(r, f, n, &caller) < 0 || jinja_eval_call(r, f, n->first, &caller, &v) < 0)
        return r->error;
    return emit_value(r, &v);
}

static int exec_break(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    (void)r, (void)f, (void)n;
    return JUMP_BREAK;
}

static int exec_continue(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n)
{
    (void)r, (void)f, (void)n;
    return JUMP_CONTINUE;
}

/* A table rather than a switch: the compiler would inline its cases into one frame with room for all of them. */
static exec_fn *const exec_kinds[] = {[NODE_TEXT] = exec_text,
                                      [NODE_PRINT] = exec_print,
                                      [NODE_IF] = exec_if,
                                      [NODE_FOR] = exec_for,
                                      [NODE_SET] = exec_set,
                                      [NODE_SET_BLOCK] = exec_set_block,
                                      [NODE_FILTER_BLOCK] = exec_filter_block,
                                      [NODE_WITH] = exec_with,
                                      [NODE_SCOPE] = exec_scope,
                                      [NODE_MACRO] = exec_macro,
                                      [NODE_CALL_BLOCK] = exec_call_block,
                                      [NODE_BREAK] = exec_break,
                                      [NODE_CONTINUE] = exec_continue};

static int exec_body(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *first)
{
    int result = jinja_enter(r);
    for (const struct jinja_node *n = first; n && result == 0; n = n->next) {
        r->line = n->line;
        result = jinja_spend(r, 1) < 0 ? r->error : exec_kinds[n->kind](r, f, n);
    }
    jinja_leave(r);
    return result;
}

/* ---- macros ---- */

/* The named argument `name`, marked as used. */
static const struct jinja_value *take_named(const struct jinja_args *args, struct slice name, bool *used)
{
    for (size_t i = 0; i < args->named_count; i++) {
        if (!used[i] && slice_eq(args->named[i].name, name)) {
            used[i] = true;
            return &args->named[i].value;
        }
    }
    return NULL;
}

static int bind_parameters(struct jinja_run *r, const struct jinja_macro_node *m, struct jinja_frame *f,
                           const struct jinja_args *args, bool *used)
{
    for (uint32_t i = 0; i < m->count; i++) {
        struct slice name = r->t->symbols[m->parameters[i].symbol];
        const struct jinja_value *given =
            i < args->positional_count ? &args->positional[i] : take_named(args, name, used);
        struct jinja_value v;
        if (given)
            v = *given;
        else if (m->parameters[i].absent)
            jinja_eval(r, f, m->parameters[i].absent, &v);
        else
            jinja_undefined(r, UNDEFINED_NAME, name, NULL, &v);
        if (r->error || jinja_frame_set(r, f, m->parameters[i].symbol, &v) < 0)
            return r->error;
    }
    return 0;
}

/* What is left over once the parameters have theirs: caller, kwargs, varargs, or a failure. */
static int bind_rest(struct jinja_run *r, const struct jinja_macro_node *m, struct jinja_frame *f,
                     const struct jinja_args *args, bool *used)
{
    struct jinja_value v, kwargs;
    if (m->takes_caller) {
        const struct jinja_value *caller = take_named(args, SLICE("caller"), used);
        if (caller)
            v = *caller;
        else if (jinja_undefined(r, UNDEFINED_HINT, SLICE("No caller defined"), NULL, &v) < 0)
            return r->error;
        if (jinja_frame_set(r, f, SYMBOL_CALLER, &v) < 0)
            return r->error;
    }
    if (m->takes_kwargs && jinja_dict(r, VALUE_DICT, args->named_count, &kwargs) < 0)
        return r->error;
    for (size_t i = 0; i < args->named_count; i++) {
        if (used[i])
            continue;
        if (!m->takes_kwargs)
            return jinja_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", SLICE_ARGS(m->name),
                              SLICE_ARGS(slice_sub(args->named[i].name, 0, 80)));
        if (jinja_str(r, args->named[i].name, &v) < 0 ||
            jinja_dict_put(r, &kwargs, &v, &args->named[i].value) < 0)
            return r->error;
    }
    if (m->takes_kwargs && jinja_frame_set(r, f, SYMBOL_KWARGS, &kwargs) < 0)
        return r->error;
    size_t more = args->positional_count > m->count ? args->positional_count - m->count : 0;
    if (more > 0 && !m->takes_varargs)
        return jinja_fail(r, "macro '%.*s' takes not more than %u argument(s)", SLICE_ARGS(m->name),
                          m->count);
    if (!m->takes_varargs)
        return 0;
    if (jinja_list(r, VALUE_TUPLE, more, &v) < 0)
        return r->error;
    for (size_t i = 0; i < more; i++)
        v.l->items[i] = args->positional[m->count + i];
    return jinja_frame_set(r, f, SYMBOL_VARARGS, &v);
}

int jinja_call_macro(struct jinja_run *r, const struct jinja_macro *m, const struct jinja_args *args,
                     struct jinja_value *ret)
{
    struct jinja_out out;
    struct jinja_frame *f = jinja_frame_new(r, m->frame);
    bool *used = jinja_alloc(r, args->named_count);
    if (!f || !used)
        return r->error;
    if (jinja_enter(r) == 0 && bind_parameters(r, m->node, f, args, used) == 0 &&
        bind_rest(r, m->node, f, args, used) == 0) {
        capture_begin(r, &out);
        exec_body(r, f, m->node->body);
        capture_end(r, &out, ret);
    }
    jinja_leave(r);
    return r->error;
}

/* ---- the way in ---- */

static int variable_value(struct jinja_run *r, const struct jinja_variable *v, struct jinja_value *ret)
{
    switch (v->kind) {
    case JINJA_VARIABLE_JSON:
        return jinja_json(r, v->json, ret);
    case JINJA_VARIABLE_TEXT:
        return jinja_str(r, v->text, ret);
    default:
        *ret = jinja_bool(v->flag);
        return 0;
    }
}

/* What every template knows, and over it what this one is given. */
static int fill_root(struct jinja_run *r, const struct jinja_input *in)
{
    r->root = jinja_alloc_array(r, r->t->symbol_count, sizeof(*r->root));
    for (uint32_t i = 0; r->root && i < r->t->symbol_count; i++) {
        const struct jinja_builtin *function = jinja_function_find(r->t->symbols[i]);
        if (function)
            r->root[i] = (struct jinja_value){VALUE_FUNCTION, {.function = function}};
        for (size_t k = in->count; k-- > 0;) {
            if (!slice_eq(in->variables[k].name, r->t->symbols[i]))
                continue;
            if (variable_value(r, &in->variables[k], &r->root[i]) < 0)
                return r->error;
            break;
        }
    }
    return r->error;
}

int jinja_render(const struct jinja_template *t, struct arena *scratch, const struct jinja_input *in,
                 const struct jinja_limits *limits, struct buf *ret, struct err *e)
{
    size_t mark = arena_mark(scratch), len = ret->len;
    struct jinja_out out = {.buf = ret, .start = len};
    struct jinja_run r = {.a = scratch,
                          .t = t,
                          .limits = *limits,
                          .now_s = in->now_s,
                          .arena_start = mark,
                          .e = e,
                          .steps = limits->steps_max,
                          .out = &out};
    ASSERT(ret->error == 0);
    if (fill_root(&r, in) == 0)
        exec_body(&r, NULL, t->body);
    arena_rewind(scratch, mark);
    if (r.error) {
        ret->len = len;
        ret->error = 0;
    }
    return r.error;
}
