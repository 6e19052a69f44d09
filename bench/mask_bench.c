/* mask_bench.c - mask_bench FOLDER [VOCABULARY [MOST]]: schemas with instances, compiled, judged and walked.
 *
 * Each file of the folder is {"schema": S, "tests": [{"data": INSTANCE, "valid": true or false}, ...]}: the
 * form of MaskBench. A schema that is not supported is counted with its reason. A valid instance that the
 * grammar accepts is written in the grammar's order and cut into longest tokens; before each token its mask
 * is made. Every schema has fresh tables, which all its instances share.
 *
 * VOCABULARY is a file in tiktoken's form, else a vocabulary is made up. MOST: as many files in the order of
 * a hash of their names. Printed are processor times; the slowest masks with their places. */
#include "bench_vocab.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/files/small_file.h"
#include "base/wanted.h"
#include "grammar/matcher_state.h"
#include "schema/schema.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 20000, SLOW_COUNT = 8, COMPILE_MS = 200, INSTANCE_MAX = 1 << 24, FILE_MAX = 64 << 20 };

struct samples {
    uint32_t *all, count, room;
};

struct slow {
    uint32_t ns, at;
    char file[100];
};

static struct {
    struct samples compile, finish, masks;
    struct slow slow[SLOW_COUNT];
    uint32_t files, unsupported, right, instances, wrong_accepted, wrong_rejected, too_complex;
    uint64_t flushes, tokens, units, unit_tokens;
} sum;

static const struct grammar_vocab *vocab;
static uint32_t *bits;

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sample(struct samples *s, uint64_t ns)
{
    if (s->count == s->room) {
        s->room = s->room ? s->room * 2 : 4096;
        s->all = realloc(s->all, s->room * sizeof(*s->all));
        ASSERT(s->all);
    }
    s->all[s->count++] = (uint32_t)MIN_OF(ns, (uint64_t)UINT32_MAX);
}

/* ---- One schema ---- */

struct subject {
    const char *file;
    const json_t *schema;
    struct grammar *grammar;
    struct matcher_tables *tables;
    struct matcher *matcher;
};

static int compile(struct subject *s, struct err *e)
{
    struct grammar_builder *b;
    sym_id start;
    struct wanted wanted = {.deadline_ns = clock_now_ns() + COMPILE_MS * NS_PER_MS};
    struct schema_opts opts = {.wanted = &wanted};
    ASSERT(grammar_builder_create(NULL, NULL, &b) == 0);
    grammar_builder_bound(b, &wanted, NULL);
    uint64_t start_ns = cpu_ns();
    int r = schema_compile(b, s->schema, &opts, &start, e);
    uint64_t compiled_ns = cpu_ns();
    if (r == 0)
        r = grammar_finish(b, start, &s->grammar, e);
    sample(&sum.finish, cpu_ns() - compiled_ns);
    sample(&sum.compile, cpu_ns() - start_ns);
    grammar_builder_free(b);
    return r;
}

static bool accepts(struct subject *s, struct slice text)
{
    int r = 1;
    matcher_reset(s->matcher);
    for (size_t at = 0; at < text.len && r == 1; at += 1024)
        r = matcher_take_bytes(s->matcher, slice_sub(text, at, 1024));
    sum.too_complex += r < 0;
    return r == 1 && matcher_may_end(s->matcher);
}

static void note_slow(const char *file, uint64_t ns, uint32_t at)
{
    struct slow *least = &sum.slow[0];
    for (int i = 1; i < SLOW_COUNT; i++)
        if (sum.slow[i].ns < least->ns)
            least = &sum.slow[i];
    if (ns <= least->ns)
        return;
    *least = (struct slow){.ns = (uint32_t)ns, .at = at};
    snprintf(least->file, sizeof(least->file), "%s", file);
}

static void walk(struct subject *s, struct slice text)
{
    matcher_reset(s->matcher);
    for (size_t at = 0; at < text.len;) {
        struct matcher_mask mask;
        uint64_t start = cpu_ns();
        int r = matcher_mask(s->matcher, 0, bits, &mask);
        uint64_t ns = cpu_ns() - start;
        if (r < 0) {
            sum.too_complex++;
            return;
        }
        sample(&sum.masks, ns);
        note_slow(s->file, ns, (uint32_t)at);
        uint32_t token = bench_vocab_longest(vocab, text, at, bits);
        ASSERT(token != UINT32_MAX);
        if (matcher_take(s->matcher, token) != 1) {
            sum.too_complex++;
            return;
        }
        at += grammar_vocab_text(vocab, token).len;
        sum.tokens++;
    }
    sum.units += s->matcher->top;
}

/* An instance as a model writes it: in order, no exponents. */
static bool accepts_ordered(struct subject *s, json_t *data, struct buf *text)
{
    struct err e;
    struct schema_opts opts = {0};
    json_t *ordered;
    if (schema_order(s->schema, &opts, data, &ordered, &e) < 0)
        return false;
    buf_clear(text);
    schema_write(text, ordered);
    json_decref(ordered);
    return !text->error && accepts(s, buf_slice(text));
}

