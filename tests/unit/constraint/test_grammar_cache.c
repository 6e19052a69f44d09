/* Sources to grammars within their limits; the cache of them: one compilation for many, bounds, eviction. */
#include "test.h"
#include "test_ledger.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/slice.h"
#include "base/wanted.h"
#include "constraint/grammar_cache.h"
#include "constraint/grammar_source.h"
#include "grammar/grammar_state.h"
#include "grammar/matcher.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 257, END = 256 };

static struct slice token_bytes(void *arg, uint32_t id)
{
    static char bytes[END];
    (void)arg;
    if (id >= END)
        return (struct slice){0};
    bytes[id] = (char)id;
    return (struct slice){bytes + id, 1};
}

struct scene {
    struct account *account;
    struct charge charge;
    struct grammar_vocab *vocab;
    struct grammar_cache *cache;
};

static void open_scene(struct scene *s, uint64_t bytes_max)
{
    static const uint32_t ends[] = {END};
    struct grammar_vocab_opts vocab = {.size = TOKENS, .bytes = token_bytes, .ends = ends, .end_count = 1};
    s->account = test_account(bytes_max);
    s->charge = account_charge(s->account);
    struct grammar_cache_opts opts = {.bytes_max = bytes_max, .charge = &s->charge};
    assert_int_equal(grammar_vocab_create(&vocab, &s->vocab), 0);
    opts.vocab = s->vocab;
    assert_int_equal(grammar_cache_create(&opts, &s->cache), 0);
}

static void close_scene(struct scene *s)
{
    grammar_cache_free(s->cache);
    grammar_vocab_free(s->vocab);
    assert_int_equal(account_numbers(s->account).used, 0);
}

static int get(struct scene *s, enum grammar_kind kind, const char *text, struct grammar_entry **ret,
               struct err *e)
{
    struct grammar_source source = {kind, slice_of(text)};
    return grammar_cache_get(s->cache, &source, &(struct grammar_source_opts){0}, ret, e);
}

static struct grammar_entry *must_get(struct scene *s, enum grammar_kind kind, const char *text)
{
    struct grammar_entry *g = NULL;
    struct err e = {{0}};
    if (get(s, kind, text, &g, &e) < 0)
        fail_msg("%s: %s", text, e.text);
    return g;
}

static struct grammar_cache_numbers numbers(struct scene *s)
{
    struct grammar_cache_numbers n;
    grammar_cache_numbers(s->cache, &n);
    return n;
}

static bool accepts(struct grammar_entry *g, const char *text)
{
    struct matcher *m;
    assert_int_equal(grammar_entry_matcher(g, 0, NULL, &m), 0);
    int r = 1;
    grammar_entry_lock(g);
    for (const char *at = text; *at && r == 1; at++)
        r = matcher_take(m, (uint8_t)*at);
    if (r == 1)
        r = matcher_take(m, END);
    grammar_entry_unlock(g);
    matcher_free(m);
    assert_true(r >= 0);
    return r;
}

TEST(every_kind_of_source_compiles)
{
    static const struct {
        enum grammar_kind kind;
        const char *text, *yes, *no;
    } cases[] = {
        {GRAMMAR_JSON_OBJECT, "", "{\"a\":[1]}", "[1]"},
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":3}", "12", "2"},
        {GRAMMAR_REGEX, "[ab]+", "abba", "abc"},
        {GRAMMAR_CHOICE, "[\"yes\",\"no\"]", "no", "maybe"},
        {GRAMMAR_GBNF, "root ::= \"x\" root | \"y\"", "xxy", "xx"},
        {GRAMMAR_LARK, "start: \"p\" start | \"q\"", "ppq", "pp"},
        {GRAMMAR_STRUCTURAL, "{\"format\": {\"type\": \"const_string\", \"value\": \"v\"}}", "v", "w"},
    };
    struct scene s;
    open_scene(&s, 32 << 20);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct grammar_entry *g = must_get(&s, cases[i].kind, cases[i].text);
        assert_true(accepts(g, cases[i].yes));
        assert_false(accepts(g, cases[i].no));
        grammar_cache_put(s.cache, g);
    }
    assert_int_equal(numbers(&s).compiled, COUNT_OF(cases));
    close_scene(&s);
}

