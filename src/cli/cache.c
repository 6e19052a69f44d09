/* cache.c - the command cache: what a directory of the SSD tier holds, whether it is sound, and tidying it
 * up. */
#include "cli/cli.h"
#include "cli/nearest.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/table.h"

#include "base/buf.h"
#include "base/bytes_text.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/json/json_out.h"
#include "host/models/catalog.h"
#include "host/settings.h"
#include "store/store_audit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MODELS_MAX        64
#define DAMAGED_SHOWN_MAX 1000

/* Pages and snapshots of one model, by whose fingerprint and layout they are. */
struct group {
    struct store_identity identity;
    char name[80]; /* name of the model, cut at that; "": none of those that `plateau models` lists */
    uint64_t pages, snapshots, bytes;
    int64_t oldest_s, newest_s;
};

struct damaged {
    char path[STORE_PATH_BYTES];
    int error;
};

struct report {
    const char *dir;
    struct store_audit sum;
    struct group groups[MODELS_MAX];
    uint32_t group_count;
    uint64_t others; /* entries of more models than that */
    struct damaged damaged[DAMAGED_SHOWN_MAX];
    uint32_t damaged_count;
};

static struct group *group_of(struct report *r, const struct store_identity *id)
{
    uint32_t i = 0;
    while (i < r->group_count && memcmp(&r->groups[i].identity, id, sizeof(*id)) != 0)
        i++;
    if (i == MODELS_MAX)
        return NULL;
    if (i == r->group_count)
        r->groups[r->group_count++] = (struct group){.identity = *id, .oldest_s = INT64_MAX};
    return &r->groups[i];
}

static void see(void *arg, const struct store_found *f)
{
    struct report *r = arg;
    if (f->kind == STORE_FOUND_DAMAGED && r->damaged_count < DAMAGED_SHOWN_MAX) {
        struct damaged *d = &r->damaged[r->damaged_count++];
        snprintf(d->path, sizeof(d->path), "%s", f->path);
        d->error = f->error;
    }
    if (f->kind != STORE_FOUND_ENTRY)
        return;
    struct group *g = group_of(r, &f->header.identity);
    if (!g) {
        r->others++;
        return;
    }
    g->pages += f->header.kind != TIER_SNAPSHOT;
    g->snapshots += f->header.kind == TIER_SNAPSHOT;
    g->bytes += f->bytes;
    g->oldest_s = MIN_OF(g->oldest_s, f->used_s);
    g->newest_s = MAX_OF(g->newest_s, f->used_s);
}

static const char *why(int error)
{
    switch (error) {
    case -EINVAL:
        return "its header is damaged";
    case -EBADMSG:
        return "its length, its payload or its name is not what it should be";
    case -ENOTSUP:
        return "it is of another version";
    default:
        return strerrordesc_np(-error) ? strerrordesc_np(-error) : "it cannot be read";
    }
}

/* ---- names ---- */

/* The groups of this model get its name. A model that cannot be read has none. */
static int name_groups(void *arg, const char *path, const char *id, struct err *e)
{
    struct report *r = arg;
    uint8_t fingerprint[32];
    if (catalog_fingerprint(path, fingerprint, e) < 0)
        return 0;
    for (uint32_t i = 0; i < r->group_count; i++) {
        struct group *g = &r->groups[i];
        if (!g->name[0] && memcmp(g->identity.fingerprint, fingerprint, sizeof(fingerprint)) == 0)
            snprintf(g->name, sizeof(g->name), "%s", id);
    }
    return 0;
}

/* ---- text ---- */

struct time_text {
    char text[CLOCK_TEXT_BYTES];
};

static struct time_text time_text(int64_t s)
{
    struct time_text t;
    clock_text(s, t.text);
    return t;
}

static void print_sum(const struct report *r)
{
    plain_printf(stdout, "%s: %llu entries, %s on disk, %llu unfinished, %llu not ours\n", r->dir,
                 (ull)r->sum.count[STORE_FOUND_ENTRY], bytes_text(r->sum.bytes).text,
                 (ull)r->sum.count[STORE_FOUND_UNFINISHED], (ull)r->sum.count[STORE_FOUND_FOREIGN]);
}

static void print_damaged(const struct report *r)
{
    for (uint32_t i = 0; i < r->damaged_count; i++)
        plain_printf(stdout, "%s: %s\n", r->damaged[i].path, why(r->damaged[i].error));
    printf("%llu inconsistent\n", (ull)r->sum.count[STORE_FOUND_DAMAGED]);
}

static const struct table_column columns[] = {
    {"model", false, 0},      {"pages", true, 0},       {"snapshots", true, 0}, {"bytes", true, 0},
    {"oldest use", false, 1}, {"newest use", false, 2}, {"layout", false, 0}};

static void print_groups(const struct report *r)
{
    struct table t;
    table_init(&t, columns, COUNT_OF(columns));
    for (uint32_t i = 0; i < r->group_count; i++) {
        const struct group *g = &r->groups[i];
        char hex[65];
        hex_text(g->identity.fingerprint, sizeof(g->identity.fingerprint), hex);
        hex[12] = 0;
        table_cell(&t, "%s", g->name[0] ? g->name : hex);
        table_cell(&t, "%llu", (ull)g->pages);
        table_cell(&t, "%llu", (ull)g->snapshots);
        table_cell(&t, "%s", bytes_text(g->bytes).text);
        table_cell(&t, "%sZ", time_text(g->oldest_s).text);
        table_cell(&t, "%sZ", time_text(g->newest_s).text);
        table_cell(&t, "%s", g->identity.layout);
    }
    if (r->group_count > 0)
        putchar('\n');
    if (table_end(&t, stdout) < 0)
        plain_error("no memory for the table of models");
}

