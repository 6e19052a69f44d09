/* media_video.c - decodes a video's file to pairs of frames, with ffprobe and ffmpeg.
 *
 * Another process reads the client's bytes, and can do nothing but write to its pipe. It finds the file as
 * its descriptor 3: an anonymous file in memory, or the one below --media-dir. It may open local descriptors
 * only, by formats that name no other file (no playlists), with a fixed list of decoders. Its frames arrive
 * one by one as PPM, which states each one's size, and are resized at once. So memory has one unscaled frame
 * and the pairs that the model samples, whatever the video's length. */
#include "media/media_ppm.h"
#include "media/media_process.h"
#include "media/media_sample.h"
#include "media/media_task.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "vision/decode.h"
#include "vision/image.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FORMATS "mov,matroska,avi,mpegts,mpeg,ogg,flv,asf,gif,webp_pipe,h264,hevc,ivf"
#define CODECS                                                                                               \
    "h264,hevc,vp8,vp9,libvpx,libvpx-vp9,av1,libdav1d,mpeg4,msmpeg4v3,mpeg2video,mpeg1video,h263,mjpeg,"     \
    "theora,flv,wmv2,wmv3,vc1,prores,ffv1,gif,rawvideo,png"
#define BASE_BYTES  ((uint64_t)80 << 20) /* memory ffmpeg writes to before it has a frame; measured: 40 */
#define PIXEL_BYTES 48 /* and for each pixel of a frame: reference frames and the converted one */
#define PROBE_BYTES ((uint64_t)96 << 20)
#define TERM_BYTES  64   /* bytes of the text that selects a frame; 42 are used at most */
#define FRAMES_MOST 3000 /* selected frames: Linux takes arguments of 128 KiB */
#define SHORT_BY    3    /* frames that may be missing at the end: packets that show nothing */
#define SAID_BYTES  4096 /* bytes of ffprobe's output */
#define NO_VIDEO                                                                                             \
    "is not a video in a supported format (MP4, WebM, Matroska, AVI, MPEG and some more), or is broken"

struct video {
    struct media_task *task;
    struct media_part *part;
    int fd;              /* input of the processes */
    uint64_t file_bytes; /* bytes of the file in memory, charged */
    uint64_t deadline_ns;
    uint32_t width, height, frames; /* size and frames in the file's header */
    double fps, seconds;
    struct media_sample sample;
    uint32_t count; /* sampled frames */
    struct media_process process;
    struct media_bytes frame; /* before resizing */
};

/* ---- memory of the processes ---- */

static int charge_video(struct video *v, uint64_t bytes)
{
    struct media *m = v->task->media;
    if (account_reserve(m->video, bytes) < 0) {
        v->task->why.wanted = bytes;
        return -ENOMEM;
    }
    account_use(m->video, bytes);
    return 0;
}

static void give_video(struct video *v, uint64_t bytes)
{
    struct media *m = v->task->media;
    account_unuse(m->video, bytes);
    account_release(m->video, bytes);
}

/* Not with media_fail(), which reports the account `media`: its child `video` refused. */
static bool fail_memory(struct video *v)
{
    v->task->failed = true;
    return false;
}

static bool fail(struct video *v, int r, const char *what)
{
    struct media_task *t = v->task;
    const struct media_part *p = v->part;
    t->failed = true;
    if (r == -ENOMEM)
        return fail_memory(v);
    if (r == -ECANCELED)
        return false;
    if (r == -ETIMEDOUT)
        return media_refuse(t, p, MEDIA_FAULT_TOO_LARGE,
                            "could not be decoded within %u s (--media-timeout).", t->media->opts.timeout_s);
    return media_refuse(t, p, MEDIA_FAULT_INVALID, "%s.", what);
}

/* ---- the file ---- */

