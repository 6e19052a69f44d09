/* gguf_latent.h - latent attention of a GGUF file. Inside gguf/ only. Other architectures pass. */
#ifndef PLATEAU_GGUF_GGUF_LATENT_H
#define PLATEAU_GGUF_GGUF_LATENT_H

struct gguf_meta;

/* 0, -EINVAL, -ENOTSUP, -ENOMEM. */
int gguf_latent_copy(struct gguf_meta *v);
int gguf_latent_copy_router(struct gguf_meta *v);

#endif
