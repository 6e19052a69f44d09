/* tokenizer_lines.c - tokenizer_lines DIR: encodes and decodes line by line, for comparisons with others.
 *
 * DIR has a tokenizer.json. Printed first is "ok", or why it is refused. Each line of the input is a letter
 * and its argument; the answer is one line.
 *
 *     e HEX, s HEX   the ids of a text, without and with the post-processor's tokens; or "refused"
 *     p HEX HEX      the ids of two texts in the post-processor's template, "|", and their token types
 *     d IDS, k IDS   the text of ids as hexadecimal digits, with and without special tokens
 *     b ID           the bytes of a token */
#include "model_path.h"

#include "base/check.h"
#include "tokenizer/detok.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 32 << 20, IDS_MAX = 8 << 20 };

static struct arena *arena_of(size_t bytes)
{
    struct arena *a = NULL;
    struct arena_opts opts = {.bytes_max = bytes};
    ASSERT(arena_create(&opts, &a) == 0);
    return a;
}

static void print_hex(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        printf("%02x", (unsigned char)s.ptr[i]);
    puts("");
}

static size_t parse_hex(char *line)
{
    size_t len = 0;
    for (int high, low; (high = slice_hex(line[2 * len])) >= 0; len++) {
        low = slice_hex(line[2 * len + 1]);
        ASSERT(low >= 0);
        line[len] = (char)(high << 4 | low);
    }
    return len;
}

static void encode(const struct tokenizer *t, struct arena *scratch, struct slice text, bool special)
{
    static uint32_t ids[IDS_MAX];
    struct tokenizer_opts opts = {.added_tokens = true, .add_special = special};
    struct err e = {{0}};
    size_t count = 0, mark = arena_mark(scratch);
    int r = tokenizer_encode(t, scratch, text, &opts, ids, IDS_MAX, &count, &e);
    ASSERT(arena_mark(scratch) == mark);
    ASSERT(r < 0 || tokenizer_exceeds(t, text, count, NULL) == 0);
    ASSERT(r < 0 || text.len <= tokenizer_bytes_max(t, count));
    for (size_t i = 0; r == 0 && i < count; i++)
        printf("%u ", ids[i]);
    puts(r < 0 ? e.text : "");
}

static size_t ids_of(const struct tokenizer *t, struct arena *scratch, struct slice text, uint32_t *ids)
{
    const struct tokenizer_opts opts = {.added_tokens = true};
    struct err e = {{0}};
    size_t count = 0;
    ASSERT(tokenizer_encode(t, scratch, text, &opts, ids, IDS_MAX / 4, &count, &e) == 0);
    return count;
}

static void encode_pair(const struct tokenizer *t, struct arena *scratch, char *line)
{
    static uint32_t a[IDS_MAX / 4], b[IDS_MAX / 4], ids[IDS_MAX];
    const struct tokenizer_pair *p = tokenizer_pair(t);
    char *other = strchr(line, ' ') + 1;
    uint32_t second;
    if (!p->known) {
        puts("unknown");
        return;
    }
    size_t a_count = ids_of(t, scratch, (struct slice){line, parse_hex(line)}, a);
    size_t b_count = ids_of(t, scratch, (struct slice){other, parse_hex(other)}, b);
    size_t count = tokenizer_pair_fixed(p) + a_count + b_count;
    tokenizer_pair_join(p, a, (uint32_t)a_count, b, (uint32_t)b_count, ids, &second);
    for (size_t i = 0; i < count; i++)
        printf("%u ", ids[i]);
    printf("|");
    for (size_t i = 0; i < count; i++)
        printf(" %d", second > 0 && i >= second);
    puts("");
}

static void decode(const struct tokenizer *t, char *line, bool skip)
{
    static uint32_t ids[IDS_MAX];
    size_t count = 0;
    struct buf whole, streamed;
    struct detok d;
    for (char *rest = line, *end; ids[count] = (uint32_t)strtoul(rest, &end, 10), end != rest; rest = end)
        count++;
    buf_init(&whole, SIZE_MAX / 4, NULL);
    buf_init(&streamed, SIZE_MAX / 4, NULL);
    ASSERT(tokenizer_decode(t, ids, count, skip, &whole) == 0);
    detok_init(&d, t, skip);
    for (size_t i = 0; i < count; i++)
        detok_push(&d, ids[i], &streamed);
    detok_flush(&d, &streamed);
    ASSERT(slice_eq(buf_slice(&whole), buf_slice(&streamed)));
    print_hex(buf_slice(&whole));
    buf_done(&whole);
    buf_done(&streamed);
}

int main(int argc, char **argv)
{
    struct arena *a = arena_of((size_t)1 << 30), *scratch = arena_of((size_t)1 << 32);
    char *line = malloc(LINE_MAX_BYTES);
    struct tokenizer *t = NULL;
    struct err e = {{0}};
    ASSERT(argc == 2 && line);
    int r = tokenizer_load_at(a, argv[1], &t, &e);
    puts(r < 0 ? e.text : "ok");
    while (r == 0 && fflush(stdout) == 0 && fgets(line, LINE_MAX_BYTES, stdin)) {
        switch (line[0]) {
        case 'e':
        case 's':
            encode(t, scratch, (struct slice){line + 2, parse_hex(line + 2)}, line[0] == 's');
            break;
        case 'p':
            encode_pair(t, scratch, line + 2);
            break;
        case 'b':
            print_hex(tokenizer_token_bytes(t, (uint32_t)strtoul(line + 2, NULL, 10)));
            break;
        default:
            decode(t, line + 2, line[0] == 'k');
        }
    }
    free(line);
    arena_free(scratch);
    arena_free(a);
    return r < 0;
}
