/* conversations_file.c - a header, then items: texts, and conversations that refer to texts before them by
 * their place in the file.
 *
 * A text that many conversations share is written once, if it was among the last TEXTS_SEEN. Reading takes
 * the texts of one conversation at a time, so that it needs no memory by the file's size. The sum is over
 * all of it; what it does not show, such as a place outside of the file, ends the reading. */
#include "api/conversations_file.h"

#include "api/conversations.h"
#include "api/request/json_digest.h"

#include "base/check.h"
#include "base/files/regular_file.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC      "plateauH"
#define VERSION    1
#define TEXTS_SEEN 256

struct header {
    char magic[8];
    uint32_t version, items;
    uint64_t seed, bytes, sum; /* bytes: of the file */
};

enum item_kind { ITEM_TEXT = 1, ITEM_CONVERSATION };

struct item {
    uint32_t kind, pad;
    uint64_t bytes; /* that follow */
};

struct text_at {
    uint64_t at, len;
};

struct saved_change {
    uint64_t chain, tools, message;
    struct text_at text;
};

struct saved {
    uint64_t key, tenant, chain, tools;
    uint32_t count, change_count;
    struct text_at head;
    struct saved_change changes[CONVERSATIONS_CHANGES_MAX];
};

/* Sum of the header and of the items behind it. 0 or -errno. */
static int sum_of(int fd, const struct header *h, uint64_t *ret)
{
    char part[4096];
    uint64_t sum = hash_bytes_seeded(h, offsetof(struct header, sum), 0);
    for (uint64_t at = sizeof(*h); at < h->bytes;) {
        ssize_t n = pread(fd, part, (size_t)MIN_OF(h->bytes - at, (uint64_t)sizeof(part)), (off_t)at);
        if (n <= 0)
            return n < 0 ? -errno : -EINVAL;
        sum = hash_bytes_seeded(part, (size_t)n, sum);
        at += (uint64_t)n;
    }
    *ret = sum;
    return 0;
}

/* ---- writing ---- */

struct writer {
    int fd, error;
    uint64_t at;
    uint32_t items, seen_count;
    struct {
        const char *ptr;
        struct text_at text;
    } seen[TEXTS_SEEN];
};

static void put(struct writer *w, const void *bytes, size_t len)
{
    for (size_t done = 0; w->error == 0 && done < len;) {
        ssize_t n = pwrite(w->fd, (const char *)bytes + done, len - done, (off_t)(w->at + done));
        if (n <= 0)
            w->error = n < 0 ? -errno : -EIO;
        else
            done += (size_t)n;
    }
    w->at += len;
}

static void put_item(struct writer *w, enum item_kind kind, const void *bytes, size_t len)
{
    struct item item = {.kind = kind, .bytes = len};
    put(w, &item, sizeof(item));
    put(w, bytes, len);
    w->items++;
}

static struct text_at put_text(struct writer *w, struct slice text)
{
    uint32_t known = MIN_OF(w->seen_count, (uint32_t)TEXTS_SEEN);
    for (uint32_t i = 0; i < known; i++)
        if (w->seen[i].ptr == text.ptr && w->seen[i].text.len == text.len)
            return w->seen[i].text;
    struct text_at ret = {w->at + sizeof(struct item), text.len};
    put_item(w, ITEM_TEXT, text.ptr, text.len);
    w->seen[w->seen_count % TEXTS_SEEN].ptr = text.ptr;
    w->seen[w->seen_count++ % TEXTS_SEEN].text = ret;
    return ret;
}

static void put_conversation(void *arg, const struct conversation_kept *kept)
{
    struct writer *w = arg;
    struct saved s = {.key = kept->key,
                      .tenant = kept->tenant,
                      .chain = kept->chain,
                      .tools = kept->past.tools,
                      .count = kept->count,
                      .change_count = kept->past.change_count,
                      .head = put_text(w, kept->past.head)};
    for (uint32_t i = 0; i < s.change_count; i++) {
        const struct conversation_change *c = &kept->past.changes[i];
        s.changes[i] = (struct saved_change){kept->chains[i], c->tools, c->message, put_text(w, c->text)};
    }
    put_item(w, ITEM_CONVERSATION, &s, sizeof(s));
}

static void write_file(struct conversations *c, struct writer *w)
{
    struct header h = {.magic = MAGIC, .version = VERSION, .seed = json_digest_seed()};
    put(w, &h, sizeof(h));
    conversations_each(c, put_conversation, w);
    h.items = w->items;
    h.bytes = w->at;
    if (w->error == 0)
        w->error = sum_of(w->fd, &h, &h.sum);
    w->at = 0;
    put(w, &h, sizeof(h));
    if (w->error == 0 && fsync(w->fd) < 0)
        w->error = -errno;
}

