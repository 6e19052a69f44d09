/* mk_write.c - the file is written front to back in large pieces; it gets its name when it is whole. */
#include "mkmodel/mk_write.h"

#include "mkmodel/mk_tensors.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PIECE_BYTES     ((size_t)8 << 20)
#define ROOM_SPARE      ((uint64_t)64 << 20)
#define HEADER_PER_NAME 256 /* name, dtype, shape and offsets of one tensor */

static int list(const struct mk_write_opts *o, struct mk_tensors *ret, struct err *e)
{
    uint32_t layers = o->layers ? o->layers : o->shape->layers;
    if (!mk_form_fits(o->form, o->shape))
        return err_set(e, -EINVAL, "%s is for dense models, and %s is not one", o->form->name,
                       o->shape->name);
    if (layers > o->shape->layers)
        return err_set(e, -EINVAL, "%u layers, but %s has %u", layers, o->shape->name, o->shape->layers);
    int r = mk_tensors_list(o->shape, o->form, layers, ret);
    return r < 0 ? err_set(e, r, "no memory left for a list of tensors") : 0;
}

/* ---- header ---- */

static size_t header_entry(char *at, size_t room, const struct mk_tensor *t, uint64_t begin)
{
    char shape[80];
    size_t n = 0;
    for (uint32_t i = 0; i < t->rank; i++)
        n += (size_t)snprintf(shape + n, sizeof(shape) - n, "%s%llu", i ? "," : "",
                              (unsigned long long)t->dims[i]);
    return (size_t)snprintf(at, room,
                            "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                            begin ? "," : "{", t->name, mk_tensor_dtype(t), shape, (unsigned long long)begin,
                            (unsigned long long)(begin + t->bytes));
}

/* Length and JSON, padded with spaces to whole eights. malloc'ed; NULL without memory. */
static char *make_header(const struct mk_tensors *l, size_t *ret_bytes)
{
    size_t room = 8 + (size_t)l->count * HEADER_PER_NAME + 16, at = 8;
    char *header = malloc(room);
    uint64_t begin = 0;
    if (!header)
        return NULL;
    for (uint32_t i = 0; i < l->count; i++) {
        at += header_entry(header + at, room - at, &l->list[i], begin);
        ASSERT(at + 16 <= room);
        begin += l->list[i].bytes;
    }
    header[at++] = '}';
    while (at % 8 != 0)
        header[at++] = ' ';
    uint64_t len = at - 8;
    memcpy(header, &len, sizeof(len));
    *ret_bytes = at;
    return header;
}

int mk_write_bytes(const struct mk_write_opts *o, uint64_t *ret, struct err *e)
{
    struct mk_tensors tensors;
    size_t header_bytes;
    int r = list(o, &tensors, e);
    if (r < 0)
        return r;
    char *header = make_header(&tensors, &header_bytes);
    if (header)
        *ret = header_bytes + tensors.bytes;
    else
        r = err_set(e, -ENOMEM, "no memory left for a header");
    free(header);
    mk_tensors_done(&tensors);
    return r;
}

/* ---- data ---- */

static int write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

static int write_tensor(int fd, const struct mk_tensor *t, uint64_t seed, char *piece)
{
    int r = 0;
    for (uint64_t from = 0; r == 0 && from < t->bytes; from += PIECE_BYTES) {
        size_t len = MIN_OF(PIECE_BYTES, t->bytes - from);
        mk_tensor_fill(t, seed, from, len, piece);
        r = write_all(fd, piece, len);
    }
    return r;
}

static int write_data(int fd, const struct mk_tensors *l, uint64_t seed)
{
    size_t header_bytes = 0;
    char *header = make_header(l, &header_bytes), *piece = malloc(PIECE_BYTES);
    int r = header && piece ? 0 : -ENOMEM;
    /* Now, if the disk fills up; a file system that cannot reserve says so later. */
    if (r == 0 && posix_fallocate(fd, 0, (off_t)(header_bytes + l->bytes)) == ENOSPC)
        r = -ENOSPC;
    if (r == 0)
        r = write_all(fd, header, header_bytes);
    for (uint32_t i = 0; r == 0 && i < l->count; i++)
        r = write_tensor(fd, &l->list[i], seed, piece);
    free(header);
    free(piece);
    return r;
}

/* ---- files ---- */

struct place {
    char config[4096], weights[4096], part[4096];
};

static int find_difference(const char *dir, struct place *ret, struct err *e)
{
    struct stat st;
    int n = snprintf(ret->part, sizeof(ret->part), "%s/model.safetensors.part", dir);
    if (n < 0 || (size_t)n >= sizeof(ret->part))
        return err_set(e, -ENAMETOOLONG, "the directory's name is too long");
    snprintf(ret->weights, sizeof(ret->weights), "%s/model.safetensors", dir);
    snprintf(ret->config, sizeof(ret->config), "%s/config.json", dir);
    if (stat(ret->config, &st) == 0)
        return err_set(e, -EEXIST, "%s exists: a model is never overwritten", ret->config);
    return 0;
}

/* `dir` itself, or what it will lie in. */
static int check_room(const char *dir, uint64_t bytes, struct err *e)
{
    struct statvfs v;
    char parent[4096];
    int r = statvfs(dir, &v);
    if (r < 0 && errno == ENOENT) {
        snprintf(parent, sizeof(parent), "%s", dir);
        char *slash = strrchr(parent, '/');
        if (slash)
            slash[slash == parent] = 0;
        r = statvfs(slash ? parent : ".", &v);
    }
    if (r < 0)
        return err_set(e, -errno, "%s: %s", dir, strerror(errno));
    uint64_t room = (uint64_t)v.f_bavail * v.f_frsize;
    if (bytes + ROOM_SPARE > room)
        return err_set(e, -ENOSPC,
                       "%s: %llu MiB are needed and %llu MiB must stay free, but only %llu MiB are", dir,
                       (unsigned long long)(bytes >> 20), (unsigned long long)(ROOM_SPARE >> 20),
                       (unsigned long long)(room >> 20));
    return 0;
}

static int write_weights(const struct place *p, const struct mk_tensors *l, uint64_t seed)
{
    int fd = open(p->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    int r = write_data(fd, l, seed);
    if (close(fd) < 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(p->part, p->weights) < 0)
        r = -errno;
    if (r < 0)
        unlink(p->part);
    return r;
}

static int write_config(const struct place *p, const struct mk_write_opts *o)
{
    FILE *f = fopen(p->config, "wbe");
    if (!f)
        return -errno;
    mk_shape_config(f, o->shape, o->form, o->layers ? o->layers : o->shape->layers);
    int r = ferror(f) ? -EIO : 0;
    if (fclose(f) != 0 && r == 0)
        r = -errno;
    if (r < 0)
        unlink(p->config);
    return r;
}

int mk_write(const struct mk_write_opts *o, const char *dir, struct err *e)
{
    struct place place;
    struct mk_tensors tensors = {0};
    uint64_t bytes = 0;
    int r = find_difference(dir, &place, e);
    if (r == 0)
        r = mk_write_bytes(o, &bytes, e);
    if (r == 0)
        r = check_room(dir, bytes, e);
    if (r == 0)
        r = list(o, &tensors, e);
    if (r < 0)
        return r;
    r = mkdir(dir, 0755) < 0 && errno != EEXIST ? -errno : 0;
    if (r == 0)
        r = write_weights(&place, &tensors, o->seed);
    if (r == 0)
        r = write_config(&place, o);
    mk_tensors_done(&tensors);
    return r < 0 ? err_set(e, r, "%s: %s", dir, strerror(-r)) : 0;
}
