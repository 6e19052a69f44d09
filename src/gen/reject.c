/* reject.c - a sentence without numbers stands in the table here; the others are written where their numbers
 * are known. */
#include "gen/reject.h"

#include "base/check.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Sentences without numbers. */
static const char *const sentences[REJECT_KIND_COUNT] = {
    [REJECT_REQUEST_NOT_FOUND] = "No request of this key has this id now. The id is in the header "
                                 "x-request-id; a request that was answered has none.",
    [REJECT_CLIENT_TOO_SLOW] = "The client did not read its reply for too long.",
    [REJECT_BUSY] = "The memory planned for requests is in use. Try again when other requests have ended.",
    [REJECT_REQUEST_CANCELLED] = "The request was cancelled.",
    [REJECT_ENGINE_ERROR] = "The computation failed.",
    [REJECT_SHUTTING_DOWN] = "The server is shutting down.",
};

static void fill(struct reject *r, enum reject_kind kind, const char *param, const char *format, va_list ap)
    __attribute__((format(printf, 4, 0)));

static void fill(struct reject *r, enum reject_kind kind, const char *param, const char *format, va_list ap)
{
    if (r->kind)
        return;
    r->kind = kind;
    snprintf(r->param, sizeof(r->param), "%s", param ? param : "");
    utf8_clean(r->param);
    vsnprintf(r->message, sizeof(r->message), format, ap);
    utf8_clean(r->message);
}

bool reject_set(struct reject *r, enum reject_kind kind, const char *param, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fill(r, kind, param, format, ap);
    va_end(ap);
    return false;
}

bool reject_as(struct reject *r, enum reject_kind kind)
{
    ASSERT(sentences[kind]);
    return reject_set(r, kind, NULL, "%s", sentences[kind]);
}

bool reject_value(struct reject *r, const char *param, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fill(r, REJECT_INVALID_VALUE, param, format, ap);
    va_end(ap);
    return false;
}

bool reject_unsupported(struct reject *r, const char *param, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fill(r, REJECT_UNSUPPORTED_VALUE, param, format, ap);
    va_end(ap);
    return false;
}

const char *reject_context_options(const struct reject_context *c, char *ret)
{
    if (c->reserve > 0)
        snprintf(ret, REJECT_CONTEXT_BYTES,
                 "--max-model-len; %u more are for compaction, --compaction-reserve", c->reserve);
    else
        snprintf(ret, REJECT_CONTEXT_BYTES, "--max-model-len");
    return ret;
}

bool reject_too_long(struct reject *r, const char *param, const struct reject_context *context,
                     uint32_t ids_max)
{
    char options[REJECT_CONTEXT_BYTES];
    r->tokens = ids_max + 1;
    r->tokens_max = context->tokens - 1;
    return reject_set(r, REJECT_CONTEXT_LENGTH, param,
                      "This model's maximum context length is %u tokens (%s), and the prompt alone has more "
                      "than %u. Shorten it.",
                      context->tokens, reject_context_options(context, options), ids_max);
}

bool reject_too_complex(struct reject *r, const char *sentence)
{
    static const char name[] = "grammar_too_complex: ";
    if (strncmp(sentence, name, sizeof(name) - 1) != 0)
        return false;
    reject_set(r, REJECT_GRAMMAR_TOO_COMPLEX, NULL, "%s Use a grammar with fewer ways to read the same text.",
               sentence);
    return true;
}

bool reject_unwanted(struct reject *r, int why)
{
    if (why != -ETIME)
        return reject_as(r, REJECT_REQUEST_CANCELLED);
    r->retry_after_s = 10;
    return reject_set(r, REJECT_PREPARATION_TIMEOUT, NULL,
                      "The request was not parsed and tokenized within %d s. Send a shorter one, or try "
                      "again when the server is less busy.",
                      REJECT_PREPARATION_S);
}
