/* hub_blob.c - bytes are noted after they were written. A kill costs the bytes since the last note, at
 * most a MiB per connection. After a loss of power the notes may be ahead of the bytes: then the sum is
 * wrong, and the file is fetched again. */
#include "hub/hub_blob.h"

#include "hub/hub_list.h"

#include "base/check.h"
#include "base/hex.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK_BYTES ((size_t)1 << 20)
#define CHECK_STEPS 32

static void name(const struct hub_blob *b, const char *tail, char ret[HUB_PATH_BYTES + 32])
{
    snprintf(ret, HUB_PATH_BYTES + 32, "%s%s", b->path, tail);
}

int hub_blob_init(const char *folder, const struct hub_file *f, struct hub_blob *ret, struct err *e)
{
    struct stat st;
    *ret = (struct hub_blob){.file = f, .fd = -1, .parts_fd = -1};
    if (snprintf(ret->path, sizeof(ret->path), "%s/blobs/%s", folder, f->etag) >= HUB_PATH_BYTES)
        return err_set(e, -ENAMETOOLONG, "the path %.100s... is too long", folder);
    ret->present = lstat(ret->path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == f->bytes;
    ret->parts = (uint32_t)((f->bytes + HUB_PART_BYTES - 1) / HUB_PART_BYTES);
    return 0;
}

uint64_t hub_blob_part_bytes(const struct hub_blob *b, uint32_t part)
{
    ASSERT(part < b->parts);
    return b->whole ? b->file->bytes : MIN_OF(HUB_PART_BYTES, b->file->bytes - part * HUB_PART_BYTES);
}

uint64_t hub_blob_done(const struct hub_blob *b)
{
    uint64_t bytes = 0;
    if (b->present)
        return b->file->bytes;
    for (uint32_t i = 0; b->done && i < b->parts; i++)
        bytes += b->done[i];
    return bytes;
}

uint64_t hub_blob_on_disk(const struct hub_blob *b)
{
    char path[HUB_PATH_BYTES + 32];
    struct stat st;
    name(b, ".plateau.incomplete", path);
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? MIN_OF((uint64_t)st.st_blocks * 512, b->file->bytes)
                                                        : 0;
}

static int open_beside(const struct hub_blob *b, const char *tail, struct err *e)
{
    char path[HUB_PATH_BYTES + 32];
    name(b, tail, path);
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    return fd >= 0 ? fd : err_set(e, -errno, "%s: %s", path, strerror(errno));
}

static void read_parts(struct hub_blob *b)
{
    size_t bytes = b->parts * sizeof(*b->done);
    struct stat st;
    bool right = fstat(b->parts_fd, &st) == 0 && (size_t)st.st_size == bytes && fstat(b->fd, &st) == 0 &&
                 (uint64_t)st.st_size == b->file->bytes &&
                 pread(b->parts_fd, b->done, bytes, 0) == (ssize_t)bytes;
    for (uint32_t i = 0; i < b->parts; i++)
        if (!right || b->done[i] > hub_blob_part_bytes(b, i))
            b->done[i] = 0;
}

int hub_blob_open(struct hub_blob *b, struct err *e)
{
    size_t bytes = b->parts * sizeof(*b->done);
    if (b->done)
        return 0;
    b->done = calloc(MAX_OF(b->parts, 1u), sizeof(*b->done));
    if (!b->done)
        return err_set(e, -ENOMEM, "no memory for a list of parts");
    b->fd = open_beside(b, ".plateau.incomplete", e);
    if (b->fd < 0)
        return b->fd;
    b->parts_fd = open_beside(b, ".plateau.parts", e);
    if (b->parts_fd < 0)
        return b->parts_fd;
    read_parts(b);
    if (ftruncate(b->fd, (off_t)b->file->bytes) < 0 || ftruncate(b->parts_fd, (off_t)bytes) < 0)
        return err_set(e, -errno, "%s: %s", b->path, strerror(errno));
    return 0;
}

int hub_blob_write(struct hub_blob *b, uint32_t part, struct slice bytes)
{
    uint64_t at = part * HUB_PART_BYTES + b->done[part];
    ASSERT(b->done[part] + bytes.len <= hub_blob_part_bytes(b, part));
    for (size_t from = 0; from < bytes.len;) {
        ssize_t n = pwrite(b->fd, bytes.ptr + from, bytes.len - from, (off_t)(at + from));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        from += (size_t)n;
    }
    b->done[part] += (uint32_t)bytes.len;
    return 0;
}

void hub_blob_note(struct hub_blob *b, uint32_t part)
{
    /* A note that is not written costs time after a kill, and nothing else. */
    if (!b->whole &&
        pwrite(b->parts_fd, &b->done[part], sizeof(*b->done), (off_t)(part * sizeof(*b->done))) < 0)
        return;
}

int hub_blob_restart(struct hub_blob *b, bool whole, struct err *e)
{
    if (whole && b->file->bytes > UINT32_MAX)
        return err_set(e, -EFBIG, "%s: the hub serves no ranges, and the file is larger than 4 GiB",
                       b->file->name);
    memset(b->done, 0, b->parts * sizeof(*b->done));
    b->whole = whole;
    if (whole)
        b->parts = MIN_OF(b->parts, 1u);
    if (ftruncate(b->parts_fd, 0) < 0 || ftruncate(b->fd, 0) < 0 ||
        ftruncate(b->fd, (off_t)b->file->bytes) < 0 ||
        ftruncate(b->parts_fd, (off_t)(b->parts * sizeof(*b->done))) < 0)
        return err_set(e, -errno, "%s: %s", b->path, strerror(errno));
    return 0;
}

/* ---- the sum ---- */

/* SHA-256 of the bytes, or SHA-1 as git sums a blob. */
static bool begin_sum(struct hub_blob *b)
{
    char head[64];
    int len = snprintf(head, sizeof(head), "blob %llu", (ull)b->file->bytes) + 1;
    b->sum = EVP_MD_CTX_new();
    b->summed = 0;
    if (!b->sum || EVP_DigestInit_ex(b->sum, b->file->sha256 ? EVP_sha256() : EVP_sha1(), NULL) != 1)
        return false;
    return b->file->sha256 || EVP_DigestUpdate(b->sum, head, (size_t)len) == 1;
}

static void end_sum(struct hub_blob *b)
{
    EVP_MD_CTX_free(b->sum);
    b->sum = NULL;
}

static bool sum_matches(struct hub_blob *b)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char text[2 * EVP_MAX_MD_SIZE + 1];
    unsigned len = 0;
    if (EVP_DigestFinal_ex(b->sum, digest, &len) != 1)
        return false;
    hex_text(digest, len, text);
    return strcmp(text, b->file->etag) == 0;
}

