/* The shared tier: values, a directory that two servers use, and stores that fail, hang and lie. */
#include "test_rng.h"
#include "test_store.h"

#include "store/shared_address.h"
#include "store/shared_dir.h"
#include "store/shared_state.h"

#include <fcntl.h>
#include <sys/stat.h>

#define SECRET      "0123456789abcdef0123456789abcdef"
#define LARGE_BYTES (2 * SHARED_PIECE_BYTES + 4242)
#define LIMIT       ((uint64_t)64 << 20)

/* ---- values ---- */

static char file_bytes[SHARED_FILE_BYTES], value_bytes[SHARED_VALUE_BYTES];

static struct store_header entry_of(uint32_t number, uint64_t bytes)
{
    return (struct store_header){
        .kind = TIER_PAGE, .payload_bytes = bytes, .key = key_of(number), .identity = identity_of(3)};
}

static size_t seal(const struct shared_secret *s, struct store_header *h, uint32_t number)
{
    h->key = shared_value_name(s, h, 0);
    fill(file_bytes + STORE_BLOCK_BYTES, TIER_PAGE, number);
    return shared_value_seal(s, h, file_bytes, value_bytes);
}

TEST(a_value_comes_back_as_it_was)
{
    for (int given = 0; given < 2; given++) {
        struct shared_secret s;
        uint32_t pending = 9;
        shared_secret_init(&s, SECRET, given ? 32 : 0);
        struct store_header h = entry_of(4, PAGE_BYTES);
        size_t len = seal(&s, &h, 4);
        assert_int_equal(len, store_file_bytes(PAGE_BYTES) + (given ? 28 : 0));
        memset(file_bytes, 0, sizeof(file_bytes));
        assert_int_equal(shared_value_open(&s, &h, value_bytes, len, file_bytes, &pending), 0);
        assert_int_equal(pending, 0);
        assert_true(is_filled(file_bytes + STORE_BLOCK_BYTES, TIER_PAGE, 4));
    }
}

TEST(a_thousand_damaged_or_forged_values_are_refused)
{
    struct rng rng = {1, 0};
    struct shared_secret ours, theirs, none;
    shared_secret_init(&ours, SECRET, 32);
    shared_secret_init(&theirs, SECRET, 31);
    shared_secret_init(&none, NULL, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t pending = 0, how = i % 5;
        const struct shared_secret *with = i % 2 ? &ours : &none;
        struct store_header h = entry_of(i, PAGE_BYTES), wants;
        size_t len = seal(how == 0 ? &theirs : with, &h, i);
        wants = h;
        if (how == 0) /* made without our secret, under our name */
            with = &ours;
        else if (how == 1) /* another entry's value */
            wants.key.bytes[rng_below(&rng, 32)] ^= 1;
        else if (how == 2) /* another model's */
            wants.identity.fingerprint[5] ^= 1;
        else if (how == 3)
            len -= 1 + rng_below(&rng, 4000);
        else
            value_bytes[rng_below(&rng, (uint32_t)len)] ^= (char)(1 << rng_below(&rng, 8));
        assert_int_equal(shared_value_open(with, &wants, value_bytes, len, file_bytes, &pending), -EBADMSG);
    }
}

TEST(names_of_secrets_kinds_pieces_and_models_differ)
{
    struct shared_secret a, b;
    shared_secret_init(&a, SECRET, 32);
    shared_secret_init(&b, SECRET, 31);
    struct store_header h = entry_of(1, PAGE_BYTES), other = h;
    struct prefix_key names[5] = {shared_value_name(&a, &h, 0), shared_value_name(&a, &h, 1),
                                  shared_value_name(&b, &h, 0)};
    other.kind = TIER_SNAPSHOT;
    names[3] = shared_value_name(&a, &other, 0);
    other = h;
    other.identity = identity_of(4);
    names[4] = shared_value_name(&a, &other, 0);
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_false(prefix_key_eq(&names[i], &names[k]));
    assert_false(prefix_key_eq(&names[0], &h.key));
}

