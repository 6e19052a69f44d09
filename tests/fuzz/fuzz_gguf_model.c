/* Any bytes as the GGUF file of a model: its configuration, tokenizer, template and end tokens are refused
 * with a message, or within their bounds. */
#include "model_path.h"

#include "base/check.h"
#include "model/config/config.h"
#include "model/config/generation_config.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[64];

static void forget(void)
{
    unlink(path);
}

static void write_file(const uint8_t *data, size_t size)
{
    if (!path[0]) {
        snprintf(path, sizeof(path), "/tmp/fuzz-%d.gguf", (int)getpid());
        atexit(forget);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

static void check(int r, const struct err *e)
{
    ASSERT(r <= 0 && (r == 0 || e->text[0] != 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *a;
    struct config config;
    struct generation_defaults defaults;
    struct tokenizer *tokenizer;
    struct chat_template *template;
    struct err e[4] = {{{0}}};
    if (!a)
        ASSERT(arena_create(&(struct arena_opts){.bytes_max = 64 << 20}, &a) == 0);
    arena_reset(a);
    write_file(data, size);
    int r = config_load_at(a, path, &config, &e[0]);
    check(r, &e[0]);
    ASSERT(r < 0 || (config.family && config.heads % config.kv_heads == 0));
    r = tokenizer_load_at(a, path, &tokenizer, &e[1]);
    check(r, &e[1]);
    check(generation_config_load_at(path, &defaults, &e[2]), &e[2]);
    check(chat_template_load_at(a, path, &template, &e[3]), &e[3]);
    return 0;
}
