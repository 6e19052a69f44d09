/* launch_clients.c - one function and one row per client. docs/clients.md has the same settings for a user
 * who writes them down. A text in TOML is quoted as in JSON. */
#include "cli/launch_clients.h"

#include "cli/admin_client.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/json/json_write.h"
#include "base/slice.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 4096

static bool set_text(json_t *env, const char *name, const char *text)
{
    return json_object_set_new(env, name, json_string(text)) == 0;
}

/* True if the text fits, and there is memory. */
__attribute__((format(printf, 3, 4))) static bool set(json_t *env, const char *name, const char *format, ...)
{
    char text[VALUE_BYTES];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    return n >= 0 && (size_t)n < sizeof(text) && set_text(env, name, text);
}

/* Adds -c and the text, and frees it. */
static bool add_override(json_t *args, struct buf *text)
{
    buf_putc(text, 0);
    bool ok = text->error == 0 && json_array_append_new(args, json_string("-c")) == 0 &&
              json_array_append_new(args, json_string(text->ptr)) == 0;
    buf_done(text);
    return ok;
}

static bool override_text(json_t *args, const char *name, const char *value)
{
    struct buf text;
    buf_init(&text, VALUE_BYTES, NULL);
    buf_printf(&text, "%s=", name);
    json_write_string(&text, slice_of(value));
    return add_override(args, &text);
}

static bool override_count(json_t *args, const char *name, uint32_t value)
{
    struct buf text;
    buf_init(&text, VALUE_BYTES, NULL);
    buf_printf(&text, "%s=%u", name, value);
    return add_override(args, &text);
}

static bool claude(const struct launch_target *p, json_t *env, json_t *args)
{
    static const char *const models[] = {"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL",
                                         "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"};
    (void)args;
    bool ok = set_text(env, "ANTHROPIC_BASE_URL", p->url) && set_text(env, "ANTHROPIC_AUTH_TOKEN", p->key);
    /* A key of Anthropic is not for this server. */
    ok = ok && json_object_set_new(env, "ANTHROPIC_API_KEY", json_null()) == 0;
    for (size_t i = 0; i < COUNT_OF(models); i++)
        ok = ok && set_text(env, models[i], p->model);
    ok = ok && set_text(env, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    return ok && (p->context == 0 || set(env, "CLAUDE_CODE_MAX_CONTEXT_TOKENS", "%u", p->context));
}

static bool codex(const struct launch_target *p, json_t *env, json_t *args)
{
    char base[VALUE_BYTES];
    snprintf(base, sizeof(base), "%s/v1", p->url);
    bool ok = set_text(env, "LOCAL_KEY", p->key) && override_text(args, "model", p->model) &&
              override_text(args, "model_provider", "plateau") &&
              override_text(args, "model_providers.plateau.name", "Plateau") &&
              override_text(args, "model_providers.plateau.base_url", base) &&
              override_text(args, "model_providers.plateau.env_key", "LOCAL_KEY") &&
              override_text(args, "model_providers.plateau.wire_api", "responses");
    return ok && (p->context == 0 || override_count(args, "model_context_window", p->context));
}

/* OpenCode merges this configuration with the user's, and it has precedence. */
static bool opencode(const struct launch_target *p, json_t *env, json_t *args)
{
    char base[VALUE_BYTES], model[VALUE_BYTES];
    (void)args;
    snprintf(base, sizeof(base), "%s/v1", p->url);
    snprintf(model, sizeof(model), "plateau/%s", p->model);
    json_t *entry = json_pack("{s:s}", "name", p->model);
    if (p->context)
        json_object_set_new(entry, "limit",
                            json_pack("{s:I, s:I}", "context", (json_int_t)p->context, "output",
                                      (json_int_t)MAX_OF(p->context / 4, 1u)));
    json_t *config = json_pack("{s:{s:{s:s, s:s, s:{s:s, s:s}, s:{s:o}}}, s:s}", "provider", "plateau", "npm",
                               "@ai-sdk/openai-compatible", "name", "Plateau", "options", "baseURL", base,
                               "apiKey", p->key, "models", p->model, entry, "model", model);
    struct buf text;
    buf_init(&text, 4 * VALUE_BYTES, NULL);
    bool ok = config && admin_write_json(config, &text) == 0;
    buf_putc(&text, 0);
    ok = ok && text.error == 0 && set_text(env, "OPENCODE_CONFIG_CONTENT", text.ptr);
    buf_done(&text);
    json_decref(config);
    return ok;
}

static bool aider(const struct launch_target *p, json_t *env, json_t *args)
{
    char model[VALUE_BYTES];
    snprintf(model, sizeof(model), "openai/%s", p->model);
    return set(env, "OPENAI_API_BASE", "%s/v1", p->url) && set_text(env, "OPENAI_API_KEY", p->key) &&
           json_array_append_new(args, json_string("--model")) == 0 &&
           json_array_append_new(args, json_string(model)) == 0;
}

const struct launch_client launch_clients[] = {
    {"claude", "npm install -g @anthropic-ai/claude-code", 20000, claude},
    {"codex", "npm install -g @openai/codex", 16000, codex},
    {"opencode", "npm install -g opencode-ai", 0, opencode},
    {"aider", "python3 -m pip install aider-chat", 0, aider},
};

const size_t launch_client_count = COUNT_OF(launch_clients);

const struct launch_client *launch_client_find(const char *name)
{
    for (size_t i = 0; i < launch_client_count; i++)
        if (strcmp(launch_clients[i].name, name) == 0)
            return &launch_clients[i];
    return NULL;
}