/* ---- a tier and its client ---- */

struct shared_scene {
    struct shared_tier *tier;
    struct tier_io io;
    sem_t woken;
    uint64_t tag;
};

static void shared_wake(void *arg)
{
    struct shared_scene *s = arg;
    sem_post(&s->woken);
}

static char secret_path[4200];

static struct shared_tier_opts shared_opts(const char *address)
{
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    return (struct shared_tier_opts){.address = address,
                                     .limit_bytes = LIMIT,
                                     .staging_bytes = 16 << 20,
                                     .memory = a,
                                     .threads = a,
                                     .slow_ns = 100 * NS_PER_MS,
                                     .close_ns = 3 * NS_PER_S};
}

static void shared_scene_open(struct shared_scene *s, const struct shared_tier_opts *o)
{
    struct err e = {{0}};
    struct store_client_opts c = {.identity = identity_of(3),
                                  .bytes = {[TIER_PAGE] = PAGE_BYTES, [TIER_SNAPSHOT] = LARGE_BYTES},
                                  .wake = shared_wake,
                                  .arg = s,
                                  .pending_max = PENDING_MAX};
    *s = (struct shared_scene){0};
    sem_init(&s->woken, 0, 0);
    assert_int_equal(shared_tier_open(o, &s->tier, &e), 0);
    assert_int_equal(shared_client_open(s->tier, &c, &s->io), 0);
}

static void shared_scene_close(struct shared_scene *s)
{
    shared_client_close(&s->io);
    shared_tier_close(s->tier);
    sem_destroy(&s->woken);
}

static struct shared_numbers shared_now(struct shared_scene *s)
{
    struct shared_numbers n;
    shared_tier_numbers(s->tier, &n);
    return n;
}

static void wait_on(struct shared_scene *s, bool on)
{
    while (shared_now(s).off == on)
        usleep(500);
}

static void wait_quiet(struct shared_scene *s)
{
    while (!shared_tier_is_quiet(s->tier))
        usleep(500);
}

static void fill_entry(char *to, enum tier_kind kind, uint32_t number)
{
    if (kind == TIER_PAGE)
        fill(to, kind, number);
    else
        for (uint32_t i = 0; i < LARGE_BYTES; i++)
            to[i] = (char)(i * 7 + number + i / 4099);
}

static bool is_entry(const char *bytes, enum tier_kind kind, uint32_t number)
{
    if (kind == TIER_PAGE)
        return is_filled(bytes, kind, number);
    for (uint32_t i = 0; i < LARGE_BYTES; i++)
        if (bytes[i] != (char)(i * 7 + number + i / 4099))
            return false;
    return true;
}

static int offer(struct shared_scene *s, uint32_t number, enum tier_kind kind)
{
    struct prefix_key key = key_of(number);
    struct tier_write w;
    int r = s->io.write_begin(s->io.arg, &(struct tier_offer){&key, kind, 0, TIER_EVICTED}, &w);
    if (r < 0)
        return r;
    fill_entry(w.bytes, kind, number);
    w.pending = kind == TIER_SNAPSHOT ? 2 : 0;
    s->io.write_end(s->io.arg, &w, true);
    return 0;
}

/* Looks for the keys 0 to count. Returns whether a look began. */
static bool query_at(struct shared_scene *s, uint32_t first, uint32_t count)
{
    struct prefix_key keys[64];
    struct tier_query l = {.keys = keys, .count = count, .tag = ++s->tag};
    for (uint32_t i = 0; i < count; i++)
        keys[i] = key_of(first + i);
    if (!s->io.query(s->io.arg, &l))
        return false;
    while (s->io.queries(s->io.arg, l.tag))
        usleep(200);
    return true;
}

static bool has_entry(struct shared_scene *s, uint32_t number, enum tier_kind kind)
{
    struct prefix_key key = key_of(number);
    return s->io.has(s->io.arg, &key, kind);
}

