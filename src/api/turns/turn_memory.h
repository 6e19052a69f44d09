/* turn_memory.h - stores between turns: responses in one account (responses_store.h), conversations in
 * another (conversations.h, prompt_parts.h). */
#ifndef PLATEAU_API_TURN_MEMORY_H
#define PLATEAU_API_TURN_MEMORY_H

struct api;

/* 0, or -ENOMEM. Nothing is kept where the account has too little. */
int turn_memory_open(struct api *a);
/* Twice is fine. */
void turn_memory_close(struct api *a);

#endif
