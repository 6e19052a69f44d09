/* gguf_rope.h - rotary position embeddings of a GGUF file. Inside gguf/ only. */
#ifndef PLATEAU_GGUF_GGUF_ROPE_H
#define PLATEAU_GGUF_GGUF_ROPE_H

struct gguf_meta;

/* 0, -EINVAL, -ENOTSUP, or what reading a tensor said. */
int gguf_rope_copy(struct gguf_meta *v);

#endif
