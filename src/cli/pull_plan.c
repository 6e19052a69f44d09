/* pull_plan.c - the listing that plateau models prints, of a directory of headers. */
#include "cli/pull_plan.h"

#include "base/bytes_text.h"
#include "cli/output.h"
#include "host/model_listing.h"

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

int pull_plan_show(const struct settings *o, const char *model, const char *dir, uint64_t bytes, bool anyway,
                   struct err *e)
{
    struct model_listing m;
    char why[sizeof(m.why.text)];
    model_listing_make(o, dir, model, &m);
    pull_plain_reason(m.why.text, dir, why, sizeof(why));
    if (m.state == LISTING_REFUSED)
        return anyway ? 0
                      : err_set(e, -ENOTSUP, "%s is not served here: %s. --anyway fetches it nevertheless",
                                model, why);
    if (o->json)
        write_event(model, bytes, &m);
    FILE *f = o->json ? stderr : stdout;
    fprintf(f, "%s: family %s, %s, context %u, %s to fetch; serving takes at least %s of %s: ", model,
            m.shape.family, m.shape.form, m.shape.context_max, bytes_text(bytes).text,
            bytes_text(m.floor_bytes).text, bytes_text(m.ceiling_bytes).text);
    if (m.state == LISTING_FITS && m.max_model_len < m.shape.context_max)
        fprintf(f, "it fits with a context of %u\n", m.max_model_len);
    else
        fprintf(f, m.state == LISTING_FITS ? "it fits\n" : "it does not fit\n");
    f == stdout ? output_flush() : fflush(f);
    if (m.state == LISTING_FITS || anyway)
        return 0;
    return err_set(e, -ENOMEM, "%s. --anyway fetches it nevertheless", why);
}
