/* models_command.c - the command models: what a folder or this machine holds, a line each. A source finds
 * models (catalog.h), the listing (model_listing.h) describes one. */
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/pull_plan.h"
#include "cli/table.h"

#include "base/buf.h"
#include "base/bytes_text.h"
#include "base/check.h"
#include "base/json/json_out.h"
#include "host/models/catalog.h"
#include "host/models/model_listing.h"
#include "host/settings.h"
#include "hub/hub_cache.h"
#include "hub/hub_name.h"
#include "hub/hub_remove.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define JSON_BYTES_MAX ((size_t)32 << 20)

static const struct table_column columns[] = {
    {"model", false, 0}, {"family", false, 2},    {"parameters", true, 0},
    {"form", false, 3},  {"context", true, 0},    {"on disk", true, 0},
    {"takes", true, 0},  {"last used", false, 1}, {"served here?", false, 0}};

struct listing {
    const struct settings *settings;
    struct table table;
    struct json_out json;
    uint32_t count;
};

struct count_text {
    char text[16];
};

static struct count_text parameters_text(uint64_t n)
{
    struct count_text r;
    const double size = (double)n;
    if (size >= 100e9)
        snprintf(r.text, sizeof(r.text), "%.0fB", size / 1e9);
    else if (size >= 1e9)
        snprintf(r.text, sizeof(r.text), "%.3gB", size / 1e9);
    else if (size >= 1e6)
        snprintf(r.text, sizeof(r.text), "%.3gM", size / 1e6);
    else
        snprintf(r.text, sizeof(r.text), "%.3gK", size / 1e3);
    return r;
}

static struct count_text day_text(int64_t seconds)
{
    struct count_text r = {"?"};
    struct tm day;
    time_t t = (time_t)seconds;
    if (seconds > 0 && localtime_r(&t, &day))
        strftime(r.text, sizeof(r.text), "%Y-%m-%d", &day);
    return r;
}

/* Texts of the column that says what a model serves. */
static const char *const yes_texts[] = {
    [MODEL_GENERATES] = "yes", [MODEL_EMBEDS] = "yes, embeddings", [MODEL_RERANKS] = "yes, rerank"};

static void add_row(struct table *t, const char *path, const char *id, const struct model_listing *m)
{
    const bool known = m->state != LISTING_REFUSED;
    char why[sizeof(m->why.text)];
    table_cell(t, "%s", id);
    table_cell(t, "%s", known ? m->shape.family : "-");
    table_cell(t, "%s", known ? parameters_text(m->shape.parameters).text : "-");
    table_cell(t, "%s", known ? m->shape.form : "-");
    known ? table_cell(t, "%u", m->shape.context_max) : table_cell(t, "-");
    table_cell(t, "%s", bytes_text(m->disk_bytes).text);
    table_cell(t, "%s", known ? bytes_text(m->floor_bytes).text : "-");
    table_cell(t, "%s", day_text(m->used_s).text);
    pull_plain_reason(m->why.text, path, why, sizeof(why));
    if (m->state != LISTING_FITS)
        table_cell(t, "no: %s", why);
    else if (listing_shortens(m))
        table_cell(t, "%s, with a context of %u", yes_texts[m->kind], m->max_model_len);
    else
        table_cell(t, "%s", yes_texts[m->kind]);
}

static void json_row(const char *path, const char *id, const struct model_listing *m, struct json_out *j)
{
    json_open(j, NULL);
    JSON_PUT_STRINGS(j, {"id", id}, {"path", path}, {"state", listing_state_name(m->state)});
    json_put_u64(j, "disk_bytes", m->disk_bytes);
    json_put_i64(j, "last_used", m->used_s);
    if (m->state != LISTING_REFUSED) {
        json_put_string(j, "family", m->shape.family);
        json_put_u64(j, "parameters", m->shape.parameters);
        json_put_string(j, "form", m->shape.form);
        JSON_PUT_U64S(j, {"context_max", m->shape.context_max}, {"floor_bytes", m->floor_bytes},
                      {"ceiling_bytes", m->ceiling_bytes}, {"max_model_len", m->max_model_len});
        json_put_string(j, "use", model_kind_name(m->kind));
    }
    if (m->state != LISTING_FITS)
        json_put_string(j, "reason", m->why.text);
    json_close(j);
}

