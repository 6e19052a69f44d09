/* hub_token.c - a missing file counts as no token; nothing here prints one. */
#include "hub/hub_token.h"

#include "base/files/small_file.h"
#include "base/slice.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int set(struct slice s, char ret[HUB_TOKEN_BYTES], struct err *e)
{
    s = slice_trim(s, SLICE_BLANKS);
    if (s.len >= HUB_TOKEN_BYTES)
        return err_set(e, -EINVAL, "the hub's token is longer than %d bytes", HUB_TOKEN_BYTES - 1);
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] > '~')
            return err_set(e, -EINVAL, "the hub's token has characters that are not printable");
    snprintf(ret, HUB_TOKEN_BYTES, "%.*s", SLICE_ARGS(s));
    return 0;
}

int hub_token_read(char ret[HUB_TOKEN_BYTES], struct err *e)
{
    const char *token = getenv("HF_TOKEN"), *path = getenv("HF_TOKEN_PATH");
    const char *hf = getenv("HF_HOME"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char place[4096];
    struct small_file f = {0};
    ret[0] = 0;
    if (token && token[0])
        return set(slice_of(token), ret, e);
    if (path && path[0])
        snprintf(place, sizeof(place), "%s", path);
    else if (hf && hf[0])
        snprintf(place, sizeof(place), "%s/token", hf);
    else if (cache && cache[0])
        snprintf(place, sizeof(place), "%s/huggingface/token", cache);
    else
        snprintf(place, sizeof(place), "%s/.cache/huggingface/token", home ? home : "");
    if (small_file_read(place, 4 * HUB_TOKEN_BYTES, &f, NULL) < 0)
        return 0;
    int r = set((struct slice){f.bytes, f.len}, ret, e);
    small_file_done(&f);
    return r;
}
