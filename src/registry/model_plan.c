/* model_plan.c - asks the model, its engine and its files. */
#include "registry/model_plan.h"

#include "base/check.h"
#include "chat/text_plan.h"
#include "engine/engine.h"
#include "engine/engine_opts.h"
#include "grammar/matcher.h"
#include "memory/plan.h"
#include "model/model.h"
#include "model/vision.h"

#include <stdio.h>

uint32_t model_plan_step_tokens(uint32_t seqs, uint32_t drafts_max)
{
    return MAX_OF((uint32_t)MODEL_PLAN_STEP_TOKENS, engine_tokens_min(seqs, drafts_max));
}

uint32_t model_plan_tokens(const struct model_plan *p, uint32_t seqs)
{
    uint32_t tokens = model_plan_step_tokens(seqs, p->drafting.drafts_max), longest = p->shape.context_max;
    if (p->max_model_len > 0)
        longest = MIN_OF(longest, p->max_model_len);
    return p->shape.both_ways ? MAX_OF(tokens, longest) : tokens;
}

struct engine_opts model_plan_engine_opts(uint32_t seqs, uint32_t queue, uint64_t prefix_cache_bytes,
                                          const struct drafting_opts *drafting)
{
    struct drafting_opts g = drafting ? *drafting : (struct drafting_opts){.by = DRAFTING_NONE};
    return (struct engine_opts){.max_num_seqs = seqs,
                                .max_queue = queue,
                                .tokens_max = model_plan_step_tokens(seqs, g.drafts_max),
                                .drafting = g,
                                .prefix_cache_bytes = prefix_cache_bytes};
}

/* Only a probe shows whether the MTP head is complete. */
int model_plan_probe(struct model_plan *p, struct model_files *files, struct err *e)
{
    struct model_shape plain;
    struct model_parts parts = p->parts;
    p->drafting = speculation_drafting(&p->speculation, true);
    speculation_parts(&p->speculation, &p->drafting, &p->parts);
    int r = model_probe(files, &p->parts, &p->shape, e);
    if (r == 0 && p->parts.mtp && !p->shape.mtp) {
        p->drafting = speculation_drafting(&p->speculation, false);
        speculation_parts(&p->speculation, &p->drafting, &p->parts);
        r = model_probe(files, &p->parts, &p->shape, e);
    }
    if (r < 0)
        return r;
    const struct text_plan text = text_plan_of(files);
    p->tokenizer_bytes = text.bytes;
    if (p->grammars && text.tokenizer)
        p->grammar_vocab_bytes = grammar_vocab_planned_bytes(p->shape.vocab);
    r = model_probe(files, &parts, &plain, e);
    if (r == 0)
        p->drafting_takes = (struct model_plan_drafting){
            p->shape.mtp_weight_bytes + p->shape.weight_bytes - plain.weight_bytes,
            p->shape.page_bytes - plain.page_bytes, p->shape.state_bytes - plain.state_bytes};
    return r;
}

static void plan_windows(const struct model_shape *s, struct plan_model *ret)
{
    ret->windows_only = true;
    for (uint32_t i = 0; i < s->kv_count; i++)
        ret->windows_only = ret->windows_only && s->kv[i].group > 0;
    for (uint32_t g = 1; g < s->group_count; g++)
        ret->windows[ret->window_count++] =
            (struct plan_window){.tokens = s->groups[g].window, .page_bytes = s->groups[g].page_bytes};
}

void model_plan_numbers(void *model_plan, uint32_t seqs, struct plan_model *ret)
{
    const struct model_plan *p = model_plan;
    const struct model_shape *s = &p->shape;
    struct engine_plan engine;
    struct engine_opts opts = model_plan_engine_opts(seqs, p->queue, p->prefix_cache_bytes, &p->drafting);
    opts.tokens_max = model_plan_tokens(p, seqs);
    opts.agents = p->agents;
    opts.pinned_cache_bytes = p->domain > 0 ? p->pinned_cache_bytes : 0;
    engine_plan(&opts, s, &engine);
    const struct model_workspace workspace = model_workspace_bytes(s, opts.tokens_max, seqs, p->workers);
    *ret = (struct plan_model){
        .name = p->name,
        .domain = p->domain,
        .context_max = s->context_max,
        .page_tokens = PAGE_TOKENS,
        .seqs = seqs,
        .queue = p->queue,
        .weight_bytes = s->weight_bytes,
        .mapped = s->mapped,
        .mtp_bytes = s->mtp_weight_bytes,
        .mtp_mapped = s->mtp_mapped,
        .loading_bytes = s->loading_bytes,
        .workspace_bytes = workspace.device_bytes,
        .host_bytes = workspace.host_bytes,
        .recorded_bytes = s->workspace.recorded_bytes,
        .recorded_host_bytes = s->workspace.recorded_host_bytes,
        .tables_bytes = s->tables_bytes + p->grammar_vocab_bytes,
        .tokenizer_bytes = p->tokenizer_bytes,
        .page_bytes = s->page_bytes,
        .state_bytes = s->state_bytes,
        .step_tokens = opts.tokens_max,
        .engine_bytes = engine.fixed_bytes,
        .engine_page_bytes = engine.page_bytes,
        .engine_state_bytes = engine.state_bytes,
        .job_bytes = engine.job_bytes,
        .job_token_bytes = engine.job_token_bytes,
        .vision_bytes = model_encode_bytes(s, s->vision.pixels_max),
        .image_bytes = engine_image_bytes(s),
        .has_vision = s->has_vision,
        .has_mtp = s->has_mtp,
        .has_grammars = p->grammar_vocab_bytes > 0,
    };
    plan_windows(s, ret);
    if (!ret->has_grammars)
        return;
    ret->matcher_bytes = engine.matcher_bytes;
    ret->matcher_token_bytes = engine.matcher_token_bytes;
    ret->matcher_bytes_max = engine.matcher_bytes_max;
}
