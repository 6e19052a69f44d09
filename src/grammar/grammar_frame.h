/* grammar_frame.h - what an output has around the text that its grammar describes: reasoning, and the markers
 * of a chat format.
 *
 * A frame is a row of parts, one of which is the body: the grammar's own text. Special tokens are matched as
 * tokens only, all else as text. */
#ifndef PLATEAU_GRAMMAR_GRAMMAR_FRAME_H
#define PLATEAU_GRAMMAR_GRAMMAR_FRAME_H

#include "base/slice.h"
#include "grammar/grammar.h"

enum grammar_part_kind {
    GRAMMAR_PART_BODY,
    GRAMMAR_PART_TEXT,  /* these bytes */
    GRAMMAR_PART_TOKEN, /* this special token */
    /* Any text, up to and with the first place where `text` stands. Without `text`: any text at all, which
     * the special token behind it ends. */
    GRAMMAR_PART_UNTIL,
    GRAMMAR_PART_LINE_ENDS, /* at most GRAMMAR_LINE_ENDS_MAX */
    GRAMMAR_PART_OPTIONAL,  /* the parts from here to the next GRAMMAR_PART_CLOSE stand there or not */
    GRAMMAR_PART_CLOSE
};

#define GRAMMAR_LINE_ENDS_MAX 8
#define GRAMMAR_PARTS_MAX     64

struct grammar_part {
    enum grammar_part_kind kind;
    uint32_t token;    /* token of GRAMMAR_PART_TOKEN */
    struct slice text; /* text of GRAMMAR_PART_TEXT and GRAMMAR_PART_UNTIL */
};

struct grammar_frame {
    struct grammar_part parts[GRAMMAR_PARTS_MAX];
    uint32_t count; /* 0: the body alone */
    bool full;      /* a part had no place: the frame is not to be used */
};

void grammar_frame_add(struct grammar_frame *f, struct grammar_part part);
/* The rule of the whole output. */
sym_id grammar_frame_around(const struct grammar_frame *f, struct grammar_builder *b, sym_id body);

#endif
