/* turn_memory.c - conversations and the parts of prompts share an account. */
#include "api/turns/turn_memory.h"

#include "api/api_state.h"
#include "api/conversations.h"
#include "api/conversations_file.h"
#include "api/responses_store.h"
#include "api/turns/prompt_parts.h"

#include "base/clock.h"
#include "base/log.h"

#define PARTS_ENTRIES_MAX 1024

/* A start without the conversations of before is as good as any other. */
static void load(struct api *a)
{
    struct err e = {0};
    if (a->opts.conversations_file &&
        conversations_load(a->conversations, a->opts.conversations_file, clock_now_ns(), &e) < 0)
        LOG_WARN("conversations_lost", "reason=\"%s\"", e.text);
}

static void save(struct api *a)
{
    struct err e = {0};
    if (a->conversations && a->opts.conversations_file &&
        conversations_save(a->conversations, a->opts.conversations_file, &e) < 0)
        LOG_WARN("conversations_not_saved", "reason=\"%s\"", e.text);
}

static int open_responses(struct api *a)
{
    struct account *account = a->opts.responses;
    struct responses_store_opts opts = {account, 0, a->opts.response_ttl_ns};
    uint64_t limit = account ? account_numbers(account).limit : 0;
    if (limit <= responses_store_bytes())
        return 0;
    opts.bytes_max = limit - responses_store_bytes();
    int r = responses_store_create(&opts, &a->responses);
    a->limits.responses = a->responses;
    return r;
}

/* A quarter of the account is for the parts of prompts. */
static int open_conversations(struct api *a)
{
    struct conversations_opts opts = {.account = a->opts.conversations};
    uint64_t limit = opts.account ? account_numbers(opts.account).limit : 0;
    if (limit < 2 * CONVERSATIONS_BYTES_LEAST)
        return 0;
    uint32_t entries = 1;
    while (entries < PARTS_ENTRIES_MAX && prompt_parts_bytes(entries + 1) <= limit / 4)
        entries++;
    int r = prompt_parts_create(opts.account, entries, clock_now_ns(), &a->parts);
    opts.bytes_max = limit - prompt_parts_bytes(entries);
    if (r == 0)
        r = conversations_create(&opts, &a->conversations);
    if (r == 0)
        load(a);
    return r;
}

int turn_memory_open(struct api *a)
{
    int r = open_responses(a);
    return r == 0 ? open_conversations(a) : r;
}

void turn_memory_close(struct api *a)
{
    save(a);
    responses_store_free(a->responses);
    conversations_free(a->conversations);
    prompt_parts_free(a->parts);
    a->responses = NULL;
    a->conversations = NULL;
    a->parts = NULL;
}
