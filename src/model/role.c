/* role.c - the names of llama, and of the blocks that it does not have, as Hugging Face and MLX write
 * them. */
#include "model/role.h"

#include "base/check.h"

static const char *const names[TENSOR_ROLES] = {
    [ROLE_EMBEDDING] = "embed_tokens",
    [ROLE_FINAL_NORM] = "norm",
    [ROLE_HEAD] = "lm_head",
    [ROLE_MIXER_NORM] = "input_layernorm",
    [ROLE_MIXER_NORM_AFTER] = "post_attention_layernorm",
    [ROLE_MLP_NORM] = "post_attention_layernorm",
    [ROLE_MLP_NORM_AFTER] = "post_feedforward_layernorm",
    [ROLE_Q] = "self_attn.q_proj",
    [ROLE_K] = "self_attn.k_proj",
    [ROLE_V] = "self_attn.v_proj",
    [ROLE_O] = "self_attn.o_proj",
    [ROLE_Q_NORM] = "self_attn.q_norm",
    [ROLE_K_NORM] = "self_attn.k_norm",
    [ROLE_DELTA_QKV] = "linear_attn.in_proj_qkv",
    [ROLE_DELTA_Z] = "linear_attn.in_proj_z",
    [ROLE_DELTA_QKVZ] = "linear_attn.in_proj_qkvz",
    [ROLE_DELTA_BA] = "linear_attn.in_proj_ba",
    [ROLE_DELTA_B] = "linear_attn.in_proj_b",
    [ROLE_DELTA_A] = "linear_attn.in_proj_a",
    [ROLE_DELTA_CONV] = "linear_attn.conv1d",
    [ROLE_DELTA_DECAY] = "linear_attn.A_log",
    [ROLE_DELTA_DT_BIAS] = "linear_attn.dt_bias",
    [ROLE_DELTA_NORM] = "linear_attn.norm",
    [ROLE_DELTA_OUT] = "linear_attn.out_proj",
    [ROLE_GATE] = "mlp.gate_proj",
    [ROLE_UP] = "mlp.up_proj",
    [ROLE_DOWN] = "mlp.down_proj",
    [ROLE_ROUTER] = "mlp.gate",
    [ROLE_ROUTER_CORRECTION] = "mlp.gate.e_score_correction_bias",
    [ROLE_EXPERT_GATE] = "mlp.experts.#.gate_proj",
    [ROLE_EXPERT_UP] = "mlp.experts.#.up_proj",
    [ROLE_EXPERT_DOWN] = "mlp.experts.#.down_proj",
    [ROLE_EXPERTS_GATE_UP] = "mlp.experts.gate_up_proj",
    [ROLE_EXPERTS_DOWN_FUSED] = "mlp.experts.down_proj",
    [ROLE_EXPERTS_GATE] = "mlp.switch_mlp.gate_proj",
    [ROLE_EXPERTS_UP] = "mlp.switch_mlp.up_proj",
    [ROLE_EXPERTS_DOWN] = "mlp.switch_mlp.down_proj",
    [ROLE_SHARED_SCALE] = "mlp.shared_expert_gate",
    [ROLE_SHARED_GATE] = "mlp.shared_expert.gate_proj",
    [ROLE_SHARED_UP] = "mlp.shared_expert.up_proj",
    [ROLE_SHARED_DOWN] = "mlp.shared_expert.down_proj",
};

const char *role_name(const struct tensor_name *own, enum tensor_role role)
{
    ASSERT(role > ROLE_NONE && role < TENSOR_ROLES);
    for (; own && own->role != ROLE_NONE; own++) {
        if (own->role == role)
            return own->name;
    }
    return names[role];
}