static int sum_some(struct hub_blob *b)
{
    char *bytes = malloc(CHECK_BYTES);
    int r = bytes ? 0 : -ENOMEM;
    for (unsigned i = 0; r == 0 && i < CHECK_STEPS && b->summed < b->file->bytes; i++) {
        ssize_t n = pread(b->fd, bytes, CHECK_BYTES, (off_t)b->summed);
        if (n <= 0 || EVP_DigestUpdate(b->sum, bytes, (size_t)n) != 1)
            r = n < 0 ? -errno : -EIO;
        else
            b->summed += (uint64_t)n;
    }
    free(bytes);
    return r;
}

static int finish(struct hub_blob *b, struct err *e)
{
    char partial[HUB_PATH_BYTES + 32], parts[HUB_PATH_BYTES + 32];
    name(b, ".plateau.incomplete", partial);
    name(b, ".plateau.parts", parts);
    if (fsync(b->fd) < 0 || rename(partial, b->path) < 0)
        return err_set(e, -errno, "%s: %s", b->path, strerror(errno));
    unlink(parts);
    b->present = true;
    hub_blob_done_with(b);
    return 0;
}

int hub_blob_check(struct hub_blob *b, struct err *e)
{
    if (!b->sum && !begin_sum(b))
        return err_set(e, -ENOMEM, "no memory for a sum");
    int r = sum_some(b);
    if (r == 0 && b->summed < b->file->bytes)
        return 1;
    bool right = r == 0 && sum_matches(b);
    end_sum(b);
    if (r < 0)
        return err_set(e, r, "%s: %s", b->path, strerror(-r));
    return right ? finish(b, e) : -EBADMSG;
}

void hub_blob_done_with(struct hub_blob *b)
{
    if (b->done && b->fd >= 0)
        close(b->fd);
    if (b->done && b->parts_fd >= 0)
        close(b->parts_fd);
    end_sum(b);
    free(b->done);
    b->done = NULL;
    b->fd = b->parts_fd = -1;
}

void hub_blob_remove(struct hub_blob *b)
{
    static const char *const tails[] = {"", ".plateau.incomplete", ".plateau.parts"};
    char path[HUB_PATH_BYTES + 32];
    hub_blob_done_with(b);
    for (size_t i = 0; i < COUNT_OF(tails); i++) {
        name(b, tails[i], path);
        unlink(path);
    }
    b->present = false;
}
