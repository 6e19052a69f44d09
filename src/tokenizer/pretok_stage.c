/* pretok_stage.c - a piece goes through all remaining stages before its stage looks for the next one.
 *
 * So nothing is stored but the piece that a behaviour may still extend. Recursion is as deep as there are
 * stages. */
#include "tokenizer/pretok_stage.h"

#include "tokenizer/split_regex.h"

#include "base/check.h"
#include "unicode/unicode.h"

#include <errno.h>

struct splitting {
    const struct pretok_run *run;
    const struct pretok_stage *stage;
    const struct pretok_piece *piece;
    uint32_t next;      /* stage of the pieces */
    size_t from, until; /* the piece that is not given away yet; empty: none */
    bool match;         /* it ends with a match */
};

static int run_stage(const struct pretok_run *run, uint32_t stage, const struct pretok_piece *piece);

static int give(const struct splitting *s, size_t from, size_t until)
{
    ASSERT(from <= until && until <= s->piece->text.len);
    if (from == until)
        return 0;
    bool first = s->piece->first && from <= s->piece->added;
    const struct pretok_piece part = {.text = slice_sub(s->piece->text, from, until - from),
                                      .first = first,
                                      .copied = s->piece->copied,
                                      .added = first ? s->piece->added - from : 0};
    return run_stage(s->run, s->next, &part);
}

static bool joins(const struct splitting *s, bool match)
{
    switch (s->stage->behavior) {
    case SPLIT_CONTIGUOUS:
        return match == s->match;
    case SPLIT_MERGED_WITH_PREVIOUS:
        return match && !s->match;
    case SPLIT_MERGED_WITH_NEXT:
        return !match && s->match;
    case SPLIT_ISOLATED:
    case SPLIT_REMOVED:
        break;
    }
    return false;
}

/* The next match, or the text before it. */
static int put(struct splitting *s, size_t from, size_t until, bool match)
{
    if (from == until)
        return 0;
    if (s->stage->behavior == SPLIT_REMOVED && match != s->stage->invert)
        return 0;
    if (s->stage->behavior <= SPLIT_REMOVED)
        return give(s, from, until);
    match = match != s->stage->invert;
    if (s->from != s->until && joins(s, match)) {
        s->until = until;
        s->match = match;
        return 0;
    }
    int r = give(s, s->from, s->until);
    s->from = from;
    s->until = until;
    s->match = match;
    return r;
}

static struct split_match find(const struct splitting *s, size_t from)
{
    ASSERT(from < s->piece->text.len);
    struct slice text = s->piece->text;
    const struct split_text in = {text, s->stage->mapped, s->run->budget};
    if (s->stage->kind == STAGE_SPLIT)
        return split_regex_find(s->stage->regex, &in, from);
    uint32_t code;
    size_t look = from + WANTED_BYTES;
    for (unsigned bytes; from < text.len; from += bytes) {
        bytes = split_text_next(&in, from, &code);
        if (unicode_is_punctuation(code))
            return (struct split_match){from, from + bytes, 0};
        if (wanted_pass(s->run->budget->wanted, from, &look) < 0)
            return (struct split_match){.error = wanted_check(s->run->budget->wanted)};
    }
    return (struct split_match){text.len, text.len, 0};
}

static int run_split(struct splitting *s)
{
    int r = 0;
    if (s->stage->kind == STAGE_SPLIT)
        split_budget_add(s->run->budget, s->stage->regex, s->piece->text.len);
    for (size_t from = 0; r == 0 && from < s->piece->text.len;) {
        struct split_match m = find(s, from);
        r = m.error ? m.error : put(s, from, m.start, false);
        ASSERT(m.error || m.end > from);
        if (r == 0)
            r = put(s, m.start, m.end, true);
        from = m.end;
    }
    return r < 0 ? r : give(s, s->from, s->until);
}

