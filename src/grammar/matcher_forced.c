/* matcher_forced.c - what a grammar forces: keys of objects, constants, the rest of an enum's value.
 *
 * The text is found byte by byte: a byte is forced when one class of bytes has a transition, and one byte. So
 * a position inside a string costs two transitions. The first token of the text is then the longest one of
 * the trie, unless some token has the whole text as a part: the model may prefer that, and the text behind it
 * is not forced. */
#include "grammar/grammar_vocab.h"
#include "grammar/matcher_state.h"

#include "base/check.h"

enum { FORCED_TEXT_MAX = 24 }; /* bytes; their marks can be taken back */

static bool is_only_byte(const struct grammar *g, uint8_t byte)
{
    for (uint32_t other = 0; other < 256; other++)
        if (other != byte && g->classes[other] == g->classes[byte])
            return false;
    return true;
}

/* Whether some thread of the position takes the byte: 1, 0, or -E2BIG. */
static int takes(struct matcher_tables *t, uint8_t byte)
{
    for (uint32_t i = 0; i < t->thread_count; i++) {
        uint32_t next;
        int r = thread_step(t, i, byte, &next);
        if (r < 0 || next != STATE_DEAD)
            return r < 0 ? r : 1;
    }
    return 0;
}

/* Whether the position allows a token without bytes. */
static bool allows_special(struct matcher *m)
{
    uint32_t row = matcher_mark_at(m, m->mark)->row, state;
    if (row == NO_ROW_YET)
        return false;
    return matcher_may_end(m) || parse_row_state(m, row, &state) < 0 ||
           m->tables->pool[matcher_row(m, row)->predict + PREDICT_TOKENS] != 0;
}

/* The only byte that may come next; -1: there are others, or none. */
static int forced_byte(struct matcher *m)
{
    struct matcher_tables *t = m->tables;
    int only = -1, r = 0;
    if (matcher_mark_at(m, m->mark)->ended || allows_special(m) || matcher_load(m) < 0)
        return -1;
    for (uint32_t class = 0; class < t->grammar->class_count && r >= 0; class ++) {
        r = takes(t, t->bytes[class]);
        if (r == 1 && only >= 0)
            r = -1;
        else if (r == 1)
            only = t->bytes[class];
    }
    matcher_store(m);
    return r >= 0 && only >= 0 && is_only_byte(t->grammar, (uint8_t)only) ? only : -1;
}

/* The forced text, and true if it has FORCED_TEXT_MAX bytes and may go on. */
static bool forced_text(struct matcher *m, char *text, uint32_t *len)
{
    uint32_t marks = matcher_marks(m);
    int byte;
    *len = 0;
    while (*len < FORCED_TEXT_MAX && (byte = forced_byte(m)) >= 0) {
        text[*len] = (char)byte;
        if (matcher_take_bytes(m, (struct slice){text + *len, 1}) != 1)
            break;
        ++*len;
    }
    matcher_rewind(m, marks);
    return *len == FORCED_TEXT_MAX;
}

/* The longest token that the text begins with; VOCAB_TOKENS_MAX: none, or some token goes beyond the text. */
static uint32_t longest_token(const struct trie *trie, const char *text, uint32_t len, bool goes_on)
{
    uint32_t best = VOCAB_TOKENS_MAX, at = 0, depth = 0;
    for (; depth < len && at < trie->count; depth++) {
        while (at < trie->count && trie->nodes[at].depth == depth + 1 &&
               trie->nodes[at].byte != (uint8_t)text[depth])
            at += trie->nodes[at].size;
        if (at == trie->count || trie->nodes[at].depth != depth + 1)
            return best;
        if (trie->nodes[at].token != VOCAB_TOKENS_MAX)
            best = trie->nodes[at].token;
        at++;
    }
    bool beyond = depth == len && at < trie->count && trie->nodes[at].depth == depth + 1;
    return beyond && !goes_on ? VOCAB_TOKENS_MAX : best;
}

/* The only special token that may come next, where no bytes may; UINT32_MAX: none. */
static uint32_t forced_special(struct matcher *m)
{
    struct matcher_tables *t = m->tables;
    const struct mark *mark = matcher_mark_at(m, m->mark);
    uint32_t state;
    if (mark->count > 0 || mark->ended || mark->row == NO_ROW_YET || matcher_may_end(m) ||
        parse_row_state(m, mark->row, &state) < 0)
        return UINT32_MAX;
    uint32_t at = t->pool[matcher_row(m, mark->row)->predict + PREDICT_TOKENS];
    return at && t->pool[at] == 1 ? t->grammar->terminals[t->pool[at + 1]].token : UINT32_MAX;
}

static uint32_t forced_token(struct matcher *m)
{
    char text[FORCED_TEXT_MAX];
    uint32_t len, special = forced_special(m);
    if (special != UINT32_MAX)
        return special;
    bool goes_on = forced_text(m, text, &len);
    uint32_t token = longest_token(&m->tables->vocab->all, text, len, goes_on);
    return len > 0 && token != VOCAB_TOKENS_MAX ? token : UINT32_MAX;
}

uint32_t matcher_forced(struct matcher *m, uint32_t max, uint32_t *ret)
{
    uint32_t marks = matcher_marks(m), count = 0;
    ASSERT(m->tables->vocab && max + FORCED_TEXT_MAX < MATCHER_KEEP);
    for (; count < max; count++) {
        uint32_t token = forced_token(m);
        if (token == UINT32_MAX || matcher_take(m, token) != 1)
            break;
        ret[count] = token;
    }
    matcher_rewind(m, marks);
    return count;
}
