/* pull_plan.c - the listing that plateau models prints, of a directory of headers. */
#include "cli/pull_plan.h"

#include "cli/output.h"

#include "base/bytes_text.h"
#include "base/check.h"
#include "host/device_choice.h"
#include "host/models/model_listing.h"
#include "host/runtime.h"
#include "host/settings.h"
#include "hub/hub_variants.h"
#include "hub/hub_name.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

void pull_plain_reason(const char *text, const char *dir, char *ret, size_t bytes_max)
{
    const char *at = strstr(text, dir);
    if (!at)
        snprintf(ret, bytes_max, "%s", text);
    else
        snprintf(ret, bytes_max, "%.*s%s", (int)(at - text), text,
                 at + strlen(dir) + strspn(at + strlen(dir), ":/ "));
}

static void write_event(const char *model, uint64_t bytes, const struct model_listing *m)
{
    json_t *e =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:b}", "event", "plan", "model", model, "family",
                  m->shape.family, "form", m->shape.form, "context", (json_int_t)m->max_model_len, "bytes",
                  (json_int_t)bytes, "floor_bytes", (json_int_t)m->floor_bytes, "ceiling_bytes",
                  (json_int_t)m->ceiling_bytes, "fits", m->state == LISTING_FITS);
    json_dumpf(e, stdout, JSON_COMPACT);
    putchar('\n');
    output_flush();
    json_decref(e);
}

int pull_plan_show(const struct settings *o, const char *model, const char *path, uint64_t bytes, bool anyway,
                   struct err *e)
{
    struct model_listing m;
    char why[sizeof(m.why.text)];
    model_listing_make(o, path, model, &m);
    pull_plain_reason(m.why.text, path, why, sizeof(why));
    if (m.state == LISTING_REFUSED)
        return anyway ? 0
                      : err_set(e, -ENOTSUP, "%s is not served here: %s. --anyway fetches it nevertheless",
                                model, why);
    if (o->json)
        write_event(model, bytes, &m);
    FILE *f = o->json ? stderr : stdout;
    plain_printf(f, "%s: family %s, %s, context %u, %s to fetch; serving takes at least %s of %s: ", model,
                 m.shape.family, m.shape.form, m.shape.context_max, bytes_text(bytes).text,
                 bytes_text(m.floor_bytes).text, bytes_text(m.ceiling_bytes).text);
    if (m.state == LISTING_FITS && listing_shortens(&m))
        fprintf(f, "it fits with a context of %u\n", m.max_model_len);
    else
        fprintf(f, m.state == LISTING_FITS ? "it fits\n" : "it does not fit\n");
    f == stdout ? output_flush() : fflush(f);
    if (m.state == LISTING_FITS || anyway)
        return 0;
    return err_set(e, -ENOMEM, "%s. --anyway fetches it nevertheless", why);
}

/* ---- one of several ---- */

/* Returns the bytes that the process leaves to a model, on the device where it would compute. */
static uint64_t bytes_for_model(const struct settings *o)
{
    struct planning p = {.settings = o, .workers = runtime_workers(o), .models = 1, .serves = true};
    struct plan_process process;
    struct device_choice device;
    uint32_t domain = 0;
    struct err ignored;
    planning_process(&p, true, &process);
    if (device_choose(o, &device, &ignored) < 0 ||
        device_choice_domain(&device, &process, &domain, &ignored) < 0)
        domain = 0;
    const uint64_t ceiling = plan_ceiling_bytes(&process, domain), own = plan_process_bytes(&process, domain);
    return ceiling - MIN_OF(ceiling, own);
}

static void write_several(const struct hub_name *name, const struct hub_variants *g, uint64_t bytes,
                          uint32_t first)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < g->count; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:b}", "quant", g->list[i].quant, "bytes",
                                        (json_int_t)g->list[i].bytes, "fits", g->list[i].bytes <= bytes));
    json_t *e = json_pack("{s:s, s:s, s:o, s:s}", "event", "choices", "model", name->id, "choices", list,
                          "suggested", g->list[first].quant);
    json_dumpf(e, stdout, JSON_COMPACT);
    putchar('\n');
    output_flush();
    json_decref(e);
}

void pull_plan_show_several(const struct settings *o, const char *command, const struct hub_name *name,
                            const struct hub_variants *g)
{
    const uint64_t bytes = bytes_for_model(o);
    const uint32_t first = hub_variants_suggest(g, bytes);
    char text[HUB_NAME_BYTES];
    struct hub_name one = *name;
    if (o->json) {
        write_several(name, g, bytes, first);
        return;
    }
    plain_printf(stderr, "%s has %u GGUF models; %s of memory are there for one:\n", name->id, g->count,
                 bytes_text(bytes).text);
    for (uint32_t i = 0; i < g->count; i++)
        plain_printf(stderr, "  %-24s %10s  %s%s\n", g->list[i].quant, bytes_text(g->list[i].bytes).text,
                     g->list[i].bytes <= bytes ? "fits" : "does not fit",
                     i == first ? "  <- if in doubt" : "");
    memcpy(one.quant, g->list[first].quant, sizeof(one.quant));
    hub_name_text(&one, text);
    plain_printf(stderr, "plateau %s %s\n", command, text);
}