TEST(clearing_spares_what_is_in_use)
{
    struct scene s;
    uint64_t bytes;
    open_scene(&s, 32 << 20);
    uint64_t empty = account_numbers(s.account).used;
    struct grammar_entry *used = must_get(&s, GRAMMAR_REGEX, "a");
    grammar_cache_put(s.cache, must_get(&s, GRAMMAR_REGEX, "b"));
    grammar_cache_put(s.cache, must_get(&s, GRAMMAR_REGEX, "c"));
    uint64_t full = account_numbers(s.account).used;
    assert_int_equal(grammar_cache_clear(s.cache, &bytes), 2);
    assert_int_equal(account_numbers(s.account).used, full - bytes);
    assert_true(accepts(used, "a"));
    grammar_cache_put(s.cache, used);
    assert_int_equal(grammar_cache_clear(s.cache, &bytes), 1);
    assert_int_equal(account_numbers(s.account).used, empty);
    close_scene(&s);
}

TEST(kind_and_text_are_the_identity)
{
    struct scene s;
    open_scene(&s, 32 << 20);
    struct grammar_entry *a = must_get(&s, GRAMMAR_REGEX, "[\"a\"]");
    struct grammar_entry *b = must_get(&s, GRAMMAR_CHOICE, "[\"a\"]");
    struct grammar_entry *c = must_get(&s, GRAMMAR_REGEX, "[\"a\"]");
    assert_true(a == c && a != b);
    assert_int_equal(numbers(&s).hits, 1);
    assert_int_equal(numbers(&s).used, 2);
    grammar_cache_put(s.cache, a);
    grammar_cache_put(s.cache, b);
    grammar_cache_put(s.cache, c);
    assert_int_equal(numbers(&s).used, 0);
    close_scene(&s);
}

TEST(what_does_not_compile_says_why_and_leaves_nothing)
{
    static const struct {
        enum grammar_kind kind;
        const char *text;
        int code;
        const char *words;
    } cases[] = {
        {GRAMMAR_JSON_SCHEMA, "{\"type\":", -EINVAL, "the schema is not JSON"},
        {GRAMMAR_JSON_SCHEMA, "{\"contains\":{}}", -ENOTSUP, "contains"},
        {GRAMMAR_CHOICE, "{}", -EINVAL, "list of texts"},
        {GRAMMAR_CHOICE, "[\"a\",1]", -EINVAL, "element 1"},
        {GRAMMAR_REGEX, "(a", -EINVAL, ""},
        {GRAMMAR_GBNF, "root ::= other", -EINVAL, "other"},
    };
    struct scene s;
    open_scene(&s, 32 << 20);
    uint64_t before = account_numbers(s.account).used;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct grammar_entry *g;
        struct err e = {{0}};
        int r = get(&s, cases[i].kind, cases[i].text, &g, &e);
        if (r != cases[i].code || !strstr(e.text, cases[i].words))
            print_error("%s: %d %s\n", cases[i].text, r, e.text);
        assert_int_equal(r, cases[i].code);
        assert_non_null(strstr(e.text, cases[i].words));
        assert_true(e.text[0]);
        assert_int_equal(account_numbers(s.account).used, before);
    }
    assert_int_equal(numbers(&s).refused, COUNT_OF(cases));
    assert_int_equal(numbers(&s).entries, 0);
    close_scene(&s);
}

/* A pattern whose expressions grow with every repetition. */
static struct slice slow_pattern(void)
{
    static char text[40000];
    size_t len = 0;
    while (len + 40 < sizeof(text))
        len += (size_t)snprintf(text + len, 40, "([a-%c]{2,9}x%zu|y%zu)?", "mnopqrst"[len % 8], len, len);
    return (struct slice){text, len};
}

TEST(time_is_a_limit_of_the_source)
{
    struct grammar_source source = {GRAMMAR_REGEX, slow_pattern()};
    struct grammar_source_opts opts = {.cpu_ns = 1};
    struct grammar *g;
    struct err e = {{0}};
    assert_int_equal(grammar_source_compile(&source, &opts, &g, &e), -E2BIG);
    assert_non_null(strstr(e.text, "the pattern takes more than"));
    atomic_bool cancelled = true;
    struct wanted wanted = {.cancelled = &cancelled};
    opts = (struct grammar_source_opts){.wanted = &wanted};
    assert_int_equal(grammar_source_compile(&source, &opts, &g, &e), -ECANCELED);
    wanted = (struct wanted){.deadline_ns = 1};
    assert_int_equal(grammar_source_compile(&source, &opts, &g, &e), -ETIME);
}

