/* pack.c - a load whose memory is the file.
 *
 * The weights of the text model and of the MTP head are two regions of OUT.part after its first page, cut
 * into parts. The binder fills them front to back, so all bytes before its last take are complete. A complete
 * part goes to disk, and then its checksum to the journal. So a process that is killed leaves parts that the
 * next one can check. The first page is written last. */
#include "model/load/pack.h"

#include "model/blocks/forward.h"
#include "model/blocks/mtp.h"
#include "model/config/config.h"
#include "model/load/pack_files.h"
#include "model/load/pack_journal.h"
#include "model/load/packed.h"
#include "model/load/vision_weights.h"
#include "model/load/weight_memory.h"

#include "base/check.h"
#include "base/json/json_dumped.h"
#include "compute/backend.h"
#include "compute/device.h"
#include "memory/domain.h"
#include "tensor/quantise.h"
#include "weights/checkpoint.h"
#include "weights/model_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES        BUNDLE_PATH_BYTES
#define CONFIG_BYTES_MAX  ((size_t)64 << 20)
#define TABLE_BYTES_MAX   ((size_t)BUNDLE_TABLE_BYTES_MAX)
#define WEIGHTS_BYTES_MAX ((uint64_t)1 << 44)

struct region {
    uint64_t used, bytes; /* bytes: whole pages */
    uint32_t first, parts;
    struct weight_memory memory;
};

struct packing {
    const struct pack_opts *opts;
    struct model_files *files;
    const char *dir, *out; /* dir: their path */
    struct packed_about about;
    struct config config;
    struct source source;
    struct arena *tables;
    struct measured measured;

    char part_path[PATH_BYTES], journal_path[PATH_BYTES];
    int fd;
    struct pack_journal journal;
    uint64_t part_bytes;
    struct region text, head;
    char *map;
    uint64_t map_bytes;
    uint32_t resumed;        /* parts */
    struct region *at;       /* that is filled now */
    const struct binder *by; /* that fills it */
    struct err *e;
    int error; /* first error of a part */
};

/* ---- paths ---- */

static int join(const char *path, const char *tail, char ret[PATH_BYTES], struct err *e)
{
    return (size_t)snprintf(ret, PATH_BYTES, "%s%s", path, tail) < PATH_BYTES
               ? 0
               : err_set(e, -ENAMETOOLONG, "the path %s is too long", path);
}

