/* mask_lines.c - mask_lines SCHEMA VOCABULARY: masks of a schema's grammar, for comparisons with others.
 *
 * VOCABULARY has the bytes of a token in hexadecimal digits on each line; an end token follows the last.
 * Printed first is "ok", or why the schema is not supported. Then each line of the input is `reset` or the id
 * of a token to take, and is answered by 1 or 0 (taken or not) and the bits of the next mask in hexadecimal
 * digits, the lowest token first. */
#include "base/check.h"
#include "base/clock.h"
#include "base/files/small_file.h"
#include "base/wanted.h"
#include "grammar/matcher.h"
#include "schema/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 16 << 20, TOKENS_MAX = 4096, BYTES_MAX = 64, COMPILE_MS = 2000 };

static struct slice texts[TOKENS_MAX];
static uint32_t count;

static struct slice text_of(void *arg, uint32_t id)
{
    (void)arg;
    return id < count ? texts[id] : (struct slice){0};
}

static void read_vocab(const char *path)
{
    static char room[TOKENS_MAX][BYTES_MAX];
    char line[2 * BYTES_MAX + 2];
    FILE *f = fopen(path, "r");
    ASSERT(f);
    while (count < TOKENS_MAX && fgets(line, sizeof(line), f)) {
        size_t len = strspn(line, "0123456789abcdef") / 2;
        for (size_t i = 0; i < len; i++) {
            unsigned byte;
            ASSERT(sscanf(line + 2 * i, "%2x", &byte) == 1);
            room[count][i] = (char)byte;
        }
        texts[count] = (struct slice){room[count], len};
        count++;
    }
    fclose(f);
}

static struct grammar *compile(const char *path)
{
    struct small_file f = {0};
    struct err e = {{0}};
    struct grammar_builder *b;
    struct grammar *g = NULL;
    struct wanted wanted = {.deadline_ns = clock_now_ns() + COMPILE_MS * NS_PER_MS};
    struct schema_opts opts = {.wanted = &wanted};
    sym_id start;
    ASSERT(small_file_read(path, FILE_MAX, &f, &e) == 0);
    json_t *schema = json_loadb(f.bytes, f.len, JSON_DECODE_ANY, NULL);
    small_file_done(&f);
    ASSERT(schema && grammar_builder_create(NULL, NULL, &b) == 0);
    grammar_builder_bound(b, &wanted, NULL);
    int r = schema_compile(b, schema, &opts, &start, &e);
    if (r == 0)
        r = grammar_finish(b, start, &g, &e);
    puts(r < 0 ? e.text : "ok");
    grammar_builder_free(b);
    json_decref(schema);
    return r < 0 ? NULL : g;
}

static void answer(struct matcher *m, const char *line)
{
    uint32_t bits[TOKENS_MAX / 32 + 1];
    struct matcher_mask mask;
    int taken = 1;
    if (strncmp(line, "reset", 5) == 0)
        matcher_reset(m);
    else
        taken = matcher_take(m, (uint32_t)strtoul(line, NULL, 10));
    int r = matcher_mask(m, 0, bits, &mask);
    printf("%d ", taken == 1 && r == 0);
    for (uint32_t i = 0; i < count / 8 + 1; i++)
        printf("%02x", bits[i / 4] >> i % 4 * 8 & 0xFF);
    puts("");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[64];
    struct grammar_vocab *v;
    struct matcher_tables *t;
    struct matcher *m;
    if (argc != 3)
        return 2;
    read_vocab(argv[2]);
    struct grammar *g = compile(argv[1]);
    fflush(stdout);
    if (!g)
        return 1;
    struct grammar_vocab_opts opts = {.size = count + 1, .bytes = text_of, .ends = &count, .end_count = 1};
    ASSERT(grammar_vocab_create(&opts, &v) == 0);
    ASSERT(matcher_tables_create(&(struct matcher_tables_opts){.grammar = g, .vocab = v}, &t) == 0);
    ASSERT(matcher_create(&(struct matcher_opts){.tables = t}, &m) == 0);
    while (fgets(line, sizeof(line), stdin))
        answer(m, line);
    matcher_free(m);
    matcher_tables_free(t);
    grammar_vocab_free(v);
    grammar_free(g);
    return 0;
}
