/* Keys: the format of their files, refusals that quote no key, and the owner of each. */
#include "test.h"
#include "test_files.h"
#include "api/access/keyring.h"
#include "base/check.h"

#include <errno.h>
#include <sys/stat.h>

static struct keyring *ring(const char *text, struct err *e, int expected)
{
    struct keyring *k = NULL;
    assert_int_equal(keyring_create(&k), 0);
    int r = keyring_parse(k, KEYRING_MODELS, slice_of(text), "/etc/plateau/keys", e);
    assert_int_equal(r, expected);
    return k;
}

static const struct key *find(const struct keyring *k, const char *given)
{
    struct keyring_found found = keyring_find(k, slice_of(given));
    return found.at[KEYRING_MODELS] ? found.at[KEYRING_MODELS] : found.at[KEYRING_ADMIN];
}

TEST(a_file_has_keys_with_and_without_names)
{
    struct err e = {{0}};
    struct keyring *k = ring("# who\n\n  sk-1:a=/+b  \nalice\tsk-2 # her laptop\r\nbob@x.y sk-3", &e, 0);
    assert_int_equal(keyring_count(k, KEYRING_MODELS), 3);
    assert_int_equal(keyring_count(k, KEYRING_ADMIN), 0);
    assert_string_equal(find(k, "sk-1:a=/+b")->name, "keys:3");
    assert_string_equal(find(k, "sk-2")->name, "alice");
    assert_string_equal(find(k, "sk-3")->name, "bob@x.y");
    const char *const wrong[] = {"", "sk-", "sk-22", "SK-2", "alice", "alice\tsk-2", "#"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_null(find(k, wrong[i]));
    keyring_free(k);
}

TEST(a_name_or_the_only_tenant_owns)
{
    struct err e = {{0}};
    struct keyring *k = ring("alice sk-1\nalice sk-2\nbob sk-3", &e, 0),
                   *one = ring("alice sk-1\nalice sk-2", &e, 0);
    assert_int_equal(keyring_owner(k, SLICE("alice")), find(k, "sk-2")->tenant);
    assert_int_equal(keyring_owner(k, SLICE("bob")), find(k, "sk-3")->tenant);
    assert_int_equal(keyring_owner(k, SLICE("carol")), 0);
    assert_int_equal(keyring_owner(k, SLICE("")), 0);
    assert_int_equal(keyring_owner(one, SLICE("")), find(one, "sk-1")->tenant);
    assert_int_equal(keyring_owner(NULL, SLICE("")), 0);
    keyring_free(k);
    keyring_free(one);
}

TEST(nothing_is_found_without_a_ring)
{
    assert_null(find(NULL, "x"));
    assert_int_equal(keyring_count(NULL, KEYRING_ADMIN), 0);
    keyring_free(NULL);
}

TEST(what_is_wrong_is_said_without_the_key)
{
    char of_1025[1027];
    memset(of_1025, 'k', sizeof(of_1025));
    of_1025[1025] = 0;
    const struct {
        const char *text, *words;
    } cases[] = {
        {"", "has no key"},
        {"# nothing\n\n", "has no key"},
        {"sk-ok\nalice sk-secret too\n", "line 2"},
        {"alice sk-secret sk-secret", "a line has"},
        {"alice sk-secret wait=2", "a line has"},
        {"alice sk-secret weight=0", "1 to 1000"},
        {"alice sk-secret weight=1001", "1 to 1000"},
        {"alice sk-secret weight=", "1 to 1000"},
        {"alice sk-secret weight=2 weight=2", "weight= stands twice"},
        {"sk-secret priority=1", "FIRST..LAST"},
        {"sk-secret priority=2..1", "FIRST..LAST"},
        {"sk-secret priority=-1001..0", "FIRST..LAST"},
        {"sk-secret priority=0..1001", "FIRST..LAST"},
        {"sk-secret priority=0..", "FIRST..LAST"},
        {"sk-secret priority=--1..2", "FIRST..LAST"},
        {"alice sk-secret\nalice sk-secret weight=2\n", "another weight"},
        {"-alice sk-secret\n", "name"},
        {"al\"ice sk-secret\n", "name"},
        {"sk-secr\x01t\n", "visible"},
        {"sk-secr\xc3\xa4t\n", "visible"},
        {of_1025, "1024"},
        {"alice sk-secret\nbob sk-secret\n", "alice already"},
        {"sk-secret\nbob sk-secret\n", "keys:1 already"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct err e = {{0}};
        struct keyring *k = ring(cases[i].text, &e, -EINVAL);
        assert_non_null(strstr(e.text, cases[i].words));
        assert_null(strstr(e.text, "secr"));
        keyring_free(k);
    }
}

TEST(a_name_is_the_owner_whatever_the_key)
{
    struct err e = {{0}};
    struct keyring *before = ring("alice one\nbob two\nthree\n", &e, 0);
    struct keyring *after = ring("three\nbob two\nalice new\nalice one\nalice one", &e, 0);
    assert_int_equal(keyring_count(after, KEYRING_MODELS), 4);
    assert_true(find(before, "one")->tenant == find(after, "new")->tenant);
    assert_true(find(before, "one")->tenant == find(after, "one")->tenant);
    assert_true(find(before, "three")->tenant == find(after, "three")->tenant);
    assert_true(find(before, "one")->tenant != find(before, "two")->tenant);
    assert_true(find(before, "three")->tenant != find(before, "two")->tenant);
    keyring_free(before);
    keyring_free(after);
}

TEST(one_key_may_open_both_doors)
{
    struct keyring *k = NULL;
    assert_int_equal(keyring_create(&k), 0);
    assert_int_equal(keyring_add(k, KEYRING_MODELS, NULL, SLICE("x"), "api-key-1", NULL), 0);
    assert_int_equal(keyring_add(k, KEYRING_ADMIN, "root", SLICE("x"), "-", NULL), 0);
    assert_int_equal(keyring_add(k, KEYRING_ADMIN, NULL, SLICE("y"), "admin-key-2", NULL), 0);
    struct keyring_found x = keyring_find(k, SLICE("x")), y = keyring_find(k, SLICE("y"));
    assert_string_equal(x.at[KEYRING_MODELS]->name, "api-key-1");
    assert_string_equal(x.at[KEYRING_ADMIN]->name, "root");
    assert_null(y.at[KEYRING_MODELS]);
    assert_string_equal(y.at[KEYRING_ADMIN]->name, "admin-key-2");
    keyring_free(k);
}

TEST(a_sealed_key_opens_the_door_and_is_no_key_itself)
{
    struct err e = {{0}};
    char sealed[KEYRING_SEALED_BYTES], again[KEYRING_SEALED_BYTES];
    struct keyring *plain = ring("sk-1", &e, 0), *k = NULL;
    assert_int_equal(keyring_create(&k), 0);
    assert_true(keyring_seal(SLICE("sk-1"), sealed) && keyring_seal(SLICE("sk-1"), again));
    assert_string_equal(sealed, again);
    assert_int_equal(strlen(sealed), KEYRING_SEALED_BYTES - 1);
    assert_null(strstr(sealed, "sk-1"));
    assert_int_equal(keyring_add(k, KEYRING_MODELS, NULL, slice_of(sealed), "api-key-1", &e), 0);
    assert_int_equal(find(k, "sk-1")->tenant, find(plain, "sk-1")->tenant);
    assert_string_equal(find(k, "sk-1")->name, "api-key-1");
    assert_null(find(k, sealed));
    assert_int_equal(keyring_add(k, KEYRING_MODELS, NULL, SLICE("sk-1"), "api-key-2", &e), 0);
    assert_int_equal(keyring_count(k, KEYRING_MODELS), 1);

    /* Only whole: a file's keys, named keys and damaged forms are keys with a byte that is not visible. */
    assert_int_equal(keyring_parse(k, KEYRING_MODELS, slice_of(sealed), "keys", &e), -EINVAL);
    assert_int_equal(keyring_add(k, KEYRING_MODELS, "alice", slice_of(sealed), "x", &e), -EINVAL);
    again[KEYRING_SEALED_BYTES - 2] = 'x';
    assert_int_equal(keyring_add(k, KEYRING_MODELS, NULL, slice_of(again), "x", &e), -EINVAL);
    assert_int_equal(keyring_add(k, KEYRING_MODELS, NULL, slice_of(sealed + 1), "x", &e), 0);
    sealed[40] = 0;
    assert_int_equal(keyring_add(k, KEYRING_MODELS, NULL, slice_of(sealed), "x", &e), -EINVAL);
    assert_false(keyring_seal(SLICE(""), sealed));
    assert_false(keyring_seal(SLICE("a key"), sealed));
    keyring_free(plain);
    keyring_free(k);
}

TEST(who_sends_a_key_finds_the_first_of_a_file)
{
    assert_true(slice_eq(keyring_first(SLICE("# x\n\nalice sk-1 weight=2 # y\nsk-2")), SLICE("sk-1")));
    assert_true(slice_eq(keyring_first(SLICE("sk-2 weight=2")), SLICE("sk-2")));
    assert_int_equal(keyring_first(SLICE(" # nothing\n")).len, 0);
    assert_int_equal(keyring_first((struct slice){0}).len, 0);
}

static void assert_fields(const struct key *k, uint32_t weight, int32_t first, int32_t last)
{
    assert_int_equal(k->weight, weight);
    assert_int_equal(k->priority_first, first);
    assert_int_equal(k->priority_last, last);
}

TEST(fields_follow_the_key)
{
    struct err e = {{0}};
    struct keyring *k = ring("sk-1\nsk-2 weight=7\nbob sk-3 priority=-5..10 weight=1000 # first\n"
                             "sk-4 priority=3..3\namy weight=2=",
                             &e, -EINVAL);
    assert_non_null(strstr(e.text, "line 5"));
    assert_fields(find(k, "sk-1"), 1, 0, 1000);
    assert_fields(find(k, "sk-2"), 7, 0, 1000);
    assert_fields(find(k, "sk-3"), 1000, -5, 10);
    assert_string_equal(find(k, "sk-3")->name, "bob");
    assert_fields(find(k, "sk-4"), 1, 3, 3);
    assert_int_equal(keyring_add(k, KEYRING_ADMIN, NULL, SLICE("root"), "admin-key-1", &e), 0);
    assert_fields(find(k, "root"), 1, -1000, 1000);
    keyring_free(k);
}

TEST(there_may_be_so_many)
{
    struct err e = {{0}};
    struct keyring *k = NULL;
    char key[16];
    assert_int_equal(keyring_create(&k), 0);
    for (int i = 0; i < KEYRING_KEYS_MAX; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        assert_int_equal(keyring_add(k, KEYRING_MODELS, NULL, slice_of(key), "s", &e), 0);
    }
    assert_int_equal(keyring_add(k, KEYRING_ADMIN, NULL, SLICE("more"), "s", &e), -ENOSPC);
    assert_non_null(find(k, "k0"));
    assert_non_null(find(k, "k1023"));
    keyring_free(k);
}

static int read_file(const char *path, enum keyring_exposure *exposure, struct err *e)
{
    struct keyring *k = NULL;
    assert_int_equal(keyring_create(&k), 0);
    int r = keyring_read(k, KEYRING_MODELS, path, exposure, e);
    keyring_free(k);
    return r;
}

TEST(who_else_may_read_a_file_is_seen)
{
    const struct {
        mode_t mode;
        enum keyring_exposure exposure;
    } cases[] = {{0600, KEYRING_PRIVATE},  {0640, KEYRING_PRIVATE},  {0644, KEYRING_READABLE},
                 {0620, KEYRING_WRITABLE}, {0602, KEYRING_WRITABLE}, {0666, KEYRING_WRITABLE}};
    struct err e = {{0}};
    const char *dir = test_dir();
    char path[512];
    snprintf(path, sizeof(path), "%s/keys", dir);
    test_write_text(dir, "keys", "alice sk-1\n");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        enum keyring_exposure exposure = KEYRING_PRIVATE;
        assert_int_equal(chmod(path, cases[i].mode), 0);
        assert_int_equal(read_file(path, &exposure, &e), 0);
        assert_int_equal(exposure, cases[i].exposure);
    }
}

TEST(only_files_are_read_and_nobody_is_waited_for)
{
    struct err e = {{0}};
    enum keyring_exposure exposure = KEYRING_PRIVATE;
    const char *dir = test_dir();
    char path[512];
    snprintf(path, sizeof(path), "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_file(path, &exposure, &e), -EINVAL);
    assert_int_equal(read_file(dir, &exposure, &e), -EINVAL);
    assert_int_equal(read_file("/dev/zero", &exposure, &e), -EINVAL);
    snprintf(path, sizeof(path), "%s/none", dir);
    assert_int_equal(read_file(path, &exposure, &e), -ENOENT);
}

TEST_MAIN()