/* 0, and the bytes were right; or what the arrival said. */
static int fetch(struct shared_scene *s, uint32_t number, enum tier_kind kind)
{
    struct prefix_key key = key_of(number);
    struct tier_arrival a;
    int r = s->io.read(s->io.arg, &key, kind, ++s->tag, number);
    if (r < 0)
        return r;
    while (!s->io.take(s->io.arg, &a))
        usleep(200);
    assert_true(a.tag == s->tag && a.index == number && a.kind == kind);
    if (a.status == 0) {
        assert_true(is_entry(a.bytes, kind, number));
        assert_int_equal(a.pending, kind == TIER_SNAPSHOT ? 2 : 0);
    }
    s->io.give(s->io.arg, &a);
    return a.status;
}

/* ---- a directory ---- */

static const char *address_of(const char *dir)
{
    static char text[4300];
    snprintf(text, sizeof(text), "file://%s", dir);
    return text;
}

static const char *secret_file(const char *dir)
{
    snprintf(secret_path, sizeof(secret_path), "%s/secret", dir);
    FILE *f = fopen(secret_path, "w");
    assert_non_null(f);
    fputs(SECRET "\n", f);
    fclose(f);
    assert_int_equal(chmod(secret_path, 0600), 0);
    return secret_path;
}

static void two_servers_share(bool encrypted)
{
    struct shared_scene a, b;
    const char *dir = test_dir();
    struct shared_tier_opts o = shared_opts(address_of(dir));
    o.secret_file = encrypted ? secret_file(dir) : NULL;
    shared_scene_open(&a, &o);
    shared_scene_open(&b, &o);
    wait_on(&a, true);
    wait_on(&b, true);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(offer(&a, i, TIER_PAGE), 0);
    assert_int_equal(offer(&a, 33, TIER_SNAPSHOT), 0);
    assert_int_equal(offer(&a, 33, TIER_SNAPSHOT), -EEXIST);
    wait_quiet(&a);
    assert_int_equal(shared_now(&a).writes, 41);
    assert_false(has_entry(&b, 0, TIER_PAGE));
    assert_true(query_at(&b, 0, 50));
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(has_entry(&b, i, TIER_PAGE), i < 40);
        if (i < 40)
            assert_int_equal(fetch(&b, i, TIER_PAGE), 0);
        assert_int_equal(has_entry(&b, i, TIER_SNAPSHOT), i == 33);
    }
    assert_int_equal(fetch(&b, 33, TIER_SNAPSHOT), 0);
    /* A server does not write again what another one wrote. */
    uint64_t written = shared_now(&b).writes;
    assert_int_equal(offer(&b, 3, TIER_PAGE), -EEXIST);
    assert_int_equal(shared_now(&b).writes, written);
    shared_scene_close(&a);
    shared_scene_close(&b);
}

TEST(two_servers_share_a_directory)
{
    two_servers_share(false);
}

TEST(two_servers_share_encrypted_values)
{
    two_servers_share(true);
}

static void path_at(const char *dir, uint32_t number, enum tier_kind kind, uint32_t piece, char *ret)
{
    struct shared_secret none;
    struct store_header h = entry_of(number, PAGE_BYTES);
    char below[STORE_PATH_BYTES];
    shared_secret_init(&none, NULL, 0);
    h.kind = kind;
    struct prefix_key name = shared_value_name(&none, &h, piece);
    store_file_path(&name, TIER_PAGE, below);
    sprintf(ret, "%s/%s", dir, below);
}

