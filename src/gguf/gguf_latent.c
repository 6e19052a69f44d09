/* gguf_latent.c - numbers of latent attention, and of the router that its architectures have. */
#include "gguf/gguf_latent.h"

#include "base/check.h"
#include "gguf/gguf_arch.h"
#include "gguf/gguf_meta.h"

#include <errno.h>

#define GATING_SIGMOID 2 /* value of expert_gating_func */

/* A length of a head, which files from before keys and values were one row have under the plain key. */
static uint64_t head_length(const struct gguf_meta *v, const char *latent, const char *plain)
{
    return gguf_meta_find(v, latent) ? gguf_meta_number(v, latent) : gguf_meta_number(v, plain);
}

/* The key holds a tenth of mscale_all_dim, which mscale equals. */
static int copy_latent_scale(struct gguf_meta *v)
{
    const double scale = 10 * gguf_meta_real(v, "rope.scaling.yarn_log_multiplier", 0);
    int r = scale != 0 ? gguf_meta_set(v, v->rope, "mscale_all_dim", json_real(scale)) : 0;
    return r == 0 && scale != 0 ? gguf_meta_set(v, v->rope, "mscale", json_real(scale)) : r;
}

int gguf_latent_copy(struct gguf_meta *v)
{
    const uint64_t rope = gguf_meta_number(v, "rope.dimension_count");
    const uint64_t key = head_length(v, "attention.key_length_mla", "attention.key_length");
    if (!v->arch->latent)
        return 0;
    if (key <= rope)
        return err_set(v->e, -EINVAL,
                       "metadata %s.attention.key_length_mla is %llu, not over rope.dimension_count %llu",
                       v->arch->name, (ull)key, (ull)rope);
    int r = gguf_meta_set_number(v, "qk_rope_head_dim", rope);
    if (r == 0)
        r = gguf_meta_set_number(v, "qk_nope_head_dim", key - rope);
    if (r == 0)
        r = gguf_meta_set_number(v, "v_head_dim",
                                 head_length(v, "attention.value_length_mla", "attention.value_length"));
    if (r == 0)
        r = gguf_meta_copy(v, "attention.kv_lora_rank", v->root, "kv_lora_rank");
    if (r == 0)
        r = gguf_meta_set(v, v->root, "q_lora_rank", json_null());
    if (r == 0)
        r = gguf_meta_copy(v, "attention.q_lora_rank", v->root, "q_lora_rank");
    return r == 0 ? copy_latent_scale(v) : r;
}

/* Values of absent keys of experts, where config.json has other defaults. */
static const char absent_router[] = "{\"first_k_dense_replace\": 0, \"n_group\": 1, \"n_shared_experts\": 0, "
                                    "\"norm_topk_prob\": false, \"routed_scaling_factor\": 1}";

/* Files of DeepSeek-V2 do not name the function of scores. The others have corrections. */
static bool is_corrected(const struct gguf_meta *v)
{
    static const char end[] = ".exp_probs_b.bias";
    const struct gguf *g = &v->file->head;
    if (gguf_meta_find(v, "expert_gating_func"))
        return gguf_meta_number(v, "expert_gating_func") == GATING_SIGMOID;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const struct slice name = g->tensors[i].name;
        if (name.len > strlen(end) && memcmp(name.ptr + name.len - strlen(end), end, strlen(end)) == 0)
            return true;
    }
    return false;
}

int gguf_latent_copy_router(struct gguf_meta *v)
{
    if (!v->arch->latent || !v->arch->experts)
        return 0;
    const bool corrected = is_corrected(v);
    json_t *absent = json_loads(absent_router, 0, NULL);
    int r = json_object_update_missing(v->root, absent) == 0 ? 0 : -ENOMEM;
    json_decref(absent);
    if (r < 0)
        return err_set(v->e, r, "no memory left for the configuration");
    const char *method = corrected                                       ? "noaux_tc"
                         : gguf_meta_number(v, "expert_group_count") > 1 ? "group_limited_greedy"
                                                                         : "greedy";
    r = gguf_meta_set(v, v->root, "scoring_func", json_string(corrected ? "sigmoid" : "softmax"));
    return r == 0 ? gguf_meta_set(v, v->root, "topk_method", json_string(method)) : r;
}
