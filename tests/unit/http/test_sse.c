/* Server-sent events: whatever the data holds, a reader of the format gets it back. */
#include "test_rng.h"
#include "test.h"

#include "http/sse.h"

#include <errno.h>

static void expect(struct buf *b, const char *text)
{
    assert_int_equal(b->error, 0);
    assert_int_equal(b->len, strlen(text));
    assert_memory_equal(b->ptr, text, b->len);
    buf_clear(b);
}

TEST(fields_end_with_an_empty_line)
{
    struct buf b;
    buf_init(&b, 4096, NULL);
    sse_data(&b, SLICE("{\"a\":1}"));
    expect(&b, "data: {\"a\":1}\n\n");
    sse_data(&b, SLICE(""));
    expect(&b, "data: \n\n");
    sse_comment(&b, "keep-alive");
    expect(&b, ": keep-alive\n\n");
    buf_done(&b);
}

TEST(every_line_break_begins_a_data_line)
{
    struct buf b;
    buf_init(&b, 4096, NULL);
    sse_data(&b, SLICE("a\nb\r\nc\rd\n"));
    expect(&b, "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
    sse_data(&b, SLICE("\n\n"));
    expect(&b, "data: \ndata: \ndata: \n\n");
    buf_done(&b);
}

TEST(a_full_buffer_is_remembered)
{
    struct buf b;
    buf_init(&b, 8, NULL);
    sse_data(&b, SLICE("0123456789"));
    assert_int_equal(b.error, -E2BIG);
    buf_done(&b);
}

/* Parses one event like a reader of the format: its data lines, joined by line feeds. */
static void parse_event(const struct buf *b, struct buf *ret)
{
    size_t at = 0;
    bool first = true;
    assert_true(b->len >= 2 && memcmp(b->ptr + b->len - 2, "\n\n", 2) == 0);
    while (at < b->len - 1) {
        size_t end = slice_find(buf_slice(b), SLICE("\n"), at);
        struct slice line = slice_sub(buf_slice(b), at, end - at);
        assert_true(slice_starts(line, SLICE("data: ")));
        if (!first)
            buf_putc(ret, '\n');
        first = false;
        buf_put_slice(ret, slice_sub(line, 6, line.len));
        at = end + 1;
    }
}

PROPERTY(data_survives_with_its_line_breaks_as_line_feeds, seed)
{
    struct rng rng = {seed, 0};
    char text[64], wanted[64];
    size_t len = rng_below(&rng, sizeof(text)), wanted_len = 0;
    for (size_t i = 0; i < len; i++)
        text[i] = "ab\n\r:\xc3"[rng_below(&rng, 6)];
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\n' && i > 0 && text[i - 1] == '\r')
            continue;
        wanted[wanted_len++] = text[i] == '\r' ? '\n' : text[i];
    }
    struct buf event, back;
    buf_init(&event, 4096, NULL);
    buf_init(&back, 4096, NULL);
    sse_data(&event, (struct slice){text, len});
    parse_event(&event, &back);
    assert_int_equal(back.len, wanted_len);
    if (wanted_len)
        assert_memory_equal(back.ptr, wanted, wanted_len);
    buf_done(&event);
    buf_done(&back);
}

TEST_MAIN()
