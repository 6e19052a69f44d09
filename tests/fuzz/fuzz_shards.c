/* A directory of weights: an index and two files, from one input. What must hold: no crash, a refusal has a
 * sentence, every tensor that is listed is found, and lies in one of the files that are there. */
#include "model_path.h"

#include "weights/checkpoint.h"

#include "base/check.h"
#include "base/slice.h"
#include "tensor/tensor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct slice;

#define PARTS 3

static const char *const names[PARTS] = {"model.safetensors.index.json", "a.safetensors", "b.safetensors"};
static char dir[64];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void clean(void)
{
    char path[128];
    for (size_t i = 0; i < PARTS; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    snprintf(dir, sizeof(dir), "/tmp/plateau-fuzz-XXXXXX");
    ASSERT(mkdtemp(dir));
    atexit(clean);
    return 0;
}

static void write_part(const char *name, struct slice bytes)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ASSERT(fd >= 0 && write(fd, bytes.ptr ? bytes.ptr : "", bytes.len) == (ssize_t)bytes.len);
    close(fd);
}

/* Files end at a byte of 0xff, which is in no UTF-8 and in the header's length of no file. The length of a
 * header is put right in every other input, for a mutation hardly ever drafts it. */
static void write_weights(const char *name, struct slice part, bool fitted)
{
    uint64_t header_bytes = part.len > 8 ? slice_find(part, SLICE("}}"), 8) : SIZE_MAX;
    if (!fitted || header_bytes == SIZE_MAX) {
        write_part(name, part);
        return;
    }
    char *copy = malloc(part.len);
    ASSERT(copy);
    memcpy(copy, part.ptr, part.len);
    header_bytes = header_bytes + 2 - 8;
    memcpy(copy, &header_bytes, sizeof(header_bytes));
    write_part(name, (struct slice){copy, part.len});
    free(copy);
}

static void check(struct checkpoint *c)
{
    for (uint32_t i = 0; i < checkpoint_count(c); i++) {
        struct tensor t;
        const char *name = checkpoint_name(c, i), *file = checkpoint_file_of(c, name);
        ASSERT(checkpoint_find(c, name, &t) && file);
        ASSERT(strcmp(file, names[1]) == 0 || strcmp(file, names[2]) == 0);
        ASSERT(t.bytes <= checkpoint_bytes(c));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice rest = {(const char *)data, size};
    bool fitted = size > 0 && data[0] % 2;
    for (size_t i = 0; i < PARTS; i++) {
        rest = slice_sub(rest, i == 0, rest.len);
        const char *end = rest.len ? memchr(rest.ptr, 0xff, rest.len) : NULL;
        struct slice part = slice_sub(rest, 0, end ? (size_t)(end - rest.ptr) : rest.len);
        i == 0 ? write_part(names[i], part) : write_weights(names[i], part, fitted);
        rest = slice_sub(rest, part.len + 1, rest.len);
    }
    struct arena *a = NULL;
    struct arena_opts opts = {.bytes_max = (size_t)256 << 20};
    struct checkpoint *c = NULL;
    struct err e = {{0}};
    if (arena_create(&opts, &a) < 0)
        return 0;
    int r = checkpoint_open_at(a, dir, NULL, &c, &e);
    ASSERT(r == 0 || (r < 0 && e.text[0]));
    if (r == 0)
        check(c);
    checkpoint_close_at();
    arena_free(a);
    return 0;
}
