/* report_capabilities.c - a model's limits and capabilities as Anthropic's list of models has them, for
 * /v1/models. Each capability says what this server takes for the model, not how well the model does it. */
#include "api/api_state.h"
#include "api/report/report.h"

#include "chat/chat_syntax.h"
#include "model/model.h"
#include "template/chat_template.h"

static void write_one(const char *name, bool supported, struct buf *ret)
{
    buf_printf(ret, "%s\"%s\":{\"supported\":%s}", ret->ptr[ret->len - 1] == '{' ? "" : ",", name,
               supported ? "true" : "false");
}

static void write_group(const char *name, bool supported, const char *const *parts, struct buf *ret)
{
    buf_printf(ret, ",\"%s\":{\"supported\":%s", name, supported ? "true" : "false");
    for (; *parts; parts++)
        write_one(*parts, supported, ret);
    buf_putc(ret, '}');
}

static void write_thinking(bool thinks, bool switches, struct buf *ret)
{
    buf_printf(ret, ",\"thinking\":{\"supported\":%s,\"types\":{", thinks ? "true" : "false");
    write_one("adaptive", thinks, ret);
    write_one("enabled", thinks, ret);
    write_one("disabled", switches || !thinks, ret);
    write_one("between_tools", switches || !thinks, ret);
    buf_puts(ret, "}}");
}

/* Edits that the server makes of a conversation. */
static void write_edits(struct buf *ret)
{
    buf_puts(ret, ",\"context_management\":{\"supported\":true");
    write_one("clear_thinking_20251015", false, ret);
    write_one("clear_tool_uses_20250919", false, ret);
    write_one("compact_20260112", true, ret);
    buf_putc(ret, '}');
}

static bool mentions(const struct served_model *m, const char *word)
{
    return m->template && chat_template_mentions(m->template, slice_of(word));
}

static void write_capabilities(const struct api *a, const struct served_model *m, struct buf *ret)
{
    static const char *const efforts[] = {"high", "low", "max", "medium", "xhigh", NULL};
    static const char *const tools[] = {"code_execution", "web_search", NULL};
    bool switches = mentions(m, "enable_thinking"), effort = switches || mentions(m, "reasoning_effort");
    buf_putc(ret, '{');
    write_one("batch", false, ret);
    write_one("citations", false, ret);
    write_one("code_execution", false, ret);
    write_edits(ret);
    write_group("effort", effort, efforts, ret);
    write_one("image_input", a->media && m->shape->vision.present, ret);
    write_one("pdf_input", false, ret);
    write_group("server_tools", false, tools, ret);
    write_one("structured_outputs", m->grammars != NULL, ret);
    write_thinking(m->syntax && m->syntax->marker[CHAT_REASONING_CLOSE], switches, ret);
    buf_putc(ret, '}');
}

void report_capabilities(const struct api *a, const struct served_model *m, uint32_t max_model_len,
                         struct buf *ret)
{
    /* A prompt leaves room for one token, and a reply follows one. */
    if (max_model_len > 0)
        buf_printf(ret, ",\"max_input_tokens\":%u,\"max_tokens\":%u", max_model_len - 1, max_model_len - 1);
    else
        buf_puts(ret, ",\"max_input_tokens\":null,\"max_tokens\":null");
    buf_puts(ret, ",\"capabilities\":");
    if (m && m->template)
        write_capabilities(a, m, ret);
    else
        buf_puts(ret, "null");
}
