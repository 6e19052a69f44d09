/* token_bench.c - token_bench MODEL FILE [BYTES]: what tokenizing FILE (its first BYTES) takes on one thread,
 * and how many tokens it makes. The median of nine runs. bench/token_others.py runs it beside a package. */
#include "model_path.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/median.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 9, FILE_BYTES_MAX = 64 << 20 };

static struct slice read_text(const char *path, size_t bytes_max)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(bytes_max);
    if (!f || !text)
        return (struct slice){0};
    size_t len = fread(text, 1, bytes_max, f);
    fclose(f);
    while (len > 0 && ((unsigned char)text[len - 1] & 0x80))
        len--; /* no part of a character at the end */
    return (struct slice){text, len};
}

static void measure(const struct tokenizer *t, struct arena *scratch, struct slice text)
{
    const struct tokenizer_opts opts = {.added_tokens = true};
    struct err e = {0};
    double took[RUNS];
    size_t count = 0, room = 3 * text.len + 64;
    uint32_t *ids = malloc(room * sizeof(*ids));
    ASSERT(ids);
    for (int i = 0; i < RUNS; i++) {
        uint64_t began = clock_now_ns();
        int r = tokenizer_encode(t, scratch, text, &opts, ids, room, &count, &e);
        took[i] = (double)(clock_now_ns() - began);
        if (r < 0) {
            fprintf(stderr, "token_bench: %s\n", e.text);
            exit(1);
        }
    }
    double ms = median_of(took, RUNS) / 1e6;
    printf("%zu bytes, %zu tokens, %.3f ms, %.1f MB/s\n", text.len, count, ms, (double)text.len / ms / 1e3);
    free(ids);
}

int main(int argc, char **argv)
{
    const size_t bytes_max = argc > 3 ? strtoul(argv[3], NULL, 10) : FILE_BYTES_MAX;
    if (argc < 3 || argc > 4 || bytes_max == 0 || bytes_max > FILE_BYTES_MAX) {
        fprintf(stderr, "usage: token_bench MODEL FILE [BYTES], of 1 to %d bytes\n", FILE_BYTES_MAX);
        return 2;
    }
    const struct arena_opts opts = {.bytes_max = (size_t)4 << 30};
    struct arena *kept, *scratch;
    struct tokenizer *t;
    struct err e = {0};
    ASSERT(arena_create(&opts, &kept) == 0 && arena_create(&opts, &scratch) == 0);
    struct slice text = read_text(argv[2], bytes_max);
    if (text.len == 0) {
        fprintf(stderr, "token_bench: %s has no text that can be read\n", argv[2]);
        return 1;
    }
    if (tokenizer_load_at(kept, argv[1], &t, &e) < 0) {
        fprintf(stderr, "token_bench: %s\n", e.text);
        return 1;
    }
    measure(t, scratch, text);
    free((char *)text.ptr);
    arena_free(kept);
    arena_free(scratch);
    return 0;
}
