/* keyring.c - the key of a request is hashed once, and its digest compared with every entry of the ring.
 *
 * Comparing digests leaves no timing to measure: the place where two digests differ is unrelated to where the
 * keys differ. SHA-256 without a salt is enough for keys that are random; it does not protect a password that
 * brute force can find. */
#include "api/access/keyring.h"

#include "base/check.h"
#include "base/files/small_file.h"
#include "base/hex.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Everything that follows from a key's text. */
struct key_digests {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    uint64_t tenant; /* the tenant of the key without a name */
};

struct entry {
    struct key key;
    enum keyring_door door;
    bool named;
    unsigned char digest[SHA256_DIGEST_LENGTH];
};

struct keyring {
    uint32_t count, room, of_door[KEYRING_DOORS];
    struct entry *entries;
};

int keyring_create(struct keyring **ret)
{
    struct keyring *k = calloc(1, sizeof(*k));
    if (!k)
        return -ENOMEM;
    *ret = k;
    return 0;
}

void keyring_free(struct keyring *k)
{
    if (!k)
        return;
    free(k->entries);
    free(k);
}

/* ---- adding ---- */

static bool is_visible(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] > '~')
            return false;
    return true;
}

static bool is_letter_or_digit(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The fields of a line after name and key. */
struct fields {
    uint32_t weight;
    int32_t priority_first, priority_last;
};

static struct fields default_fields(enum keyring_door door)
{
    int32_t first = door == KEYRING_ADMIN ? -KEYRING_PRIORITY_MAX : 0;
    return (struct fields){.weight = 1, .priority_first = first, .priority_last = KEYRING_PRIORITY_MAX};
}

static bool same_fields(const struct key *a, const struct key *b)
{
    return a->weight == b->weight && a->priority_first == b->priority_first &&
           a->priority_last == b->priority_last;
}

/* A name that is one word in a log line. */
static bool is_name(struct slice s)
{
    if (s.len == 0 || s.len >= KEYRING_NAME_BYTES || !is_letter_or_digit(s.ptr[0]))
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (!is_letter_or_digit(s.ptr[i]) && !memchr("._@-", s.ptr[i], 4))
            return false;
    return true;
}

uint64_t keyring_tenant(const char *kind, struct slice bytes)
{
    unsigned char digest[SHA256_DIGEST_LENGTH], text[KEYRING_KEY_BYTES_MAX + 8];
    size_t head = strlen(kind) + 1;
    uint64_t tenant;
    ASSERT(head + bytes.len <= sizeof(text));
    memcpy(text, kind, head);
    memcpy(text + head, bytes.ptr, bytes.len);
    SHA256(text, head + bytes.len, digest);
    OPENSSL_cleanse(text, sizeof(text));
    memcpy(&tenant, digest, sizeof(tenant));
    return tenant ? tenant : 1;
}

static bool is_key(struct slice s)
{
    return s.len > 0 && s.len <= KEYRING_KEY_BYTES_MAX && is_visible(s);
}

static void digest_key(struct slice key, struct key_digests *ret)
{
    SHA256((const unsigned char *)key.ptr, key.len, ret->digest);
    ret->tenant = keyring_tenant("key", key);
}

/* ---- sealed keys ---- */

/* The first byte of a sealed key. No key has it, because it is not visible. */
#define SEAL '\1'

bool keyring_seal(struct slice key, char ret[KEYRING_SEALED_BYTES])
{
    struct key_digests d;
    if (!is_key(key))
        return false;
    digest_key(key, &d);
    char *to = ret;
    *to++ = SEAL;
    hex_text(d.digest, sizeof(d.digest), to);
    to += 2 * sizeof(d.digest);
    snprintf(to, 17, "%016llx", (ull)d.tenant);
    return true;
}

/* The value of `digits` hexadecimal digits; false: other bytes are among them. */
static bool read_hex(const char *text, size_t digits, uint64_t *ret)
{
    uint64_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        int digit = slice_hex(text[i]);
        if (digit < 0)
            return false;
        value = value << 4 | (uint64_t)digit;
    }
    *ret = value;
    return true;
}

