/* matcher_state.h - the insides of matchers and of the tables that they share, for the files of this folder.
 *
 * A thread of a matcher is a row where terminals began, and the state of the automaton after the bytes since.
 * The threads of a position are all ways to read the text up to it. */
#ifndef PLATEAU_GRAMMAR_MATCHER_STATE_H
#define PLATEAU_GRAMMAR_MATCHER_STATE_H

#include "grammar/grammar_state.h"
#include "grammar/matcher.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    THREADS_MAX = 1024,      /* threads of one position */
    THREAD_ROOM = 8 * 1024,  /* threads of all positions of a walk */
    SOURCES_MAX = 8 * 1024,  /* terminals that end at one position */
    SEEN_ROOM_LOG2 = 13,     /* items and completed rules of a row */
    DONE_MAX = 2 * 1024,     /* completed rules of a row */
    TOPS = 256,              /* remembered chains of right recursion */
    ALIVE_STEPS_MAX = 20000, /* derivatives to decide whether a state is dead */
    NO_ROW_YET = UINT32_MAX
};

struct thread {
    uint32_t row, state;
};

/* Transitions of the automaton: a state, with STATE_ACCEPTS where terminals end there. */
enum { STATE_UNKNOWN = 0, STATE_DEAD = 1, STATE_FULL = 2, STATE_COMPLEX = 3, STATE_FIRST = 16 };
#define STATE_ACCEPTS 0x80000000u

/* Words before a state's transitions. Its pairs (terminal, expression) follow its transitions, then the
 * terminals that end there. */
enum {
    STATE_CLAMPED = 7,
    STATE_NEXT = 6,
    STATE_HASH = 5,
    STATE_PAIRS = 4,
    STATE_ENDS = 3,
    STATE_RUN = 2,
    STATE_FINAL = 1,
    STATE_HEAD = 7
};

/* Words of a prediction: state and special tokens after a set of symbols. */
enum { PREDICT_NEXT, PREDICT_HASH, PREDICT_KEYS, PREDICT_STATE, PREDICT_TOKENS, PREDICT_HEAD };

struct source {
    uint32_t row, terminal; /* a terminal that began in `row` ends here */
};

struct seen_item {
    uint32_t dot, origin, stamp;
};

/* Where a chain of right recursion ends: completing `rule` from row `row` on completes top_rule from top_row.
 * */
struct top {
    uint64_t uid;
    uint32_t rule, top_rule, top_row;
};

struct matcher_tables {
    struct arena *arena;
    const struct grammar *grammar;
    const struct grammar_vocab *vocab;
    struct rx_store *rx;
    uint32_t generation; /* counts how often everything was emptied */
    uint64_t work;       /* steps since creation; rx->work has more */
    uint64_t flushes;
    uint64_t next_uid; /* uid of the next row: never used twice */

    /* States, predictions and closures. */
    uint32_t *pool;
    uint32_t pool_used, pool_room;
    uint32_t *state_buckets, *predict_buckets, bucket_count;
    uint32_t *closures; /* [rule]: rules that it predicts, or 0 */
    uint8_t bytes[256]; /* one of each class */

    /* Scratch of one call. */
    struct thread *threads;
    uint32_t thread_count;
    struct source *sources;
    uint32_t source_count;
    uint32_t *pairs, pairs_room; /* pairs of a state that is being made */
    uint32_t *saved, saved_room; /* states that survive a flush */
    uint32_t *stamps, stamp;     /* stamps of rules, then of terminals */
    uint32_t *stack;             /* rules of a prediction */
    uint32_t *list;              /* terminals or symbols */
    uint32_t list_room;
    struct seen_item *seen;
    uint32_t seen_stamp;
    struct source *done; /* completed: row, rule in `terminal` */
    struct top *tops;
    struct run_memo *runs;
    struct mask_walk *walk;
    struct mask_cache *cache;
    struct row_likes *likes;
};

/* ---- Rows: in the stack of a matcher, at a multiple of 8 bytes ---- */

struct item {
    uint32_t dot, origin;
};

struct chart_row {
    uint64_t uid;
    uint64_t like;     /* uid of a row with the same items from like rows: the same may follow both */
    uint32_t position; /* bytes of text before it */
    uint32_t count;    /* items after the head */
    uint32_t predict, generation;
    uint32_t complete; /* the text up to here is one of the language */
    uint32_t moved;    /* the row's new place in matcher_compact.c; 0 elsewhere */
};

struct mark {
    uint32_t before; /* the mark before it */
    uint32_t row;    /* the row of this position, or NO_ROW_YET */
    uint32_t count;  /* threads after it */
    uint32_t generation;
    uint32_t position;
    uint32_t ended; /* an end token was taken */
};

enum { MARK_UNITS = sizeof(struct mark) / 8, ROW_UNITS = sizeof(struct chart_row) / 8 };

struct matcher {
    struct arena *arena;
    struct matcher_tables *tables;
    uint64_t *stack; /* rows and marks from the left, text from the right */
    uint32_t room;   /* units of 8 bytes */
    uint32_t top;
    uint32_t position; /* bytes of text */
    uint32_t base;     /* bytes of text that are given up */
    uint32_t mark, marks;
    uint32_t marks_from; /* the first mark that remains */
    uint32_t items_max;
};

static inline struct chart_row *matcher_row(const struct matcher *m, uint32_t row)
{
    return (struct chart_row *)(m->stack + row);
}

static inline struct item *chart_row_items(struct chart_row *row)
{
    return (struct item *)(row + 1);
}

static inline struct mark *matcher_mark_at(const struct matcher *m, uint32_t at)
{
    return (struct mark *)(m->stack + at);
}

