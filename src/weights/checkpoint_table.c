/* checkpoint_table.c - tables that are made once and to size: readers count before they add. */
#include "weights/checkpoint_table.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>

/* The file's name in the model's directory. */
static void name_of(const struct checkpoint *c, const char *name, char ret[MODEL_FILES_PATH_BYTES])
{
    snprintf(ret, MODEL_FILES_PATH_BYTES, "%s%s%s", c->folder, c->folder[0] ? "/" : "", name);
}

bool checkpoint_table_has(const struct checkpoint *c, const char *name)
{
    char path[MODEL_FILES_PATH_BYTES];
    name_of(c, name, path);
    return model_files_has(c->model, path);
}

int checkpoint_table_open_file(const struct checkpoint *c, struct checkpoint_file *f, struct err *e)
{
    char name[MODEL_FILES_PATH_BYTES];
    name_of(c, f->name, name);
    int r = model_files_file(c->model, name, &f->at, e);
    return r == 0 && f->at->bytes == 0
               ? err_set(e, -EINVAL, "%s/%s is empty", model_files_path(c->model), name)
               : r;
}

int checkpoint_table_add_file(struct checkpoint *c, const char *name, size_t len, struct err *e)
{
    if (c->file_count == CHECKPOINT_FILES_MAX)
        return err_set(e, -EINVAL, "more than %d weight files", CHECKPOINT_FILES_MAX);
    char *copy = arena_strndup(c->arena, name, len);
    if (!copy)
        return -ENOMEM;
    c->files[c->file_count++] = (struct checkpoint_file){copy, NULL};
    return 0;
}

int checkpoint_table_add(struct checkpoint *c, struct slice name, uint32_t file, const struct tensor *t,
                         struct err *e)
{
    if (c->entry_count == c->entries_max)
        return err_set(e, -ESTALE, "the files were changed while they were read");
    char *copy = arena_strndup(c->arena, name.ptr, name.len);
    if (!copy)
        return -ENOMEM;
    struct slice kept = {copy, name.len};
    if (!hash_map_add(&c->by_name, kept, c->entry_count))
        return err_set(e, -EINVAL, "tensor %s occurs twice", copy);
    c->entries[c->entry_count++] = (struct checkpoint_entry){.name = copy,
                                                             .name_len = (uint32_t)name.len,
                                                             .file = file,
                                                             .found = t != NULL,
                                                             .tensor = t ? *t : (struct tensor){0}};
    c->entries[c->entry_count - 1].tensor.file = file;
    return 0;
}

int checkpoint_table_make(struct checkpoint *c, uint32_t entries_max, struct err *e)
{
    if (entries_max > CHECKPOINT_TENSORS_MAX)
        return err_set(e, -EINVAL, "more than %d tensors", CHECKPOINT_TENSORS_MAX);
    c->entries_max = entries_max;
    c->entries = ARENA_ARRAY(c->arena, struct checkpoint_entry, entries_max);
    return c->entries ? hash_map_init(&c->by_name, c->arena, MAX_OF(entries_max, 1)) : -ENOMEM;
}

int checkpoint_table_open_files(struct checkpoint *c, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < c->file_count; i++) {
        r = checkpoint_table_open_file(c, &c->files[i], e);
        c->file_bytes += r == 0 ? c->files[i].at->bytes : 0;
    }
    return r;
}
