/* model_shipped.c - a checkout's program takes the checkout's model, an installed one that of its prefix. */
#include "host/models/model_shipped.h"

#include "host/models/model_ggufs.h"
#include "host/models/model_name.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int model_shipped_bundled(char ret[HUB_PATH_BYTES], struct err *e)
{
    static const char *const places[] = {"models/" MODEL_NAME_BUNDLED,
                                         "share/plateau/models/" MODEL_NAME_BUNDLED};
    char exe[3900];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 2 && strrchr(exe, '/'); up++)
        *strrchr(exe, '/') = 0;
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        snprintf(ret, HUB_PATH_BYTES, "%s/%s", exe, places[i]);
        if (access(ret, R_OK) == 0)
            return 0;
    }
    snprintf(ret, HUB_PATH_BYTES, "%s/%s", PLATEAU_CHECKOUT, places[0]);
    if (access(ret, R_OK) == 0)
        return 0;
    return err_set(
        e, -ENOENT,
        "the bundled model is not here: name a model's directory, or copy models/canary of the checkout to "
        "%s/%s",
        exe, places[1]);
}

bool model_shipped_starter(char ret[HUB_PATH_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool named = cache && cache[0];
    int n = snprintf(ret, HUB_PATH_BYTES, "%s%s/plateau/%s",
                     named  ? cache
                     : home ? home
                            : "",
                     named ? "" : "/.cache", MODEL_NAME_STARTER);
    return n > 0 && n < HUB_PATH_BYTES && model_ggufs_is(ret);
}
