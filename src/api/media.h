/* media.h - the media service: addresses and bytes that clients sent to images that engines read.
 *
 * Own threads do what takes long: one fetches from the network (with --allow-remote-media), the others read files, decode, resize, and feed
 * what a video's process writes. A request's images are one task:
 *
 *     made ──▶ (fetching ──▶) waiting ◀──▶ working ──▶ done
 *     prep              the service's queue           its exchange's again
 *
 * After each image or video a task waits again: media_queue.h has the order.
 *
 * The exchange holds the task from media_task_create() to media_task_leave(), which may come at any time and from any thread, and never
 * waits: what is queued goes at once, what is being worked on stops at its next look (a fetch when it wakes, a decoder within a
 * few rows, a video's process is killed), and the worker drops what there is. Nobody else knows of a task, so nothing can remain.
 *
 * Memory: all bytes are of the account `media`, whose limit is the plan's: tasks, encoded bytes, decoders' scratch, images (until the last job that
 * sees them ends), and, as `video` below it, what a video's process may take and the file in memory that it reads. Of the queue at most
 * half the limit. What is refused fails its request, never another. */
#ifndef PLATEAU_API_MEDIA_H
#define PLATEAU_API_MEDIA_H

#include "api/reject.h"
#include "api/request.h"
#include "base/arena.h"
#include "base/err.h"
#include "memory/ledger.h"
#include "model/model.h"
#include "vision/image.h"

struct media;
struct media_task;

/* 0 takes the default that stands beside it. */
struct media_opts {
    bool on;                 /* else images are refused, and nothing else of this matters */
    struct account *account; /* `media` */
    struct account *threads; /* stacks; NULL: `account` pays */
    uint32_t thread_count;   /* that decode, beside one for small images; 1 or 2 by processors */
    uint32_t tasks_max;      /* that wait; 256 */
    uint32_t parts_max;      /* images and videos of one request; 16 */
    size_t bytes_max;        /* encoded, of each source; 64 MiB */
    uint64_t pixels_max;     /* of an image, and of a frame, as they come; 64000000 */
    uint32_t timeout_s;      /* for fetching one source, and for one video; 60 */
    uint32_t video_s_max;    /* duration of a video; 3600 */
    uint32_t frames_max;     /* looked at, of a video; 0: as many as the model's own limit */
    bool allow_remote;
    const char *dir;         /* files below it may be named; NULL: none */
    void (*done)(void *arg); /* some task is done; any thread */
    void *arg;
};

/* Stacks of its threads. */
uint64_t media_stack_bytes(const struct media_opts *opts);
/* 0, -EINVAL (the directory), -ENOMEM, or what starting a thread said. */
int media_create(const struct media_opts *opts, struct media **ret, struct err *e);
/* Ends the threads; every task has been left. */
void media_stop(struct media *m);
/* After the last image is gone. NULL is fine. */
void media_free(struct media *m);

/* Takes what the request's parts name: bytes of data URLs are copied (and checked), so that the request may
 * drop them. `vision` is copied. False: `why` says it, or its status is 0: memory was refused, *wanted bytes.
 * Any thread. */
bool media_task_create(struct media *m, const struct request *r, const struct model_vision *vision,
                       struct media_task **ret, size_t *wanted, struct reject *why);
/* Hands it to the service. False: its queue is full, `why` is 429. */
bool media_submit(struct media_task *t, uint64_t tenant, struct reject *why);
/* NULL is fine. */
void media_task_leave(struct media_task *t);

enum media_state { MEDIA_MADE, MEDIA_FETCHING, MEDIA_WAITING, MEDIA_WORKING, MEDIA_DONE };
enum media_state media_task_state(const struct media_task *t);
/* Clock time since when nobody has begun with it, neither to fetch nor to read; 0: somebody has. */
uint64_t media_task_waits_since_ns(const struct media_task *t);
/* Done: NULL, or why a part is no image; status 0 in it: memory was refused, see media_task_wanted(). */
const struct reject *media_task_failure(const struct media_task *t);
/* Bytes that were refused last. */
size_t media_task_wanted(const struct media_task *t);

/* What became of one part; after it is done, and well. */
struct media_result {
    enum request_media_kind kind;
    /* One of an image; of a video one for each pair of frames. The task's. */
    struct image *const *images;
    const double *seconds; /* of a video: when, for each */
    uint32_t count;
};
uint32_t media_task_parts(const struct media_task *t);
struct media_result media_task_result(const struct media_task *t, uint32_t part);

/* How far it is. Any thread that holds it. */
struct media_progress {
    uint32_t parts_done, parts;
    uint64_t bytes_fetched, frames_decoded,
        frames; /* frames: of the video that is being read, as far as it is known */
};
struct media_progress media_task_progress(const struct media_task *t);

/* Counters grow. */
struct media_numbers {
    uint32_t waiting, working, fetching;
    uint64_t queued_bytes;
    uint64_t tasks, tasks_failed,
        tasks_left; /* ended: all, of those failed, of those left before they were done */
    uint64_t images, videos, frames, bytes_fetched, addresses_refused;
    uint64_t work_ns;
};
void media_numbers(struct media *m, struct media_numbers *ret);
/* When a request that found the queue full may come again. */
uint32_t media_retry_after_s(struct media *m);
struct account *media_account(const struct media *m);
const struct media_opts *media_options(const struct media *m);

/* For tests: every address may be connected to. */
extern bool media_allows_all_addresses;

#endif
