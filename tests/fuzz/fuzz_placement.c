/* Rules of --place. Invariants: no crash; a refusal says why; rules that hold change nothing but places, to
 * those of the process; each byte is in one row of the table; its line fits. */
#include "base/check.h"
#include "memory/placement.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LAYERS 12u

static void check_rows(const struct placement *p, const struct placement_sizes *s)
{
    struct placement_walk w = {.started = false};
    uint64_t left = s->rest_bytes;
    for (uint32_t i = 0; i < LAYERS; i++)
        left += s->layer_bytes[i] + s->experts_bytes[i];
    while (placement_next(p, s, &w)) {
        ASSERT(w.row.bytes <= left && w.row.last < LAYERS);
        left -= w.row.bytes;
    }
    ASSERT(left == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"cpu", "cuda:0", "cuda:1", "fake:0"};
    const struct placement_names places = {names, COUNT_OF(names)};
    struct placement_sizes s = {.layers = LAYERS, .rest_bytes = 5};
    struct placement_wish wish;
    struct placement p;
    struct err e = {{0}};
    char text[512], line[64];
    const size_t len = MIN_OF(size, sizeof(text) - 1);
    memcpy(text, data, len);
    text[len] = 0;
    if (placement_parse(text, &wish, &e) < 0) {
        ASSERT(e.text[0] != 0);
        return 0;
    }
    ASSERT(wish.count <= PLACEMENT_RULES_MAX);
    for (uint32_t i = 0; i < LAYERS; i++) {
        s.layer_bytes[i] = 1 + i;
        s.experts_bytes[i] = i % 3 ? 100 + i : 0;
    }
    placement_all(&s, 1, &p);
    if (placement_apply(&wish, &places, &p, &e) < 0) {
        ASSERT(e.text[0] != 0);
        return 0;
    }
    for (uint32_t i = 0; i < LAYERS; i++)
        ASSERT((p.experts[i] == PLACEMENT_NO_EXPERTS) == (s.experts_bytes[i] == 0));
    check_rows(&p, &s);
    ASSERT(strlen(placement_text(&p, &places, line, sizeof(line))) < sizeof(line));
    if (placement_check(&p, 1, &places, &e) < 0)
        ASSERT(e.text[0] != 0);
    return 0;
}
