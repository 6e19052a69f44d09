/* page_tokens.h - the size of a KV page: kernels compute with it, the cache counts with it. */
#ifndef PLATEAU_BASE_PAGE_TOKENS_H
#define PLATEAU_BASE_PAGE_TOKENS_H

#define PAGE_TOKENS 32

#endif
