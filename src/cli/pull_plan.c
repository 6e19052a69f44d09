/* pull_plan.c - the listing that plateau models prints, of a directory of headers. */
#include "cli/pull_plan.h"

#include "base/bytes_text.h"
#include "cli/output.h"
#include "host/model_listing.h"

#include <errno.h>
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
