/* jinja_exec.h - what walking statements (jinja_exec.c) and expressions (jinja_eval.c and its helpers) share. */
#ifndef PLATEAU_TEXT_JINJA_EXEC_H
#define PLATEAU_TEXT_JINJA_EXEC_H

#include "text/jinja_ast.h"

struct jinja_binding {
    uint32_t symbol;
    struct jinja_value value;
};

/* The names of one loop iteration, macro call or block. What a frame lacks is looked for in the frame around the
 * place where its code stands, not around its caller. NULL is the outermost one: r->root. */
struct jinja_frame {
    struct jinja_frame *parent;
    struct jinja_binding *bindings;
    uint32_t count, capacity;
};

/* NULL when memory ran out. */
struct jinja_frame *jinja_frame_new(struct jinja_run *r, struct jinja_frame *parent);
int jinja_frame_set(struct jinja_run *r, struct jinja_frame *f, uint32_t symbol, const struct jinja_value *v);
/* VALUE_MISSING when the name is nowhere. */
struct jinja_value jinja_frame_get(const struct jinja_run *r, const struct jinja_frame *f, uint32_t symbol);

int jinja_eval(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
               struct jinja_value *ret);
/* `named`, if not NULL, is one more argument called `caller`. */
int jinja_eval_call(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                    const struct jinja_value *caller, struct jinja_value *ret);
/* The filters of a block, one after the other, on *v. */
int jinja_eval_filters(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *filters,
                       struct jinja_value *v);

int jinja_call_macro(struct jinja_run *r, const struct jinja_macro *m, const struct jinja_args *args,
                     struct jinja_value *ret);
/* loop(items) in a recursive loop: the text of another walk. */
int jinja_call_loop(struct jinja_run *r, const struct jinja_loop *loop, const struct jinja_value *items,
                    struct jinja_value *ret);

/* object.name */
int jinja_attribute(struct jinja_run *r, const struct jinja_value *object, struct slice name,
                    struct jinja_value *ret);
/* object[index] */
int jinja_item(struct jinja_run *r, const struct jinja_value *object, const struct jinja_value *index,
               struct jinja_value *ret);
/* object[start:stop:step]; VALUE_MISSING or none: left out */
int jinja_cut(struct jinja_run *r, const struct jinja_value *object, const struct jinja_value bounds[3],
              struct jinja_value *ret);

int jinja_math(struct jinja_run *r, enum jinja_op op, const struct jinja_value *a,
               const struct jinja_value *b, struct jinja_value *ret);
int jinja_negate(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *ret);
int jinja_compare(struct jinja_run *r, enum jinja_op op, const struct jinja_value *a,
                  const struct jinja_value *b, bool *ret);

#endif
