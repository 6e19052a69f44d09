/* test_api_memory.c - a request's bytes are its own, whichever thread frees them, and all of them are
 * returned. */
#include "test_rng.h"
#include "test_ledger.h"

#include "gen/json_depth.h"
#include "api/reject_http.h"
#include "gen/request_memory.h"

#include "base/arena.h"
#include "base/buf.h"
#include "gen/reject.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

static uint64_t reserved(struct account *a)
{
    return account_numbers(a).reserved;
}

TEST(grains_come_and_go)
{
    struct account *a = test_account(1 << 20);
    struct request_memory m;
    request_memory_init(&m, a, SIZE_MAX);
    void *one = request_memory_alloc(&m, 100);
    assert_int_equal(reserved(a), REQUEST_MEMORY_GRAIN);
    void *two = request_memory_alloc(&m, REQUEST_MEMORY_GRAIN * 8);
    assert_int_equal(reserved(a), REQUEST_MEMORY_GRAIN * 9);
    request_memory_free(&m, two, REQUEST_MEMORY_GRAIN * 8);
    assert_int_equal(reserved(a), REQUEST_MEMORY_GRAIN * 3);
    request_memory_free(&m, one, 100);
    assert_int_equal(reserved(a), 0);
    request_memory_done(&m);
}

TEST(a_limit_is_a_limit)
{
    struct account *a = test_account(64 << 10);
    struct request_memory m;
    request_memory_init(&m, a, 32 << 10);
    assert_null(request_memory_alloc(&m, (32 << 10) + 1));
    void *one = request_memory_alloc(&m, 32 << 10);
    assert_non_null(one);
    assert_null(request_memory_alloc(&m, 1));
    struct request_memory other;
    request_memory_init(&other, a, SIZE_MAX);
    assert_null(request_memory_alloc(&other, 40 << 10));
    assert_int_equal(reserved(a), 32 << 10);
    request_memory_free(&m, one, 32 << 10);
    request_memory_done(&m);
    request_memory_done(&other);
}

TEST(newcomers_leave_an_eighth_to_those_being_answered)
{
    struct account *a = test_account(32 * REQUEST_MEMORY_GRAIN);
    struct request_memory m, answered;
    struct reject why = {0};
    request_memory_init(&m, a, SIZE_MAX);
    request_memory_init(&answered, a, SIZE_MAX);
    request_memory_newcomer(&m, true);
    assert_null(request_memory_alloc(&m, 28 * REQUEST_MEMORY_GRAIN + 1));
    assert_false(request_memory_reject(&m, &why));
    assert_int_equal(reject_status(&why), 429);
    assert_true(why.retry_after_s > 0);
    void *most = request_memory_alloc(&m, 28 * REQUEST_MEMORY_GRAIN);
    assert_non_null(most);
    void *reply = request_memory_alloc(&answered, 3 * REQUEST_MEMORY_GRAIN);
    assert_non_null(reply);
    assert_null(request_memory_alloc(&m, 1));
    request_memory_newcomer(&m, false);
    void *last = request_memory_alloc(&m, 1);
    assert_non_null(last);
    request_memory_free(&m, last, 1);
    request_memory_free(&m, most, 28 * REQUEST_MEMORY_GRAIN);
    request_memory_free(&answered, reply, 3 * REQUEST_MEMORY_GRAIN);
    request_memory_done(&m);
    request_memory_done(&answered);
}

TEST(what_is_handed_over_outlives_its_request)
{
    struct account *a = test_account(1 << 20);
    struct request_memory m;
    struct buf kept, own;
    request_memory_init(&m, a, SIZE_MAX);
    struct charge charge = request_memory_charge(&m);
    buf_init(&kept, 1 << 20, &charge);
    buf_init(&own, 1 << 20, &charge);
    for (int i = 0; i < 50000; i++)
        buf_putc(&kept, 'x');
    buf_puts(&own, "still the request's");
    uint64_t before = reserved(a);
    request_memory_hand_over(&m, &kept);
    assert_in_range(reserved(a), kept.capacity + own.capacity, before);
    buf_done(&own);
    request_memory_done(&m);
    assert_int_equal(reserved(a), kept.capacity);
    assert_int_equal(kept.len, 50000);
    buf_done(&kept);
    assert_int_equal(reserved(a), 0);
}

