/* utility_form.c - the fields of /tokenize, /detokenize and /apply-template; orders have none.
 *
 * vLLM and llama.cpp name some fields differently; both names are read. A tokenize request may be the body
 * of a chat with all its reply fields: they are ignored. */
#include "api/request/utility_form.h"

#include "api/request/field.h"
#include "api/wire/messages.h"
#include "api/wire/responses.h"
#include "api/wire/wire_openai.h"

#include "base/check.h"
#include "gen/reject.h"

static bool read_prompt(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (r->gen.prompt)
        return reject_value(why, f->name,
                            "prompt and content are names of the same field; send one of them.");
    r->gen.prompt = v; /* its form is checked when all fields are known */
    return true;
}

static bool read_tokens(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    size_t i;
    json_t *each;
    if (!json_is_array(v))
        return reject_value(why, f->name, "tokens must be a list of token ids.");
    json_array_foreach(v, i, each)
        if (!json_is_integer(each) || json_integer_value(each) < 0)
            return reject_value(why, f->name, "tokens[%zu] must be a token id.", i);
    r->tokens = v;
    return true;
}

static bool check_tokenize(struct request *r, struct reject *why)
{
    if (r->gen.messages && r->gen.prompt)
        return reject_value(why, "prompt", "Send either messages or prompt, not both.");
    if (!r->gen.messages && !json_is_string(r->gen.prompt))
        return reject_value(why, "prompt", "messages, or prompt as a string, is missing.");
    return true;
}

static bool check_detokenize(struct request *r, struct reject *why)
{
    return r->tokens || reject_value(why, "tokens", "tokens is missing.");
}

static bool check_template(struct request *r, struct reject *why)
{
    return r->gen.messages || reject_value(why, "messages", "messages is missing.");
}

static const struct field tokenize[] = {
    FIELD_MODEL,
    {"prompt", read_prompt, .prompt = true},
    {"content", read_prompt, .prompt = true}, /* llama.cpp's name */
    FIELD_ADD_SPECIAL_TOKENS,
    {"add_special", field_tristate, FIELD_AT(gen.add_special_tokens)}, /* llama.cpp's name */
    {"return_token_strs", field_bool, FIELD_AT(return_token_strs)},
    {"with_pieces", field_bool, FIELD_AT(return_token_strs)}, /* llama.cpp's name */
    {"parse_special", field_refuse_unless_true,
     .say = "only true is supported; special tokens in the text are always parsed."},
};

static const struct field detokenize[] = {
    FIELD_MODEL,
    {"tokens", read_tokens, .prompt = true},
};

static const struct field model[] = {FIELD_MODEL};
static const struct field unload[] = {{"force", field_bool, FIELD_AT(force)}};

static const struct field_group of_tokenize = {tokenize, COUNT_OF(tokenize)};
static const struct field_group of_detokenize = {detokenize, COUNT_OF(detokenize)};
static const struct field_group of_template = {model, COUNT_OF(model)};
static const struct field_group of_unload = {unload, COUNT_OF(unload)};

static const struct field_group *const tokenize_groups[] = {&of_tokenize, &fields_openai_conversation, NULL};
static const struct field_group *const detokenize_groups[] = {&of_detokenize, NULL};
static const struct field_group *const template_groups[] = {&of_template, &fields_openai_conversation, NULL};
static const struct field_group *const unload_groups[] = {&of_unload, NULL};
static const struct field_group *const no_groups[] = {NULL};

const struct request_form *utility_form(enum request_kind kind)
{
    static const struct request_form order = {.groups = no_groups, .output = GEN_IDS, .may_be_empty = true};
    static const struct request_form forms[REQUEST_KIND_COUNT] = {
        [REQUEST_TOKENIZE] = {.groups = tokenize_groups,
                              .api = OPENAI,
                              .output = GEN_IDS,
                              .check = check_tokenize,
                              .convert = request_convert_messages},
        [REQUEST_DETOKENIZE] = {.groups = detokenize_groups,
                                .api = OPENAI,
                                .output = GEN_IDS,
                                .check = check_detokenize},
        [REQUEST_UNLOAD] = {.groups = unload_groups, .output = GEN_IDS, .may_be_empty = true},
        [REQUEST_TEMPLATE] = {.groups = template_groups,
                              .api = OPENAI,
                              .output = GEN_TEXT,
                              .check = check_template,
                              .convert = request_convert_messages},
    };
    ASSERT(kind != REQUEST_GENERATE);
    if (kind == REQUEST_COUNT_TOKENS)
        return &messages_count_form;
    if (kind == REQUEST_INPUT_TOKENS)
        return &responses_count_form;
    return forms[kind].groups ? &forms[kind] : &order;
}