static void damage(const char *path, off_t at)
{
    char byte = 0;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte = (char)(byte ^ 4);
    assert_true(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

TEST(damaged_and_missing_values_are_misses)
{
    struct shared_scene s;
    char path[4300];
    const char *dir = test_dir();
    struct shared_tier_opts o = shared_opts(address_of(dir));
    shared_scene_open(&s, &o);
    wait_on(&s, true);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(offer(&s, i, TIER_PAGE), 0);
    assert_int_equal(offer(&s, 7, TIER_SNAPSHOT), 0);
    wait_quiet(&s);
    path_at(dir, 7, TIER_SNAPSHOT, 2, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fetch(&s, 7, TIER_SNAPSHOT), -ENOENT);
    path_at(dir, 1, TIER_PAGE, 0, path);
    damage(path, 9000);
    assert_int_equal(fetch(&s, 0, TIER_PAGE), 0);
    assert_int_equal(fetch(&s, 1, TIER_PAGE), -EBADMSG);
    struct shared_numbers n = shared_now(&s);
    assert_true(n.corrupt == 1 && n.read_misses == 2 && n.errors == 1 && n.off && n.reason[0]);
    assert_int_equal(access(path, F_OK), -1);
    /* A store that lied is left alone for a second. */
    assert_int_equal(fetch(&s, 0, TIER_PAGE), -ENODEV);
    wait_on(&s, true);
    assert_int_equal(fetch(&s, 1, TIER_PAGE), -ENOENT);
    assert_int_equal(fetch(&s, 0, TIER_PAGE), 0);
    assert_int_equal(shared_now(&s).reason[0], 0);
    /* A damaged value may be written again. */
    assert_int_equal(offer(&s, 1, TIER_PAGE), 0);
    wait_quiet(&s);
    assert_int_equal(fetch(&s, 1, TIER_PAGE), 0);
    shared_scene_close(&s);
}

TEST(addresses_are_read_and_passwords_never_repeated)
{
    static const struct {
        const char *text, *host, *user, *password;
        uint32_t port, database;
        bool here;
    } good[] = {{"redis://localhost", "localhost", "", "", 6379, 0, true},
                {"redis://:pw@10.0.0.1:7000/3", "10.0.0.1", "", "pw", 7000, 3, false},
                {"redis://me:p%40%3a%2F@[::1]:1/", "::1", "me", "p@:/", 1, 0, true},
                {"redis://:a@b@127.0.0.5", "127.0.0.5", "", "a@b", 6379, 0, true}};
    static const char *const bad[] = {"redis://",
                                      "redis://:sesame@",
                                      "redis://sesame@h",
                                      "redis://:sesame@h:0",
                                      "redis://:sesame@h:65536",
                                      "redis://:sesame@h/x",
                                      "redis://:sesame%@h",
                                      "redis://:sesame%00@h",
                                      "redis://:sesame@h:1x",
                                      "redis://:sesame@[h",
                                      "rediss://:sesame@h",
                                      "sesame"};
    struct shared_address a;
    struct err e;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_int_equal(shared_address_parse(good[i].text, &a, &e), 0);
        assert_string_equal(a.host, good[i].host);
        assert_string_equal(a.user, good[i].user);
        assert_string_equal(a.password, good[i].password);
        assert_true(a.port == good[i].port && a.database == good[i].database);
        assert_int_equal(shared_address_is_here(&a), good[i].here);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(shared_address_parse(bad[i], &a, &e), -EINVAL);
        assert_true(e.text[0] && !strstr(e.text, "sesame"));
    }
}

static int open_at(const char *address, const char *secret, struct err *e)
{
    struct shared_tier_opts o = shared_opts(address);
    struct shared_tier *t = NULL;
    o.secret_file = secret;
    int r = shared_tier_open(&o, &t, e);
    shared_tier_close(t);
    return r;
}

TEST(what_others_may_read_or_write_needs_a_secret)
{
    struct err e = {{0}};
    const char *dir = test_dir(), *secret = secret_file(dir);
    assert_int_equal(open_at(address_of(dir), NULL, &e), 0);
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(open_at(address_of(dir), NULL, &e), -EACCES);
    assert_non_null(strstr(e.text, "--shared-cache-secret-file"));
    assert_int_equal(open_at(address_of(dir), secret, &e), 0);
    assert_int_equal(chmod(secret, 0604), 0);
    assert_int_equal(open_at(address_of(dir), secret, &e), -EACCES);
    assert_int_equal(chmod(secret, 0600), 0);
    test_write_text(dir, "short", "too short\n");
    char path[4300];
    snprintf(path, sizeof(path), "%s/short", dir);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(open_at(address_of(dir), path, &e), -EINVAL);
    assert_int_equal(open_at("/mnt/kv", secret, &e), -EINVAL);
    assert_int_equal(open_at("file://mnt/kv", secret, &e), -EINVAL);
    assert_int_equal(open_at("file:///nowhere/at/all", secret, &e), -ENOENT);
}

/* ---- a directory's limit ---- */

static uint64_t bytes_below(const char *dir)
{
    char command[4400], text[64] = {0};
    snprintf(command, sizeof(command),
             "find %s -path '*/?/?/*' -type f -printf '%%s\\n' | awk '{s+=$1}END{print s+0}'", dir);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    pclose(f);
    return strtoull(text, NULL, 10);
}

static int put_value(struct shared_backend *b, uint32_t number)
{
    static char value[200000];
    struct prefix_key name = key_of(number);
    memset(value, (int)number, sizeof(value));
    return b->put(b->arg, 0, &name, value, sizeof(value));
}

static bool has_value(struct shared_backend *b, uint32_t number)
{
    struct prefix_key name = key_of(number);
    bool has = false;
    assert_int_equal(b->has(b->arg, 0, &name, 1, &has), 0);
    return has;
}

TEST(the_directory_keeps_its_limit_with_two_writers)
{
    struct err e = {{0}};
    struct arena *arena;
    struct shared_backend a, b;
    const char *dir = test_dir();
    struct shared_dir_opts o = {.path = dir, .limit_bytes = 8 << 20, .own = true};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 2 * shared_dir_arena_bytes()}, &arena),
                     0);
    assert_int_equal(shared_dir_create(arena, &o, &a, &e), 0);
    assert_int_equal(shared_dir_create(arena, &o, &b, &e), 0);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 400; i++) {
        struct shared_backend *w = i % 3 ? &a : &b;
        if (i % 5 == 0) {
            a.tend(a.arg, 0);
            b.tend(b.arg, 0);
        }
        int r = put_value(w, i);
        assert_true(r == 0 || r == -EDQUOT);
        refused += r < 0;
        /* Others may have written for five turns. */
        if (i % 20 == 4)
            assert_true(bytes_below(dir) <= o.limit_bytes + 5 * 204800);
    }
    assert_true(refused < 200);
    a.tend(a.arg, 0);
    b.tend(b.arg, 0);
    assert_true(bytes_below(dir) <= o.limit_bytes && bytes_below(dir) >= o.limit_bytes / 2);
    assert_true(a.bytes(a.arg) >= bytes_below(dir) - 204800);
    a.close(a.arg);
    b.close(b.arg);
    arena_free(arena);
}

