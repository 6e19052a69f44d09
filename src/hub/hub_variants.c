/* hub_variants.c - looks at names alone. Names compare without case: quantisations are written in both. */
#include "hub/hub_variants.h"

#include "hub/hub_list.h"

#include "base/bytes_text.h"
#include "base/check.h"
#include "base/err.h"
#include "weights/weights_name.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#define PATH_BYTES 4096

/* ---- from names to models ---- */

static int add(struct hub_variants *g, const char *file, uint64_t bytes, struct err *e)
{
    uint32_t index = 1, parts = 1;
    weights_name_part(file, &index, &parts);
    for (uint32_t i = 0; i < g->count; i++) {
        struct hub_variant *m = &g->list[i];
        if (!weights_name_same_model(m->file, file))
            continue;
        m->bytes += bytes;
        m->parts++;
        if (strcmp(file, m->file) < 0)
            memcpy(m->file, file, strlen(file)); /* names of parts have one length */
        return 0;
    }
    if (!g->list)
        g->list = calloc(HUB_VARIANTS_MAX, sizeof(*g->list));
    if (g->count == HUB_VARIANTS_MAX)
        return err_set(e, -E2BIG, "there are more than %d GGUF models", HUB_VARIANTS_MAX);
    char *own = g->list ? strdup(file) : NULL;
    if (!own)
        return err_set(e, -ENOMEM, "no memory for a list of GGUF models");
    g->list[g->count++] = (struct hub_variant){.file = own, .bytes = bytes, .parts = 1, .parts_max = parts};
    return 0;
}

static int see(struct hub_variants *g, const char *file, uint64_t bytes, struct err *e)
{
    const char *slash = strrchr(file, '/');
    g->safetensors |= slice_ends(slice_of(file), SLICE(".safetensors"));
    return weights_name_is_weights(slash ? slash + 1 : file) ? add(g, file, bytes, e) : 0;
}

static int compare(const void *a, const void *b)
{
    const struct hub_variant *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes) : strcmp(x->file, y->file);
}

/* The file's name without folders, its ending and the number of a part. */
static struct slice stem_of(const struct hub_variant *m)
{
    const char *slash = strrchr(m->file, '/'), *last = slash ? slash + 1 : m->file;
    return (struct slice){last, weights_name_model(last)};
}

static bool has_twin(const struct hub_variants *g, uint32_t index, struct slice quant)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (i != index && slice_eq_any_case(weights_name_quant(g->list[i].file), quant))
            return true;
    return false;
}

static void name_all(struct hub_variants *g)
{
    if (g->count > 0)
        qsort(g->list, g->count, sizeof(*g->list), compare);
    for (uint32_t i = 0; i < g->count; i++) {
        struct slice quant = weights_name_quant(g->list[i].file);
        if (g->count > 1 && (quant.len == 0 || has_twin(g, i, quant)))
            quant = stem_of(&g->list[i]);
        snprintf(g->list[i].quant, HUB_QUANT_BYTES, "%.*s", SLICE_ARGS(quant));
    }
}

int hub_variants_of_list(const struct hub_list *l, struct hub_variants *ret, struct err *e)
{
    int r = 0;
    *ret = (struct hub_variants){.count = 0};
    for (uint32_t i = 0; i < l->count && r == 0; i++)
        r = see(ret, l->files[i].name, l->files[i].bytes, e);
    name_all(ret);
    return r;
}

static int see_folder(struct hub_variants *g, const char *dir, size_t head, unsigned depth, struct err *e)
{
    char path[PATH_BYTES];
    struct stat st;
    int r = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *f; d && r == 0 && (f = readdir(d));) {
        const bool fits = snprintf(path, sizeof(path), "%s/%s", dir, f->d_name) < PATH_BYTES;
        if (f->d_name[0] == '.' || !fits || stat(path, &st) < 0)
            continue;
        if (S_ISREG(st.st_mode))
            r = see(g, path + head, (uint64_t)st.st_size, e);
        else if (S_ISDIR(st.st_mode) && depth < HUB_FILE_DEPTH_MAX)
            r = see_folder(g, path, head, depth + 1, e);
    }
    if (d)
        closedir(d);
    return r;
}

int hub_variants_of_snapshot(const char *dir, struct hub_variants *ret, struct err *e)
{
    *ret = (struct hub_variants){.count = 0};
    int r = see_folder(ret, dir, strlen(dir) + 1, 1, e);
    name_all(ret);
    return r;
}

void hub_variants_done(struct hub_variants *g)
{
    for (uint32_t i = 0; i < g->count; i++)
        free(g->list[i].file);
    free(g->list);
    *g = (struct hub_variants){.count = 0};
}

/* ---- the one that is meant ---- */

static bool is_between(const struct slice s, size_t from, size_t to)
{
    return (from == 0 || strchr(".-_/", s.ptr[from - 1])) && (to == s.len || strchr(".-_/", s.ptr[to]));
}

