/* test_template.h - renders templates in tests. */
#ifndef PLATEAU_TESTS_TEST_TEMPLATE_H
#define PLATEAU_TESTS_TEST_TEMPLATE_H

#include "test.h"

#include "text/chat_template.h"

#include <string.h>

/* Noon of 20 November 2026. */
#define TEST_NOW_S 1795176000

struct test_rendering {
    int result;
    char text[1 << 16]; /* of the prompt, or of the error; longer ones are cut */
};

static inline struct arena *test_arena(size_t bytes)
{
    struct arena *a = NULL;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = bytes}, &a), 0);
    return a;
}

static inline void test_copy_text(struct slice s, char *ret, size_t size)
{
    size_t len = s.len < size ? s.len : size - 1;
    if (len)
        memcpy(ret, s.ptr, len);
    ret[len] = 0;
}

/* Compiles and renders. The scratch arena must come back as it was, and a failed rendering must append nothing. */
static inline void test_render(struct slice source, const struct chat_template_input *in,
                               const struct chat_template_limits *limits, struct test_rendering *ret)
{
    struct arena *a = test_arena((size_t)64 << 20), *scratch = test_arena((size_t)256 << 20);
    struct chat_template *t = NULL;
    struct err e = {.text = ""};
    struct buf out;
    buf_init(&out, (size_t)64 << 20, NULL);
    buf_puts(&out, "kept");
    ret->result = chat_template_compile(a, source, &t, &e);
    if (ret->result == 0) {
        size_t mark = arena_mark(scratch);
        ret->result = chat_template_render(t, scratch, in, limits, &out, &e);
        assert_true(arena_mark(scratch) == mark);
    }
    assert_true(ret->result == 0 || (e.text[0] && out.len == 4));
    assert_int_equal(out.error, 0);
    test_copy_text(ret->result ? slice_of(e.text) : slice_sub(buf_slice(&out), 4, out.len), ret->text,
                   sizeof(ret->text));
    buf_done(&out);
    arena_free(a);
    arena_free(scratch);
}

#endif
