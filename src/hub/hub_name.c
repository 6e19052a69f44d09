/* hub_name.c - a strict list of characters, because names become parts of paths and addresses. */
#include "hub/hub_name.h"

#include <stdio.h>

#define DASHES "--"

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* ORG or NAME. */
static bool is_part(struct slice s)
{
    if (s.len == 0 || s.ptr[0] == '.' || s.ptr[0] == '-' || slice_find(s, SLICE(DASHES), 0) != SIZE_MAX ||
        slice_find(s, SLICE(".."), 0) != SIZE_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (!is_word(s.ptr[i]) && s.ptr[i] != '.' && s.ptr[i] != '-')
            return false;
    return true;
}

bool hub_revision_is_valid(struct slice s)
{
    size_t from = 0;
    if (s.len == 0 || s.len >= HUB_REVISION_BYTES || s.ptr[0] == '-')
        return false;
    for (size_t i = 0; i <= s.len; i++) {
        if (i < s.len && s.ptr[i] != '/') {
            if (!is_word(s.ptr[i]) && !strchr(".-+", s.ptr[i]))
                return false;
            continue;
        }
        if (i == from || s.ptr[from] == '.')
            return false;
        from = i + 1;
    }
    return true;
}

bool hub_commit_is_valid(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (slice_hex(s.ptr[i]) < 0 || (s.ptr[i] >= 'A' && s.ptr[i] <= 'F'))
            return false;
    return s.len == 40;
}

static bool is_quant(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!is_word(s.ptr[i]) && !strchr(".-+", s.ptr[i]))
            return false;
    return s.len > 0 && s.len < HUB_QUANT_BYTES;
}

/* Cuts `all` before its first `mark`, and returns the rest behind it; without one, `usual`. */
static struct slice cut(struct slice *all, char mark, struct slice usual)
{
    const char *at = memchr(all->ptr, mark, all->len);
    if (!at)
        return usual;
    const size_t len = (size_t)(at - all->ptr);
    const struct slice rest = slice_sub(*all, len + 1, all->len);
    all->len = len;
    return rest;
}

bool hub_name_parse(const char *text, struct hub_name *ret)
{
    struct slice all = slice_of(text);
    const bool has_quant = strchr(text, ':') != NULL;
    const struct slice quant = cut(&all, ':', SLICE(""));
    const struct slice revision = cut(&all, '@', SLICE("main"));
    const char *slash = memchr(all.ptr, '/', all.len);
    if (!slash || all.len >= HUB_ID_BYTES || !hub_revision_is_valid(revision) ||
        (has_quant && !is_quant(quant)))
        return false;
    size_t org = (size_t)(slash - all.ptr);
    if (!is_part(slice_sub(all, 0, org)) || !is_part(slice_sub(all, org + 1, all.len)))
        return false;
    snprintf(ret->id, sizeof(ret->id), "%.*s", SLICE_ARGS(all));
    snprintf(ret->revision, sizeof(ret->revision), "%.*s", SLICE_ARGS(revision));
    snprintf(ret->quant, sizeof(ret->quant), "%.*s", SLICE_ARGS(quant));
    return true;
}

bool hub_name_of_folder(const char *folder, struct hub_name *ret)
{
    struct slice s = slice_of(folder), head = SLICE(HUB_FOLDER_HEAD);
    if (!slice_starts(s, head) || s.len - head.len >= HUB_ID_BYTES)
        return false;
    s = slice_sub(s, head.len, s.len);
    size_t at = slice_find(s, SLICE(DASHES), 0);
    struct slice org = slice_sub(s, 0, at == SIZE_MAX ? 0 : at);
    struct slice name = at == SIZE_MAX ? s : slice_sub(s, at + strlen(DASHES), s.len);
    if (!is_part(name) || (at != SIZE_MAX && !is_part(org)))
        return false;
    snprintf(ret->id, sizeof(ret->id), "%.*s%s%.*s", SLICE_ARGS(org), org.len ? "/" : "", SLICE_ARGS(name));
    snprintf(ret->revision, sizeof(ret->revision), "main");
    ret->quant[0] = 0;
    return true;
}

void hub_name_text(const struct hub_name *n, char ret[HUB_NAME_BYTES])
{
    const bool main = strcmp(n->revision, "main") == 0;
    snprintf(ret, HUB_NAME_BYTES, "%s%s%s%s%s", n->id, main ? "" : "@", main ? "" : n->revision,
             n->quant[0] ? ":" : "", n->quant);
}

void hub_name_folder(const struct hub_name *n, char ret[HUB_ID_BYTES + 16])
{
    int org = (int)strcspn(n->id, "/");
    if (n->id[org])
        snprintf(ret, HUB_ID_BYTES + 16, HUB_FOLDER_HEAD "%.*s" DASHES "%s", org, n->id, n->id + org + 1);
    else
        snprintf(ret, HUB_ID_BYTES + 16, HUB_FOLDER_HEAD "%s", n->id);
}

const char *hub_name_last(const struct hub_name *n)
{
    const char *slash = strrchr(n->id, '/');
    return slash ? slash + 1 : n->id;
}

enum { PART_BYTES_MAX = 255 };
_Static_assert(HUB_FILE_DEPTH_MAX *(PART_BYTES_MAX + 1) <= HUB_FILE_BYTES_MAX, "a valid name fits");

static bool is_file_part(struct slice s)
{
    return s.len > 0 && s.len <= PART_BYTES_MAX && !slice_eq(s, SLICE(".")) && !slice_eq(s, SLICE(".."));
}

bool hub_file_is_valid(struct slice s)
{
    size_t from = 0, parts = 0;
    for (size_t i = 0; i <= s.len; i++) {
        if (i < s.len && ((unsigned char)s.ptr[i] < 0x20 || s.ptr[i] == 0x7f || s.ptr[i] == '\\'))
            return false;
        if (i < s.len && s.ptr[i] != '/')
            continue;
        if (!is_file_part(slice_sub(s, from, i - from)))
            return false;
        from = i + 1;
        parts++;
    }
    return parts <= HUB_FILE_DEPTH_MAX;
}