TEST(a_long_source_is_refused)
{
    size_t len = GRAMMAR_SOURCE_BYTES_MAX + 1;
    char *text = malloc(len);
    struct grammar_source source = {GRAMMAR_GBNF, {text, len}};
    struct grammar *g;
    struct err e = {{0}};
    memset(text, ' ', len);
    assert_int_equal(grammar_source_compile(&source, &(struct grammar_source_opts){0}, &g, &e), -E2BIG);
    assert_non_null(strstr(e.text, "512 KiB"));
    free(text);
}

TEST(the_least_recently_used_goes_first_and_none_in_use)
{
    struct scene s;
    char text[40];
    open_scene(&s, 8 << 20);
    struct grammar_entry *kept = must_get(&s, GRAMMAR_REGEX, "kept");
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof(text), "text %d", i);
        grammar_cache_put(s.cache, must_get(&s, GRAMMAR_REGEX, text));
        grammar_cache_put(s.cache, must_get(&s, GRAMMAR_REGEX, "often"));
    }
    struct grammar_cache_numbers n = numbers(&s);
    assert_true(n.evicted >= 80 && n.entries < 20);
    assert_int_equal(n.entries + n.evicted, n.compiled);
    assert_int_equal(n.compiled, 102);
    assert_true(must_get(&s, GRAMMAR_REGEX, "kept") == kept);
    grammar_cache_put(s.cache, kept);
    grammar_cache_put(s.cache, kept);
    while (grammar_cache_evict(s.cache))
        continue;
    assert_int_equal(numbers(&s).entries, 0);
    close_scene(&s);
}

TEST(entries_in_use_refuse_others)
{
    struct scene s;
    struct grammar_entry *held[100], *more;
    struct err e = {{0}};
    uint32_t count = 0;
    char text[40];
    int r = 0;
    open_scene(&s, 4 << 20);
    while (r == 0 && count < COUNT_OF(held)) {
        snprintf(text, sizeof(text), "text %u", count);
        r = get(&s, GRAMMAR_REGEX, text, &held[count], &e);
        count += r == 0;
    }
    assert_true(count > 0 && count < 20);
    assert_int_equal(r, -ENOMEM);
    assert_true(e.text[0]);
    for (uint32_t i = 0; i < count; i++)
        grammar_cache_put(s.cache, held[i]);
    assert_int_equal(get(&s, GRAMMAR_REGEX, text, &more, &e), 0);
    grammar_cache_put(s.cache, more);
    close_scene(&s);
}

/* Holds grammars of the tenant until there is no room; how many. */
static uint32_t hold(struct scene *s, uint64_t tenant, struct grammar_entry **held, uint32_t max)
{
    struct err e = {{0}};
    char text[40];
    int r = 0;
    uint32_t count = 0;
    while (r == 0 && count < max) {
        snprintf(text, sizeof(text), "text %u", count);
        struct grammar_source source = {GRAMMAR_REGEX, slice_of(text), .scope = {.tenant = tenant}};
        r = grammar_cache_get(s->cache, &source, &(struct grammar_source_opts){0}, &held[count], &e);
        count += r == 0;
    }
    assert_true(r == 0 || r == -ENOMEM);
    return count;
}

TEST(tenants_that_take_all_they_get_leave_room_to_others)
{
    struct scene s;
    struct grammar_entry *held[100];
    open_scene(&s, 32 << 20);
    uint32_t count = hold(&s, 1, held, COUNT_OF(held));
    assert_true(count > 2 && count < COUNT_OF(held));
    uint32_t second = hold(&s, 2, held + count, COUNT_OF(held) - count);
    assert_true(second > 1 && second <= count);
    count += second;
    assert_int_equal(hold(&s, 3, held + count, 1), 1);
    count++;
    for (uint32_t i = 0; i < count; i++)
        grammar_cache_put(s.cache, held[i]);
    close_scene(&s);
}

TEST(a_cache_that_is_too_small_says_so)
{
    struct scene s;
    struct grammar_entry *g;
    struct err e = {{0}};
    open_scene(&s, 300 << 10);
    assert_int_equal(get(&s, GRAMMAR_REGEX, "a", &g, &e), -E2BIG);
    assert_non_null(strstr(e.text, "307200 bytes"));
    close_scene(&s);
}

struct asking {
    struct scene scene;
    struct grammar_source source;
};

static void *get_on_a_thread(void *arg)
{
    struct asking *a = arg;
    struct grammar_entry *g = NULL;
    struct err e = {{0}};
    struct grammar_source_opts opts = {.cpu_ns = 60 * NS_PER_S};
    return grammar_cache_get(a->scene.cache, &a->source, &opts, &g, &e) == 0 ? g : NULL;
}

