/* Any bytes as the file of a vision encoder: names of tensors and the configuration are within their bounds,
 * or refused with a message. */
#include "gguf/gguf_vision.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/slice.h"
#include "gguf/gguf.h"

static void check_names(const struct gguf *g)
{
    char name[GGUF_VISION_NAME_BYTES];
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        if (gguf_vision_name(g, g->tensors[i].name, name))
            ASSERT(strncmp(name, "model.", 6) == 0 && strlen(name) < sizeof(name));
    }
    for (unsigned frame = 0; frame < 2; frame++) {
        const struct gguf_tensor *t = gguf_vision_filters(g, frame);
        ASSERT(!t || (t >= g->tensors && t < g->tensors + g->tensor_count));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *a;
    const struct slice file = {(const char *)data, size};
    struct gguf g;
    struct err e = {{0}};
    json_t *root = json_object(), *preprocessor = NULL;
    if (!a)
        ASSERT(arena_create(&(struct arena_opts){.bytes_max = 64 << 20}, &a) == 0);
    arena_reset(a);
    if (gguf_parse(a, file, size, &g, &e) == 0) {
        check_names(&g);
        (void)gguf_vision_fits(&g, &g);
        int r = gguf_vision_config(&g, &g, root, &e);
        ASSERT(r == 0 || e.text[0] != 0);
        ASSERT(json_is_object(json_object_get(root, "vision_config")));
        ASSERT(gguf_vision_preprocessor(&g, &preprocessor, &e) == 0);
    }
    json_decref(preprocessor);
    json_decref(root);
    return 0;
}