/* False: `text` is not a sealed key. */
static bool unseal(struct slice text, struct key_digests *ret)
{
    struct key_digests d;
    if (text.len != KEYRING_SEALED_BYTES - 1 || text.ptr[0] != SEAL)
        return false;
    const char *from = text.ptr + 1;
    for (size_t i = 0; i < sizeof(d.digest); i++, from += 2) {
        uint64_t byte;
        if (!read_hex(from, 2, &byte))
            return false;
        d.digest[i] = (unsigned char)byte;
    }
    if (!read_hex(from, 16, &d.tenant) || d.tenant == 0)
        return false;
    *ret = d;
    return true;
}

/* ---- entries ---- */

static int check(struct slice name, struct slice key, struct err *e)
{
    if (!is_key(key))
        return err_set(e, -EINVAL, "a key has 1 to %d visible ASCII characters and no blanks",
                       KEYRING_KEY_BYTES_MAX);
    if (name.len > 0 && !is_name(name))
        return err_set(e, -EINVAL,
                       "a key's name has 1 to %d letters, digits, dots, dashes, _ or @, and begins with one "
                       "of the first two",
                       KEYRING_NAME_BYTES - 1);
    return 0;
}

static struct entry *entry_of(struct keyring *k, enum keyring_door door, const unsigned char *digest)
{
    for (uint32_t i = 0; i < k->count; i++)
        if (k->entries[i].door == door && memcmp(k->entries[i].digest, digest, SHA256_DIGEST_LENGTH) == 0)
            return &k->entries[i];
    return NULL;
}

static int make_room(struct keyring *k, struct err *e)
{
    if (k->count == KEYRING_KEYS_MAX)
        return err_set(e, -ENOSPC, "there may be %d keys", KEYRING_KEYS_MAX);
    if (k->count < k->room)
        return 0;
    uint32_t room = k->room ? 2 * k->room : 8;
    struct entry *entries = realloc(k->entries, room * sizeof(*entries));
    if (!entries)
        return err_set(e, -ENOMEM, "no memory for %u keys", room);
    k->entries = entries;
    k->room = room;
    return 0;
}

static int insert(struct keyring *k, const struct entry *new, struct err *e)
{
    const struct entry *same = entry_of(k, new->door, new->digest);
    if (same && (same->named != new->named || same->key.tenant != new->key.tenant))
        return err_set(e, -EINVAL, "it is the key of %s already", same->key.name);
    if (same && !same_fields(&same->key, &new->key))
        return err_set(e, -EINVAL, "it is the key of %s already, with another weight or priority",
                       same->key.name);
    if (same)
        return 0;
    int r = make_room(k, e);
    if (r < 0)
        return r;
    k->entries[k->count++] = *new;
    k->of_door[new->door]++;
    return 0;
}

int keyring_add_ring(struct keyring *k, enum keyring_door door, const struct keyring *from, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; i < from->count && r == 0; i++)
        if (from->entries[i].door == door)
            r = insert(k, &from->entries[i], e);
    return r;
}

static int add_entry(struct keyring *k, enum keyring_door door, struct slice name,
                     const struct key_digests *d, const struct fields *f, const char *otherwise,
                     struct err *e)
{
    struct entry new = {.door = door, .named = name.len > 0};
    memcpy(new.digest, d->digest, sizeof(new.digest));
    new.key.weight = f->weight;
    new.key.priority_first = f->priority_first;
    new.key.priority_last = f->priority_last;
    new.key.tenant = new.named ? keyring_tenant("name", name) : d->tenant;
    if (new.named)
        memcpy(new.key.name, name.ptr, name.len);
    else
        snprintf(new.key.name, sizeof(new.key.name), "%s", otherwise);
    return insert(k, &new, e);
}