static int write_all(int fd, const struct media_bytes *b)
{
    size_t at = 0;
    while (at < b->len) {
        ssize_t n = write(fd, b->ptr + at, b->len - at);
        if (n < 0 && errno != EINTR)
            return -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* The bytes move into a file in memory: containers are read from both ends. */
static bool make_file(struct video *v, struct media_source *s)
{
    if (charge_video(v, s->bytes.len) < 0)
        return fail_memory(v);
    v->file_bytes = s->bytes.len;
    v->fd = memfd_create("video", MFD_CLOEXEC);
    int r = v->fd < 0 ? -errno : write_all(v->fd, &s->bytes);
    media_bytes_done(&s->bytes);
    return r == 0 || fail(v, -ENOMEM, NULL);
}

static bool open_file(struct video *v)
{
    struct media_task *t = v->task;
    struct media_source *s = &v->part->sources[0];
    struct err e = {0};
    if (s->origin != MEDIA_FROM_FILE)
        return make_file(v, s);
    int r = v->fd = media_file_open(t->media, slice_of(s->url), &e);
    if (r >= 0)
        r = media_file_check(v->fd, t->media->opts.bytes_max, NULL, &e);
    return r >= 0 || media_fail(t, v->part, r, &e);
}

/* ---- ffprobe ---- */

static bool start(struct video *v, const char *const *argv, uint64_t memory_bytes)
{
    struct media_process_opts opts = {.argv = argv,
                                      .input = v->fd,
                                      .memory_bytes = memory_bytes,
                                      .deadline_ns = v->deadline_ns,
                                      .stop = &v->task->stop};
    if (charge_video(v, memory_bytes) < 0)
        return fail_memory(v);
    int r = media_process_start(&v->process, &opts);
    if (r == 0)
        return true;
    give_video(v, memory_bytes);
    LOG_ERROR("media_process_failed", "program=%s error=\"%s\"", argv[0], strerror(-r));
    return fail(v, -EINVAL, "is a video, and ffmpeg could not be started");
}

/* True: it ended by itself with status 0. */
static bool end(struct video *v, uint64_t memory_bytes, const char *program)
{
    bool well = media_process_end(&v->process);
    give_video(v, memory_bytes);
    if (v->process.said[0] && well)
        LOG_DEBUG("media_process_said", "program=%s text=\"%s\"", program, v->process.said);
    else if (v->process.said[0])
        LOG_INFO("media_process_said", "program=%s text=\"%s\"", program, v->process.said);
    return well;
}

/* The number after "name=" on a line of its own; NAN: no such line, or no number. A quotient is divided. */
static double find_number(const char *text, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char *after;
        if (strncmp(line, name, len) != 0 || line[len] != '=')
            continue;
        double value = strtod(line + len + 1, &after);
        if (after == line + len + 1)
            return NAN;
        return *after == '/' ? value / strtod(after + 1, NULL) : value;
    }
    return NAN;
}

static bool is_between(double value, double least, double most)
{
    return value >= least && value <= most; /* not of NAN */
}

static bool check(struct video *v, const char *said)
{
    const struct media_opts *o = &v->task->media->opts;
    double width = find_number(said, "width"), height = find_number(said, "height");
    double frames = find_number(said, "nb_read_packets"), fps = find_number(said, "avg_frame_rate");
    double seconds = find_number(said, "duration");
    if (!is_between(fps, 0.001, 10000))
        fps = find_number(said, "r_frame_rate");
    if (!is_between(width, 1, 65535) || !is_between(height, 1, 65535) || !is_between(frames, 1, 1e9) ||
        !is_between(fps, 0.001, 10000))
        return fail(v, -EINVAL, NO_VIDEO);
    if (width * height > (double)o->pixels_max)
        return media_refuse(
            v->task, v->part, MEDIA_FAULT_TOO_LARGE,
            "is a video of %.0f x %.0f pixels; the limit is %llu pixels (--max-media-pixels).", width, height,
            (ull)o->pixels_max);
    seconds = fmax(frames / fps, isnan(seconds) ? 0 : seconds);
    if (seconds > o->video_s_max)
        return media_refuse(v->task, v->part, MEDIA_FAULT_TOO_LARGE,
                            "is a video of %.0f seconds; the limit is %u (--max-video-seconds).", seconds,
                            o->video_s_max);
    v->width = (uint32_t)width;
    v->height = (uint32_t)height;
    v->frames = (uint32_t)frames;
    v->fps = fps;
    return true;
}

static bool probe(struct video *v)
{
    static const char *const argv[] = {
        "ffprobe",
        "-v",
        "error",
        "-protocol_whitelist",
        "file",
        "-format_whitelist",
        FORMATS,
        "-select_streams",
        "v:0",
        "-count_packets",
        "-show_entries",
        "stream=width,height,avg_frame_rate,r_frame_rate,nb_read_packets:format=duration",
        "-of",
        "default=noprint_wrappers=1",
        MEDIA_PROCESS_INPUT,
        NULL};
    char said[SAID_BYTES];
    size_t len = 0;
    if (!start(v, argv, PROBE_BYTES))
        return false;
    int r = media_process_read(&v->process, said, sizeof(said) - 1, &len);
    bool well = end(v, PROBE_BYTES, "ffprobe");
    said[len] = 0;
    if (r < 0)
        return fail(v, r, "cannot be read");
    if (!well || len == sizeof(said) - 1)
        return fail(v, -EINVAL, NO_VIDEO);
    return check(v, said);
}

/* ---- frames ---- */

/* Writes the sampled frames from `first` to before `end` as an expression of the frame number n: nested
 * comparisons, each of which halves the range until one frame is left. (ffmpeg takes a sum of at most a
 * hundred terms.) Returns the length. */
static size_t write_choice(const struct video *v, uint32_t first, uint32_t end, char *to)
{
    uint32_t middle = first + (end - first) / 2;
    uint32_t index = media_sample_frame(&v->sample, v->count, middle);
    if (end - first == 1)
        return (size_t)snprintf(to, TERM_BYTES, "eq(n\\,%u)", index);
    size_t len = (size_t)snprintf(to, TERM_BYTES, "if(lt(n\\,%u)\\,", index);
    len += write_choice(v, first, middle, to + len);
    memcpy(to + len, "\\,", 2);
    len += 2;
    len += write_choice(v, middle, end, to + len);
    memcpy(to + len, ")", 2);
    return len + 1;
}

/* "select=if(lt(n\,7)\,eq(n\,0)\,eq(n\,7))" */
static char *write_selection(struct video *v)
{
    static const char head[] = "select=";
    char *text = arena_alloc(v->task->arena, sizeof(head) + (size_t)v->count * TERM_BYTES);
    if (!text)
        return NULL;
    memcpy(text, head, sizeof(head));
    write_choice(v, 0, v->count, text + sizeof(head) - 1);
    return text;
}

static bool start_frames(struct video *v, uint64_t memory_bytes)
{
    const char *selection = write_selection(v);
    const char *const argv[] = {"ffmpeg",
                                "-v",
                                "error",
                                "-nostdin",
                                "-xerror", /* a frame with concealed errors is not what the camera recorded */
                                "-threads",
                                "1",
                                "-protocol_whitelist",
                                "file",
                                "-format_whitelist",
                                FORMATS,
                                "-codec_whitelist",
                                CODECS,
                                "-i",
                                MEDIA_PROCESS_INPUT,
                                "-map",
                                "0:v:0",
                                "-vf",
                                selection,
                                "-fps_mode",
                                "passthrough",
                                "-sws_flags",
                                "bicubic+accurate_rnd+full_chroma_int",
                                "-pix_fmt", /* from 10 bits and more it would make PPM of 16 */
                                "rgb24",
                                "-c:v",
                                "ppm",
                                "-threads",
                                "1",
                                "-f",
                                "image2pipe",
                                "pipe:1",
                                NULL};
    if (!selection)
        return media_fail(v->task, v->part, -ENOMEM, NULL);
    return start(v, argv, memory_bytes);
}

/* Reads a frame by media_ppm_read(). */
static int read_frame(struct video *v, uint32_t *width, uint32_t *height)
{
    const struct media *m = v->task->media;
    struct media_ppm frames = {
        .process = &v->process, .pixels_max = m->opts.pixels_max, .charge = &m->charge};
    int r = media_ppm_read(&frames, &v->frame, width, height);
    if (r == -ENOMEM)
        v->task->why.wanted = media_memory_refused();
    return r;
}

static int size_pairs(struct video *v, uint32_t width, uint32_t height, struct smart_size *ret, struct err *e)
{
    struct smart_bounds bounds = media_video_bounds(v->task, v->count);
    return smart_size_video(v->count, width, height, &bounds, ret, e);
}

static int put_frame(struct video *v, uint32_t i, uint32_t width, uint32_t height, struct smart_size size,
                     struct err *e)
{
    struct media_task *t = v->task;
    struct media_part *p = v->part;
    const struct charge *charge = &t->media->charge;
    int r = 0;
    if (i % 2 == 0) {
        r = image_create(size.width, size.height, 2, charge, &p->images[i / 2]);
        if (r < 0)
            return r;
        p->count++;
    }
    r = decode_raw_frame(p->images[i / 2], i % 2, v->frame.ptr, width, height, &t->stop, charge, e);
    if (r == -ENOMEM)
        t->why.wanted = media_memory_refused();
    return r;
}

/* A last frame without a partner counts twice. */
static double pair_seconds(const struct video *v, uint32_t pair)
{
    uint32_t first = media_sample_frame(&v->sample, v->count, 2 * pair);
    uint32_t second = media_sample_frame(&v->sample, v->count, MIN_OF(2 * pair + 1, v->count - 1));
    return media_pair_seconds(v->task, first / v->fps, second / v->fps);
}

/* Takes all sampled frames. Up to SHORT_BY missing at the end repeat the last one; -EPIPE: more are
 * missing. */
static int take_frames(struct video *v, struct err *e)
{
    struct media_task *t = v->task;
    struct smart_size size = {0};
    uint32_t width = 0, height = 0, missing = 0, wanted = ROUND_UP(v->count, 2u);
    for (uint32_t i = 0; i < wanted; i++) {
        int r = i < v->count && missing == 0 ? read_frame(v, &width, &height) : -EPIPE;
        if (r == -EPIPE && i > 0 && (i >= v->count || ++missing <= SHORT_BY))
            r = 0;
        if (r == 0 && i == 0)
            r = size_pairs(v, width, height, &size, e);
        if (r == 0)
            r = put_frame(v, i, width, height, size, e);
        if (r < 0)
            return r;
        if (i % 2 == 0)
            v->part->seconds[i / 2] = pair_seconds(v, i / 2);
        atomic_fetch_add(&t->frames_decoded, 1);
        atomic_fetch_add(&t->media->frames_made, 1);
    }
    return 0;
}

static bool make_pairs(struct video *v)
{
    struct err e = {"is a video of which not all frames can be decoded"};
    uint64_t memory_bytes = BASE_BYTES + (uint64_t)v->width * v->height * PIXEL_BYTES;
    if (!start_frames(v, memory_bytes))
        return false;
    int r = take_frames(v, &e);
    bool well = end(v, memory_bytes, "ffmpeg");
    media_bytes_done(&v->frame);
    if (r == 0 && !well)
        r = -EINVAL;
    return r == 0 || fail(v, r, e.text);
}

/* ---- all of it ---- */

static bool make(struct video *v)
{
    struct media_task *t = v->task;
    struct media_part *p = v->part;
    if (!open_file(v) || !probe(v))
        return false;
    v->sample = (struct media_sample){.frames = v->frames,
                                      .fps = v->fps,
                                      .wanted = isnan(p->fps) ? t->vision.video_fps : p->fps,
                                      .least = t->vision.video_frames_min,
                                      .most = MIN_OF(media_frames_max(t), FRAMES_MOST),
                                      .longest = t->vision.video_seconds_max};
    v->count = media_sample_count(&v->sample);
    atomic_store(&t->frames_decoded, 0);
    atomic_store(&t->frames, v->count);
    return media_reserve_images(t, p, DIV_UP(v->count, 2u)) && make_pairs(v);
}

bool media_make_video(struct media_task *t, struct media_part *p)
{
    struct video v = {
        .task = t, .part = p, .fd = -1, .deadline_ns = clock_now_ns() + t->media->opts.timeout_s * NS_PER_S};
    bool ok = make(&v);
    if (v.fd >= 0)
        close(v.fd);
    give_video(&v, v.file_bytes);
    return ok;
}
