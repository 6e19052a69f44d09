/* pack_journal.c - a line of the identity, then lines of 17 bytes. */
#include "model/load/pack_journal.h"

#include "base/check.h"
#include "base/files/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES     17 /* 16 digits and a newline */
#define IDENTITY_BYTES 512
#define FILE_BYTES_MAX ((size_t)32 << 20)

/* Where the line of part `index` begins. */
static size_t place(const char *identity, uint32_t index)
{
    return strlen(identity) + 1 + (size_t)index * LINE_BYTES;
}

static bool take_line(const char *line, uint64_t *ret)
{
    char digits[LINE_BYTES], *end;
    memcpy(digits, line, LINE_BYTES - 1);
    digits[LINE_BYTES - 1] = 0;
    *ret = strtoull(digits, &end, 16);
    return *end == 0 && line[LINE_BYTES - 1] == '\n';
}

static void take_lines(struct pack_journal *j, const char *identity, const struct small_file *f)
{
    const size_t head = place(identity, 0);
    if (f->len < head || memcmp(f->bytes, identity, head - 1) != 0 || f->bytes[head - 1] != '\n')
        return;
    while (j->part_count < j->parts_max && f->len >= place(identity, j->part_count + 1) &&
           take_line(f->bytes + place(identity, j->part_count), &j->parts[j->part_count]))
        j->part_count++;
}

static int put(struct pack_journal *j, const char *bytes, size_t len, struct err *e)
{
    ssize_t n = write(j->fd, bytes, len);
    if (n == (ssize_t)len && fdatasync(j->fd) == 0)
        return 0;
    const int r = n < 0 || n == (ssize_t)len ? -errno : -ENOSPC;
    return err_set(e, r, "the journal cannot be written: %s", strerror(-r));
}

static int begin(struct pack_journal *j, const char *identity, struct err *e)
{
    char line[IDENTITY_BYTES];
    const size_t len = place(identity, 0), keep = place(identity, j->part_count);
    ASSERT(len < sizeof(line) && !strchr(identity, '\n'));
    snprintf(line, sizeof(line), "%s\n", identity);
    if (ftruncate(j->fd, j->part_count > 0 ? (off_t)keep : 0) < 0 || lseek(j->fd, 0, SEEK_END) < 0)
        return err_set(e, -errno, "the journal cannot be written: %s", strerror(errno));
    return j->part_count > 0 ? 0 : put(j, line, len, e);
}

int pack_journal_open(const char *path, const char *identity, uint32_t parts_max, struct pack_journal *ret,
                      struct err *e)
{
    struct pack_journal j = {.parts_max = parts_max};
    struct small_file f = {0};
    j.parts = calloc((size_t)parts_max + 1, sizeof(j.parts[0]));
    j.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    int r = j.fd < 0 ? err_set(e, -errno, "%s: %s", path, strerror(errno)) : 0;
    if (r == 0 && !j.parts)
        r = err_set(e, -ENOMEM, "no memory left for the journal");
    if (r == 0 && small_file_read(path, FILE_BYTES_MAX, &f, NULL) == 0)
        take_lines(&j, identity, &f);
    small_file_done(&f);
    if (r == 0)
        r = begin(&j, identity, e);
    if (r == 0)
        *ret = j;
    else
        pack_journal_close(&j);
    return r;
}

int pack_journal_cut(struct pack_journal *j, uint32_t count, struct err *e)
{
    off_t end = lseek(j->fd, 0, SEEK_END);
    ASSERT(count <= j->part_count);
    end -= (off_t)(j->part_count - count) * LINE_BYTES;
    j->part_count = count;
    return ftruncate(j->fd, end) == 0 && lseek(j->fd, end, SEEK_SET) == end
               ? 0
               : err_set(e, -errno, "the journal cannot be written: %s", strerror(errno));
}

int pack_journal_add(struct pack_journal *j, uint64_t check, struct err *e)
{
    char line[LINE_BYTES + 1];
    ASSERT(j->part_count < j->parts_max);
    snprintf(line, sizeof(line), "%016llx\n", (unsigned long long)check);
    j->parts[j->part_count++] = check;
    return put(j, line, LINE_BYTES, e);
}

void pack_journal_close(struct pack_journal *j)
{
    if (j->fd >= 0)
        close(j->fd);
    free(j->parts);
    *j = (struct pack_journal){.fd = -1};
}