static int run_rule(const struct splitting *s)
{
    int r = 0;
    size_t len = s->piece->text.len;
    for (size_t from = 0, end; from < len && r == 0; from = end) {
        end = pretok_end(s->stage->rule, s->piece->text, from, s->run->budget->wanted);
        if (end == SIZE_MAX)
            return wanted_check(s->run->budget->wanted);
        ASSERT(end > from);
        r = give(s, from, end);
    }
    return r;
}

/* ---- stages that change the text ---- */

static int run_space(const struct splitting *s)
{
    struct slice text = s->piece->text;
    if (slice_starts(text, SLICE(" ")))
        return give(s, 0, text.len);
    size_t mark = arena_mark(s->run->scratch);
    char *copy = arena_alloc_align(s->run->scratch, text.len + 1, 1);
    if (!copy)
        return -ENOMEM;
    copy[0] = ' ';
    memcpy(copy + 1, text.ptr, text.len);
    const struct pretok_piece part = {{copy, text.len + 1}, s->piece->first, true, s->piece->added + 1};
    int r = run_stage(s->run, s->next, &part);
    arena_rewind(s->run->scratch, mark);
    return r;
}

/* `text` with the replacement, in scratch; `added` grows by what comes in front. */
static int replace_blanks(const struct splitting *s, struct slice *text, size_t *added)
{
    ASSERT(text->len > 0);
    struct slice mark = s->stage->replacement;
    size_t blanks = 0, len = 0;
    for (size_t i = 0; i < text->len; i++)
        blanks += text->ptr[i] == ' ';
    char *copy = arena_alloc_align(s->run->scratch, text->len + (blanks + 1) * mark.len, 1);
    if (!copy)
        return -ENOMEM;
    bool prepend =
        s->stage->prepend == PREPEND_ALWAYS || (s->stage->prepend == PREPEND_FIRST && s->piece->first);
    if (prepend && text->ptr[0] != ' ' && !slice_starts(*text, mark)) {
        memcpy(copy, mark.ptr, mark.len);
        len = mark.len;
        *added += len;
    }
    for (size_t i = 0; i < text->len; i++) {
        if (text->ptr[i] != ' ') {
            copy[len++] = text->ptr[i];
            continue;
        }
        memcpy(copy + len, mark.ptr, mark.len);
        len += mark.len;
    }
    ASSERT(len <= text->len + (blanks + 1) * mark.len);
    *text = (struct slice){copy, len};
    return 0;
}

static int run_metaspace(struct splitting *s)
{
    size_t mark = arena_mark(s->run->scratch);
    struct pretok_piece copy = {s->piece->text, s->piece->first, true, s->piece->added};
    int r = replace_blanks(s, &copy.text, &copy.added);
    s->piece = &copy;
    for (size_t from = 0, end; from < copy.text.len && r == 0; from = end) {
        end = s->stage->splits ? slice_find(copy.text, s->stage->replacement, from + 1) : SIZE_MAX;
        end = MIN_OF(end, copy.text.len);
        r = give(s, from, end);
    }
    arena_rewind(s->run->scratch, mark);
    return r;
}

static int run_stage(const struct pretok_run *run, uint32_t stage, const struct pretok_piece *piece)
{
    if (stage == run->pretok->count)
        return run->emit(run->arg, piece);
    struct splitting s = {
        .run = run, .stage = &run->pretok->stages[stage], .piece = piece, .next = stage + 1};
    switch (s.stage->kind) {
    case STAGE_RULE:
        return run_rule(&s);
    case STAGE_SPLIT:
    case STAGE_PUNCTUATION:
        return run_split(&s);
    case STAGE_SPACE:
        return run_space(&s);
    case STAGE_METASPACE:
        return run_metaspace(&s);
    }
    ASSERT(!"a stage of no kind");
    return -EINVAL;
}

int pretok_pieces(const struct pretok_run *run, const struct pretok_piece *text)
{
    return text->text.len ? run_stage(run, 0, text) : 0;
}
