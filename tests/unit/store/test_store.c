/* The SSD tier on a real directory: written entries are read, also by the next process; damage is a miss; the
 * limit holds. */
#include "test_rng.h"
#include "test_store.h"

#include "store/store_audit.h"

#include <fcntl.h>
#include <utime.h>

#define LIMIT ((uint64_t)64 << 20)

/* One of ten entries is a snapshot, three are pages of two windows. */
static enum tier_kind kind_of(uint32_t i)
{
    static const enum tier_kind kinds[10] = {
        [2] = TIER_WINDOW, [4] = TIER_WINDOW + 2, [5] = TIER_WINDOW, [9] = TIER_SNAPSHOT};
    return kinds[i % 10];
}

static uint64_t read_ns(struct scene *s, uint32_t pages, uint32_t snapshots, uint32_t windows)
{
    uint32_t most = 64, first[TIER_KINDS] = {most - pages, most - snapshots, most - windows, most, most};
    return s->io.read_ns(s->io.arg, NULL, most, first);
}

TEST(what_is_written_is_read_also_after_a_restart)
{
    struct scene s;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, LIMIT);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(put_surely(&s, i, kind_of(i)), 0);
    wait_written(&s);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(get(&s, i, kind_of(i)), 0);
        assert_int_equal(get(&s, i, kind_of(i) == TIER_PAGE ? TIER_WINDOW : TIER_PAGE), -ENOENT);
    }
    assert_int_equal(put(&s, 3, TIER_PAGE), -EEXIST);
    struct store_numbers n = numbers(&s);
    assert_true(n.pages == 90 && n.snapshots == 10 && n.writes == 100 && n.reads == 100 && n.errors == 0);
    assert_int_equal(n.bytes, disk_usage(dir));
    scene_close(&s);
    scene_open(&s, dir, LIMIT);
    n = numbers(&s);
    assert_true(n.pages == 90 && n.snapshots == 10 && n.foreign == 0);
    assert_int_equal(n.bytes, disk_usage(dir));
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(get(&s, i, kind_of(i)), 0);
    scene_close(&s);
}

TEST(what_was_handed_in_is_written_at_the_close)
{
    struct scene s;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, LIMIT);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(put(&s, i, TIER_PAGE), 0);
    scene_close(&s);
    scene_open(&s, dir, LIMIT);
    assert_int_equal(numbers(&s).pages, 40);
    scene_close(&s);
}

TEST(another_models_page_of_the_same_name_is_a_miss)
{
    struct scene s;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, LIMIT);
    assert_int_equal(put(&s, 1, TIER_PAGE), 0);
    wait_written(&s);
    struct tier_io first = s.io;
    s.io = client_of(s.store, 2, &s);
    assert_int_equal(get(&s, 1, TIER_PAGE), -EBADMSG);
    assert_false(has(&s, 1, TIER_PAGE));
    assert_int_equal(numbers(&s).corrupt, 1);
    store_client_close(&s.io);
    s.io = first;
    assert_false(has(&s, 1, TIER_PAGE));
    scene_close(&s);
}

/* ---- damage ---- */

static void damage(const char *path, struct rng *rng)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    uint64_t at = rng_below(rng, (uint64_t)st.st_size);
    unsigned char byte;
    switch (rng_below(rng, 5)) {
    case 0: /* torn */
        assert_int_equal(ftruncate(fd, (off_t)at), 0);
        break;
    case 1: /* longer */
        assert_int_equal(ftruncate(fd, st.st_size + 1 + (off_t)at), 0);
        break;
    case 2: /* a block of zeros where there were none */
        assert_int_equal(pwrite(fd, (char[4096]){0}, 4096, (off_t)(at / 4096 * 4096)), 4096);
        byte = 0xa5;
        assert_int_equal(pwrite(fd, &byte, 1, st.st_size - 1), 1);
        break;
    default:
        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        byte = (unsigned char)(byte + 1 + rng_below(rng, 255));
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    }
    close(fd);
}

