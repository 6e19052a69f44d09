/* Loops at the end of an output: found exactly where the rule of vLLM finds them, at a bounded cost, in each
 * text that loops and in none that does not. */
#include "model_path.h"
#include "test.h"
#include "test_rng.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "sample/repetition.h"
#include "tokenizer/tokenizer.h"

#include <ftw.h>
#include <jansson.h>

#define CANARY PLATEAU_SOURCE_DIR "/models/canary"

/* A sanitizer checks each path, which an eighth of the files reach; the release build reads all of them. */
#ifdef TEST_SANITIZED
enum { FILES_STEP = 8, TABLES = 10 };
#else
enum { FILES_STEP = 1, TABLES = 40 };
#endif
enum { TOKENS_MAX = 4 << 20, LINES = 10000 };

static struct repetition_params agents(void)
{
    struct repetition_params p;
    assert_true(repetition_params_named("reasoning", &p));
    return p;
}

static struct arena *arena_of(size_t bytes)
{
    struct arena *a = NULL;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = bytes}, &a), 0);
    return a;
}

/* ---- the rule ---- */

/* vLLM's, with the least number of tokens: the last tokens of a pattern against those before them. */
static uint32_t slow(const struct repetition_params *p, const uint32_t *output, uint32_t count)
{
    for (uint32_t n = p->pattern_min; n <= p->pattern_max; n++) {
        uint64_t tokens = MAX_OF((uint64_t)n * p->count, (uint64_t)p->tokens_min);
        bool equal = tokens <= count;
        for (uint64_t i = n; equal && i < tokens; i++)
            equal = output[count - 1 - i] == output[count - 1 - i % n];
        if (equal && tokens > n)
            return n;
    }
    return 0;
}

PROPERTY(the_rule_is_that_of_a_slow_reference, seed)
{
    struct rng rng = {seed, 0};
    struct arena *a = arena_of(1 << 20);
    static uint32_t output[600];
    struct repetition_params p = {.pattern_max = 1 + rng_below(&rng, 24)};
    p.pattern_min = 1 + rng_below(&rng, p.pattern_max);
    p.count = 2 + rng_below(&rng, 5);
    p.tokens_min = rng_below(&rng, 3) ? 0 : rng_below(&rng, 60);
    struct repetition r;
    assert_int_equal(repetition_create(a, &p, &r), 0);
    uint32_t symbols = 1 + rng_below(&rng, 4), from = 0;
    for (uint32_t count = 1; count <= COUNT_OF(output); count++) {
        /* A copy of what stood a pattern before, more often than not. */
        uint32_t back = 1 + rng_below(&rng, 12);
        output[count - 1] =
            count > back && rng_below(&rng, 8) ? output[count - 1 - back] : rng_below(&rng, symbols);
        assert_int_equal(repetition_see(&r, output, count), slow(&p, output + from, count - from));
        if (rng_below(&rng, 97) == 0)
            repetition_restart(&r, from = count);
    }
    arena_free(a);
}

TEST(a_long_pattern_and_many_repeats_are_counted_exactly)
{
    struct arena *a = arena_of(1 << 20);
    uint32_t *output = calloc(REPETITION_PATTERN_MAX * 4, sizeof(*output));
    struct repetition_params p = {.pattern_min = 1, .pattern_max = REPETITION_PATTERN_MAX, .count = 3};
    struct repetition r;
    assert_int_equal(repetition_create(a, &p, &r), 0);
    for (uint32_t i = 0; i < 3 * REPETITION_PATTERN_MAX; i++) {
        output[i] = i % REPETITION_PATTERN_MAX;
        uint32_t want = i + 1 == 3 * REPETITION_PATTERN_MAX ? REPETITION_PATTERN_MAX : 0;
        assert_int_equal(repetition_see(&r, output, i + 1), want);
    }
    free(output);
    arena_free(a);
}

TEST(the_modes_have_names)
{
    struct repetition_params p;
    assert_true(repetition_params_named("off", &p) && p.pattern_max == 0 && !p.ends_reasoning);
    assert_true(repetition_params_named("reply", &p) && p.pattern_max > 0 && !p.ends_reasoning);
    assert_true(repetition_params_named("reasoning", &p) && p.pattern_max > 0 && p.ends_reasoning);
    assert_false(repetition_params_named("on", &p));
    assert_int_equal(repetition_bytes(&(struct repetition_params){0}), 0);
}

/* ---- texts ---- */

struct texts {
    struct arena *arena, *scratch;
    struct tokenizer *tokenizer;
    uint32_t *ids;
    uint64_t files, tokens, lines, found;
};

static struct texts texts;

static void begin(void)
{
    struct err e = {0};
    texts = (struct texts){.arena = arena_of((size_t)64 << 20), .scratch = arena_of((size_t)256 << 20)};
    texts.ids = calloc(TOKENS_MAX, sizeof(*texts.ids));
    if (tokenizer_load_at(texts.arena, CANARY, &texts.tokenizer, &e) < 0)
        fail_msg("%s", e.text);
}

static void end(void)
{
    free(texts.ids);
    arena_free(texts.arena);
    arena_free(texts.scratch);
}

static bool loops(const uint32_t *ids, size_t count)
{
    struct arena *a = arena_of(1 << 20);
    struct repetition_params p = agents();
    struct repetition r;
    bool found = false;
    assert_int_equal(repetition_create(a, &p, &r), 0);
    for (uint32_t i = 0; i < count && !found; i++)
        found = repetition_see(&r, ids, i + 1) > 0;
    arena_free(a);
    return found;
}

