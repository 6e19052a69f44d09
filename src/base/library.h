/* library.h - a shared library that is opened when it is needed, and stays open until the process ends. */
#ifndef PLATEAU_BASE_LIBRARY_H
#define PLATEAU_BASE_LIBRARY_H

#include <stddef.h>

struct err;

/* A function by its name, and the place of its pointer in the caller's structure. */
struct library_function {
    const char *name;
    size_t at;
};

struct library_source {
    const char *file, *package; /* the name that the linker searches, and Debian's package with it */
    const char *option;         /* the option that needs it */
    const struct library_function *functions;
    size_t function_count;
};

/* Fills in the pointers in `ret`. 0, or -ENOPKG: the library or one of the functions is not there; `e` names
 * the option, the file and the package. Any thread. */
int library_open(const struct library_source *s, void *ret, struct err *e);

#endif
