/* placement.h - the memory in which each part of a model lies: decided before its load, printed, and kept.
 *
 * A model has three kinds of parts. A layer is mixer, norms, router, MLP and shared expert, with keys,
 * values and recurrent state. Its experts are a part of their own. The rest is embedding, output matrix, MTP
 * head and vision encoder. Each part has a place: the number of a domain as in plan_model.domain, 0 for the
 * machine. The domain's device computes it; experts in the machine are computed by the CPU's workers.
 *
 * The rules, in their order:
 * 1. --place;
 * 2. all parts on the model's device, where they fit;
 * 3. experts in the machine, the other parts on the device;
 * 4. layers over several devices;
 * 5. all parts in the machine.
 * host/planning.c decides by whole plans, never by trial and error. placement_check() refuses by name a part
 * that cannot be computed in its place.
 *
 * Zeros are the placement of a model of which all parts are on its device. Pure; any thread. */
#ifndef PLATEAU_MEMORY_PLACEMENT_H
#define PLATEAU_MEMORY_PLACEMENT_H

#include "base/err.h"
#include "memory/dev.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLACEMENT_LAYERS_MAX  1024u
#define PLACEMENT_NO_EXPERTS  UINT8_MAX /* place of the experts of a layer without them */
#define PLACEMENT_RULES_MAX   16u
#define PLACEMENT_PLACE_BYTES 16u /* "cuda:15" */
#define PLACEMENT_TEXT_BYTES  256u

enum placement_part { PLACEMENT_REST, PLACEMENT_LAYERS, PLACEMENT_EXPERTS };

struct placement {
    uint32_t layers; /* 0: all parts are on the model's device */
    uint8_t rest;
    uint8_t layer[PLACEMENT_LAYERS_MAX], experts[PLACEMENT_LAYERS_MAX]; /* [layers] */
};

/* Bytes of packed weights, as measuring finds them. */
struct placement_sizes {
    uint32_t layers;
    uint64_t rest_bytes;
    uint64_t layer_bytes[PLACEMENT_LAYERS_MAX];
    uint64_t experts_bytes[PLACEMENT_LAYERS_MAX]; /* 0: the layer has no experts */
};

/* The rules of --place: "experts=cpu", "experts 10-47=cpu, layers 0-19=cuda:0, rest=cuda:0". Of two rules for
 * one part the later one holds. */
struct placement_rule {
    enum placement_part part;
    uint32_t first, last; /* layers; last UINT32_MAX: all from `first` on */
    char place[PLACEMENT_PLACE_BYTES];
};
struct placement_wish {
    struct placement_rule rules[PLACEMENT_RULES_MAX];
    uint32_t count;
};
/* 0, or -EINVAL: `e` quotes the rule and names the expected form. */
int placement_parse(const char *text, struct placement_wish *ret, struct err *e);

/* The names of places by number: names[0] is "cpu". */
struct placement_names {
    const char *const *names;
    uint32_t count;
};

/* Puts all parts in one domain. */
void placement_all(const struct placement_sizes *s, uint32_t domain, struct placement *ret);
/* Puts the experts of all layers in one domain. */
void placement_experts(struct placement *p, uint32_t domain);
/* Changes *p by the rules. 0, or -EINVAL: a rule is about layers or experts that the model does not have, or
 * about a place that the process does not have. */
int placement_apply(const struct placement_wish *w, const struct placement_names *places, struct placement *p,
                    struct err *e);
/* Whether a model on the device `domain` can be computed in these places. 0, or -ENOTSUP: `e` says which part
 * cannot. */
int placement_check(const struct placement *p, uint32_t domain, const struct placement_names *places,
                    struct err *e);

/* Whether the experts of a layer have another place than the layer. */
static inline bool placement_is_apart(const struct placement *p, uint32_t layer)
{
    return layer < p->layers && p->experts[layer] != p->layer[layer] &&
           p->experts[layer] != PLACEMENT_NO_EXPERTS;
}
/* Whether that is true of some layer. */
bool placement_any_apart(const struct placement *p);

/* The devices that have layers, in the order of these, after `domain`, the first of them, which has the rest:
 * *ret has their domains, and `shard` for each layer an index into it. Returns how many; 0: more than
 * SHARDS_MAX. */
uint32_t placement_devices(const struct placement *p, uint32_t domain, uint32_t ret[SHARDS_MAX],
                           uint8_t shard[PLACEMENT_LAYERS_MAX]);

/* Neighbouring layers of one place, or the rest. */
struct placement_row {
    enum placement_part part;
    uint32_t first, last, domain;
    uint64_t bytes; /* 0 without sizes */
};
/* The next row of the table, from a zeroed *row with `started` false on. False: there are no more. `s` may be
 * NULL. */
struct placement_walk {
    bool started;
    struct placement_row row;
};
bool placement_next(const struct placement *p, const struct placement_sizes *s, struct placement_walk *w);
/* "layers 0-47", "experts 10-47", "the rest". */
const char *placement_row_text(const struct placement_row *row, char *ret, size_t bytes_max);
/* All rows in one line, cut where it is longer: "cuda:0: the rest and layers 0-47, cpu: experts 0-47". */
const char *placement_text(const struct placement *p, const struct placement_names *places, char *ret,
                           size_t bytes_max);

#endif