static void print_list(const struct report *r)
{
    print_sum(r);
    print_groups(r);
    if (r->others > 0)
        printf("%llu entries of other models\n", (ull)r->others);
    if (r->sum.count[STORE_FOUND_DAMAGED] > 0)
        print_damaged(r);
}

/* ---- JSON ---- */

static void json_damaged(const struct report *r, struct json_out *j)
{
    json_put_u64(j, "inconsistent", r->sum.count[STORE_FOUND_DAMAGED]);
    json_open_array(j, "damaged");
    for (uint32_t i = 0; i < r->damaged_count; i++) {
        json_open(j, NULL);
        JSON_PUT_STRINGS(j, {"file", r->damaged[i].path}, {"error", why(r->damaged[i].error)});
        json_close(j);
    }
    json_close(j);
}

static void json_models(const struct report *r, struct json_out *j)
{
    json_open_array(j, "models");
    for (uint32_t i = 0; i < r->group_count; i++) {
        const struct group *g = &r->groups[i];
        char hex[65];
        hex_text(g->identity.fingerprint, sizeof(g->identity.fingerprint), hex);
        json_open(j, NULL);
        json_put_string(j, "fingerprint", hex);
        if (g->name[0])
            json_put_string(j, "model", g->name);
        json_put_string(j, "layout", g->identity.layout);
        JSON_PUT_U64S(j, {"pages", g->pages}, {"snapshots", g->snapshots}, {"bytes", g->bytes});
        json_put_i64(j, "oldest_s", g->oldest_s);
        json_put_i64(j, "newest_s", g->newest_s);
        json_close(j);
    }
    json_close(j);
    json_put_u64(j, "entries_of_other_models", r->others);
}

static void print_json(const struct report *r, bool models)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 4, NULL);
    struct json_out j = json_out_object(&b);
    json_put_string(&j, "dir", r->dir);
    JSON_PUT_U64S(&j, {"bytes", r->sum.bytes}, {"entries", r->sum.count[STORE_FOUND_ENTRY]},
                  {"unfinished", r->sum.count[STORE_FOUND_UNFINISHED]},
                  {"foreign", r->sum.count[STORE_FOUND_FOREIGN]});
    if (models)
        json_models(r, &j);
    json_damaged(r, &j);
    output_json(&j);
    buf_done(&b);
}

/* ---- the actions: each returns the exit status, or negative ---- */

static int look(const struct settings *o, bool verify, struct err *e)
{
    static struct report r;
    r = (struct report){.dir = o->store.dir};
    int error = store_audit(o->store.dir, verify, see, &r, &r.sum, e);
    if (error < 0)
        return error;
    if (!verify && r.group_count > 0)
        catalog_each_source(name_groups, &r, e);
    if (o->json) {
        print_json(&r, !verify);
    } else if (verify) {
        print_sum(&r);
        print_damaged(&r);
    } else {
        print_list(&r);
    }
    return verify && r.sum.count[STORE_FOUND_DAMAGED] > 0 ? 1 : 0;
}

static int list(const struct settings *o, struct err *e)
{
    return look(o, false, e);
}

static int verify(const struct settings *o, struct err *e)
{
    return look(o, true, e);
}

static void print_json_collected(const struct store_gc *g, uint64_t back)
{
    struct buf b;
    buf_init(&b, 4096, NULL);
    struct json_out j = json_out_object(&b);
    JSON_PUT_U64S(&j, {"removed_damaged", g->removed_damaged}, {"removed_unfinished", g->removed_unfinished},
                  {"removed_oldest", g->removed_oldest}, {"failed", g->failed}, {"bytes_reclaimed", back},
                  {"bytes", g->bytes_now});
    output_json(&j);
    buf_done(&b);
}

static int collect(const struct settings *o, struct err *e)
{
    struct store_gc g;
    int r = store_collect(o->store.dir, o->store.limit_bytes, &g, e);
    if (r < 0)
        return r;
    uint64_t back = g.bytes_before > g.bytes_now ? g.bytes_before - g.bytes_now : 0;
    if (o->json)
        print_json_collected(&g, back);
    else
        printf("removed: %llu damaged, %llu unfinished, %llu used longest ago; %llu could not be removed; "
               "%llu bytes reclaimed, %llu on disk\n",
               (ull)g.removed_damaged, (ull)g.removed_unfinished, (ull)g.removed_oldest, (ull)g.failed,
               (ull)back, (ull)g.bytes_now);
    return g.failed > 0 ? 1 : 0;
}

static const struct {
    const char *name;
    int (*run)(const struct settings *o, struct err *e);
} actions[] = {{"ls", list}, {"verify", verify}, {"gc", collect}};

static int run(const struct settings *o, struct err *e)
{
    struct nearest n = nearest_begin(slice_of(o->argument));
    for (size_t i = 0; o->argument && i < COUNT_OF(actions); i++) {
        if (strcmp(o->argument, actions[i].name) == 0)
            return o->store.dir
                       ? actions[i].run(o, e)
                       : err_set(e, -EINVAL, "name the directory: plateau cache %s DIR", o->argument);
        nearest_try(&n, actions[i].name);
    }
    return err_set(e, -EINVAL, "%s%sls, verify or gc is expected%s; see plateau cache --help",
                   o->argument ? o->argument : "", o->argument ? ": " : "", nearest_question(&n, "").text);
}

int command_cache(int argc, char **argv)
{
    struct settings o;
    struct err e = {{0}};
    int r = options_parse(COMMAND_CACHE, argc, argv, &o, &e);
    options_check_environment();
    if (r == 0 && !cli_help(COMMAND_CACHE, &o))
        r = run(&o, &e);
    settings_done(&o);
    if (r < 0)
        plain_error(e.text);
    return r == -EINVAL ? 2 : r < 0 ? 1 : r;
}