static void set_age(const char *dir, uint32_t number, time_t age_s)
{
    char below[STORE_PATH_BYTES], path[4300];
    struct prefix_key name = key_of(number);
    store_file_path(&name, TIER_PAGE, below);
    snprintf(path, sizeof(path), "%s/%s", dir, below);
    struct timespec t[2] = {{time(NULL) - age_s, 0}, {time(NULL) - age_s, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

TEST(the_least_recently_used_go_and_dead_servers_hold_nothing)
{
    struct err e = {{0}};
    struct arena *arena;
    struct shared_backend a, dead;
    const char *dir = test_dir();
    char command[4400];
    struct shared_dir_opts o = {.path = dir, .limit_bytes = 8 << 20, .own = true};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 2 * shared_dir_arena_bytes()}, &arena),
                     0);
    assert_int_equal(shared_dir_create(arena, &o, &dead, &e), 0);
    dead.tend(dead.arg, 0); /* it never wrote, so it is the one that sweeps */
    assert_int_equal(shared_dir_create(arena, &o, &a, &e), 0);
    a.tend(a.arg, 0);
    for (uint32_t i = 0; i < 38; i++) {
        assert_int_equal(put_value(&a, i), 0);
        set_age(dir, i, i == 5 ? 1 : 3600 * (1 + i % 7 * 4));
    }
    a.tend(a.arg, 0);
    assert_true(has_value(&a, 6));
    snprintf(command, sizeof(command),
             "touch -d '-2 min' %s/clients/*; date > %s/tmp/left; touch -d '-1 hour' %s/tmp/left", dir, dir,
             dir);
    assert_int_equal(system(command), 0);
    a.tend(a.arg, 0);
    assert_true(has_value(&a, 5) && !has_value(&a, 6));
    assert_true(bytes_below(dir) <= o.limit_bytes / 4 * 3);
    snprintf(command, sizeof(command), "%s/tmp/left", dir);
    assert_int_equal(access(command, F_OK), -1);
    dead.close(dead.arg);
    a.close(a.arg);
    arena_free(arena);
}

