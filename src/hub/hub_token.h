/* hub_token.h - the token for the hub, from where its other programs keep it. */
#ifndef PLATEAU_HUB_HUB_TOKEN_H
#define PLATEAU_HUB_HUB_TOKEN_H

#include "base/err.h"

#define HUB_TOKEN_BYTES 1024

/* HF_TOKEN, else the file HF_TOKEN_PATH, else $HF_HOME/token (~/.cache/huggingface/token). "" without
 * one. 0, or -EINVAL: it is longer, or has characters that no header may have; `e` does not show it. */
int hub_token_read(char ret[HUB_TOKEN_BYTES], struct err *e);

#endif
