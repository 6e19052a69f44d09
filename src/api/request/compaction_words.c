#include "api/request/compaction_words.h"

#include "gen/reject.h"

#include <stdbool.h>
#include <string.h>

static const char own_words[] =
    "The conversation above is about to be replaced by a summary. Write this summary now, and nothing else. "
    "Call no tool. Somebody who has not read the conversation shall be able to continue the work with it. "
    "Say what the user asked for, with all conditions. Say what was done and decided, and why. Name files, "
    "commands, figures and errors exactly as they were. Say what is still to be done, and what comes next. "
    "Leave out what no longer matters.";

static bool is_blank(const char *text)
{
    return !text || text[strspn(text, " \t\r\n")] == 0;
}

json_t *compaction_words(json_t *given)
{
    return is_blank(json_string_value(given)) ? json_string(own_words) : json_incref(given);
}

void compaction_refuse(struct reject *why)
{
    reject_set(why, REJECT_ENGINE_ERROR, NULL,
               "The model wrote no summary: the reply ended within its reasoning. Request less of that.");
}