/* ---- stores that fail ---- */

static struct {
    atomic_int ready, get, put, has; /* results of the calls */
    atomic_bool hangs;
    atomic_uint calls;
} fake;

static void fake_call(void)
{
    atomic_fetch_add(&fake.calls, 1);
    while (atomic_load(&fake.hangs))
        usleep(500);
}

static int fake_ready(void *arg, uint32_t thread)
{
    (void)arg, (void)thread;
    return atomic_load(&fake.ready);
}

static int fake_get(void *arg, uint32_t thread, const struct prefix_key *names, uint32_t count,
                    shared_found_fn *found, void *found_arg)
{
    (void)arg, (void)thread, (void)names;
    fake_call();
    int r = atomic_load(&fake.get);
    for (uint32_t i = 0; r == 1 && i < count; i++)
        found(found_arg, i, "lies", 4);
    return MIN_OF(r, 0);
}

static int fake_put(void *arg, uint32_t thread, const struct prefix_key *name, const char *value, size_t len)
{
    (void)arg, (void)thread, (void)name, (void)value, (void)len;
    fake_call();
    return atomic_load(&fake.put);
}

static int fake_has(void *arg, uint32_t thread, const struct prefix_key *names, uint32_t count, bool *ret)
{
    (void)arg, (void)thread, (void)names;
    fake_call();
    int r = atomic_load(&fake.has);
    for (uint32_t i = 0; i < count; i++)
        ret[i] = r == 1;
    return MIN_OF(r, 0);
}

static void fake_drop(void *arg, uint32_t thread, const struct prefix_key *name)
{
    (void)arg, (void)thread, (void)name;
}

static const struct shared_backend fake_backend = {.query_max = 16,
                                                   .ready = fake_ready,
                                                   .get = fake_get,
                                                   .put = fake_put,
                                                   .has = fake_has,
                                                   .drop = fake_drop};

static void fake_open(struct shared_scene *s)
{
    memset(&fake, 0, sizeof(fake));
    struct shared_tier_opts o = shared_opts("");
    o.backend = &fake_backend;
    shared_scene_open(s, &o);
    wait_on(s, true);
}

TEST(a_failing_store_rests_and_comes_back)
{
    struct shared_scene s;
    fake_open(&s);
    atomic_store(&fake.has, -ECONNREFUSED);
    atomic_store(&fake.ready, -ECONNREFUSED);
    assert_true(query_at(&s, 0, 4));
    assert_true(shared_now(&s).off && shared_now(&s).errors == 1);
    assert_false(query_at(&s, 0, 4));
    assert_int_equal(offer(&s, 1, TIER_PAGE), -ENODEV);
    uint64_t began_ns = clock_now_ns();
    while (shared_now(&s).errors == 1)
        usleep(1000);
    assert_true(clock_now_ns() - began_ns > 900 * NS_PER_MS);
    assert_true(shared_now(&s).off);
    atomic_store(&fake.ready, 0);
    atomic_store(&fake.has, 1);
    wait_on(&s, true);
    assert_true(clock_now_ns() - began_ns > 2900 * NS_PER_MS);
    assert_true(query_at(&s, 0, 4) && has_entry(&s, 3, TIER_PAGE));
    assert_int_equal(shared_now(&s).reason[0], 0);
    shared_scene_close(&s);
}