static int open_part(struct packing *p, struct err *e)
{
    struct stat st;
    if (!p->opts->replace && stat(p->out, &st) == 0)
        return err_set(e, -EEXIST, "%s exists: name another file, or give --yes to replace it", p->out);
    int r = join(p->out, ".part", p->part_path, e);
    if (r == 0)
        r = join(p->out, ".journal", p->journal_path, e);
    if (r < 0)
        return r;
    p->fd = open(p->part_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (p->fd < 0)
        return err_set(e, -errno, "%s: %s", p->part_path, strerror(errno));
    if (flock(p->fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(e, -EBUSY, "%s: another process packs to it", p->part_path);
    return 0;
}

/* ---- the source ---- */

static int measure(struct packing *p, struct err *e)
{
    struct model_parts parts = {.backend = p->opts->device->backend,
                                .compute = p->opts->compute,
                                .quant = p->opts->quant,
                                .vision = true,
                                .mtp = true,
                                .drafts_max = 1};
    if (!parts.backend->layout)
        return err_set(e, -ENOTSUP, "files are packed for the CPU, and not for device %s",
                       parts.backend->name);
    if (model_files_bundle(p->files))
        return err_set(e, -ENOTSUP, "%s is a packed file: pack the model that it was packed from", p->dir);
    int r = measure_check_parts(&parts, e);
    if (r == 0)
        r = measure_arena(NULL, CONFIG_BYTES_MAX, &p->tables);
    if (r == 0)
        r = config_load(p->tables, p->files, &p->config, e);
    if (r == 0)
        config_serve(&p->config, 0);
    if (r == 0)
        r = measure_source_open(&p->source, p->files, p->opts->parent, e);
    if (r == 0)
        r = measure_model(&p->config, &parts, p->files, &p->source, &p->measured, e);
    return r;
}

static void describe(struct packing *p)
{
    const struct measured *m = &p->measured;
    const char *slash = strrchr(p->dir, '/');
    p->about = (struct packed_about){.compute = p->config.compute,
                                     .quant = p->config.quant,
                                     .text = m->text_mark,
                                     .all = {m->text.used, m->text.digest}};
    if (p->config.mtp_count)
        p->about.head = m->head_mark;
    snprintf(p->about.source, sizeof(p->about.source), "%s", slash && slash[1] ? slash + 1 : p->dir);
    snprintf(p->about.fingerprint, sizeof(p->about.fingerprint), "%s", p->opts->fingerprint);
    snprintf(p->about.layout, sizeof(p->about.layout), "%s", p->config.backend->layout);
    snprintf(p->about.program, sizeof(p->about.program), "%s", PLATEAU_VERSION);
}

/* ---- parts ---- */

static struct region region_of(const struct packing *p, uint64_t used, uint32_t first)
{
    const uint64_t bytes = ROUND_UP(used, PACKED_PAGE), part = p->part_bytes;
    return (struct region){
        .used = used, .bytes = bytes, .first = first, .parts = (uint32_t)((bytes + part - 1) / part)};
}

/* Part `index` of the region, at its place in the file. */
static struct file_part part_at(const struct packing *p, const struct region *r, uint32_t index)
{
    const uint64_t from = index * p->part_bytes, begin = r == &p->head ? p->text.bytes : 0;
    return (struct file_part){.from = from,
                              .bytes = MIN_OF(p->part_bytes, r->bytes - from),
                              .at = BUNDLE_PAGE + begin + from,
                              .check = p->journal.parts[r->first + index]};
}

static char *mapped_part(const struct packing *p, const struct file_part *part)
{
    return p->map + (part->at - BUNDLE_PAGE);
}

/* A part that is complete: to disk, and then into the journal. */
static int finish_part(struct packing *p, const struct region *r, uint32_t index, struct err *e)
{
    const struct file_part part = part_at(p, r, index);
    char *at = mapped_part(p, &part);
    if (msync(at, (size_t)part.bytes, MS_SYNC) < 0)
        return err_set(e, -errno, "%s cannot be written: %s", p->part_path, strerror(errno));
    int error = pack_journal_add(&p->journal, bundle_check_of(at, (size_t)part.bytes), e);
    (void)madvise(at, (size_t)part.bytes, MADV_DONTNEED); /* the page cache's alone from now on */
    return error;
}

/* All parts that end before byte `end` of the region. */
static int finish_parts(struct packing *p, uint64_t end)
{
    struct region *r = p->at;
    int error = 0;
    for (uint32_t i = p->journal.part_count - r->first; error == 0 && i < r->parts; i++) {
        const struct file_part part = part_at(p, r, i);
        if (part.from + part.bytes > end)
            break;
        error = finish_part(p, r, i, p->e);
    }
    return error;
}

/* The binder's, after each piece. */
static int advance(void *arg, uint64_t done, uint64_t total)
{
    struct packing *p = arg;
    const struct pack_opts *o = p->opts;
    p->error = finish_parts(p, p->by->taken_from);
    if (p->error == 0 && o->progress && o->progress(o->progress_arg, done, total) != 0)
        p->error = -ECANCELED;
    return p->error;
}

/* ---- parts of an earlier call ---- */

/* How many parts of the journal are what the file has. */
static uint32_t complete(const struct packing *p)
{
    for (uint32_t i = 0; i < p->journal.part_count; i++) {
        const struct region *r = i < p->head.first ? &p->text : &p->head;
        const struct file_part part = part_at(p, r, i - r->first);
        struct stat st;
        if (fstat(p->fd, &st) < 0 || (uint64_t)st.st_size < part.at + part.bytes ||
            bundle_check_of(mapped_part(p, &part), (size_t)part.bytes) != part.check)
            return i;
    }
    return p->journal.part_count;
}

/* The bytes after the complete parts become zeros, which packing expects. */
static int make_room(struct packing *p, struct err *e)
{
    const struct region *r = p->resumed < p->head.first ? &p->text : &p->head;
    uint64_t done = r == &p->head ? p->text.bytes : 0;
    done += MIN_OF((p->resumed - r->first) * p->part_bytes, r->bytes);
    if (ftruncate(p->fd, (off_t)(BUNDLE_PAGE + done)) < 0)
        return err_set(e, -errno, "%s: %s", p->part_path, strerror(errno));
    const int error = posix_fallocate(p->fd, 0, (off_t)(BUNDLE_PAGE + p->map_bytes));
    return error == 0 ? 0
                      : err_set(e, -error, "%s: %llu bytes: %s", p->part_path,
                                (ull)(BUNDLE_PAGE + p->map_bytes), strerror(error));
}

static int open_regions(struct packing *p, struct err *e)
{
    char identity[256];
    const struct packed_about *a = &p->about;
    p->text = region_of(p, a->all.used, 0);
    p->head = region_of(p, a->head.used, p->text.parts);
    p->map_bytes = p->text.bytes + p->head.bytes;
    if (p->map_bytes == 0 || p->map_bytes > WEIGHTS_BYTES_MAX)
        return err_set(e, -E2BIG, "%llu bytes of weights cannot be packed", (ull)p->map_bytes);
    snprintf(identity, sizeof(identity), "plateau pack 1 %s %s %s %s %016llx %016llx %llu %llu %llu",
             a->fingerprint, a->layout, compute_mode_name(a->compute), quantise_name(a->quant),
             (ull)a->all.digest, (ull)a->head.digest, (ull)a->all.used, (ull)a->head.used,
             (ull)p->part_bytes);
    int r = pack_journal_open(p->journal_path, identity, p->text.parts + p->head.parts, &p->journal, e);
    if (r < 0)
        return r;
    void *map = mmap(NULL, (size_t)p->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, BUNDLE_PAGE);
    if (map == MAP_FAILED)
        return err_set(e, -errno, "%s cannot be mapped: %s", p->part_path, strerror(errno));
    p->map = map;
    p->resumed = complete(p);
    r = pack_journal_cut(&p->journal, p->resumed, e);
    return r == 0 ? make_room(p, e) : r;
}

/* ---- packing ---- */

static void prepare(struct packing *p, struct region *r, struct binder *b)
{
    const uint32_t done = p->resumed > r->first ? MIN_OF(p->resumed - r->first, r->parts) : 0;
    r->memory = (struct weight_memory){.domain = domain_machine(),
                                       .base = dev_of_host(p->map + (r == &p->head ? p->text.bytes : 0)),
                                       .bytes = (size_t)ROUND_UP(r->bytes, (uint64_t)UNIT_BYTES),
                                       .committed = (size_t)ROUND_UP(r->bytes, (uint64_t)UNIT_BYTES)};
    b->memory = &r->memory;
    b->packers = &p->source.packers;
    b->device = p->opts->device;
    b->ready = MIN_OF(done * p->part_bytes, r->used);
    b->progress = advance;
    b->progress_arg = p;
    b->e = p->e;
    b->used = b->digest = b->source_bytes = 0;
    p->at = r;
    p->by = b;
}

static int pack_head(struct packing *p)
{
    struct binder b = p->measured.mtp;
    struct mtp_weights weights;
    prepare(p, &p->head, &b);
    b.packed_bytes = p->measured.text.source_bytes;
    b.source_bytes_total = b.packed_bytes + p->measured.mtp.source_bytes;
    int r = mtp_bind(&b, &weights);
    ASSERT(r < 0 || b.digest == p->about.head.digest);
    return r == 0 ? finish_parts(p, p->head.bytes) : r;
}

static int pack_text(struct packing *p)
{
    struct binder b = p->measured.text;
    struct model_ends ends;
    struct vision_weights vision;
    struct bind_mark mark;
    prepare(p, &p->text, &b);
    b.source_bytes_total =
        p->measured.text.source_bytes + (p->config.mtp_count ? p->measured.mtp.source_bytes : 0);
    b.packed_bytes = p->text.used ? b.ready * p->measured.text.source_bytes / p->text.used : 0;
    const struct bind_targets nowhere = {.ends = &ends, .vision = &vision};
    int r = measure_bind(&b, &nowhere, &mark);
    ASSERT(r < 0 || b.digest == p->about.all.digest);
    return r == 0 ? finish_parts(p, p->text.bytes) : r;
}

static int pack(struct packing *p, struct err *e)
{
    int r = measure_source_begin(&p->source, p->opts->device, measure_staging_bytes(&p->measured), e);
    if (r == 0)
        r = pack_text(p);
    if (r == 0 && p->config.mtp_count)
        r = pack_head(p);
    if (p->error == -ECANCELED)
        return err_set(e, p->error,
                       "stopped; the complete parts stay in %s, and the same command goes on with it",
                       p->part_path);
    return r == 0 ? checkpoint_check(p->source.checkpoint, e) : r;
}

/* ---- the rest of the file ---- */

static void put_region(struct packing *p, struct pack_files *files, const char *name, const struct region *r)
{
    if (r->parts == 0)
        return;
    bundle_put_file(&files->table, name, r->bytes, r->parts);
    files->count++;
    for (uint32_t i = 0; i < r->parts; i++) {
        const struct file_part part = part_at(p, r, i);
        bundle_put_part(&files->table, &part);
    }
}

static int put_about(struct packing *p, struct pack_files *files, struct err *e)
{
    json_t *about = packed_about_json(&p->about);
    char *text = about ? json_dumps(about, JSON_INDENT(1)) : NULL;
    int r = text ? pack_files_put(files, PACKED_ABOUT, slice_of(text), e)
                 : err_set(e, -ENOMEM, "no memory left to describe it");
    json_dumped_free(text);
    json_decref(about);
    return r;
}

static int put_table(struct packing *p, struct pack_files *files, uint64_t *bytes, struct err *e)
{
    struct buf table;
    char page[BUNDLE_PAGE];
    buf_init(&table, TABLE_BYTES_MAX, NULL);
    bundle_put_count(&table, files->count);
    buf_put_slice(&table, buf_slice(&files->table));
    int r = files->count > BUNDLE_FILES_MAX || table.error || files->table.error
                ? err_set(e, -E2BIG, "the table of its files is too large")
                : 0;
    if (r == 0)
        bundle_make_page(buf_slice(&table), files->at, page);
    if (r == 0 && (pwrite(p->fd, table.ptr, table.len, (off_t)files->at) != (ssize_t)table.len ||
                   ftruncate(p->fd, (off_t)(files->at + table.len)) < 0 || fdatasync(p->fd) < 0 ||
                   pwrite(p->fd, page, sizeof(page), 0) != (ssize_t)sizeof(page) || fsync(p->fd) < 0))
        r = err_set(e, errno ? -errno : -ENOSPC, "%s cannot be written: %s", p->part_path, strerror(errno));
    *bytes = files->at + table.len;
    buf_done(&table);
    return r;
}

/* A rename is on disk when its folder is. */
static void sync_folder(const char *path)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

static int finish(struct packing *p, struct pack_result *ret, struct err *e)
{
    struct pack_files files = {.fd = p->fd, .at = BUNDLE_PAGE + p->map_bytes};
    uint64_t bytes = 0;
    buf_init(&files.table, TABLE_BYTES_MAX, NULL);
    put_region(p, &files, PACKED_WEIGHTS, &p->text);
    put_region(p, &files, PACKED_HEAD, &p->head);
    int r = put_about(p, &files, e);
    if (r == 0)
        r = pack_files_add(&files, p->files, &p->source, e);
    if (r == 0)
        r = put_table(p, &files, &bytes, e);
    buf_done(&files.table);
    if (r == 0 && rename(p->part_path, p->out) < 0)
        r = err_set(e, -errno, "%s: %s", p->out, strerror(errno));
    if (r < 0)
        return r;
    (void)unlink(p->journal_path);
    sync_folder(p->out);
    *ret = (struct pack_result){bytes, p->map_bytes, MIN_OF(p->resumed * p->part_bytes, p->map_bytes)};
    return 0;
}

int pack_model(struct model_files *files, const char *out, const struct pack_opts *opts,
               struct pack_result *ret, struct err *e)
{
    struct packing *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(e, -ENOMEM, "no memory left to pack");
    p->opts = opts;
    p->files = files;
    p->dir = model_files_path(files);
    p->out = out;
    p->e = e;
    p->fd = p->journal.fd = -1;
    p->part_bytes = opts->part_bytes ? opts->part_bytes : PACKED_PART_BYTES;
    ASSERT(p->part_bytes % PACKED_PAGE == 0);
    int r = measure(p, e);
    if (r == 0) {
        describe(p);
        r = open_part(p, e);
    }
    if (r == 0)
        r = open_regions(p, e);
    if (r == 0)
        r = pack(p, e);
    if (r == 0)
        r = finish(p, ret, e);
    if (p->map)
        munmap(p->map, (size_t)p->map_bytes);
    pack_journal_close(&p->journal);
    if (p->fd >= 0)
        close(p->fd);
    measure_source_close(&p->source);
    arena_free(p->tables);
    free(p);
    return r;
}
