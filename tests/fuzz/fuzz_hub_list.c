/* The hub's list of files, as any bytes. Invariants: no crash; every file that is kept has a name that stays
 * below its directory, and a sum of the right length or none; what is chosen is a part of the list, without
 * code and pickles; GGUF models have names, by which each is found, and keep files of the list. */
#include "base/check.h"
#include "hub/hub_variants.h"
#include "hub/hub_list.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_file(const struct hub_file *f)
{
    struct slice name = slice_of(f->name);
    size_t sum = strlen(f->etag);
    ASSERT(hub_file_is_valid(name) && name.ptr[0] != '/' && !memchr(name.ptr, '\\', name.len));
    ASSERT(!slice_starts(name, SLICE("../")) && slice_find(name, SLICE("/../"), 0) == SIZE_MAX &&
           !slice_ends(name, SLICE("/..")));
    ASSERT(sum == 0 || sum == (f->sha256 ? 64 : 40));
    ASSERT(sum == 0 || f->sha256 || f->bytes <= HUB_SMALL_BYTES_MAX);
}

static void choose(struct hub_list *l, const char *const *include, struct slice index)
{
    struct err e;
    const uint32_t before = l->count;
    uint32_t weights = 0;
    if (hub_list_choose(l, include, index, &e) < 0) {
        ASSERT(l->count == before && e.text[0]);
        return;
    }
    for (uint32_t i = 0; i < l->count; i++) {
        struct slice name = slice_of(l->files[i].name);
        ASSERT(!slice_ends(name, SLICE(".py")) && !slice_ends(name, SLICE(".bin")) &&
               !slice_ends(name, SLICE(".pkl")));
        weights += hub_file_is_weights(&l->files[i]);
        ASSERT(hub_list_find(l, l->files[i].name));
    }
    ASSERT(l->count <= before && weights > 0);
}

static void find_ggufs(struct hub_list *l)
{
    static const char *const none[] = {NULL};
    static bool chosen[HUB_VARIANTS_MAX];
    const struct hub_name name = {.id = "a/b"};
    struct hub_variants g;
    struct err e;
    char text[256];
    if (hub_variants_of_list(l, &g, &e) == 0 && g.count > 0) {
        ASSERT(hub_variants_suggest(&g, 1 << 20) < g.count);
        hub_variants_text(&g, text, sizeof(text));
        for (uint32_t i = 0; i < g.count; i++) {
            const struct hub_variant *found;
            struct hub_name one = name;
            memcpy(one.quant, g.list[i].quant, sizeof(one.quant));
            int r = hub_variants_find(&g, &one, &found, &e);
            ASSERT(r == 0 || r == -ENOTUNIQ || r == -ENOENT);
            ASSERT(hub_list_find(l, g.list[i].file) && hub_variant_has(&g.list[i], g.list[i].file));
        }
        memset(chosen, 0, sizeof(chosen));
        chosen[0] = true;
        const uint32_t before = l->count;
        hub_variants_keep(l, &g, chosen, none);
        ASSERT(l->count <= before && hub_list_find(l, g.list[0].file));
    }
    hub_variants_done(&g);
}

/* The first line is the index of the weights and decides what is included; the list follows. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const all[] = {"*", NULL};
    const struct slice text = {(const char *)data, size};
    const size_t line = slice_find(text, SLICE("\n"), 0);
    const struct slice index = line == SIZE_MAX ? (struct slice){0} : slice_sub(text, 0, line);
    const struct slice json = line == SIZE_MAX ? text : slice_sub(text, line + 1, size);
    struct hub_list l = {.count = 0};
    struct err e = {{0}};
    int r = hub_list_parse(json, &l, &e);
    ASSERT(r == 0 || r == -EINVAL || r == -E2BIG);
    for (uint32_t i = 0; i < l.count; i++)
        check_file(&l.files[i]);
    if (r == 0) {
        ASSERT(hub_commit_is_valid(slice_of(l.commit)));
        if (index.len % 3 == 2)
            find_ggufs(&l);
        else
            choose(&l, index.len % 3 ? all : NULL, index);
    }
    hub_list_done(&l);
    return 0;
}
