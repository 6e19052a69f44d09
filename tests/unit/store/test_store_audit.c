/* The audit of a directory, also while files disappear. */
#include "test_store.h"

#include "store/store_audit.h"

/* ---- a file disappears between stat and open ---- */

static const char *gone; /* the end of its path; NULL: none */

int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
    size_t len = strlen(path), end = gone ? strlen(gone) : 0;
    if (gone && len >= end && strcmp(path + len - end, gone) == 0) {
        errno = ENOENT;
        return -1;
    }
    return __real_openat(dir, path, flags, 0600);
}

/* Two files share a folder. One disappears: the audit counts the other, and no damaged file. */
TEST(a_file_that_disappears_hides_no_other)
{
    static const enum tier_kind kinds[] = {TIER_PAGE, TIER_SNAPSHOT};
    const char *dir = test_dir();
    struct scene s;
    scene_open(&s, dir, (uint64_t)64 << 20);
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        assert_int_equal(put_surely(&s, 1, kinds[i]), 0);
    wait_written(&s);
    scene_close(&s);
    struct store_audit sum;
    struct err e = {""};
    assert_int_equal(store_audit(dir, true, NULL, NULL, &sum, &e), 0);
    assert_int_equal(sum.count[STORE_FOUND_ENTRY], 2);
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct prefix_key key = key_of(1);
        char path[STORE_PATH_BYTES];
        store_file_path(&key, kinds[i], path);
        gone = path;
        int r = store_audit(dir, true, NULL, NULL, &sum, &e);
        gone = NULL;
        assert_int_equal(r, 0);
        assert_int_equal(sum.count[STORE_FOUND_ENTRY], 1);
        assert_int_equal(sum.count[STORE_FOUND_DAMAGED], 0);
    }
}

TEST(collecting_says_what_is_left)
{
    const char *dir = test_dir();
    struct scene s;
    scene_open(&s, dir, (uint64_t)64 << 20);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(put_surely(&s, i, TIER_PAGE), 0);
    wait_written(&s);
    scene_close(&s);
    struct store_audit sum;
    struct store_gc gc;
    struct err e = {""};
    assert_int_equal(store_audit(dir, false, NULL, NULL, &sum, &e), 0);
    uint64_t before = sum.bytes;
    assert_int_equal(store_collect(dir, before - 1, &gc, &e), 0);
    assert_int_equal(store_audit(dir, false, NULL, NULL, &sum, &e), 0);
    assert_int_equal(gc.removed_oldest, 1);
    assert_int_equal(sum.count[STORE_FOUND_ENTRY], 19);
    assert_int_equal(gc.bytes_before, before);
    assert_int_equal(gc.bytes_now, sum.bytes);
    assert_true(sum.bytes < before && gc.failed == 0);
}

TEST_MAIN()