TEST(every_damaged_file_is_a_miss_and_goes)
{
    struct scene s;
    struct rng rng = {9, 0};
    const char *dir = test_dir();
    const char *wanted = getenv("STORE_DAMAGES");
    uint32_t count = wanted ? (uint32_t)atoi(wanted) : 100;
    char path[512];
    sys_reset();
    scene_open(&s, dir, 4 * LIMIT);
    for (uint32_t i = 0; i < 2 * count; i++)
        assert_int_equal(put_surely(&s, i, TIER_PAGE), 0);
    wait_written(&s);
    for (uint32_t i = 0; i < count; i++) {
        path_of(dir, i, TIER_PAGE, path, sizeof(path));
        damage(path, &rng);
    }
    for (uint32_t i = 0; i < count; i++) {
        assert_true(get(&s, i, TIER_PAGE) < 0);
        assert_false(has(&s, i, TIER_PAGE));
        path_of(dir, i, TIER_PAGE, path, sizeof(path));
        assert_true(access(path, F_OK) < 0);
    }
    for (uint32_t i = count; i < 2 * count; i++)
        assert_int_equal(get(&s, i, TIER_PAGE), 0);
    assert_int_equal(numbers(&s).corrupt, count);
    /* A missing entry may be written again. */
    assert_int_equal(put(&s, 0, TIER_PAGE), 0);
    wait_written(&s);
    assert_int_equal(get(&s, 0, TIER_PAGE), 0);
    assert_int_equal(numbers(&s).bytes, disk_usage(dir));
    scene_close(&s);
}

TEST(a_snapshot_that_counts_too_far_is_damaged)
{
    struct scene s, other = {0};
    const char *dir = test_dir();
    char path[512];
    sys_reset();
    scene_open(&s, dir, LIMIT);
    for (uint32_t low = 0; low < 2; low++) {
        struct store_client_opts c = {.identity = identity_of(1),
                                      .bytes = {PAGE_BYTES, STATE_BYTES},
                                      .wake = scene_wake,
                                      .arg = &other,
                                      .pending_max = pending_of(TIER_SNAPSHOT, 3) - low};
        other = (struct scene){.store = s.store};
        sem_init(&other.woken, 0, 0);
        assert_int_equal(store_client_open(s.store, &c, &other.io), 0);
        assert_int_equal(put_surely(&s, 3, TIER_SNAPSHOT), low ? -EEXIST : 0);
        assert_int_equal(put_surely(&s, 3, TIER_PAGE), low ? -EEXIST : 0);
        wait_written(&s);
        assert_int_equal(get(&other, 3, TIER_SNAPSHOT), low ? -EBADMSG : 0);
        assert_int_equal(get(&other, 3, TIER_PAGE), 0);
        assert_int_equal(numbers(&s).corrupt, low);
        store_client_close(&other.io);
        sem_destroy(&other.woken);
    }
    assert_false(has(&s, 3, TIER_SNAPSHOT));
    path_of(dir, 3, TIER_SNAPSHOT, path, sizeof(path));
    assert_true(access(path, F_OK) < 0);
    scene_close(&s);
}

TEST(a_file_of_another_version_is_removed)
{
    struct scene s;
    const char *dir = test_dir();
    char path[512];
    const uint32_t version = 1;
    sys_reset();
    scene_open(&s, dir, LIMIT);
    assert_int_equal(put_surely(&s, 3, TIER_SNAPSHOT), 0);
    wait_written(&s);
    path_of(dir, 3, TIER_SNAPSHOT, path, sizeof(path));
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, &version, sizeof(version), 8) == sizeof(version));
    assert_int_equal(close(fd), 0);
    assert_int_equal(get(&s, 3, TIER_SNAPSHOT), -ENOTSUP);
    assert_true(access(path, F_OK) < 0);
    assert_int_equal(numbers(&s).corrupt, 1);
    scene_close(&s);
}

