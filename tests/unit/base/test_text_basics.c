/* Slices, buffers, errors and log levels. */
#include "test_rng.h"
#include "test.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void expect_clock_text(int64_t s)
{
    char text[CLOCK_TEXT_BYTES], same[32];
    time_t t = (time_t)s;
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(same, sizeof(same), "%Y-%m-%dT%H:%M:%S", &tm);
    assert_int_equal(clock_text(s, text), strlen(same));
    assert_string_equal(text, same);
}

TEST(a_time_as_text_is_the_c_librarys)
{
    static const int64_t some[] = {0,          86399,      86400,       951782399,   951782400,
                                   951868800,  1078012799, 946684799,   946684800,   1709164800,
                                   4107542399, 4107542400, 2147483647,  4294967296,  68169600,
                                   94694399,   1795381971, 13569465600, 253402300799};
    for (size_t i = 0; i < COUNT_OF(some); i++)
        expect_clock_text(some[i]);
    char text[CLOCK_TEXT_BYTES];
    clock_text(INT64_MIN, text);
    assert_string_equal(text, "1970-01-01T00:00:00");
    clock_text(INT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59");
    for (int64_t day = 0; day < 146097; day++)
        expect_clock_text(day * 86400 + day % 86400);
}

TEST(slices_compare_by_their_bytes)
{
    struct slice none = {NULL, 0};
    assert_true(slice_eq(none, SLICE("")));
    assert_true(slice_eq(SLICE("a\0b"), ((struct slice){"a\0b", 3})));
    assert_false(slice_eq(SLICE("a\0b"), SLICE("a\0c")));
    assert_false(slice_eq(SLICE("ab"), SLICE("a")));
    assert_true(slice_starts(SLICE("abc"), SLICE("ab")) && slice_starts(none, none));
    assert_false(slice_starts(SLICE("ab"), SLICE("abc")));
    assert_true(slice_ends(SLICE("abc"), SLICE("bc")) && slice_ends(SLICE("abc"), none));
    assert_false(slice_ends(SLICE("abc"), SLICE("ab")));
    assert_true(slice_eq(slice_of(NULL), none));
}

TEST(a_part_is_cut_to_what_exists)
{
    struct slice s = SLICE("hello");
    assert_true(slice_eq(slice_sub(s, 1, 3), SLICE("ell")));
    assert_true(slice_eq(slice_sub(s, 3, SIZE_MAX), SLICE("lo")));
    assert_int_equal(slice_sub(s, 9, 1).len, 0);
    assert_int_equal(slice_sub((struct slice){NULL, 0}, 1, 1).len, 0);
}

TEST(find_says_where_or_nowhere)
{
    struct slice s = SLICE("abcabc");
    assert_int_equal(slice_find(s, SLICE("bc"), 0), 1);
    assert_int_equal(slice_find(s, SLICE("bc"), 2), 4);
    assert_true(slice_find(s, SLICE("bc"), 5) == SIZE_MAX);
    assert_true(slice_find(s, SLICE("abcabcd"), 0) == SIZE_MAX);
    assert_true(slice_find((struct slice){NULL, 0}, SLICE("a"), 0) == SIZE_MAX);
    assert_int_equal(slice_find(s, SLICE(""), 3), 3);
    assert_int_equal(slice_find(s, SLICE(""), 6), 6);
    assert_true(slice_find(s, SLICE("a"), 7) == SIZE_MAX);
}

TEST(a_number_is_all_digits_and_within_its_bound)
{
    uint64_t v = 7;
    assert_true(slice_u64(SLICE("0"), 10, &v) && v == 0);
    assert_true(slice_u64(SLICE("18446744073709551615"), UINT64_MAX, &v) && v == UINT64_MAX);
    v = 7;
    assert_false(slice_u64(SLICE("18446744073709551616"), UINT64_MAX, &v));
    assert_false(slice_u64(SLICE("99999999999999999999999"), UINT64_MAX, &v));
    assert_false(slice_u64(SLICE("11"), 10, &v));
    assert_false(slice_u64(SLICE(""), 10, &v));
    assert_false(slice_u64(SLICE("-1"), 10, &v));
    assert_false(slice_u64(SLICE("+1"), 10, &v));
    assert_false(slice_u64(SLICE(" 1"), 10, &v));
    assert_false(slice_u64(SLICE("1a"), 100, &v));
    assert_int_equal(v, 7);
}

TEST(a_buffer_remembers_its_first_failure)
{
    struct buf b;
    buf_init(&b, 10, NULL);
    buf_puts(&b, "12345");
    buf_putc(&b, '6');
    assert_int_equal(b.error, 0);
    buf_puts(&b, "7890X");
    assert_int_equal(b.error, -E2BIG);
    buf_puts(&b, "7");
    assert_true(slice_eq(buf_slice(&b), SLICE("123456")));
    buf_clear(&b);
    assert_int_equal(b.error, 0);
    buf_puts(&b, "1234567890");
    assert_int_equal(b.error, 0);
    assert_int_equal(b.len, 10);
    buf_done(&b);
}

TEST(a_formatted_text_may_fill_the_bound_exactly)
{
    for (size_t len = 500; len <= 530; len++) {
        struct buf b;
        buf_init(&b, len, NULL);
        buf_printf(&b, "%*d", (int)len, 7);
        assert_int_equal(b.error, 0);
        assert_int_equal(b.len, len);
        assert_int_equal(b.ptr[len - 1], '7');
        buf_printf(&b, "x");
        assert_int_equal(b.error, -E2BIG);
        buf_done(&b);
    }
}

static size_t paid;

static int pay_take(void *owner, size_t bytes)
{
    size_t *limit = owner;
    if (bytes > *limit - paid)
        return -ENOMEM;
    paid += bytes;
    return 0;
}

static void pay_give(void *owner, size_t bytes)
{
    (void)owner;
    assert_true(bytes <= paid);
    paid -= bytes;
}

TEST(a_buffer_pays_before_it_grows)
{
    size_t limit = 1000;
    struct charge charge = {pay_take, pay_give, &limit};
    struct buf b;
    buf_init(&b, 1 << 20, &charge);
    char chunk[100] = {0};
    while (!b.error) {
        buf_put(&b, chunk, sizeof(chunk));
        assert_int_equal(paid, b.capacity);
    }
    assert_int_equal(b.error, -ENOMEM);
    /* No longer doubled: up to the last chunk that fits with its terminating zero. */
    assert_int_equal(b.len, 900);
    buf_done(&b);
    assert_int_equal(paid, 0);
}

/* Whatever is appended and consumed, the content is what a plain array would hold. */
PROPERTY(a_buffer_is_a_queue_of_bytes, seed)
{
    struct rng rng = {seed, 0};
    char model[8192];
    size_t model_len = 0;
    struct buf b;
    buf_init(&b, sizeof(model), NULL);
    for (int i = 0; i < 100; i++) {
        char chunk[200];
        size_t len = rng_below(&rng, sizeof(chunk));
        for (size_t j = 0; j < len; j++)
            chunk[j] = (char)rng_next(&rng);
        if (model_len + len <= sizeof(model)) {
            memcpy(model + model_len, chunk, len);
            model_len += len;
            buf_put(&b, chunk, len);
        }
        size_t drop = rng_below(&rng, model_len + 1);
        if (rng_below(&rng, 3) == 0) {
            memmove(model, model + drop, model_len - drop);
            model_len -= drop;
            buf_consume(&b, drop);
        }
        assert_int_equal(b.error, 0);
        assert_true(slice_eq(buf_slice(&b), (struct slice){model, model_len}));
    }
    buf_done(&b);
}

TEST(nothing_can_be_consumed_from_an_empty_buffer)
{
    struct buf b;
    buf_init(&b, 100, NULL);
    buf_consume(&b, 0);
    assert_stops(buf_consume(&b, 1));
    buf_done(&b);
}

TEST(an_error_is_a_code_and_a_sentence)
{
    struct err e;
    assert_int_equal(err_set(&e, -EINVAL, "%d is over the limit of %d", 5, 4), -EINVAL);
    assert_string_equal(e.text, "5 is over the limit of 4");
    assert_int_equal(err_prefix(&e, -EIO, "config.json: %s", "heads"), -EIO);
    assert_string_equal(e.text, "config.json: heads: 5 is over the limit of 4");
    assert_int_equal(err_set(NULL, -ENOENT, "nobody reads this"), -ENOENT);
    assert_int_equal(err_prefix(NULL, -ENOENT, "nor this"), -ENOENT);
}

TEST(a_long_error_is_cut)
{
    struct err e;
    err_set(&e, -EINVAL, "%2000d", 1);
    assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
    err_prefix(&e, -EINVAL, "here");
    assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
    assert_memory_equal(e.text, "here: ", 6);
    err_prefix(&e, -EINVAL, "%2000d", 1);
    assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
}

TEST(log_levels_have_names)
{
    enum log_level level = LOG_LEVEL_WARN;
    assert_true(log_level_parse("debug", &level) && level == LOG_LEVEL_DEBUG);
    assert_false(log_level_parse("loud", &level));
    assert_int_equal(level, LOG_LEVEL_DEBUG);
    log_set_level(LOG_LEVEL_WARN);
    assert_true(log_enabled(LOG_LEVEL_ERROR) && log_enabled(LOG_LEVEL_WARN) && !log_enabled(LOG_LEVEL_INFO));
}

/* Copies the output of log_write on stderr into `ret`, terminated. */
static size_t logged(const char *value, char *ret, size_t bytes_max)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    int real = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    log_write(LOG_LEVEL_WARN, "test", "value=\"%s\"", value);
    dup2(real, STDERR_FILENO);
    close(real);
    close(ends[1]);
    ssize_t n = read(ends[0], ret, bytes_max - 1);
    close(ends[0]);
    assert_true(n > 0);
    ret[n] = 0;
    return (size_t)n;
}

