/* models_command.c - the command models: what a folder or this machine holds, a line each. A source finds
 * models (host/model_folder.h, host/model_sources.h), the listing (host/model_listing.h) describes one. */
#include "base/bytes_text.h"
#include "base/check.h"
#include "cli/cli.h"
#include "cli/models_remove.h"
#include "cli/output.h"
#include "host/model_folder.h"
#include "host/model_listing.h"
#include "host/model_sources.h"
#include "text/chat_format.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define JSON_BYTES_MAX ((size_t)32 << 20)

struct list {
    const struct settings *settings;
    struct buf json;
    uint32_t count;
};

struct count_text {
    char text[16];
};

static struct count_text parameters_text(uint64_t n)
{
    struct count_text r;
    const double billions = (double)n / 1e9, millions = (double)n / 1e6;
    if (billions >= 100)
        snprintf(r.text, sizeof(r.text), "%.0fB", billions);
    else if (billions >= 1)
        snprintf(r.text, sizeof(r.text), "%.3gB", billions);
    else
        snprintf(r.text, sizeof(r.text), "%.3gM", millions);
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

static void print_head(void)
{
    printf("%-36s %-16s %10s %-26s %9s %12s %12s %-10s   %s\n", "model", "family", "parameters", "form",
           "context", "on disk", "takes", "last used", "served here?");
}

/* What it serves. */
static const char *const yes_texts[] = {
    [MODEL_GENERATES] = "yes", [MODEL_EMBEDS] = "yes, embeddings", [MODEL_RERANKS] = "yes, rerank"};

static void print_row(const char *id, const struct model_listing *m)
{
    plain_write(stdout, id);
    int pad = 36 - (int)strlen(id);
    printf("%*s", pad > 0 ? pad : 0, "");
    if (m->state == LISTING_REFUSED)
        printf(" %-16s %10s %-26s %9s %12s %12s %-10s   no: ", "?", "?", "?", "?",
               bytes_text(m->disk_bytes).text, "?", day_text(m->used_s).text);
    else
        printf(" %-16s %10s %-26s %9u %12s %12s %-10s   %s", m->shape.family,
               parameters_text(m->shape.parameters).text, m->shape.form, m->shape.context_max,
               bytes_text(m->disk_bytes).text, bytes_text(m->floor_bytes).text, day_text(m->used_s).text,
               m->state == LISTING_FITS ? yes_texts[m->kind] : "no: ");
    if (m->state != LISTING_FITS)
        plain_write(stdout, m->why.text);
    else if (m->max_model_len < m->shape.context_max)
        printf(", with a context of %u", m->max_model_len);
    putchar('\n');
}

static void json_row(const char *path, const char *id, const struct model_listing *m, struct buf *b)
{
    buf_putc(b, '{');
    json_write_member(b, "id", id);
    json_write_member(b, "path", path);
    buf_printf(b, ",\"state\":\"%s\",\"disk_bytes\":%llu,\"last_used\":%lld", listing_state_name(m->state),
               (ull)m->disk_bytes, (long long)m->used_s);
    if (m->state != LISTING_REFUSED)
        buf_printf(b,
                   ",\"family\":\"%s\",\"parameters\":%llu,\"form\":\"%s\",\"context_max\":%u,"
                   "\"floor_bytes\":%llu,\"ceiling_bytes\":%llu,\"max_model_len\":%u,\"use\":\"%s\"",
                   m->shape.family, (ull)m->shape.parameters, m->shape.form, m->shape.context_max,
                   (ull)m->floor_bytes, (ull)m->ceiling_bytes, m->max_model_len, model_kind_name(m->kind));
    if (m->state != LISTING_FITS)
        json_write_member(b, "reason", m->why.text);
    buf_putc(b, '}');
}

static int found(void *arg, const char *path, const char *id, struct err *e)
{
    struct list *l = arg;
    struct model_listing m;
    (void)e;
    model_listing_make(l->settings, path, id, &m);
    if (l->settings->json) {
        buf_puts(&l->json, l->count ? "," : "");
        json_row(path, id, &m, &l->json);
    } else {
        if (l->count == 0)
            print_head();
        print_row(id, &m);
    }
    l->count++;
    return l->json.error;
}

static int run(struct settings *o, struct err *e)
{
    struct list l = {.settings = o};
    const char *dir = o->argument;
    if (dir && strcmp(dir, "rm") == 0)
        return o->models.model ? cli_status(models_remove(o->models.model, o->yes, e), e)
                               : err_set(e, -EINVAL, "plateau models rm needs the name of a model");
    buf_init(&l.json, JSON_BYTES_MAX, NULL);
    buf_puts(&l.json, "{\"models\":[");
    int r = dir ? model_folder_each(dir, found, &l, e) : model_sources_each(found, &l, e);
    if (r == -ENOENT && !dir)
        r = 0;
    buf_puts(&l.json, "]}\n");
    if (r == 0 && o->json)
        fwrite(l.json.ptr, 1, l.json.len, stdout);
    else if (r == 0 && l.count == 0)
        plain_printf(stderr, "plateau: there are no models in %s\n",
                     dir ? dir
                         : "the hub's cache, nor of LM Studio or Ollama; plateau models DIR lists a folder");
    buf_done(&l.json);
    return cli_status(r, e);
}

int command_models(int argc, char **argv)
{
    return cli_run(COMMAND_MODELS, argc, argv, run);
}