static int found(void *arg, const char *path, const char *id, struct err *e)
{
    struct listing *l = arg;
    struct model_listing m;
    (void)e;
    model_listing_make(l->settings, path, id, &m);
    if (l->settings->json)
        json_row(path, id, &m, &l->json);
    else
        add_row(&l->table, path, id, &m);
    l->count++;
    return l->json.buf->error;
}

/* ---- models rm ID ---- */

/* ORG/NAME[:QUANT], or the only NAME[:QUANT] of the cache. */
static int find_in_cache(const char *cache, const char *id, struct hub_name *ret, struct err *e)
{
    if (hub_name_parse(id, ret))
        return 0;
    if (strchr(id, '/'))
        return err_set(e, -EINVAL,
                       "%s is not the name of a model in the hub's cache; plateau models lists them", id);
    return hub_cache_find_name(cache, id, ret, e);
}

static bool says_yes(void)
{
    char line[16];
    if (!fgets(line, sizeof(line), stdin))
        return false;
    return strcmp(line, "y\n") == 0 || strcmp(line, "yes\n") == 0;
}

/* Removes a model from the hub's cache, after a question on the terminal unless `yes`, and prints the bytes.
 * 0, -EINVAL and -ENOENT (there is no such model), -EPERM (no yes), or an error of hub_remove(). */
static int remove_model(const char *id, bool yes, struct err *e)
{
    char cache[HUB_PATH_BYTES], text[HUB_NAME_BYTES];
    struct hub_name name;
    uint64_t bytes = 0;
    int r = hub_cache_dir(cache, e);
    if (r == 0)
        r = find_in_cache(cache, id, &name, e);
    if (r == 0)
        hub_name_text(&name, text);
    if (r == 0)
        r = hub_remove_bytes(cache, &name, &bytes, e);
    if (r < 0)
        return r;
    if (!yes && !isatty(STDIN_FILENO))
        return err_set(e, -EPERM, "%s has %s in the hub's cache; --yes removes it without a question", text,
                       bytes_text(bytes).text);
    if (!yes) {
        printf("Remove %s (%s, all revisions) from %s? [y/N] ", text, bytes_text(bytes).text, cache);
        output_flush();
        if (!says_yes())
            return err_set(e, -EPERM, "nothing was removed");
    }
    r = hub_remove(cache, &name, &bytes, e);
    if (r < 0)
        return err_prefix(e, r, "removed %s, but not all of it", bytes_text(bytes).text);
    printf("Removed %s: %s\n", text, bytes_text(bytes).text);
    return 0;
}

/* ---- the command ---- */

static int run(struct settings *o, struct err *e)
{
    struct listing l = {.settings = o};
    struct buf json;
    const char *dir = o->argument;
    if (dir && strcmp(dir, "rm") == 0)
        return o->models.model ? cli_status(remove_model(o->models.model, o->yes, e), e)
                               : err_set(e, -EINVAL, "plateau models rm needs the name of a model");
    table_init(&l.table, columns, COUNT_OF(columns));
    buf_init(&json, JSON_BYTES_MAX, NULL);
    l.json = json_out_object(&json);
    json_open_array(&l.json, "models");
    int r = dir ? catalog_each(dir, found, &l, e) : catalog_each_source(found, &l, e);
    if (r == -ENOENT && !dir)
        r = 0;
    const int printed = table_end(&l.table, stdout);
    if (r == 0 && printed < 0)
        r = err_set(e, printed, "no memory for the table of models");
    json_close(&l.json);
    if (r == 0 && o->json)
        output_json(&l.json);
    else if (r == 0 && l.count == 0)
        plain_printf(stderr, "plateau: there are no models in %s\n",
                     dir ? dir
                         : "the hub's cache, nor of LM Studio or Ollama; plateau models DIR lists a folder");
    buf_done(&json);
    return cli_status(r, e);
}

int command_models(int argc, char **argv)
{
    return cli_run(COMMAND_MODELS, argc, argv, run);
}