TEST(a_logged_message_is_one_line)
{
    char line[4096], long_value[3000];
    size_t n = logged("a\nlevel=error event=forged", line, sizeof(line));
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
    assert_non_null(strstr(line, " level=warn event=test value=\"a level=error"));
    memset(long_value, 'x', sizeof(long_value) - 1);
    long_value[sizeof(long_value) - 1] = 0;
    n = logged(long_value, line, sizeof(line));
    assert_true(n <= 1024);
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
}

/* Standard error into a pipe without a reader, until it is read. */
TEST(a_log_that_nobody_reads_holds_nobody_up)
{
    char text[1 << 16];
    int saved = dup(STDERR_FILENO), ends[2];
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    for (unsigned i = 0; i < 3000; i++)
        log_write(LOG_LEVEL_WARN, "test", "number=%u", i);
    ssize_t n = read(ends[0], text, sizeof(text) - 1);
    log_write(LOG_LEVEL_WARN, "test", "number=last");
    ssize_t last = read(ends[0], text + (n > 0 ? n : 0), sizeof(text) - 1 - (size_t)(n > 0 ? n : 0));
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[0]);
    close(ends[1]);
    assert_true(n > 0 && last >= 0);
    text[n + last] = 0;
    unsigned written = 0, lost = 0;
    for (const char *at = text; (at = strstr(at, "number=")); at++)
        written++;
    const char *told = strstr(text, "lines_lost=");
    assert_true(told && sscanf(told, "lines_lost=%u number=last", &lost) == 1);
    assert_int_equal(written - 1 + lost, 3000);
}

TEST(bytes_as_hexadecimal_text)
{
    char text[9] = "xxxxxxxx";
    hex_text("\x00\x9f\xa0\xff", 4, text);
    assert_string_equal(text, "009fa0ff");
    hex_text(NULL, 0, text);
    assert_string_equal(text, "");
}

TEST(hexadecimal_text_as_bytes)
{
    unsigned char bytes[4] = {0};
    assert_true(hex_bytes("009fa0ff", 4, bytes));
    assert_memory_equal(bytes, "\x00\x9f\xa0\xff", 4);
    assert_true(hex_bytes("", 0, NULL));
    static const char *const wrong[] = {"009fa0fF", "009fa0f", "0g", "g0", "/0", "0:", "`0", ""};
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_false(hex_bytes(wrong[i], 4, bytes));
}

TEST_MAIN()