static inline struct thread *mark_threads(struct mark *mark)
{
    return (struct thread *)(mark + 1);
}

static inline uint8_t *matcher_text(const struct matcher *m, uint32_t position)
{
    return (uint8_t *)(m->stack + m->room) - 1 - (position - m->base);
}

/* Whether `units` more units fit. */
static inline bool matcher_fits(const struct matcher *m, uint32_t units)
{
    return (uint64_t)m->top + units + (m->position - m->base) / 8 + 1 <= m->room;
}

/* ---- lexer.c ---- */

/* The state of these pairs, sorted by terminal; with STATE_ACCEPTS. STATE_DEAD, STATE_FULL, STATE_COMPLEX. */
uint32_t lexer_state(struct matcher_tables *t, const uint32_t *pairs, uint32_t count);
/* The transition that is not known yet. */
uint32_t lexer_step_new(struct matcher_tables *t, uint32_t state, uint32_t class);
static inline uint32_t lexer_step(struct matcher_tables *t, uint32_t state, uint8_t byte)
{
    uint32_t class = t->grammar->classes[byte];
    uint32_t to = t->pool[state + class];
    return to != STATE_UNKNOWN ? to : lexer_step_new(t, state, class);
}
static inline const uint32_t *lexer_ends(const struct matcher_tables *t, uint32_t state)
{
    return &t->pool[state + t->grammar->class_count + 2 * t->pool[state - STATE_PAIRS]];
}
/* Empties the automaton, but for the states of t->threads. 0; -E2BIG: these alone are too many. */
int lexer_flush(struct matcher_tables *t);
/* Words of the pool, or 0 when it is full. */
uint32_t lexer_take(struct matcher_tables *t, uint32_t words);

/* ---- predict.c ---- */

/* Whether alternatives of `rule` are predicted where `expected` is: 1, 0, -1 when the pool is full. */
int predict_closure(struct matcher_tables *t, uint32_t expected, uint32_t rule);
/* The prediction of a row, STATE_FULL or STATE_COMPLEX. */
uint32_t predict_row(struct matcher_tables *t, struct chart_row *row);

/* ---- parse_row.c ---- */

/* Pushes the row that t->sources make. 0, or -E2BIG; flushes as it needs. */
int parse_row(struct matcher *m, uint32_t position, uint32_t *ret);
/* The first row of all. */
int parse_first_row(struct matcher *m, uint32_t *ret);
/* Finds what the row is like, or remembers it for others. A row that this never saw is like itself only. */
void parse_row_like(struct matcher *m, uint32_t row);
bool parse_row_likes_create(struct matcher_tables *t);
/* The earliest row where the item may as well have begun: completing its rule from there or from its origin
 * completes the same rules. */
uint32_t parse_origin(struct matcher *m, struct item item);
/* The state that the row begins with; STATE_DEAD where only special tokens or nothing can follow. 0 or
 * -E2BIG. */
int parse_row_state(struct matcher *m, uint32_t row, uint32_t *ret);

/* ---- thread_step.c ---- */

/* The transition of t->threads[at]: STATE_DEAD or a state. 0 or -E2BIG; flushes as it needs. */
int thread_step(struct matcher_tables *t, uint32_t at, uint8_t byte, uint32_t *ret);
/* One more thread in t->threads; none for STATE_DEAD. */
int thread_add(struct matcher_tables *t, uint32_t row, uint32_t state);
/* The terminals that end in `state`, to t->sources. */
int thread_add_ends(struct matcher_tables *t, uint32_t row, uint32_t state);
/* The row that t->sources make, and its thread. */
int thread_new_row(struct matcher *m, uint32_t position, uint32_t *row);
/* One byte for t->threads [at, at + count): the new ones follow t->thread_count. *row: the new row, or
 * NO_ROW_YET. t->sources may hold more ends. 0 or -E2BIG. */
int threads_step(struct matcher *m, uint32_t at, uint32_t count, uint8_t byte, uint32_t position,
                 uint32_t *row);

/* ---- matcher.c ---- */

/* Brings the threads of the last mark up to date after a flush, and to t->threads. 0 or -E2BIG. */
int matcher_load(struct matcher *m);
/* Writes the threads, which a flush may have renamed, back to the mark: t->threads still begins with them. */
void matcher_store(struct matcher *m);

/* ---- slice_run.c ---- */

/* How many plain characters of strings may follow in any case; RUN_MAX: any number. */
uint32_t slice_run(struct matcher_tables *t, uint32_t state);
enum { RUN_MAX = 1000, RUN_MEMO = 64 };
bool slice_run_create(struct matcher_tables *t);

/* ---- clamp.c ---- */

/* The state that stands for `state` in a mask: counters beyond the longest token are without a bound. Also
 * STATE_FULL. */
uint32_t clamp_state(struct matcher_tables *t, uint32_t state);

/* ---- mask_cache.c ---- */

int mask_cache_create(struct matcher_tables *t, size_t bytes);
/* The threads of a position: what their rows are like, and their states. */
enum { MASK_KEY_MAX = 4 };
struct mask_key {
    uint32_t count; /* 1 to MASK_KEY_MAX */
    uint32_t states[MASK_KEY_MAX];
    uint64_t likes[MASK_KEY_MAX]; /* likes of an entry's rows: 0 where the mask depends on the states alone */
};
/* The mask of such a position, and how many tokens it has; or NULL. */
const uint32_t *mask_cache_find(struct matcher_tables *t, const struct mask_key *key, uint32_t *count);
void mask_cache_put(struct matcher_tables *t, const struct mask_key *key, const uint32_t *bits,
                    uint32_t count);

/* ---- matcher_mask.c ---- */

int mask_walk_create(struct matcher_tables *t);

#endif
