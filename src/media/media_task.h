/* media_task.h - the service and its tasks, for the files of the media service only. */
#ifndef PLATEAU_MEDIA_MEDIA_TASK_H
#define PLATEAU_MEDIA_MEDIA_TASK_H

#include "media/media.h"
#include "media/media_bytes.h"
#include "media/media_queue.h"

#include "base/list.h"
#include "base/threads/thread_stack.h"
#include "model/model.h"
#include "vision/smart_size.h"

#include <pthread.h>
#include <stdatomic.h>

#define MEDIA_THREADS_MAX 16

enum media_origin { MEDIA_FROM_BYTES, MEDIA_FROM_NETWORK, MEDIA_FROM_FILE };

struct media_source {
    enum media_origin origin;
    const char *url;          /* in the task's arena; NULL: bytes */
    struct media_bytes bytes; /* copied or fetched; freed once they are decoded */
    uint32_t part;
};

struct media_part {
    enum media_kind kind;
    char at[MEDIA_AT_BYTES];
    bool listed; /* a video as a list of frames: each source is one */
    double fps;  /* NAN: not given */
    struct media_source *sources;
    uint32_t source_count;
    uint64_t cost_ns; /* estimated decoding time */
    /* The result. */
    struct image **images;
    double *seconds;
    uint32_t count, room, columns; /* columns: of tiles */
};

struct media_task {
    /* Constant. */
    struct media *media;
    struct arena *arena; /* the task and all its tables lie in it */
    struct model_vision vision;
    struct media_part *parts;
    uint32_t part_count;
    struct media_source *sources;
    uint32_t source_count;
    uint64_t bytes; /* encoded bytes of its sources; guarded by the service's lock after media_submit() */
    bool remote, video;

    /* Guarded by the service's lock. */
    struct list link;                /* in the list of the fetching thread */
    struct media_entry entry;        /* in the queue for a decoding thread */
    bool left;                       /* its exchange has left it */
    _Atomic int state;               /* enum media_state; any thread reads it */
    _Atomic uint64_t waits_since_ns; /* 0: it is being fetched or worked on, or done; any thread reads it */

    atomic_bool stop; /* the fetch or decoder that works on it stops */
    /* Owned by the thread that works on it, then by the exchange that holds it. */
    struct media_failure why;
    bool failed;
    uint64_t work_ns;   /* decoding time up to now */
    uint32_t part_next; /* the first part that has not been decoded */
    /* Progress. */
    _Atomic uint32_t parts_done;
    _Atomic uint64_t bytes_fetched, frames_decoded, frames;
};

struct media {
    /* Set by media_create(), then constant. */
    struct media_opts opts;
    struct charge charge;  /* charge on opts.account, also for images; remembers the refused bytes */
    struct account *video; /* memory of videos' processes */
    int dir;               /* opts.dir, -1: none */
    char *dir_path;        /* opts.dir as a canonical path */
    bool has_ffmpeg;
    uint64_t limit;
    struct fetch *fetch;                      /* NULL: remote media are off */
    pthread_t threads[MEDIA_THREADS_MAX + 1]; /* the first decodes small images only */
    struct thread_stack stacks[MEDIA_THREADS_MAX + 1];
    uint32_t thread_count;

    pthread_mutex_t lock;
    pthread_cond_t work;
    /* Guarded by the lock. */
    bool stopping;
    struct fair_queue waiting;
    uint32_t working_count, fetching_count;
    uint32_t videos_now, videos_max; /* videos under way, and their limit: of several threads one is always
                                      * left to images */
    uint64_t queued_bytes;
    uint64_t task_ns; /* moving average of a task's decoding time */
    struct media_numbers numbers;

    _Atomic uint64_t images_made, videos_made, frames_made, bytes_fetched, addresses_refused;
};

/* media_task.c: the charge of opts.account, and the bytes of its last refusal on this thread. */
struct charge media_memory_charge(struct media *m);
size_t media_memory_refused(void);

/* Refuses a part: "messages[0].content[1] ...". Returns false. */
bool media_refuse(struct media_task *t, const struct media_part *p, enum media_fault fault,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Fails the task for `r`, the error of a call that filled `e`. -ENOMEM keeps the refused bytes for `wanted`
 * and, like -ECANCELED, has no message. Returns false. */
bool media_fail(struct media_task *t, const struct media_part *p, int r, const struct err *e);

/* media_fetch.c: fetches all sources of a task from the network, on a thread of its own. Then it calls
 * `fetched`, without the service's lock: the sources are here, or the task has failed. */
typedef void fetch_done_fn(struct media_task *t);
int fetch_create(struct media *m, fetch_done_fn *fetched, struct fetch **ret);
void fetch_free(struct fetch *f);
uint64_t fetch_stack_bytes(void);
/* With the service's lock held. */
void fetch_put(struct fetch *f, struct media_task *t);
/* With the service's lock held. True: no fetch has begun, and the task is the caller's again. Else wakes the
 * fetching thread, which then sees that the task is to stop. */
bool fetch_take_back(struct fetch *f, struct media_task *t);

/* media_file.c: opens the file of a file: URL. No link and no ".." on the path leads out of the directory of
 * --media-dir. Returns the descriptor of a regular file, or an error with its sentence in `e`. */
int media_file_open(const struct media *m, struct slice url, struct err *e);
/* Returns the file's length, which must be 1 to bytes_max; `ret` may be NULL. 0, -EINVAL (empty or
 * unreadable), -E2BIG. */
int media_file_check(int fd, size_t bytes_max, size_t *ret, struct err *e);
/* Reads the whole file. 0, -ENOMEM, or as media_file_check(). */
int media_file_read(int fd, size_t bytes_max, const struct charge *charge, struct media_bytes *ret,
                    struct err *e);

/* media_image.c: estimates the decoding time of each part, from image headers where the bytes are here. */
void media_measure(struct media_task *t);
/* Decode one part to its images. False: the task has failed. */
bool media_make_image(struct media_task *t, struct media_part *p);
bool media_make_frames(struct media_task *t, struct media_part *p);
/* media_video.c */
bool media_make_video(struct media_task *t, struct media_part *p);
/* Makes room for `count` images and their times in the task's arena. False: the task has failed. */
bool media_reserve_images(struct media_task *t, struct media_part *p, uint32_t count);
/* Limit of the frames sampled from a video: the model's, or the operator's if that is lower. */
uint32_t media_frames_max(const struct media_task *t);
/* Time of two frames that become one input. */
double media_pair_seconds(const struct media_task *t, double first, double second);
/* Pixel bounds for `frames` frames of a video: for their sum, and for each at most those of an image. */
struct smart_bounds media_video_bounds(const struct media_task *t, uint32_t frames);
/* Frees a task that no thread and no exchange holds. */
void media_task_free(struct media_task *t);

#endif
