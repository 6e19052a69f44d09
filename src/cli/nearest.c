/* nearest.c - edit distance with swaps (optimal string alignment) in three rows of the usual table. */
#include "cli/nearest.h"

#include "base/check.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PREFIX_LEAST 3 /* least characters of a word that may abbreviate a name */

static int plain(char c)
{
    return c == '_' ? '-' : tolower((unsigned char)c);
}

static unsigned least(unsigned a, unsigned b, unsigned c)
{
    return MIN_OF(MIN_OF(a, b), c);
}

static unsigned distance(struct slice a, struct slice b)
{
    unsigned rows[3][NEAREST_WORD_BYTES + 1];
    unsigned *before = rows[0], *above = rows[1], *row = rows[2];
    for (unsigned j = 0; j <= b.len; j++)
        above[j] = j;
    for (unsigned i = 1; i <= a.len; i++) {
        row[0] = i;
        for (unsigned j = 1; j <= b.len; j++) {
            int x = plain(a.ptr[i - 1]), y = plain(b.ptr[j - 1]);
            row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == plain(b.ptr[j - 2]) && plain(a.ptr[i - 2]) == y)
                row[j] = MIN_OF(row[j], before[j - 2] + 1);
        }
        unsigned *free_row = before;
        before = above;
        above = row;
        row = free_row;
    }
    return above[b.len];
}

static bool begins(struct slice name, struct slice word)
{
    for (size_t i = 0; i < word.len; i++)
        if (i >= name.len || plain(name.ptr[i]) != plain(word.ptr[i]))
            return false;
    return word.len >= PREFIX_LEAST;
}

struct nearest nearest_begin(struct slice word)
{
    unsigned most = word.len < 6 ? 1 : (unsigned)MIN_OF(word.len / 3, (size_t)NEAREST_WORD_BYTES);
    return (struct nearest){.word = word, .distance = most + 1};
}

void nearest_try(struct nearest *n, const char *name)
{
    struct slice s = slice_of(name);
    if (n->word.len == 0 || n->word.len > NEAREST_WORD_BYTES || s.len > NEAREST_WORD_BYTES)
        return;
    unsigned edits = begins(s, n->word) ? 1 : distance(n->word, s);
    if (edits >= n->distance)
        return;
    n->distance = edits;
    n->name = name;
}

struct nearest_text nearest_question(const struct nearest *n, const char *head)
{
    struct nearest_text ret = {{0}};
    if (n->name)
        snprintf(ret.text, sizeof(ret.text), " (did you mean %s%s?)", head, n->name);
    return ret;
}