static int add(struct keyring *k, enum keyring_door door, struct slice name, struct slice key,
               const struct fields *f, const char *otherwise, struct err *e)
{
    struct key_digests d;
    int r = check(name, key, e);
    if (r < 0)
        return r;
    digest_key(key, &d);
    return add_entry(k, door, name, &d, f, otherwise, e);
}

int keyring_add(struct keyring *k, enum keyring_door door, const char *name, struct slice key,
                const char *source, struct err *e)
{
    struct fields f = default_fields(door);
    struct key_digests d;
    if (!name && unseal(key, &d))
        return add_entry(k, door, (struct slice){0}, &d, &f, source, e);
    return add(k, door, slice_of(name), key, &f, source, e);
}

/* ---- the fields of a line ---- */

static bool parse_number(struct slice text, int32_t min, int32_t max, int32_t *ret)
{
    bool negative = text.len > 0 && text.ptr[0] == '-';
    uint64_t v;
    if (!slice_u64(slice_sub(text, negative, text.len), INT32_MAX, &v))
        return false;
    *ret = negative ? -(int32_t)v : (int32_t)v;
    return *ret >= min && *ret <= max;
}

static int read_weight(struct slice text, struct fields *f, struct err *e)
{
    int32_t weight;
    if (!parse_number(text, 1, KEYRING_WEIGHT_MAX, &weight))
        return err_set(e, -EINVAL, "weight= takes 1 to %d", KEYRING_WEIGHT_MAX);
    f->weight = (uint32_t)weight;
    return 0;
}

static int read_priority(struct slice text, struct fields *f, struct err *e)
{
    int32_t most = KEYRING_PRIORITY_MAX;
    size_t dots = slice_find(text, SLICE(".."), 0);
    if (dots == SIZE_MAX || !parse_number(slice_sub(text, 0, dots), -most, most, &f->priority_first) ||
        !parse_number(slice_sub(text, dots + 2, text.len), -most, most, &f->priority_last) ||
        f->priority_first > f->priority_last)
        return err_set(e, -EINVAL, "priority= takes FIRST..LAST, from %d..%d", -most, most);
    return 0;
}

static const struct field {
    const char *name; /* with its = */
    int (*read)(struct slice text, struct fields *f, struct err *e);
} line_fields[] = {{"weight=", read_weight}, {"priority=", read_priority}};

/* NULL if the word is not a field. */
static const struct field *field_of(struct slice word)
{
    for (size_t i = 0; i < COUNT_OF(line_fields); i++)
        if (slice_starts(word, slice_of(line_fields[i].name)))
            return &line_fields[i];
    return NULL;
}

/* ---- files ---- */

/* The next word of a line and the rest after it; empty at the line's end or its comment. */
static struct slice next_word(struct slice *line)
{
    size_t from = 0, to;
    while (from < line->len && memchr(" \t\r", line->ptr[from], 3))
        from++;
    for (to = from; to < line->len && !memchr(" \t\r", line->ptr[to], 3);)
        to++;
    struct slice word = slice_sub(*line, from, to - from);
    if (word.len > 0 && word.ptr[0] == '#') {
        *line = (struct slice){0};
        return *line;
    }
    *line = slice_sub(*line, to, line->len);
    return word;
}

/* The name of an unnamed key: its file's name and line, or the longest end of that which is a valid name. */
static void name_line(const char *source, uint32_t line, char ret[KEYRING_NAME_BYTES])
{
    const char *slash = strrchr(source, '/'), *file = slash ? slash + 1 : source;
    snprintf(ret, KEYRING_NAME_BYTES, "%.50s:%u", file, line);
    for (char *c = ret; *c; c++)
        if (!is_letter_or_digit(*c) && !memchr("._@-:", *c, 5))
            *c = '_';
}

/* Reads the name, if the line has one, and the key; `line` becomes the rest. */
static void read_names(struct slice *line, struct slice *name, struct slice *key)
{
    struct slice first = next_word(line), rest = *line, second = next_word(&rest);
    bool named = second.len > 0 && !field_of(second);
    *name = named ? first : (struct slice){0};
    *key = named ? second : first;
    if (named)
        *line = rest;
}