TEST(files_that_vanish_and_the_whole_directory_are_misses)
{
    struct scene s;
    const char *dir = test_dir();
    char path[512];
    sys_reset();
    scene_open(&s, dir, LIMIT);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(put_surely(&s, i, TIER_PAGE), 0);
    wait_written(&s);
    path_of(dir, 0, TIER_PAGE, path, sizeof(path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(get(&s, 0, TIER_PAGE), -ENOENT);
    test_remove_tree(dir);
    for (uint32_t i = 1; i < 20; i++)
        assert_int_equal(get(&s, i, TIER_PAGE), -ENOENT);
    assert_int_equal(put(&s, 50, TIER_PAGE), 0);
    wait_written(&s);
    assert_false(has(&s, 50, TIER_PAGE));
    assert_true(numbers(&s).errors > 0);
    scene_close(&s);
    mkdir(dir, 0700);
}

/* ---- files of others ---- */

TEST(foreign_names_are_left_alone_and_unfinished_files_go)
{
    struct scene s;
    const char *dir = test_dir();
    char path[600], strange[700];
    sys_reset();
    scene_open(&s, dir, LIMIT);
    assert_int_equal(put(&s, 1, TIER_PAGE), 0);
    scene_close(&s);
    test_write_text(dir, "notes.txt", "mine");
    test_write_text(dir, "tmp/w77", "half a page");
    path_of(dir, 1, TIER_PAGE, path, sizeof(path));
    /* A page in the directory of another. */
    snprintf(strange, sizeof(strange), "%.*s/notes", (int)(strrchr(path, '/') - path), path);
    FILE *f = fopen(strange, "wbe");
    assert_non_null(f);
    fclose(f);
    scene_open(&s, dir, LIMIT);
    assert_int_equal(numbers(&s).foreign, 2);
    assert_int_equal(get(&s, 1, TIER_PAGE), 0);
    assert_true(access(strange, F_OK) == 0);
    snprintf(path, sizeof(path), "%s/tmp/w77", dir);
    assert_true(access(path, F_OK) < 0);
    scene_close(&s);
}

TEST(a_directory_has_one_process_at_a_time)
{
    struct scene s, other;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, LIMIT);
    struct store_opts o = opts_of(dir, LIMIT);
    scene_open_with(&other, &o);
    struct store_numbers n = wait_listed(&other);
    assert_int_equal(n.state, STORE_OFF);
    assert_non_null(strstr(n.reason, "another process"));
    assert_int_equal(put(&other, 1, TIER_PAGE), -ENODEV);
    scene_close(&other);
    assert_int_equal(put(&s, 1, TIER_PAGE), 0);
    scene_close(&s);
}

/* A server that starts while the one before it still ends has the directory afterwards. */
TEST(a_directory_that_becomes_free_is_used)
{
    struct scene s, other;
    const char *dir = test_dir();
    struct store_opts o = opts_of(dir, LIMIT);
    sys_reset();
    scene_open(&s, dir, LIMIT);
    put_surely(&s, 1, TIER_PAGE);
    wait_written(&s);
    o.open_again_ns = NS_PER_MS;
    scene_open_with(&other, &o);
    assert_int_equal(wait_listed(&other).state, STORE_OFF);
    scene_close(&s);
    while (numbers(&other).state != STORE_ON)
        usleep(1000);
    assert_string_equal(numbers(&other).reason, "");
    assert_int_equal(get(&other, 1, TIER_PAGE), 0);
    put_surely(&other, 2, TIER_PAGE);
    wait_written(&other);
    scene_close(&other);
}

TEST(an_emptied_directory_still_has_one_process)
{
    struct scene s, other;
    char path[512];
    const char *dir = test_dir();
    struct store_opts o = opts_of(dir, LIMIT);
    sys_reset();
    scene_open(&s, dir, LIMIT);
    snprintf(path, sizeof(path), "%s/lock", dir);
    assert_int_equal(unlink(path), 0);
    scene_open_with(&other, &o);
    assert_int_equal(wait_listed(&other).state, STORE_OFF);
    struct store_gc gc;
    assert_int_equal(store_collect(dir, LIMIT, &gc, NULL), -EBUSY);
    scene_close(&other);
    scene_close(&s);
}

/* Its disk is mounted later. */
TEST(a_directory_that_comes_later_is_used)
{
    struct scene s;
    char parent[512], path[600];
    snprintf(parent, sizeof(parent), "%s/disk", test_dir());
    snprintf(path, sizeof(path), "%s/cache", parent);
    struct store_opts o = opts_of(path, LIMIT);
    o.open_again_ns = NS_PER_MS;
    sys_reset();
    scene_open_with(&s, &o);
    assert_int_equal(wait_listed(&s).state, STORE_OFF);
    assert_int_equal(mkdir(parent, 0700), 0);
    while (numbers(&s).state != STORE_ON)
        usleep(1000);
    put_surely(&s, 1, TIER_PAGE);
    wait_written(&s);
    scene_close(&s);
}

TEST(a_directory_that_cannot_be_made_leaves_the_tier_off)
{
    struct scene s;
    struct store_opts o = opts_of("/proc/no/such/place", LIMIT);
    sys_reset();
    scene_open_with(&s, &o);
    assert_int_equal(wait_listed(&s).state, STORE_OFF);
    assert_false(has(&s, 1, TIER_PAGE));
    assert_int_equal(get(&s, 1, TIER_PAGE), -ENODEV);
    assert_int_equal(read_ns(&s, 1, 0, 0), UINT64_MAX);
    struct store_cleared c;
    assert_int_equal(store_clear(s.store, &c), -ENODEV);
    scene_close(&s);
}

/* ---- the limit ---- */

static void use(struct scene *s, uint32_t share, uint32_t number)
{
    struct prefix_key key = key_of(number);
    s->io.used(s->io.arg, share, &key, 1, (uint32_t[TIER_KINDS]){0});
}

TEST(the_limit_holds_before_each_write_and_the_oldest_go)
{
    struct scene s;
    const char *dir = test_dir();
    uint64_t limit = STORE_LIMIT_LEAST, most = 0;
    sys_reset();
    scene_open(&s, dir, limit);
    for (uint32_t i = 0; i < 300; i++) {
        assert_int_equal(put_surely(&s, i, TIER_PAGE), 0);
        if (i >= 100)
            use(&s, 0, 50); /* this one is in use */
        assert_true(numbers(&s).bytes <= limit);
        if (i % 8 != 0)
            continue;
        /* A walk beside writes and evictions would count some that went and some that came after them. */
        wait_written(&s);
        uint64_t used = disk_usage(dir);
        most = MAX_OF(most, used);
        assert_true(used <= limit);
    }
    wait_written(&s);
    struct store_numbers n = numbers(&s);
    assert_true(n.evictions > 50 && most > limit / 2 && n.bytes <= limit);
    assert_int_equal(n.bytes, disk_usage(dir));
    assert_true(has(&s, 50, TIER_PAGE) && has(&s, 299, TIER_PAGE) && !has(&s, 0, TIER_PAGE));
    scene_close(&s);
    /* And at a start with another limit. */
    struct store_opts o = opts_of(dir, limit + (limit >> 1));
    scene_open_with(&s, &o);
    assert_int_equal(wait_listed(&s).pages, n.pages);
    scene_close(&s);
}

static uint32_t count_there(struct scene *s, uint32_t from, uint32_t to)
{
    uint32_t count = 0;
    for (uint32_t i = from; i < to; i++)
        count += has(s, i, TIER_PAGE);
    return count;
}

static void flood(struct scene *s, uint32_t share, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        assert_int_equal(put_surely_of(s, share, i, TIER_PAGE), 0);
    wait_written(s);
}

TEST(a_tenant_that_floods_the_tier_evicts_its_own_files)
{
    struct scene s;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, STORE_LIMIT_LEAST);
    flood(&s, 1, 0, 20);
    flood(&s, 2, 1000, 1300);
    assert_int_equal(count_there(&s, 0, 20), 20);
    assert_true(numbers(&s).evictions > 100);
    scene_close(&s);
}

