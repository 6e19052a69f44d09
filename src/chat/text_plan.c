/* text_plan.c - estimates from the sizes of files. A vocabulary takes about one and a half times its
 * tokenizer.json, a template ten times its source. */
#include "chat/text_plan.h"

#include "base/check.h"
#include "template/chat_template.h"
#include "weights/model_files.h"

#define MIB ((uint64_t)1 << 20)

static struct text_plan plan_of(uint64_t vocabulary, uint64_t templates)
{
    return (struct text_plan){
        .tokenizer = vocabulary > 0,
        .bytes = vocabulary > 0 ? ROUND_UP(4 * MIB + 3 * vocabulary + 16 * templates, MIB) : MIB};
}

struct text_plan text_plan_of(struct model_files *files)
{
    static const char *const templates[] = {"chat_template.jinja", CHAT_TEMPLATE_TOOL_USE,
                                            "chat_template.json", "tokenizer_config.json"};
    uint64_t bytes = 0;
    for (size_t i = 0; i < COUNT_OF(templates); i++)
        bytes += model_files_bytes(files, templates[i]);
    return plan_of(model_files_bytes(files, "tokenizer.json"), bytes);
}
