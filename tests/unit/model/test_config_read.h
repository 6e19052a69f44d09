/* test_config_read.h - texts of config.json that are read, or refused with words. */
#ifndef PLATEAU_TESTS_CONFIG_READ_H
#define PLATEAU_TESTS_CONFIG_READ_H

#include "test_files.h"

#include "model/config/config.h"

/* Empty; the same one each time. */
static inline struct arena *config_arena(void)
{
    static struct arena *a;
    if (!a)
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 64 << 20}, &a), 0);
    arena_reset(a);
    return a;
}

/* Valid until the next text is read. */
static inline struct config reads(const char *text)
{
    struct config c;
    struct err e = {{0}};
    int r = config_parse(config_arena(), slice_of(text), &c, &e);
    if (r < 0)
        print_message("%s\n%s\n", text, e.text);
    assert_int_equal(r, 0);
    return c;
}

/* With `code`, and words among which `says` is. */
static inline void refuses(const char *text, int code, const char *says)
{
    struct config c;
    struct err e = {{0}};
    int r = config_parse(config_arena(), slice_of(text), &c, &e);
    if (r != code || !strstr(e.text, says))
        print_message("%s\ngave %d: %s\n", text, r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, says));
}

#endif
