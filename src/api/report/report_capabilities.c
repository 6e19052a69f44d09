/* report_capabilities.c - a model's limits and capabilities as Anthropic's list of models has them, for
 * /v1/models. Each capability says what this server takes for the model, not how well the model does it. */
#include "api/api_state.h"
#include "api/report/report.h"

#include "base/json/json_out.h"
#include "chat/chat_syntax.h"
#include "model/model.h"
#include "template/chat_template.h"

static void write_one(const char *name, bool supported, struct json_out *j)
{
    json_open(j, name);
    json_put_bool(j, "supported", supported);
    json_close(j);
}

static void write_group(const char *name, bool supported, const char *const *parts, struct json_out *j)
{
    json_open(j, name);
    json_put_bool(j, "supported", supported);
    for (; *parts; parts++)
        write_one(*parts, supported, j);
    json_close(j);
}

static void write_thinking(bool thinks, bool switches, struct json_out *j)
{
    json_open(j, "thinking");
    json_put_bool(j, "supported", thinks);
    json_open(j, "types");
    write_one("adaptive", thinks, j);
    write_one("enabled", thinks, j);
    write_one("disabled", switches || !thinks, j);
    write_one("between_tools", switches || !thinks, j);
    json_close(j);
    json_close(j);
}

/* Edits that the server makes of a conversation. */
static void write_edits(struct json_out *j)
{
    json_open(j, "context_management");
    json_put_bool(j, "supported", true);
    write_one("clear_thinking_20251015", false, j);
    write_one("clear_tool_uses_20250919", false, j);
    write_one("compact_20260112", true, j);
    json_close(j);
}

static bool mentions(const struct served_model *m, const char *word)
{
    return m->template && chat_template_mentions(m->template, slice_of(word));
}

static void write_capabilities(const struct api *a, const struct served_model *m, struct json_out *j)
{
    static const char *const efforts[] = {"high", "low", "max", "medium", "xhigh", NULL};
    static const char *const tools[] = {"code_execution", "web_search", NULL};
    bool switches = mentions(m, "enable_thinking"), effort = switches || mentions(m, "reasoning_effort");
    json_open(j, "capabilities");
    write_one("batch", false, j);
    write_one("citations", false, j);
    write_one("code_execution", false, j);
    write_edits(j);
    write_group("effort", effort, efforts, j);
    write_one("image_input", a->media && m->shape->vision.present, j);
    write_one("pdf_input", false, j);
    write_group("server_tools", false, tools, j);
    write_one("structured_outputs", m->grammars != NULL, j);
    write_thinking(m->syntax && m->syntax->marker[CHAT_REASONING_CLOSE], switches, j);
    json_close(j);
}

void report_capabilities(const struct api *a, const struct served_model *m, uint32_t max_model_len,
                         struct json_out *j)
{
    /* A prompt leaves room for one token, and a reply follows one. */
    if (max_model_len > 0) {
        JSON_PUT_U64S(j, {"max_input_tokens", max_model_len - 1}, {"max_tokens", max_model_len - 1});
    } else {
        json_put_null(j, "max_input_tokens");
        json_put_null(j, "max_tokens");
    }
    if (m && m->template)
        write_capabilities(a, m, j);
    else
        json_put_null(j, "capabilities");
}
