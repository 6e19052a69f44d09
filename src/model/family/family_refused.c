/* family_refused.c - families that are known and not computed, with the reason. */
#include "model/family/family.h"

#include "base/check.h"

static const struct refused {
    const char *names[4], *why;
} refused[] = {
    {{"deepseek_v32", "deepseek_v4", "glm_moe_dsa", "glm5_next"},
     "an indexer chooses the keys that a query sees"},
    {{"kimi_k3"}, "its layers are newer than Kimi Linear's"},
    {{"muse_spark"}, "its residual stream has gates"},
    {{"gemma4_assistant", "gemma4_unified_assistant"}, "it drafts with keys and values of another model"},
    {{"gemma3n"}, "its layers predict and correct several residual streams"},
    {{"llama4"}, "its layers attend in chunks and choose their experts before weighing them"},
    {{"jamba"}, "its layers are Mamba-1"},
    {{"paligemma"}, "the tokens of its prompt see later ones"},
    {{"rwkv", "rwkv5", "rwkv6", "rwkv7"}, "its layers are RWKV's recurrence"},
    {{"qwen2_vl"}, "its vision encoder is older than Qwen2.5-VL's"},
    {{"minimax_m3", "qwen4_exp"}, "its kinds of layers are newer than this version"},
};

const char *family_refused(const char *model_type)
{
    struct slice name = slice_of(model_type);
    if (slice_ends(name, SLICE("_text")))
        name.len -= 5;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        for (size_t n = 0; n < COUNT_OF(refused[i].names) && refused[i].names[n]; n++) {
            if (slice_eq(name, slice_of(refused[i].names[n])))
                return refused[i].why;
        }
    }
    return NULL;
}
