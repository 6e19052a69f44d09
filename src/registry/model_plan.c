/* model_plan.c - asks the model, its engine and its files. */
#include "registry/model_plan.h"

#include "base/check.h"
#include "engine/engine.h"
#include "engine/engine_opts.h"
#include "grammar/matcher.h"
#include "memory/plan.h"
#include "model/model.h"
#include "model/vision.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "weights/model_files.h"

#include <stdio.h>

#define MIB ((uint64_t)1 << 20)

uint32_t model_plan_step_tokens(uint32_t seqs, uint32_t drafts_max)
{
    return MAX_OF((uint32_t)MODEL_PLAN_STEP_TOKENS, engine_tokens_min(seqs, drafts_max));
}

uint32_t model_plan_tokens(const struct model_plan *p, uint32_t seqs)
{
    uint32_t tokens = model_plan_step_tokens(seqs, p->drafting.drafts_max), longest = p->shape.context_max;
    if (p->max_model_len > 0)
        longest = MIN_OF(longest, p->max_model_len);
    if (p->shape.vision.present && p->shape.vision.both_ways)
        tokens = MAX_OF(tokens, engine_tokens_min(seqs, p->drafting.drafts_max) +
                                    model_image_tokens_max(&p->shape.vision));
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

/* Estimates the limit of the account `tokenizer` from the sizes of files; 0: the model has no tokenizer. A
 * template takes about ten times its source. */
static uint64_t text_bytes(struct model_files *files)
{
    static const char *const templates[] = {"chat_template.jinja", CHAT_TEMPLATE_TOOL_USE,
                                            "chat_template.json", "tokenizer_config.json"};
    uint64_t vocabulary = model_files_bytes(files, "tokenizer.json"), bytes = 0;
    for (size_t i = 0; i < COUNT_OF(templates); i++)
        bytes += model_files_bytes(files, templates[i]);
    return vocabulary > 0 ? ROUND_UP(tokenizer_planned_bytes(vocabulary) + 16 * bytes, MIB) : 0;
}

/* `plain`: the model's shape without drafts. */
static int probe_draft(struct model_plan *p, const struct model_shape *plain, struct err *e)
{
    int r = draft_model_probe(&p->draft, plain, &p->parts, e);
    if (r < 0)
        return r;
    p->parts.page_beside = p->draft.shape.page_bytes;
    p->drafting_takes.weight_bytes = p->draft.shape.weight_bytes;
    return 0;
}

int model_plan_open_files(const char *dir, const char *mmproj, struct model_files **ret, struct err *e)
{
    struct model_files *files;
    struct err why = {{0}};
    ASSERT(dir[0] != 0);
    int r = model_files_open(dir, &files, e);
    if (r < 0)
        return r;
    if (mmproj && mmproj[0])
        r = model_files_use_encoder(files, mmproj, &why);
    if (r < 0) {
        model_files_close(files);
        return err_set(e, r, "--mmproj %s", why.text);
    }
    *ret = files;
    return 0;
}

/* Only a probe shows whether the MTP head is complete. */
static int probe_parts(struct model_plan *p, struct model_files *files, struct err *e)
{
    struct model_shape plain;
    struct model_parts parts = p->parts;
    int r = model_probe(files, &parts, &plain, e);
    if (r < 0)
        return r;
    p->speculation.eagle = p->speculation.draft_model && draft_model_is_eagle(&p->draft);
    p->drafting = speculation_drafting(&p->speculation, true);
    speculation_parts(&p->speculation, &p->drafting, &p->parts);
    p->parts.eagle = p->drafting.eagle ? p->draft.dir : NULL;
    if (p->drafting.by == DRAFTING_MODEL)
        r = probe_draft(p, &plain, e);
    if (r == 0)
        r = model_probe(files, &p->parts, &p->shape, e);
    if (r == 0 && p->parts.mtp && !p->shape.mtp) {
        p->drafting = speculation_drafting(&p->speculation, false);
        speculation_parts(&p->speculation, &p->drafting, &p->parts);
        r = model_probe(files, &p->parts, &p->shape, e);
    }
    if (r < 0)
        return r;
    const uint64_t bytes = text_bytes(files);
    p->tokenizer_bytes = MAX_OF(bytes, MIB);
    if (p->grammars && bytes > 0)
        p->grammar_vocab_bytes = grammar_vocab_planned_bytes(p->shape.vocab);
    p->drafting_takes.weight_bytes += p->shape.mtp_weight_bytes + p->shape.weight_bytes - plain.weight_bytes;
    p->drafting_takes.page_bytes = p->shape.page_bytes - plain.page_bytes;
    p->drafting_takes.state_bytes = p->shape.state_bytes - plain.state_bytes;
    return 0;
}

int model_plan_probe(struct model_plan *p, struct model_files *files, struct err *e)
{
    p->parts.sizes = &p->sizes;
    p->drafting_takes = (struct model_plan_drafting){0};
    int r = probe_parts(p, files, e);
    p->parts.sizes = NULL;
    if (r == 0)
        p->sizes.rest_bytes += p->shape.mtp_weight_bytes;
    return r;
}

/* The draft model is loaded after the model, and its tokenizer freed before. */
static void plan_draft(const struct model_plan *p, uint32_t tokens, uint32_t seqs, struct plan_model *ret)
{
    const struct model_shape *s = &p->draft.shape;
    const struct model_workspace workspace = model_workspace_bytes(s, tokens, seqs, p->workers);
    if (p->drafting.by != DRAFTING_MODEL)
        return;
    ASSERT(s->page_bytes > 0 && p->shape.page_beside == s->page_bytes);
    ret->draft_bytes = s->weight_bytes + workspace.device_bytes + s->workspace.recorded_bytes;
    ret->draft_host_bytes = workspace.host_bytes + s->workspace.recorded_host_bytes + s->tables_bytes;
    ret->loading_bytes = MAX_OF(ret->loading_bytes, MAX_OF(s->loading_bytes, p->draft.tokenizer_bytes));
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

/* Its devices beside the first. */
static void plan_beside(const struct model_plan *p, uint64_t workspace_bytes, struct plan_model *ret)
{
    const struct model_shape *s = &p->shape;
    ret->beside_count = MAX_OF(s->shard_count, 1u) - 1;
    for (uint32_t i = 0; i < ret->beside_count; i++) {
        struct plan_shard *to = &ret->beside[i];
        *to = (struct plan_shard){.domain = p->beside[i],
                                  .weight_bytes = s->beside[i].weight_bytes,
                                  .workspace_bytes = workspace_bytes,
                                  .recorded_bytes = s->workspace.recorded_bytes,
                                  .state_bytes = s->beside[i].state_bytes};
        for (uint32_t g = 0; g < s->group_count; g++)
            to->page_bytes += s->beside[i].page_bytes[g];
        for (uint32_t g = 1; g < s->group_count; g++)
            to->window_page_bytes[g - 1] = s->beside[i].page_bytes[g];
    }
}

void model_plan_numbers(void *model_plan, uint32_t seqs, struct plan_model *ret)
{
    const struct model_plan *p = model_plan;
    const struct model_shape *s = &p->shape;
    struct engine_plan engine;
    struct engine_opts opts = model_plan_engine_opts(seqs, p->queue, p->prefix_cache_bytes, &p->drafting);
    opts.tokens_max = model_plan_tokens(p, seqs);
    opts.agents = p->agents;
    opts.shows_prefixes = p->shows_prefixes;
    opts.tells_prefixes = p->tells_prefixes;
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
        .experts_bytes = s->experts_bytes,
        .mapped = s->mapped,
        .mtp_bytes = s->eagle ? 0 : s->mtp_weight_bytes,
        .draft_bytes = s->eagle ? s->mtp_weight_bytes : 0,
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
    plan_draft(p, opts.tokens_max, seqs, ret);
    plan_windows(s, ret);
    plan_beside(p, workspace.device_bytes, ret);
    if (!ret->has_grammars)
        return;
    ret->matcher_bytes = engine.matcher_bytes;
    ret->matcher_token_bytes = engine.matcher_token_bytes;
    ret->matcher_bytes_max = engine.matcher_bytes_max;
}