/* Files of the process before are one share, until their tenants use them. */
TEST(a_tenant_that_comes_back_after_a_restart_keeps_its_files)
{
    struct scene s;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, STORE_LIMIT_LEAST);
    flood(&s, 1, 0, 20);
    flood(&s, 3, 20, 60);
    scene_close(&s);
    scene_open(&s, dir, STORE_LIMIT_LEAST);
    assert_int_equal(count_there(&s, 0, 60), 60);
    for (uint32_t i = 0; i < 10; i++)
        use(&s, 1, i);
    for (uint32_t i = 10; i < 20; i++)
        assert_int_equal(put_of(&s, 1, i, TIER_PAGE), -EEXIST);
    flood(&s, 2, 1000, 1300);
    assert_int_equal(count_there(&s, 0, 20), 20);
    uint32_t others = count_there(&s, 20, 60), floods = count_there(&s, 1000, 1300);
    assert_true(others == 40 || others + 1 >= floods);
    scene_close(&s);
}

TEST(of_a_prefix_that_is_used_the_end_goes_first)
{
    struct scene s;
    struct prefix_key keys[30];
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, STORE_LIMIT_LEAST);
    for (uint32_t i = 0; i < 30; i++) {
        keys[i] = key_of(i);
        assert_int_equal(put_surely(&s, i, TIER_PAGE), 0);
    }
    wait_written(&s);
    /* Read in order, so on disk too the last one is the oldest: files have the second of their reading less
     * their place in it. All are read in one second. */
    for (int64_t began_s = 0; began_s != (int64_t)clock_wall_s();) {
        began_s = (int64_t)clock_wall_s();
        for (uint32_t i = 0; i < 30; i++)
            assert_int_equal(get(&s, i, TIER_PAGE), 0);
    }
    s.io.used(s.io.arg, 0, keys, 30, (uint32_t[TIER_KINDS]){0});
    uint32_t there = 30;
    for (uint32_t again = 0; again < 2; again++) {
        uint32_t before = there;
        for (uint32_t i = 0; has(&s, before - 1, TIER_PAGE); i++) {
            assert_true(i < 300);
            assert_int_equal(put_surely(&s, 1000 * (again + 1) + i, TIER_PAGE), 0);
            wait_written(&s);
        }
        for (there = 0; there < before && has(&s, there, TIER_PAGE);)
            there++;
        assert_true(there + 5 > before && there < before);
        for (uint32_t i = there; i < 30; i++)
            assert_false(has(&s, i, TIER_PAGE));
        scene_close(&s);
        scene_open(&s, dir, STORE_LIMIT_LEAST);
        assert_true(has(&s, 0, TIER_PAGE));
    }
    scene_close(&s);
}