/* Whether `word` stands in the file's name between separators; `last`: at its end. */
static bool has_word(const struct hub_variant *m, struct slice word, bool last)
{
    const struct slice stem = {m->file, weights_name_model(m->file)};
    for (size_t at = 0; at + word.len <= stem.len; at++) {
        const bool here = slice_eq_any_case(slice_sub(stem, at, word.len), word);
        if (here && is_between(stem, at, at + word.len) && (!last || at + word.len == stem.len))
            return true;
    }
    return false;
}

enum likeness { BY_NAME, BY_END, BY_WORD, LIKENESSES };

static bool is_like(const struct hub_variant *m, const char *quant, enum likeness likeness)
{
    if (!quant[0])
        return true;
    if (likeness == BY_NAME)
        return strcasecmp(m->quant, quant) == 0;
    return has_word(m, slice_of(quant), likeness == BY_END);
}

int hub_variants_find(const struct hub_variants *g, const struct hub_name *name,
                      const struct hub_variant **ret, struct err *e)
{
    char models[384];
    uint32_t hits = 0;
    for (int likeness = 0; likeness < LIKENESSES && hits == 0; likeness++) {
        for (uint32_t i = 0; i < g->count; i++) {
            if (!is_like(&g->list[i], name->quant, (enum likeness)likeness))
                continue;
            if (hits++ == 0)
                *ret = &g->list[i];
        }
    }
    if (hits == 1)
        return 0;
    hub_variants_text(g, models, sizeof(models));
    if (g->count == 0)
        return err_set(e, -ENOENT, "%s has no GGUF files", name->id);
    if (hits == 0)
        return err_set(e, -ENOENT, "%s has no GGUF model %s, but %s", name->id, name->quant, models);
    if (name->quant[0])
        return err_set(e, -ENOTUNIQ, "%s has several GGUF models of the name %s among %s", name->id,
                       name->quant, models);
    return err_set(e, -ENOTUNIQ, "%s has %u GGUF models: name one, as in %s:%s, of %s", name->id, g->count,
                   name->id, g->list[0].quant, models);
}

bool hub_variant_has(const struct hub_variant *m, const char *file)
{
    return strcmp(m->file, file) == 0 || weights_name_same_model(m->file, file);
}

void hub_variants_text(const struct hub_variants *g, char *ret, size_t bytes)
{
    static const char more[] = " and more";
    size_t len = 0;
    ret[0] = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        char one[HUB_QUANT_BYTES + 48];
        const int n = snprintf(one, sizeof(one), "%s%s (%s)", i ? ", " : "", g->list[i].quant,
                               bytes_text(g->list[i].bytes).text);
        if (len + (size_t)n + sizeof(more) > bytes) {
            snprintf(ret + len, bytes - len, "%s", more);
            return;
        }
        memcpy(ret + len, one, (size_t)n + 1);
        len += (size_t)n;
    }
}

uint32_t hub_variants_suggest(const struct hub_variants *g, uint64_t bytes)
{
    static const char *const usual[] = {"Q4_K_M", "UD-Q4_K_XL", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0"};
    uint32_t largest = 0;
    for (size_t k = 0; k < COUNT_OF(usual); k++)
        for (uint32_t i = 0; i < g->count; i++)
            if (g->list[i].bytes <= bytes &&
                slice_eq_any_case(weights_name_quant(g->list[i].file), slice_of(usual[k])))
                return i;
    for (uint32_t i = 0; i < g->count; i++)
        if (g->list[i].bytes <= bytes)
            largest = i;
    return largest;
}

/* ---- the files that serving needs ---- */

/* Chooses among vision encoders that differ in the form of their numbers. UINT32_MAX: there is none. */
static uint32_t choose_encoder(const struct hub_list *l)
{
    static const char *const forms[] = {"F16", "BF16", "Q8_0", "F32"};
    uint32_t best = UINT32_MAX;
    size_t rank = SIZE_MAX;
    for (uint32_t i = 0; i < l->count; i++) {
        const char *slash = strrchr(l->files[i].name, '/'), *last = slash ? slash + 1 : l->files[i].name;
        size_t k = 0;
        if (!weights_name_is_mmproj(last))
            continue;
        while (k < COUNT_OF(forms) && !slice_eq_any_case(weights_name_quant(last), slice_of(forms[k])))
            k++;
        if (best == UINT32_MAX || k < rank) {
            best = i;
            rank = k;
        }
    }
    return best;
}

static bool is_chosen(const struct hub_variants *g, const bool *chosen, const char *file)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (chosen[i] && hub_variant_has(&g->list[i], file))
            return true;
    return false;
}

void hub_variants_keep(struct hub_list *l, const struct hub_variants *g, const bool *chosen,
                       const char *const *include)
{
    static const char *const texts[] = {"LICENSE*", "README.md", NULL};
    const uint32_t encoder = choose_encoder(l);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const struct hub_file *f = &l->files[i];
        if (i == encoder || is_chosen(g, chosen, f->name) || hub_file_matches(f, texts) ||
            (hub_file_matches(f, include) && hub_file_is_safe(f)))
            l->files[kept++] = *f;
        else
            free(f->name);
    }
    l->count = kept;
}