static int read_fields(struct slice line, struct fields *f, struct err *e)
{
    bool seen[COUNT_OF(line_fields)] = {false};
    for (struct slice word = next_word(&line); word.len > 0; word = next_word(&line)) {
        const struct field *field = field_of(word);
        if (!field)
            return err_set(e, -EINVAL,
                           "a line has a name and a key, or a key; then weight=N, priority=FIRST..LAST");
        if (seen[field - line_fields])
            return err_set(e, -EINVAL, "%s stands twice", field->name);
        seen[field - line_fields] = true;
        int r = field->read(slice_sub(word, strlen(field->name), word.len), f, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_line(struct keyring *k, enum keyring_door door, struct slice line, const char *source,
                    uint32_t number, struct err *e)
{
    char otherwise[KEYRING_NAME_BYTES];
    struct fields f = default_fields(door);
    struct slice name, key;
    read_names(&line, &name, &key);
    if (key.len == 0)
        return 0;
    int r = read_fields(line, &f, e);
    if (r < 0)
        return r;
    name_line(source, number, otherwise);
    return add(k, door, name, key, &f, otherwise, e);
}

int keyring_parse(struct keyring *k, enum keyring_door door, struct slice text, const char *source,
                  struct err *e)
{
    uint32_t number = 0, lines_with_keys = 0;
    while (text.len > 0) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        struct slice line = slice_sub(text, 0, len), rest = line;
        number++;
        lines_with_keys += next_word(&rest).len > 0;
        int r = add_line(k, door, line, source, number, e);
        if (r < 0)
            return err_prefix(e, r, "%s line %u", source, number);
        text = slice_sub(text, len + 1, text.len);
    }
    return lines_with_keys > 0 ? 0 : err_set(e, -EINVAL, "%s has no key in it", source);
}

struct slice keyring_first(struct slice text)
{
    struct slice name, key = {0};
    while (text.len > 0 && key.len == 0) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        struct slice line = slice_sub(text, 0, len);
        read_names(&line, &name, &key);
        text = slice_sub(text, len + 1, text.len);
    }
    return key;
}

enum keyring_exposure keyring_exposure_of(mode_t mode)
{
    if (mode & (S_IWGRP | S_IWOTH))
        return KEYRING_WRITABLE;
    return mode & S_IROTH ? KEYRING_READABLE : KEYRING_PRIVATE;
}

int keyring_read(struct keyring *k, enum keyring_door door, const char *path, enum keyring_exposure *exposure,
                 struct err *e)
{
    struct small_file f = {0};
    int r = small_file_read(path, KEYRING_FILE_BYTES_MAX, &f, e);
    if (r == 0)
        r = keyring_parse(k, door, (struct slice){f.bytes, f.len}, path, e);
    if (r == 0)
        *exposure = keyring_exposure_of(f.mode);
    small_file_done(&f);
    return r;
}

/* ---- looking ---- */

uint32_t keyring_count(const struct keyring *k, enum keyring_door door)
{
    return k ? k->of_door[door] : 0;
}

uint64_t keyring_owner(const struct keyring *k, struct slice name)
{
    uint64_t tenant = 0;
    for (uint32_t i = 0; k && i < k->count; i++) {
        const struct entry *e = &k->entries[i];
        if (e->door != KEYRING_MODELS || (name.len > 0 && !slice_eq(slice_of(e->key.name), name)))
            continue;
        if (tenant != 0 && tenant != e->key.tenant)
            return 0;
        tenant = e->key.tenant;
    }
    return tenant;
}

struct keyring_found keyring_find(const struct keyring *k, struct slice given)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    struct keyring_found found = {0};
    if (!k || given.len == 0)
        return found;
    SHA256((const unsigned char *)given.ptr, given.len, digest);
    for (uint32_t i = 0; i < k->count; i++)
        if (CRYPTO_memcmp(k->entries[i].digest, digest, sizeof(digest)) == 0)
            found.at[k->entries[i].door] = &k->entries[i].key;
    return found;
}