static void *go_on_later(void *arg)
{
    usleep(200000);
    atomic_store(&sys_state.hangs, 0);
    return arg;
}

TEST(clearing_removes_all_and_says_how_much)
{
    struct scene s;
    struct store_cleared c;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, LIMIT);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(put_surely(&s, i, TIER_PAGE), 0);
    wait_written(&s);
    uint64_t before = disk_usage(dir);
    assert_int_equal(store_clear(s.store, &c), 0);
    assert_int_equal(c.entries, 50);
    assert_int_equal(c.bytes_reclaimed, before - disk_usage(dir));
    assert_int_equal(c.failed, 0);
    assert_int_equal(numbers(&s).pages, 0);
    assert_false(has(&s, 1, TIER_PAGE));
    assert_int_equal(put(&s, 1, TIER_PAGE), 0);
    scene_close(&s);
}

/* The writer hangs in one write while others wait, which the clear drops. */
TEST(clearing_drops_queued_writes)
{
    struct scene s;
    struct store_cleared c;
    sys_reset();
    scene_open(&s, test_dir(), LIMIT);
    atomic_store(&sys_state.hangs, CALL_PWRITE + 1u);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(put(&s, i, TIER_PAGE), 0);
    while (atomic_load(&sys_state.hanging) == 0)
        usleep(200);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, go_on_later, NULL), 0);
    assert_int_equal(store_clear(s.store, &c), 0);
    pthread_join(thread, NULL);
    wait_written(&s);
    struct store_numbers n = numbers(&s);
    assert_true(n.pages == 0 && n.drops == 19 && c.entries == 1);
    scene_close(&s);
}

TEST(the_time_of_a_read_is_that_of_its_files_and_bytes)
{
    struct scene s;
    sys_reset();
    scene_open(&s, test_dir(), LIMIT);
    uint64_t page = read_ns(&s, 1, 0, 0), snapshot = read_ns(&s, 0, 1, 0), window = read_ns(&s, 0, 0, 1);
    assert_true(page > 0 && snapshot > 0 && window > 0 && page < UINT64_MAX && snapshot < UINT64_MAX);
    assert_true((page < snapshot) == (PAGE_BYTES < STATE_BYTES) && window < page);
    /* Each term may lose a fraction. */
    assert_true(llabs((long long)(read_ns(&s, 64, 0, 0) - 64 * page)) <= 64);
    assert_true(llabs((long long)(read_ns(&s, 0, 64, 0) - 64 * snapshot)) <= 64);
    assert_true(llabs((long long)(read_ns(&s, 3, 1, 2) - 3 * page - snapshot - 2 * window)) <= 6);
    scene_close(&s);
}

