/* text_plan.h - what the tokenizer and the chat template of a model will take, before they are read. Any
 * thread. */
#ifndef PLATEAU_CHAT_TEXT_PLAN_H
#define PLATEAU_CHAT_TEXT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

struct model_files;

struct text_plan {
    bool tokenizer; /* the model has one */
    uint64_t bytes; /* limit of the account `tokenizer` */
};

struct text_plan text_plan_of(struct model_files *files);

#endif
