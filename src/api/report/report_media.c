/* report_media.c - what the media service has done, and does. */
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "media/media.h"

struct service_numbers {
    struct media_numbers media;
    uint64_t used_bytes, limit_bytes;
};

#define OF(field) GAUGE_OF(struct service_numbers, field)

static const struct gauge rows[] = {
    {OF(media.waiting), MEMBER("media", 2, "waiting"),
     GAUGE("plateau_media_waiting", "Requests whose images wait for a decoding thread.")},
    {OF(media.working), MEMBER("media", 3, "working"),
     GAUGE("plateau_media_working", "Requests whose images are being decoded.")},
    {OF(media.fetching), MEMBER("media", 1, "fetching"),
     GAUGE("plateau_media_fetching", "Requests whose images are being fetched from the network.")},
    {OF(media.queued_bytes), MEMBER("media", 4, "queued_bytes"),
     GAUGE("plateau_media_queued_bytes", "Encoded bytes of the images in the decoding queue.")},
    {OF(used_bytes), MEMBER("media", 5, "used_bytes"), NOTE("Memory in use for images and videos.")},
    {OF(limit_bytes), MEMBER("media", 6, "limit_bytes"), NOTE("Limit of this memory.")},
    {OF(media.tasks), MEMBER("media", 7, "requests"),
     COUNTER("plateau_media_requests_total",
             "Requests with images whose decoding has ended, successfully or not.")},
    {OF(media.tasks_failed), MEMBER("media", 8, "failed"),
     COUNTER("plateau_media_failed_total", "Requests refused because an image could not be read.")},
    {OF(media.tasks_left), MEMBER("media", 9, "left"),
     COUNTER("plateau_media_left_total", "Requests whose client left before their images were decoded.")},
    {OF(media.images), MEMBER("media", 10, "images"),
     COUNTER("plateau_media_images_total", "Images decoded.")},
    {OF(media.videos), MEMBER("media", 11, "videos"),
     COUNTER("plateau_media_videos_total", "Videos decoded.")},
    {OF(media.frames), MEMBER("media", 12, "frames"),
     COUNTER("plateau_media_frames_total", "Frames of videos decoded.")},
    {OF(media.bytes_fetched),
     COUNTER("plateau_media_fetched_bytes_total", "Bytes of images and videos fetched from the network.")},
    {OF(media.addresses_refused), COUNTER("plateau_media_addresses_refused_total",
                                          "Connections refused because the address is not public.")},
    {OF(media.work_ns), .unit = GAUGE_SECONDS,
     COUNTER("plateau_media_work_seconds_total", "Time that threads spent decoding images and videos.")},
};

static bool read_numbers(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    struct service_numbers *n = ret;
    (void)model;
    if (tenant || !a->media)
        return false;
    struct account_numbers memory = account_numbers(media_account(a->media));
    *n = (struct service_numbers){.used_bytes = memory.used, .limit_bytes = memory.limit};
    media_numbers(a->media, &n->media);
    return true;
}

const struct gauge_table report_media_gauges = {
    "Of images and videos before the model", rows,        COUNT_OF(rows), false,
    sizeof(struct service_numbers),          read_numbers};

void report_media(struct api *a, struct json_out *j)
{
    struct service_numbers n;
    if (read_numbers(a, NULL, 0, &n))
        gauges_put_object(&report_media_gauges, "media", &n, j);
    else
        json_put_null(j, "media");
}
