/* library.c - dlopen() and dlsym() for a table of names. */
#include "base/library.h"

#include "base/err.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

int library_open(const struct library_source *s, void *ret, struct err *e)
{
    void *library = dlopen(s->file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, -ENOPKG, "%s needs %s (Debian's package %s): %s", s->option, s->file, s->package,
                       dlerror());
    for (size_t i = 0; i < s->function_count; i++) {
        void *function = dlsym(library, s->functions[i].name);
        if (!function)
            return err_set(e, -ENOPKG, "%s has no %s; Debian's package %s has it", s->file,
                           s->functions[i].name, s->package);
        memcpy((char *)ret + s->functions[i].at, &function, sizeof(function));
    }
    return 0;
}
