/* compaction_words.h - summaries in place of a conversation: the words around them. */
#ifndef PLATEAU_API_COMPACTION_WORDS_H
#define PLATEAU_API_COMPACTION_WORDS_H

#include <jansson.h>

struct reject;

/* Before the text of a summary in a prompt. */
#define COMPACTION_SUMMARY "Summary of the conversation until here:\n\n"

/* The text that requests a summary: `given`, a string, or the server's own where that is NULL or blank. A new
 * reference; NULL: no memory. */
json_t *compaction_words(json_t *given);
/* The error of a reply whose summary is empty. */
void compaction_refuse(struct reject *why);

#endif