TEST(a_full_store_is_still_read)
{
    struct shared_scene s;
    fake_open(&s);
    atomic_store(&fake.put, -ENOSPC);
    assert_int_equal(offer(&s, 1, TIER_PAGE), 0);
    wait_quiet(&s);
    struct shared_numbers n = shared_now(&s);
    assert_true(n.writes == 0 && n.drops == 1 && n.errors == 1 && !n.off);
    assert_int_equal(offer(&s, 2, TIER_PAGE), -ENODEV);
    atomic_store(&fake.has, 1);
    assert_true(query_at(&s, 0, 4) && has_entry(&s, 2, TIER_PAGE));
    shared_scene_close(&s);
}

TEST(a_store_that_lies_rests)
{
    struct shared_scene s;
    fake_open(&s);
    atomic_store(&fake.has, 1);
    atomic_store(&fake.get, 1);
    assert_true(query_at(&s, 0, 4));
    assert_int_equal(fetch(&s, 2, TIER_PAGE), -EBADMSG);
    assert_true(shared_now(&s).off && shared_now(&s).corrupt == 1);
    shared_scene_close(&s);
}

TEST(a_store_that_hangs_delays_nobody)
{
    struct shared_scene s;
    struct prefix_key key = key_of(2);
    struct tier_arrival a;
    fake_open(&s);
    atomic_store(&fake.has, 1);
    assert_true(query_at(&s, 0, 4));
    atomic_store(&fake.hangs, true);
    uint32_t calls = atomic_load(&fake.calls);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(s.io.read(s.io.arg, &key, TIER_PAGE, 77, i), 0);
    while (atomic_load(&fake.calls) < calls + 2)
        usleep(500);
    uint64_t began_ns = clock_now_ns();
    while (!shared_now(&s).off)
        usleep(500);
    assert_true(clock_now_ns() - began_ns < 5 * NS_PER_S);
    /* Queued reads arrive with an error. Reads in the call do not arrive. */
    while (s.io.take(s.io.arg, &a)) {
        assert_int_equal(a.status, -ENODEV);
        s.io.give(s.io.arg, &a);
    }
    s.io.cancel(s.io.arg, 77);
    assert_false(has_entry(&s, 2, TIER_PAGE));
    assert_int_equal(offer(&s, 30, TIER_PAGE), -ENODEV);
    atomic_store(&fake.hangs, false);
    shared_scene_close(&s);
}

TEST(what_a_second_request_uses_is_wanted_once)
{
    struct shared_scene s;
    struct prefix_key keys[3] = {key_of(0), key_of(1), key_of(2)}, key;
    uint32_t first[TIER_KINDS] = {[TIER_SNAPSHOT] = 2}, count = 0, snapshots = 0;
    enum tier_kind kind;
    fake_open(&s);
    for (enum tier_kind k = TIER_WINDOW; k < TIER_KINDS; k++)
        first[k] = 3;
    assert_false(shared_client_wants(&s.io, &key, &kind));
    for (uint32_t times = 0; times < 3; times++)
        s.io.common(s.io.arg, keys, 3, first);
    for (; shared_client_wants(&s.io, &key, &kind); count++)
        snapshots += kind == TIER_SNAPSHOT;
    assert_true(count == 4 && snapshots == 1);
    s.io.common(s.io.arg, keys, 3, first);
    assert_false(shared_client_wants(&s.io, &key, &kind));
    shared_scene_close(&s);
}

TEST_MAIN()
