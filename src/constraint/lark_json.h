/* lark_json.h - a JSON Schema within a Lark grammar, as llguidance has it. For lark.c. */
#ifndef PLATEAU_CONSTRAINT_LARK_JSON_H
#define PLATEAU_CONSTRAINT_LARK_JSON_H

struct front_text;
struct slice;

/* The texts of the schema's instances. Its member "x-guidance" says how these are spaced. Fails where the
 * grammar's texts are written in another notation. */
struct expr lark_json(struct front_text *f, struct slice schema);

#endif