/* ---- clients ---- */

TEST(a_client_closes_at_once_whatever_is_under_way)
{
    struct scene s;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, LIMIT);
    for (uint32_t i = 0; i < 30; i++)
        assert_int_equal(put_surely(&s, i, TIER_PAGE), 0);
    wait_written(&s);
    for (int round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 30; i++) {
            struct prefix_key key = key_of(i);
            assert_int_equal(s.io.read(s.io.arg, &key, TIER_PAGE, i / 10, i), 0);
        }
        s.io.cancel(s.io.arg, 1);
        struct tier_arrival a;
        while (s.io.take(s.io.arg, &a)) {
            assert_true(a.tag != 1);
            s.io.give(s.io.arg, &a);
        }
        assert_int_equal(put(&s, 1000 + (uint32_t)round, TIER_PAGE), 0);
        store_client_close(&s.io);
        s.io = client_of(s.store, 1, &s);
    }
    wait_written(&s);
    assert_int_equal(numbers(&s).pages, 50);
    assert_int_equal(numbers(&s).staging_used_bytes, 0);
    scene_close(&s);
}

TEST(a_full_staging_drops_and_counts)
{
    struct scene s;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, LIMIT);
    uint32_t taken = 0, refused = 0;
    uint64_t began_ns = clock_now_ns();
    atomic_store(&sys_state.hangs, CALL_PWRITE + 1); /* the disk is slow */
    /* Less time than after which a call counts as hanging. */
    for (uint32_t i = 0; refused <= 10 && clock_now_ns() - began_ns < 5 * NS_PER_S; i++) {
        int r = put(&s, i, TIER_PAGE);
        taken += r == 0;
        refused += r == -EAGAIN;
    }
    atomic_store(&sys_state.hangs, 0);
    assert_true(taken > 30 && refused > 10);
    assert_true(numbers(&s).drops >= refused);
    wait_written(&s);
    assert_int_equal(numbers(&s).state, STORE_ON);
    scene_close(&s);
}

TEST(what_is_larger_than_the_staging_is_never_taken)
{
    struct scene s;
    struct tier_write w;
    struct prefix_key key = key_of(1);
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, LIMIT);
    store_client_close(&s.io);
    struct store_client_opts c = {
        .identity = identity_of(1), .bytes = {3 << 20}, .wake = scene_wake, .arg = &s};
    assert_int_equal(store_client_open(s.store, &c, &s.io), 0);
    const struct tier_offer offer = {&key, TIER_PAGE, 0, TIER_EVICTED};
    assert_int_equal(s.io.write_begin(s.io.arg, &offer, &w), -EFBIG);
    assert_int_equal(numbers(&s).drops, 1);
    scene_close(&s);
}

/* The table has an entry for each 64 KiB of the limit, 4096 at least. */
TEST(files_beyond_the_table_go_and_are_counted_as_evicted)
{
    struct scene s;
    const char *dir = test_dir();
    char path[600];
    uint32_t files = 4120;
    sys_reset();
    scene_open(&s, dir, STORE_LIMIT_LEAST);
    assert_int_equal(numbers(&s).entries_max, 4096);
    scene_close(&s);
    for (uint32_t i = 0; i < files; i++) {
        path_of(dir, i, TIER_PAGE, path, sizeof(path));
        char *slash = strrchr(path, '/');
        *slash = 0;
        char *above = strrchr(path, '/');
        *above = 0;
        mkdir(path, 0700);
        *above = '/';
        mkdir(path, 0700);
        *slash = '/';
        FILE *f = fopen(path, "wbe");
        assert_non_null(f);
        fclose(f);
    }
    scene_open(&s, dir, STORE_LIMIT_LEAST);
    struct store_numbers n = numbers(&s);
    assert_true(n.pages > 0 && n.pages <= n.entries_max);
    assert_int_equal(n.pages + n.evictions, files);
    scene_close(&s);
}

TEST_MAIN()
