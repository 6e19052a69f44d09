/* web.h - the files of the page, as parts of the program. Constant; any thread. */
#ifndef PLATEAU_WEB_WEB_H
#define PLATEAU_WEB_WEB_H

#include "base/slice.h"

struct web_file {
    const char *name, *type;
    struct slice plain, gzip;
};

/* False: there is no such file. */
bool web_find(struct slice name, struct web_file *ret);
bool web_at(size_t index, struct web_file *ret);

/* A quoted entity tag. */
#define WEB_TAG_BYTES 24
void web_tag(struct slice bytes, char ret[WEB_TAG_BYTES]);

#endif