/* Whether the judgement is right. */
static bool judge(struct subject *s, const json_t *test)
{
    json_t *data = json_object_get(test, "data");
    bool valid = json_is_true(json_object_get(test, "valid"));
    struct buf text;
    buf_init(&text, INSTANCE_MAX, NULL);
    schema_write(&text, data);
    bool accepted = (!text.error && accepts(s, buf_slice(&text))) || accepts_ordered(s, data, &text);
    if (valid && accepted)
        walk(s, buf_slice(&text));
    buf_done(&text);
    sum.instances++;
    sum.wrong_accepted += accepted && !valid;
    sum.wrong_rejected += !accepted && valid;
    if (accepted != valid)
        printf("%s: an instance that is %s is %s\n", s->file, valid ? "valid" : "not valid",
               accepted ? "accepted" : "rejected");
    return accepted == valid;
}

static void judge_all(struct subject *s, const json_t *tests)
{
    struct matcher_tables_opts tables = {.grammar = s->grammar, .vocab = vocab};
    ASSERT(matcher_tables_create(&tables, &s->tables) == 0);
    struct matcher_opts opts = {.tables = s->tables, .bytes_max = (size_t)64 << 20};
    ASSERT(matcher_create(&opts, &s->matcher) == 0);
    size_t index;
    json_t *test;
    bool right = true;
    json_array_foreach((json_t *)tests, index, test)
        right &= judge(s, test);
    sum.right += right;
    sum.flushes += s->tables->flushes;
    matcher_free(s->matcher);
    matcher_tables_free(s->tables);
}

static void try_file(const char *folder, const char *name)
{
    char path[4096];
    struct small_file f = {0};
    struct err e = {{0}};
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    ASSERT(small_file_read(path, FILE_MAX, &f, &e) == 0);
    json_t *all = json_loadb(f.bytes, f.len, JSON_ALLOW_NUL, NULL);
    if (!all) /* integers beyond 64 bits */
        all = json_loadb(f.bytes, f.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    small_file_done(&f);
    struct subject s = {.file = name, .schema = json_object_get(all, "schema")};
    sum.files++;
    if (!s.schema || compile(&s, &e) < 0) {
        sum.unsupported++;
        printf("%s: %s\n", name, s.schema ? e.text : "no JSON object with a schema");
    } else {
        judge_all(&s, json_object_get(all, "tests"));
    }
    grammar_free(s.grammar);
    json_decref(all);
}

/* ---- All of them ---- */

static uint32_t hash_name(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h ^ h >> 15;
}

static int by_hash(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    uint32_t p = hash_name(x), q = hash_name(y);
    return p == q ? strcmp(x, y) : p > q ? 1 : -1;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int by_time(const void *a, const void *b)
{
    const struct slow *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

static void print_samples(const char *what, struct samples *s)
{
    static const double shares[] = {0.5, 0.9, 0.99, 1};
    if (s->count == 0)
        return;
    qsort(s->all, s->count, sizeof(*s->all), by_value);
    printf("%-10s %8u", what, s->count);
    for (size_t i = 0; i < COUNT_OF(shares); i++)
        printf(" %10.1f", s->all[(uint32_t)((double)(s->count - 1) * shares[i])] / 1e3);
    printf("\n");
    free(s->all);
}

static void print_all(void)
{
    printf("%u schemas: %u not supported, %u with every instance judged right (%.1f %%)\n", sum.files,
           sum.unsupported, sum.right, 100.0 * sum.right / MAX_OF(sum.files, 1u));
    printf("%u instances: %u wrongly accepted, %u wrongly rejected, %u too complex\n", sum.instances,
           sum.wrong_accepted, sum.wrong_rejected, sum.too_complex);
    printf("%llu tokens, %.1f bytes of a matcher each; the automaton was full %llu times\n",
           (unsigned long long)sum.tokens, 8.0 * (double)sum.units / (double)MAX_OF(sum.tokens, (uint64_t)1),
           (unsigned long long)sum.flushes);
    printf("%-10s %8s %10s %10s %10s %10s\n", "us", "count", "p50", "p90", "p99", "max");
    print_samples("compile", &sum.compile);
    print_samples("of it end", &sum.finish);
    print_samples("mask", &sum.masks);
    qsort(sum.slow, SLOW_COUNT, sizeof(*sum.slow), by_time);
    for (int i = 0; i < SLOW_COUNT && sum.slow[i].ns; i++)
        printf("slow: %10.1f us, %s, byte %u\n", sum.slow[i].ns / 1e3, sum.slow[i].file, sum.slow[i].at);
}

static uint32_t list_files(const char *folder, char **names)
{
    DIR *d = opendir(folder);
    uint32_t count = 0;
    for (struct dirent *at; d && (at = readdir(d));)
        if (strstr(at->d_name, ".json") && count < FILES_MAX)
            names[count++] = strdup(at->d_name);
    if (!d)
        printf("%s: cannot be read\n", folder);
    else
        closedir(d);
    qsort(names, count, sizeof(*names), by_hash);
    return count;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        printf("skipped: mask_bench FOLDER [VOCABULARY [MOST]] needs a folder of schemas\n");
        return 0;
    }
    struct grammar_vocab *v = argc > 2 && *argv[2] ? bench_vocab_read(argv[2]) : bench_vocab_made_up();
    char **names = calloc(FILES_MAX, sizeof(*names));
    bits = calloc(v->words, sizeof(*bits));
    ASSERT(names && bits);
    vocab = v;
    uint32_t count = list_files(argv[1], names), most = argc > 3 ? (uint32_t)atoi(argv[3]) : count;
    for (uint32_t i = 0; i < count; i++) {
        if (i < most)
            try_file(argv[1], names[i]);
        free(names[i]);
    }
    print_all();
    free(names);
    free(bits);
    grammar_vocab_free(v);
    return 0;
}
