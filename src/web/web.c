/* web.c - the assembler reads the files; the build compresses them before. */
#include "web/web.h"

#include "base/check.h"
#include "base/hash.h"

#include <stdio.h>

#define BYTES(symbol, path)                                                                                  \
    __asm__(".section .rodata\n.hidden " #symbol "\n.globl " #symbol "\n" #symbol ":\n.incbin \"" path       \
            "\"\n.hidden " #symbol "_end\n.globl " #symbol "_end\n" #symbol "_end:\n.byte 0\n.previous\n");  \
    extern const char symbol[], symbol##_end[];
#define FILE_OF(symbol, name, type)                                                                          \
    BYTES(web_##symbol, WEB_PLAIN "/" name)                                                                  \
    BYTES(web_##symbol##_gz, WEB_GZIP "/" name ".gz")

#define HTML   "text/html; charset=utf-8"
#define CSS    "text/css; charset=utf-8"
#define SCRIPT "text/javascript; charset=utf-8"
#define FILES(X)                                                                                             \
    X(index, "index.html", HTML)                                                                             \
    X(style, "style.css", CSS)                                                                               \
    X(icon, "icon.svg", "image/svg+xml")                                                                     \
    X(app, "app.js", SCRIPT)                                                                                 \
    X(api, "api.js", SCRIPT)                                                                                 \
    X(dom, "dom.js", SCRIPT)                                                                                 \
    X(format, "format.js", SCRIPT)                                                                           \
    X(chart, "chart.js", SCRIPT)                                                                             \
    X(act, "act.js", SCRIPT)                                                                                 \
    X(requests, "requests.js", SCRIPT)                                                                       \
    X(pull, "pull.js", SCRIPT)                                                                               \
    X(overview, "overview.js", SCRIPT)                                                                       \
    X(memory, "memory.js", SCRIPT)                                                                           \
    X(log, "log.js", SCRIPT)                                                                                 \
    X(connect, "connect.js", SCRIPT)                                                                         \
    X(markdown, "markdown.js", SCRIPT)                                                                       \
    X(keep, "keep.js", SCRIPT)                                                                               \
    X(conversations, "conversations.js", SCRIPT)                                                             \
    X(chat, "chat.js", SCRIPT)

FILES(FILE_OF)

#define ROW(symbol, name_, type_)                                                                            \
    {name_, type_, web_##symbol, web_##symbol##_end, web_##symbol##_gz, web_##symbol##_gz_end},

static const struct {
    const char *name, *type, *plain, *plain_end, *gzip, *gzip_end;
} rows[] = {FILES(ROW)};

static struct slice between(const char *first, const char *end)
{
    return (struct slice){first, (size_t)(end - first)};
}

bool web_at(size_t index, struct web_file *ret)
{
    if (index >= COUNT_OF(rows))
        return false;
    *ret = (struct web_file){rows[index].name, rows[index].type,
                             between(rows[index].plain, rows[index].plain_end),
                             between(rows[index].gzip, rows[index].gzip_end)};
    return true;
}

bool web_find(struct slice name, struct web_file *ret)
{
    for (size_t i = 0; web_at(i, ret); i++)
        if (slice_eq(name, slice_of(ret->name)))
            return true;
    return false;
}

void web_tag(struct slice bytes, char ret[WEB_TAG_BYTES])
{
    snprintf(ret, WEB_TAG_BYTES, "\"%016llx\"", (ull)hash_bytes(bytes.ptr, bytes.len));
}