/* Reads a text twice: in the tokens of the bundled model, and with a token for each byte. */
static bool read_text(struct slice text)
{
    struct err e = {0};
    size_t count;
    arena_reset(texts.scratch);
    assert_true(text.len <= TOKENS_MAX);
    if (tokenizer_encode(texts.tokenizer, texts.scratch, text, &(struct tokenizer_opts){0}, texts.ids,
                         TOKENS_MAX, &count, &e) < 0)
        fail_msg("%s", e.text);
    bool found = loops(texts.ids, count);
    texts.tokens += count;
    for (size_t i = 0; i < text.len; i++) {
        texts.ids[i] = (uint8_t)text.ptr[i];
        texts.lines += text.ptr[i] == '\n';
    }
    return loops(texts.ids, text.len) || found;
}

static int read_file(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    static const char *const ends[] = {".c",   ".h",   ".py", ".md",  ".js",
                                       ".css", ".csv", ".cu", ".cuh", ".txt"};
    const char *name = strrchr(path, '.');
    bool wanted = false;
    (void)ftw;
    for (uint32_t i = 0; name && i < COUNT_OF(ends); i++)
        wanted |= strcmp(name, ends[i]) == 0;
    if (kind != FTW_F || !wanted || st->st_size == 0 || texts.files++ % FILES_STEP > 0)
        return 0;
    char *text = calloc(1, (size_t)st->st_size);
    FILE *f = fopen(path, "rb");
    assert_non_null(text);
    assert_non_null(f);
    size_t bytes = fread(text, 1, (size_t)st->st_size, f);
    fclose(f);
    if (read_text((struct slice){text, bytes})) {
        texts.found++;
        print_message("%s: a loop\n", path);
    }
    free(text);
    return 0;
}

TEST(sources_documents_and_results_do_not_loop)
{
    static const char *const folders[] = {"/src", "/docs", "/bench/results"};
    begin();
    for (uint32_t i = 0; i < COUNT_OF(folders); i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s%s", PLATEAU_SOURCE_DIR, folders[i]);
        assert_int_equal(nftw(path, read_file, 16, FTW_PHYS), 0);
    }
    print_message("%llu lines, %llu tokens, %llu false ends\n", (ull)texts.lines, (ull)texts.tokens,
                  (ull)texts.found);
    assert_true(texts.lines >= LINES);
    assert_int_equal(texts.found, 0);
    end();
}

/* A table of one of four kinds, whose cells are few different numbers, often equal ones. */
static void write_table(struct rng *rng, struct buf *ret)
{
    static const char *const begins[] = {"| ", "", "    {", "<tr><td>"},
                             *const cells[] = {" | ", ",", ", ", "</td><td>"},
                             *const closes[] = {" |\n", "\n", "},\n", "</td></tr>\n"};
    uint32_t kind = rng_below(rng, 4), columns = 2 + rng_below(rng, 12), rows = 50 + rng_below(rng, 400),
             values = 1 + rng_below(rng, 6);
    for (uint32_t i = 0; i < rows; i++) {
        buf_printf(ret, "%s%u", begins[kind], i);
        for (uint32_t k = 0; k < columns; k++)
            buf_printf(ret, "%s%u", cells[kind], (uint32_t)rng_below(rng, values));
        buf_puts(ret, closes[kind]);
    }
}

TEST(tables_do_not_loop)
{
    begin();
    for (uint64_t seed = 1; seed <= TABLES; seed++) {
        struct rng rng = {seed, 0};
        struct buf text;
        buf_init(&text, 1 << 20, NULL);
        write_table(&rng, &text);
        if (read_text(buf_slice(&text)))
            fail_msg("table %llu", (ull)seed);
        buf_done(&text);
    }
    print_message("%llu lines, %llu tokens\n", (ull)texts.lines, (ull)texts.tokens);
    assert_true(texts.lines >= LINES / 2 * TABLES / 40);
    end();
}

/* Every kind of loop is found within the tokens that the mode demands and one pattern more. */
PROPERTY(planted_loops_are_found, seed)
{
    struct rng rng = {seed, 0};
    struct repetition_params p = agents();
    uint32_t head = rng_below(&rng, 2000), pattern = 1 + rng_below(&rng, p.pattern_max);
    uint32_t bound = MAX_OF(pattern * p.count, p.tokens_min) + pattern;
    uint32_t *ids = calloc(head + bound, sizeof(*ids));
    for (uint32_t i = 0; i < head + bound; i++)
        ids[i] = i < head + pattern ? rng_below(&rng, 50000) : ids[i - pattern];
    assert_false(loops(ids, head));
    assert_true(loops(ids, head + bound));
    free(ids);
}

/* ---- goldens ---- */

static uint64_t arrays;

static void read_json(const json_t *v)
{
    const char *key;
    json_t *each;
    size_t i;
    if (json_is_string(v))
        assert_false(read_text((struct slice){json_string_value(v), json_string_length(v)}));
    json_object_foreach((json_t *)v, key, each)
        read_json(each);
    json_array_foreach(v, i, each) {
        if (!json_is_integer(each) || i >= TOKENS_MAX) {
            read_json(each);
            continue;
        }
        texts.ids[i] = (uint32_t)json_integer_value(each);
        if (i + 1 == json_array_size(v)) {
            arrays++;
            assert_false(loops(texts.ids, i + 1));
        }
    }
}

static int read_golden(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    json_t *v =
        kind == FTW_F && strcmp(path + ftw->base, "golden.json") == 0 ? json_load_file(path, 0, NULL) : NULL;
    if (v)
        read_json(v);
    json_decref(v);
    return 0;
}

TEST(goldens_do_not_loop)
{
    begin();
    assert_int_equal(nftw(PLATEAU_SOURCE_DIR "/tests/golden", read_golden, 16, FTW_PHYS), 0);
    assert_true(arrays > 50);
    end();
}

TEST_MAIN()
