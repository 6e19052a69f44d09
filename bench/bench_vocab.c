/* bench_vocab.c - vocabularies for measurements of masks. */
#include "bench_vocab.h"

#include "../tests/test_rng.h"
#include "base/check.h"
#include "base/files/small_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MADE_UP = 151643, FILE_MAX = 64 << 20, TOKEN_ROOM = 24 };

/* ---- Made up ---- */

static void syllables(struct rng *r, char *room, size_t parts)
{
    static const char *const all[] = {"ba",   "con", "de",   "er", "fi", "gra", "ho", "ing", "ju",
                                      "ka",   "la",  "ment", "no", "or", "pre", "qu", "re",  "st",
                                      "tion", "un",  "ve",   "wa", "x",  "y",   "s"};
    room[0] = 0;
    for (size_t i = 0; i < parts && strlen(room) < 16; i++)
        strcat(room, all[rng_below(r, COUNT_OF(all))]);
}

static void make_token(struct rng *r, uint32_t id, char *room)
{
    static const char *const marks[] = {"\"",    "\",",   "\":", "\"}", "\"]", "\": \"", "\", \"", "{\"",
                                        "[\"",   "\\\"",  "\\n", ".\"", "!\"", "?\"",    ")\"",    "\\",
                                        "\\u",   "//",    "();", "->",  "{}",  "[]",     "},",     "],",
                                        "\",\"", "\":\"", "=\"", "'",   "('",  "')"};
    char word[TOKEN_ROOM];
    syllables(r, word, 1 + rng_below(r, 4));
    if (id < 256)
        snprintf(room, TOKEN_ROOM, "%c", (char)id), room[0] = (char)id, room[1] = 0;
    else if (id < 400)
        snprintf(room, TOKEN_ROOM, "%*s", (int)(id - 256) % 22 + 2, "");
    else if (rng_below(r, 100) < 3)
        snprintf(room, TOKEN_ROOM, "%s%s", rng_below(r, 2) ? word : "", marks[rng_below(r, COUNT_OF(marks))]);
    else if (rng_below(r, 100) < 17)
        snprintf(room, TOKEN_ROOM, "%c%c%c%c%c%c", 0xE4 + (int)rng_below(r, 5), 0x80 + (int)rng_below(r, 64),
                 0x80 + (int)rng_below(r, 64), 0xE5, 0x80 + (int)rng_below(r, 64),
                 0x80 + (int)rng_below(r, 64));
    else if (rng_below(r, 100) < 2)
        snprintf(room, TOKEN_ROOM, "%c%c", 0x80 + (int)rng_below(r, 64), 0x80 + (int)rng_below(r, 64));
    else if (rng_below(r, 100) < 2)
        snprintf(room, TOKEN_ROOM, "%s\n%*s", rng_below(r, 2) ? ";" : "", (int)rng_below(r, 12), "");
    else {
        if (rng_below(r, 3) == 0)
            word[0] = (char)(word[0] - 32);
        snprintf(room, TOKEN_ROOM, "%s%s", rng_below(r, 5) < 3 ? " " : "", word);
    }
}

static struct slice text_of(void *arg, uint32_t id)
{
    const struct slice *texts = arg;
    return texts[id];
}

/* The texts, and an end token after them. */
static struct grammar_vocab *create(struct slice *texts, uint32_t count)
{
    struct grammar_vocab *v;
    texts[count] = (struct slice){0};
    struct grammar_vocab_opts opts = {
        .size = count + 1, .bytes = text_of, .arg = texts, .ends = &count, .end_count = 1};
    ASSERT(grammar_vocab_create(&opts, &v) == 0);
    printf("vocabulary: %u tokens, %u nodes, %.1f bytes a token; others than slices: %u and %u nodes\n",
           count, v->all.count, (double)grammar_vocab_bytes(v) / count, v->slices[0].rest.count,
           v->slices[1].rest.count);
    return v;
}

struct grammar_vocab *bench_vocab_made_up(void)
{
    struct rng r = {1, 0};
    char(*rooms)[TOKEN_ROOM] = malloc(MADE_UP * sizeof(*rooms));
    struct slice *texts = malloc((MADE_UP + 1) * sizeof(*texts));
    ASSERT(rooms && texts);
    for (uint32_t id = 0; id < MADE_UP; id++) {
        make_token(&r, id, rooms[id]);
        texts[id] = id == 0 ? (struct slice){rooms[0], 1} : slice_of(rooms[id]);
    }
    struct grammar_vocab *v = create(texts, MADE_UP);
    free(texts);
    free(rooms);
    return v;
}

/* ---- From a file ---- */

static int base64_of(char c)
{
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(all, c) : NULL;
    return at ? (int)(at - all) : -1;
}

/* Decodes in place, up to the first other character, and returns its length; *next: what follows. */
static size_t base64_decode(char *text, const char **next)
{
    size_t len = 0;
    uint32_t word = 0, have = 0;
    const char *at = text;
    for (; base64_of(*at) >= 0; at++) {
        word = word << 6 | (uint32_t)base64_of(*at);
        have += 6;
        if (have >= 8)
            text[len++] = (char)(word >> (have -= 8));
    }
    *next = at;
    return len;
}

struct grammar_vocab *bench_vocab_read(const char *path)
{
    struct small_file f = {0};
    struct err e = {{0}};
    uint32_t count = 0;
    if (small_file_read(path, FILE_MAX, &f, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    for (size_t i = 0; i < f.len; i++)
        count += f.bytes[i] == '\n';
    struct slice *texts = calloc(count + 2, sizeof(*texts));
    ASSERT(texts);
    count = 0;
    for (char *line = f.bytes, *end; (end = strchr(line, '\n')); line = end + 1) {
        const char *next;
        size_t len = base64_decode(line, &next);
        ASSERT(strtoul(next + strspn(next, "="), NULL, 10) == count);
        texts[count++] = (struct slice){line, len};
    }
    struct grammar_vocab *v = create(texts, count);
    free(texts);
    small_file_done(&f);
    return v;
}

/* ---- Texts to tokens ---- */

uint32_t bench_vocab_longest(const struct grammar_vocab *v, struct slice text, size_t at,
                             const uint32_t *bits)
{
    uint32_t best = UINT32_MAX, place = 0;
    for (size_t depth = 0; at + depth < text.len && place < v->all.count; depth++) {
        uint8_t byte = (uint8_t)text.ptr[at + depth];
        while (place < v->all.count && v->all.nodes[place].depth == depth + 1 &&
               v->all.nodes[place].byte != byte)
            place += v->all.nodes[place].size;
        if (place == v->all.count || v->all.nodes[place].depth != depth + 1)
            break;
        uint32_t token = v->all.nodes[place].token;
        if (token != VOCAB_TOKENS_MAX && bits[token / 32] >> token % 32 & 1)
            best = token;
        place++;
    }
    return best;
}