TEST(threads_that_ask_at_once_compile_it_once)
{
    struct asking a = {.source = {GRAMMAR_REGEX, slow_pattern()}};
    struct scene *s = &a.scene;
    pthread_t threads[6];
    void *got[COUNT_OF(threads)];
    open_scene(s, 64 << 20);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_on_a_thread, &a), 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        pthread_join(threads[i], &got[i]);
        assert_non_null(got[i]);
        assert_ptr_equal(got[i], got[0]);
    }
    assert_int_equal(numbers(s).compiled, 1);
    assert_int_equal(numbers(s).hits, COUNT_OF(threads) - 1);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        grammar_cache_put(s->cache, got[i]);
    close_scene(s);
}

static struct grammar_entry *get_as(struct scene *s, uint64_t tenant, const char *salt)
{
    struct grammar_source source = {GRAMMAR_REGEX, SLICE("[ab]+"), .scope = {tenant, slice_of(salt)}};
    struct grammar_entry *g = NULL;
    struct err e = {{0}};
    assert_int_equal(grammar_cache_get(s->cache, &source, &(struct grammar_source_opts){0}, &g, &e), 0);
    return g;
}

TEST(a_grammar_is_its_tenants_and_its_salts_own)
{
    struct scene s;
    struct grammar_entry *g[6];
    open_scene(&s, 32 << 20);
    g[0] = get_as(&s, 1, NULL);
    g[1] = get_as(&s, 2, NULL);
    g[2] = get_as(&s, 1, "x");
    g[3] = get_as(&s, (uint64_t)1 << 32, NULL);
    assert_int_equal(numbers(&s).compiled, 4);
    assert_int_equal(numbers(&s).hits, 0);
    g[4] = get_as(&s, 2, NULL);
    g[5] = get_as(&s, 1, "x");
    assert_ptr_equal(g[4], g[1]);
    assert_ptr_equal(g[5], g[2]);
    assert_int_equal(numbers(&s).hits, 2);
    for (size_t i = 0; i < COUNT_OF(g); i++)
        grammar_cache_put(s.cache, g[i]);
    close_scene(&s);
}

static int get_short_of_time(struct scene *s, uint64_t tenant, const char *text, struct err *e)
{
    struct grammar_source source = {GRAMMAR_REGEX, slice_of(text), .scope = {.tenant = tenant}};
    struct grammar_entry *g = NULL;
    int r = grammar_cache_get(s->cache, &source, &(struct grammar_source_opts){.cpu_ns = 1}, &g, e);
    assert_true(r < 0 || !g);
    return r;
}

/* A regular expression that takes longer than a nanosecond is compiled once. */
TEST(a_source_that_takes_too_long_is_remembered)
{
    static const char slow[] = "([a-z]{1,40}[0-9]{1,40}){1,20}";
    struct scene s;
    struct err first = {{0}}, again = {{0}};
    uint64_t bytes;
    char text[64];
    open_scene(&s, 32 << 20);
    assert_int_equal(get_short_of_time(&s, 1, slow, &first), -E2BIG);
    assert_int_equal(get_short_of_time(&s, 1, slow, &again), -E2BIG);
    assert_string_equal(first.text, again.text);
    assert_int_equal(numbers(&s).recalled, 1);
    assert_int_equal(numbers(&s).refused, 1);
    /* Nothing is known of another tenant. */
    assert_int_equal(get_short_of_time(&s, 2, slow, &again), -E2BIG);
    assert_int_equal(numbers(&s).recalled, 1);
    /* The last ones are kept. */
    for (int i = 0; i < 3 * GRAMMAR_FAILED_MAX; i++) {
        snprintf(text, sizeof(text), "([a-z]{1,40}[0-9]{1,40}){1,20}x{%d}", i + 1);
        assert_int_equal(get_short_of_time(&s, 1, text, &again), -E2BIG);
    }
    assert_int_equal(numbers(&s).recalled, 1);
    assert_int_equal(get_short_of_time(&s, 1, text, &again), -E2BIG);
    assert_int_equal(numbers(&s).recalled, 2);
    assert_int_equal(get_short_of_time(&s, 1, slow, &again), -E2BIG);
    assert_int_equal(numbers(&s).recalled, 2);
    /* An order to clear forgets them. */
    grammar_cache_clear(s.cache, &bytes);
    assert_int_equal(get_short_of_time(&s, 1, text, &again), -E2BIG);
    assert_int_equal(numbers(&s).recalled, 2);
    close_scene(&s);
}

TEST_MAIN()
