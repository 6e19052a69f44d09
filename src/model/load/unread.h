/* unread.h - tensors of the checkpoint that no part of the model reads. On the loading thread. */
#ifndef PLATEAU_MODEL_UNREAD_H
#define PLATEAU_MODEL_UNREAD_H

struct binder;
struct err;

/* After measuring; `b` has the text model's prefix and the tensors that were found. Refuses tensors without
 * which the model is another one: layers beyond config.json's, and in a GGUF file any tensor of unknown
 * meaning. 0, -EINVAL, -ENOTSUP: `e` names the first and says how many there are. */
int unread_check(const struct binder *b, struct err *e);

#endif