TEST(json_is_charged_to_the_request_that_it_belongs_to)
{
    struct account *a = test_account(1 << 20);
    struct request_memory m;
    json_error_t e;
    request_memory_init(&m, a, SIZE_MAX);
    json_t *nobodys = json_string("not counted");
    json_t *v = request_memory_parse(&m, "[1,2,{\"a\":\"b\"}]", 15, &e);
    assert_non_null(v);
    size_t used = m.used;
    assert_true(used > 0);
    /* Outside of its building nothing is charged; its values are credited to it wherever they are dropped. */
    json_array_append_new(v, json_string("x"));
    json_array_remove(v, 2);
    assert_true(m.used < used);
    json_decref(v);
    json_decref(nobodys);
    request_memory_done(&m);
}

TEST(json_without_memory_fails_and_leaves_nothing)
{
    struct account *a = test_account(1 << 20);
    static const char text[] = "{\"a\":[1,2.5,\"text\",{\"b\":null}],\"c\":{}}";
    for (size_t max = 0; max < 4000; max += 37) {
        struct request_memory m;
        json_error_t e;
        request_memory_init(&m, a, max);
        json_t *v = request_memory_parse(&m, text, strlen(text), &e);
        if (!v)
            assert_true(m.refused && max < 4000);
        json_decref(v);
        request_memory_done(&m);
    }
    assert_int_equal(reserved(a), 0);
}

/* jansson's lexer does not survive a refused block: the text below made it write past its string. */
TEST(json_is_refused_before_it_is_parsed_never_within)
{
    static const char text[] = "\"rS\xdd\x8er}S\xdd\x8erm7s+\":[[1,";
    for (size_t max = 0; max < 2000; max++) {
        struct request_memory m;
        json_error_t e;
        request_memory_init(&m, NULL, max);
        assert_null(request_memory_parse(&m, text, strlen(text), &e));
        assert_int_equal(m.refused, max < json_parse_bytes(slice_of(text), 16));
        request_memory_done(&m);
    }
}

#ifndef PLATEAU_DEBUG /* sanitizers need their address space */
TEST(json_is_refused_before_it_is_parsed_under_a_limit_of_the_process)
{
    size_t len = (size_t)4 << 20;
    char *text = malloc(len);
    assert_non_null(text);
    memset(text, 'y', len);
    text[0] = text[len - 1] = '"';
    struct rlimit usual, low;
    assert_int_equal(getrlimit(RLIMIT_DATA, &usual), 0);
    low = (struct rlimit){1 << 20, usual.rlim_max};
    struct request_memory m;
    json_error_t e;
    request_memory_init(&m, NULL, SIZE_MAX);
    assert_int_equal(setrlimit(RLIMIT_DATA, &low), 0);
    json_t *v = request_memory_parse(&m, text, len, &e);
    assert_int_equal(setrlimit(RLIMIT_DATA, &usual), 0);
    assert_null(v);
    assert_true(m.refused && !m.too_large);
    request_memory_done(&m);
    free(text);
}

/* Writable private memory of this process, in bytes: what RLIMIT_DATA limits. */
static uint64_t data_bytes(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    assert_non_null(f);
    while (kib == 0 && fgets(line, sizeof(line), f))
        (void)sscanf(line, "VmData: %llu", &kib);
    (void)fclose(f);
    return kib << 10;
}

/* Parses `part` with rising numbers between head and tail. The limit allows the addresses that the
 * parse reserves, and nothing to the heap. */
static void check_parse_without_heap(const char *head, const char *part, const char *tail)
{
    struct buf text = {0};
    buf_init(&text, SIZE_MAX, NULL);
    buf_puts(&text, head);
    for (int i = 0; i < 100000; i++)
        buf_printf(&text, part, i);
    buf_puts(&text, tail);
    struct request_memory m;
    json_error_t e;
    request_memory_init(&m, NULL, SIZE_MAX);
    struct rlimit usual;
    assert_int_equal(getrlimit(RLIMIT_DATA, &usual), 0);
    uint64_t bytes = json_parse_bytes(buf_slice(&text), 16);
    struct rlimit low = {data_bytes() + 2 * bytes + (64 << 10), usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &low), 0);
    json_t *v = request_memory_parse(&m, text.ptr, text.len, &e);
    bool has_reserve = m.reserves != NULL;
    assert_int_equal(setrlimit(RLIMIT_DATA, &usual), 0);
    assert_true(v && has_reserve);
    json_t *again = request_memory_parse(&m, text.ptr, text.len, &e);
    assert_true(json_equal(v, again));
    json_decref(v);
    assert_null(m.reserves);
    json_decref(again);
    request_memory_done(&m);
    buf_done(&text);
}