int conversations_save(struct conversations *c, const char *path, struct err *e)
{
    char aside[PATH_MAX];
    struct writer w = {0};
    if ((size_t)snprintf(aside, sizeof(aside), "%s.new", path) >= sizeof(aside))
        return err_set(e, -ENAMETOOLONG, "%s: a longer path than the system allows", path);
    w.fd = open(aside, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (w.fd < 0)
        return err_set(e, -errno, "%s: %s", aside, strerror(errno));
    write_file(c, &w);
    close(w.fd);
    if (w.error == 0 && rename(aside, path) < 0)
        w.error = -errno;
    if (w.error == 0)
        return 0;
    unlink(aside);
    return err_set(e, w.error, "%s: %s", path, strerror(-w.error));
}

/* ---- reading ---- */

struct reader {
    struct conversations *c;
    struct regular_file file;
    uint64_t now_ns;
    size_t text_max; /* bytes of a conversation's texts */
};

static bool read_at(const struct reader *r, uint64_t at, void *into, size_t len)
{
    return regular_file_read(&r->file, at, into, len, NULL) == 0;
}

/* Appends the text at *into, which it moves; `end` is that of the room. */
static bool read_text(const struct reader *r, struct text_at t, char **into, const char *end,
                      struct slice *ret)
{
    if (t.at > r->file.bytes || t.len > r->file.bytes - t.at || t.len > (uint64_t)(end - *into) ||
        !read_at(r, t.at, *into, t.len))
        return false;
    *ret = (struct slice){*into, t.len};
    *into += t.len;
    return true;
}

/* The chain of a turn is known where a change or its end stands. */
static bool adopt(const struct reader *r, const struct saved *s, uint64_t *chain, char *texts, size_t bytes)
{
    char *at = texts, *end = texts + bytes;
    struct conversation_past past = {.tools = s->tools, .change_count = s->change_count};
    struct conversation_turn turn = {
        .key = s->key, .tenant = s->tenant, .tools = s->tools, .chain = chain, .count = s->count};
    bool ok = read_text(r, s->head, &at, end, &past.head);
    for (uint32_t i = 0; ok && i < s->change_count; i++) {
        const struct saved_change *c = &s->changes[i];
        ok = c->message < s->count && read_text(r, c->text, &at, end, &past.changes[i].text);
        if (!ok)
            break;
        past.changes[i].message = (uint32_t)c->message;
        past.changes[i].tools = c->tools;
        chain[c->message + 1] = c->chain;
    }
    chain[s->count] = s->chain;
    if (ok)
        conversations_put(r->c, &turn, &past, r->now_ns);
    return ok;
}

/* Room for one conversation, in the account of them all: older ones make way, for it and for its entry. */
static void *take_room(const struct reader *r, size_t bytes)
{
    const struct charge *charge = conversations_charge(r->c);
    struct conversations_numbers n = conversations_numbers(r->c);
    if (charge && n.bytes + 2 * bytes > n.bytes_max)
        conversations_give(r->c, 2 * bytes);
    if (charge_take(charge, bytes) < 0)
        return NULL;
    void *room = calloc(1, bytes);
    if (!room)
        charge_give(charge, bytes);
    return room;
}

/* Bytes of the texts; above text_max: the file is damaged. */
static uint64_t text_bytes(const struct reader *r, const struct saved *s)
{
    uint64_t sum = MIN_OF(s->head.len, r->file.bytes);
    for (uint32_t i = 0; i < s->change_count; i++)
        sum += MIN_OF(s->changes[i].text.len, r->file.bytes);
    return sum;
}

static int read_conversation(const struct reader *r, uint64_t at)
{
    struct saved s;
    if (!read_at(r, at, &s, sizeof(s)) || s.count == 0 || s.count > CONVERSATIONS_MESSAGES_MAX ||
        s.change_count > CONVERSATIONS_CHANGES_MAX || text_bytes(r, &s) > r->text_max)
        return -EINVAL;
    size_t chain_bytes = ((size_t)s.count + 1) * sizeof(uint64_t), texts = (size_t)text_bytes(r, &s);
    uint64_t *chain = take_room(r, chain_bytes + texts);
    if (!chain)
        return -ENOMEM;
    bool ok = adopt(r, &s, chain, (char *)chain + chain_bytes, texts);
    free(chain);
    charge_give(conversations_charge(r->c), chain_bytes + texts);
    return ok ? 0 : -EINVAL;
}

static int read_items(const struct reader *r, uint32_t items)
{
    int error = 0;
    uint64_t at = sizeof(struct header);
    for (uint32_t i = 0; error == 0 && i < items; i++) {
        struct item item;
        if (at + sizeof(item) > r->file.bytes || !read_at(r, at, &item, sizeof(item)) ||
            item.bytes > r->file.bytes - at - sizeof(item) ||
            (item.kind == ITEM_CONVERSATION && item.bytes != sizeof(struct saved)))
            error = -EINVAL;
        else if (item.kind == ITEM_CONVERSATION)
            error = read_conversation(r, at + sizeof(item));
        at += sizeof(item) + item.bytes;
    }
    return error;
}

static int read_file(const struct reader *r)
{
    struct header h;
    uint64_t sum;
    if (r->file.bytes > CONVERSATIONS_FILE_BYTES_MAX || r->file.bytes < sizeof(h) ||
        !read_at(r, 0, &h, sizeof(h)) || memcmp(h.magic, MAGIC, sizeof(h.magic)) != 0 ||
        h.version != VERSION || h.bytes != r->file.bytes)
        return -EINVAL;
    int error = sum_of(r->file.fd, &h, &sum);
    if (error < 0 || sum != h.sum)
        return error < 0 ? error : -EINVAL;
    json_digest_use_seed(h.seed);
    return read_items(r, h.items);
}

int conversations_load(struct conversations *c, const char *path, uint64_t now_ns, struct err *e)
{
    struct reader r = {.c = c, .now_ns = now_ns};
    r.text_max = (size_t)(conversations_numbers(c).bytes_max / CONVERSATIONS_STORE_PART);
    int error = regular_file_open_own(path, &r.file, e);
    if (error < 0)
        return error == -ENOENT ? 0 : error;
    error = read_file(&r);
    regular_file_close(&r.file);
    if (error == 0)
        return 0;
    return err_set(e, error, "%s: %s", path,
                   error == -EINVAL ? "it is damaged, or of another version" : strerror(-error));
}
