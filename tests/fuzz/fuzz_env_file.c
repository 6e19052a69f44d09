/* Environment files. What must hold: no crash, a refusal has a sentence, and each accepted value has nothing
 * in it that a shell would look into. */
#include "cli/env_file.h"

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int check_entry(void *arg, struct slice name, struct slice value, struct err *e)
{
    (void)arg;
    (void)e;
    ASSERT(name.len > 0 && !memchr(name.ptr, '=', name.len));
    for (size_t i = 0; i < value.len; i++)
        ASSERT(value.ptr[i] && !strchr("\n\"'\\$`", value.ptr[i]));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {{0}};
    int r = env_file_parse((struct slice){(const char *)data, size}, check_entry, NULL, &e);
    ASSERT((r == 0) == (e.text[0] == 0));
    return 0;
}
