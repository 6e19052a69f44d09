/* hub_probe.c - a header is read as safetensors have it: eight bytes with its length, then the text. The
 * length of a GGUF file's head stands nowhere, so its first bytes are read in spans that double until the
 * parser has enough; they are mapped from the temporary file, since the memory of a pull is small. A weight
 * file that is present already is linked instead. */
#include "hub/hub_probe.h"

#include "hub/hub_blob.h"
#include "hub/hub_http.h"
#include "hub/hub_list.h"
#include "hub/hub_work.h"

#include "base/check.h"
#include "hub/hub_remove.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"
#include "weights/weights_name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the model's folder of the cache, so that the next pull finds one that a killed pull left. */
#define PROBE_NAME ".plateau-headers-"

struct span {
    int fd;
    uint64_t at;
};

static int take(void *arg, struct slice bytes)
{
    struct span *s = arg;
    for (size_t from = 0; from < bytes.len;) {
        ssize_t n = pwrite(s->fd, bytes.ptr + from, bytes.len - from, (off_t)s->at);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        from += (size_t)n;
        s->at += (uint64_t)n;
    }
    return 0;
}

static int get_span(struct hub_work *w, const struct hub_file *f, uint64_t from, uint64_t bytes, int fd,
                    struct err *e)
{
    struct span s = {fd, from};
    struct hub_transfer *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(e, -ENOMEM, "no memory for a request");
    *t = (struct hub_transfer){.from = from, .bytes = bytes, .file_bytes = f->bytes, .take = take, .arg = &s};
    int r = hub_work_path(w, f->name, t->path, e);
    if (r == 0)
        r = hub_work_get(w, t, NULL, e);
    w->shown.fetched += s.at - from;
    free(t);
    return r < 0 ? err_prefix(e, r, "%s", f->name) : 0;
}

/* Parses the first `len` bytes as a GGUF file's head. -EAGAIN: it is longer. */
static int parse_head(const struct hub_file *f, int fd, size_t len)
{
    void *text = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    if (text == MAP_FAILED)
        return -errno;
    int r = checkpoint_head_check((struct slice){text, len}, f->bytes);
    munmap(text, len);
    return r;
}

static int get_head(struct hub_work *w, const struct hub_file *f, int fd, struct err *e)
{
    const uint64_t most = MIN_OF(f->bytes, CHECKPOINT_HEAD_BYTES_MAX);
    uint64_t have = 0;
    int parsed = -EAGAIN;
    while (parsed == -EAGAIN && have < most) {
        const uint64_t next = MIN_OF(most, MAX_OF(2 * have, CHECKPOINT_HEAD_FIRST_READ));
        int r = get_span(w, f, have, next - have, fd, e);
        if (r < 0)
            return r;
        have = next;
        parsed = parse_head(f, fd, (size_t)have);
    }
    return 0; /* a head with a mistake is the plan's to refuse */
}

static int get_header(struct hub_work *w, const struct hub_file *f, int fd, struct err *e)
{
    char first[SAFETENSORS_FIRST_BYTES];
    size_t head = 0;
    uint64_t least = MIN_OF(f->bytes, (uint64_t)sizeof(first));
    if (ftruncate(fd, (off_t)f->bytes) < 0)
        return err_set(e, -errno, "a temporary file: %s", strerror(errno));
    if (weights_name_is(f->name))
        return get_head(w, f, fd, e);
    int r = least ? get_span(w, f, 0, least, fd, e) : 0;
    if (r == 0 && pread(fd, first, least, 0) != (ssize_t)least)
        r = err_set(e, -EIO, "a temporary file cannot be read");
    if (r == 0 && (r = safetensors_data_at((struct slice){first, least}, f->bytes, &head, e)) < 0)
        return err_prefix(e, r, "%s", f->name);
    return r == 0 && head > least ? get_span(w, f, least, head - least, fd, e) : r;
}

/* Makes the folders of `path` below the first `head` bytes. */
static void make_folders(char *path, size_t head)
{
    for (char *c = path + head + 1; (c = strchr(c, '/')); *c++ = '/') {
        *c = 0;
        mkdir(path, 0700);
    }
}

static int add(struct hub_work *w, const struct hub_blob *b, const char *dir, struct err *e)
{
    char path[HUB_PATH_BYTES + HUB_FILE_BYTES_MAX + 2];
    snprintf(path, sizeof(path), "%s/%s", dir, b->file->name);
    make_folders(path, strlen(dir));
    bool weights = hub_file_is_weights(b->file);
    char *real = b->present ? realpath(b->path, NULL) : NULL;
    /* The content of weights that are in the list twice comes later, once. */
    if (real || (b->present && !weights)) {
        int r = real && symlink(real, path) == 0 ? 0 : err_set(e, -errno, "%s: %s", path, strerror(errno));
        free(real);
        return r;
    }
    if (!weights)
        return 0;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int r = fd < 0 ? err_set(e, -errno, "%s: %s", path, strerror(errno)) : get_header(w, b->file, fd, e);
    if (fd >= 0)
        close(fd);
    return r;
}

void hub_probe_remove_stale(const char *folder)
{
    char path[HUB_PATH_BYTES + HUB_FILE_BYTES_MAX + 2];
    DIR *d = opendir(folder);
    for (const struct dirent *at; d && (at = readdir(d));)
        if (slice_starts(slice_of(at->d_name), SLICE(PROBE_NAME))) {
            snprintf(path, sizeof(path), "%s/%s", folder, at->d_name);
            hub_remove_tree(path);
        }
    if (d)
        closedir(d);
}

int hub_probe_make(struct hub_work *w, char ret[HUB_PATH_BYTES], struct err *e)
{
    char head[HUB_PATH_BYTES];
    ret[0] = 0;
    w->shown.phase = "headers";
    int n = snprintf(head, sizeof(head), "%s/" PROBE_NAME "XXXXXX", w->folder);
    if (n < 0 || (size_t)n >= sizeof(head))
        return err_set(e, -ENAMETOOLONG, "%s: its path is too long", w->folder);
    if (!mkdtemp(head))
        return err_set(e, -errno, "%s cannot be made: %s", head, strerror(errno));
    snprintf(ret, HUB_PATH_BYTES, "%s", head);
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < w->list.count; i++)
        r = add(w, &w->blobs[i], head, e);
    return r;
}

void hub_probe_remove(const char *dir)
{
    if (dir[0])
        hub_remove_tree(dir);
}
