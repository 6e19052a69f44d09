/* models_remove.c - plateau models rm ID: only what the hub's cache has, and never without a yes. */
#include "cli/models_remove.h"

#include "cli/output.h"
#include "hub/hub_remove.h"

#include "base/bytes_text.h"
#include "base/err.h"
#include "hub/hub_cache.h"
#include "hub/hub_name.h"

#include <errno.h>
#include <unistd.h>

/* ORG/NAME[:QUANT], or the only NAME[:QUANT] of the cache. */
static int find(const char *cache, const char *id, struct hub_name *ret, struct err *e)
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

int models_remove(const char *id, bool yes, struct err *e)
{
    char cache[HUB_PATH_BYTES], text[HUB_NAME_BYTES];
    struct hub_name name;
    uint64_t bytes = 0;
    int r = hub_cache_dir(cache, e);
    if (r == 0)
        r = find(cache, id, &name, e);
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
