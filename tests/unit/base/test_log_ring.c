/* The last log lines: they come back whole and in order, old ones leave, long ones are cut between
 * characters, and writers and readers never mix lines. */
#include "base/log_ring.h"
#include "base/check.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

static void put(const char *text)
{
    log_ring_put(2, text, strlen(text));
}

TEST(nothing_is_kept_before_the_start)
{
    struct log_ring_line line;
    uint64_t last = log_ring_last();
    log_ring_stop();
    put("lost");
    assert_int_equal(log_ring_last(), last);
    assert_false(log_ring_next(last, &line));
}

TEST(lines_come_back_in_order_and_old_ones_leave)
{
    struct log_ring_line line;
    log_ring_start();
    uint64_t first = log_ring_last();
    for (uint32_t i = 0; i < LOG_RING_LINES + 100; i++) {
        char text[64];
        snprintf(text, sizeof(text), "line %u of many", i);
        put(text);
    }
    uint64_t at = first;
    uint32_t count = 0, number = 0;
    while (log_ring_next(at, &line)) {
        assert_int_equal(sscanf(line.text, "line %u of many", &number), 1);
        assert_int_equal(number, 100 + count);
        assert_int_equal(line.level, 2);
        at = line.number;
        count++;
    }
    assert_int_equal(count, LOG_RING_LINES);
    assert_int_equal(at, log_ring_last());
    log_ring_stop();
}

TEST(a_long_line_is_cut_between_characters)
{
    struct log_ring_line line;
    char text[1024];
    for (size_t i = 0; i + 1 < sizeof(text); i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    log_ring_start();
    for (size_t shift = 0; shift < 3; shift++) {
        uint64_t last = log_ring_last();
        memset(text, 'a', shift);
        memcpy(text + shift, "\xc3\xa9", 2);
        for (size_t i = shift; i + 1 < sizeof(text); i += 2)
            memcpy(text + i, "\xc3\xa9", 2);
        log_ring_put(3, text, sizeof(text) - 2 + (shift & 1 ? 1 : 0));
        assert_true(log_ring_next(last, &line));
        assert_true(line.len >= LOG_RING_LINE_BYTES - 1 && line.len <= LOG_RING_LINE_BYTES);
        assert_int_equal((line.len - shift) % 2, 0);
        assert_memory_equal(line.text, text, line.len);
    }
    log_ring_stop();
}

/* ---- threads ---- */

static atomic_bool over;

static void *write_lines(void *arg)
{
    char text[400];
    char letter = *(const char *)arg;
    for (uint32_t i = 0; i < 20000; i++) {
        size_t len = 1 + i * 7 % sizeof(text);
        memset(text, letter, len);
        log_ring_put(letter % 5, text, len);
    }
    return NULL;
}

static void *read_lines(void *arg)
{
    struct log_ring_line line;
    uint64_t at = 0, *count = arg;
    while (!atomic_load(&over)) {
        while (log_ring_next(at, &line)) {
            assert_true(line.number > at && line.len > 0);
            for (size_t i = 0; i < line.len; i++)
                assert_int_equal(line.text[i], line.text[0]);
            assert_int_equal(line.level, line.text[0] % 5);
            at = line.number;
            ++*count;
        }
        at = at > 100 ? at - 100 : 0;
    }
    return NULL;
}

TEST(no_reader_sees_parts_of_two_lines)
{
    pthread_t writers[3], reader;
    char letters[] = "abc";
    uint64_t count = 0;
    log_ring_start();
    /* Lines of other tests are not of one letter. */
    for (uint32_t i = 0; i < LOG_RING_LINES; i++)
        log_ring_put('b' % 5, "bbb", 3);
    pthread_create(&reader, NULL, read_lines, &count);
    for (uint32_t i = 0; i < 3; i++)
        pthread_create(&writers[i], NULL, write_lines, &letters[i]);
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(writers[i], NULL);
    atomic_store(&over, true);
    pthread_join(reader, NULL);
    assert_true(count > 0);
    log_ring_stop();
}

TEST_MAIN()