TEST(json_is_parsed_when_the_heap_refuses_blocks_within)
{
    check_parse_without_heap("[\"", "text and number %d of one long string ", "\"]");
    check_parse_without_heap("[", "%d,", "0]");
    check_parse_without_heap("[", "{\"a\":%d},", "0]");
    check_parse_without_heap("[", "\"the text of entry %d\",", "0]");
    check_parse_without_heap("{", "\"key of a name as long as this one %d\":[],", "\"\":0}");
}
#endif

TEST(what_is_foreseen_grows_by_the_values_of_the_text)
{
    /* An array or object more takes up to 240 bytes, a number less than 100, a blank none but the token's. */
    size_t three = json_parse_bytes(SLICE("[1,1,1]"), 0);
    assert_in_range(json_parse_bytes(SLICE("[1,1,1,1]"), 0) - three, 1, 100);
    assert_in_range(json_parse_bytes(SLICE("[1,1,[]]"), 0) - three, 100, 250);
    assert_in_range(json_parse_bytes(SLICE("[1,1,{}]"), 0) - three, 100, 250);
    assert_in_range(json_parse_bytes(SLICE("[1,1,    1]"), 0) - three, 0, 25);
    assert_in_range(json_parse_bytes(SLICE("[1,1,\"[[[[{{{{,,,,\"]"), 0) - three, 16, 150);
}

TEST(parsing_takes_no_more_than_was_foreseen)
{
    static const char *const pieces[] = {"[",
                                         "{\"k\":",
                                         "1,",
                                         "12345678901234567890.5e-3,",
                                         "\"a long string of text\",",
                                         "\"\\u00e9\\n\":",
                                         "]",
                                         "}",
                                         "true,",
                                         "[],",
                                         "{},",
                                         " "};
    struct rng rng = {.seed = 7};
    for (uint32_t round = 0; round < 20000; round++) {
        char text[512] = "[";
        uint64_t count = rng_next(&rng) % 20;
        for (uint64_t i = 0; i < count; i++)
            strcat(text, pieces[rng_next(&rng) % (sizeof pieces / sizeof pieces[0])]);
        if (round % 2)
            strcat(text, "1]");
        struct request_memory m;
        json_error_t e;
        request_memory_init(&m, NULL, SIZE_MAX);
        json_decref(request_memory_parse(&m, text, strlen(text), &e)); /* asserts it at every block */
        request_memory_done(&m);
    }
}

static void *drop(void *value)
{
    json_decref(value);
    return NULL;
}

TEST(json_may_be_dropped_by_another_thread)
{
    struct account *a = test_account(1 << 20);
    struct request_memory m;
    json_error_t e;
    pthread_t t;
    request_memory_init(&m, a, SIZE_MAX);
    json_t *v = request_memory_parse(&m, "[[],[],[]]", 10, &e);
    assert_int_equal(pthread_create(&t, NULL, drop, v), 0);
    pthread_join(t, NULL);
    request_memory_done(&m);
    assert_int_equal(reserved(a), 0);
}

TEST(buffers_and_arenas_are_charged_too)
{
    struct account *a = test_account(8 << 20);
    struct request_memory m;
    struct buf b;
    struct arena *arena = NULL;
    request_memory_init(&m, a, 4 << 20);
    struct charge c = request_memory_charge(&m);
    buf_init(&b, 1 << 20, &c);
    buf_puts(&b, "text");
    struct arena_opts opts = {.bytes_max = 8 << 20, .charge = &c};
    assert_int_equal(arena_create(&opts, &arena), 0);
    assert_non_null(arena_alloc(arena, 100000));
    assert_true(m.used > 100000);
    assert_null(arena_alloc(arena, 5 << 20));
    arena_free(arena);
    buf_done(&b);
    request_memory_done(&m);
    assert_int_equal(reserved(a), 0);
}

TEST_MAIN()
