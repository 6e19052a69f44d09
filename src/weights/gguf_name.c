/* gguf_name.c - a part's name is accepted only as the writer prints it, so that a part has one name. */
#include "weights/gguf_name.h"

#include "base/slice.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define TAIL_FORMAT "-%05u-of-%05u.gguf"
#define TAIL_BYTES  20 /* of what it prints for parts up to 99999 */
#define ENDING      ".gguf"

bool gguf_name_is(const char *name)
{
    return slice_ends(slice_of(name), SLICE(ENDING));
}

bool gguf_name_is_mmproj(const char *name)
{
    const char *at = strstr(name, "mmproj");
    return gguf_name_is(name) && at && (at == name || strchr(".-_", at[-1]));
}

bool gguf_name_is_weights(const char *name)
{
    return gguf_name_is(name) && !gguf_name_is_mmproj(name);
}

size_t gguf_name_part(const char *name, uint32_t *index, uint32_t *count)
{
    size_t len = strlen(name);
    char again[TAIL_BYTES + 1];
    if (len <= TAIL_BYTES || sscanf(name + len - TAIL_BYTES, "-%5u-of-%5u", index, count) != 2 ||
        *index > GGUF_PARTS_MAX || *count > GGUF_PARTS_MAX)
        return 0;
    snprintf(again, sizeof(again), TAIL_FORMAT, *index, *count);
    return strcmp(again, name + len - TAIL_BYTES) == 0 ? len - TAIL_BYTES : 0;
}

void gguf_name_of_part(const char *name, size_t len, uint32_t index, uint32_t count, char *ret, size_t bytes)
{
    snprintf(ret, bytes, "%.*s" TAIL_FORMAT, (int)len, name, index, count);
}

bool gguf_name_same_model(const char *a, const char *b)
{
    uint32_t i, m, j, n;
    size_t len = gguf_name_part(a, &i, &m);
    return len > 0 && len == gguf_name_part(b, &j, &n) && m == n && memcmp(a, b, len) == 0;
}

size_t gguf_name_model(const char *name)
{
    uint32_t index, count;
    size_t len = gguf_name_part(name, &index, &count);
    if (len > 0)
        return len;
    len = strlen(name);
    return gguf_name_is(name) && len > strlen(ENDING) ? len - strlen(ENDING) : len;
}

bool gguf_name_leads(struct dirent *const *names, int index)
{
    uint32_t part, count;
    const char *name = names[index]->d_name;
    if (!gguf_name_is_weights(name))
        return false;
    if (gguf_name_part(name, &part, &count) == 0 || part <= 1)
        return true;
    for (int i = 0; i < index; i++)
        if (gguf_name_same_model(names[i]->d_name, name))
            return false;
    return true;
}
