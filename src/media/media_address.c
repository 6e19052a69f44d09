/* media_address.c - the form of URLs that clients name; their addresses are checked when connections are made
 * (base/public_address.h). */
#include "media/media_address.h"

#include "media/media.h"

#include <string.h>

bool media_allows_all_addresses;

#define URL_BYTES_MAX 8192

static bool is_plain(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] <= 0x20 || (unsigned char)s.ptr[i] >= 0x7f ||
            strchr("\"<>\\^`{|}", s.ptr[i]))
            return false;
    return true;
}

const char *media_url_fault(struct slice url)
{
    struct slice schemes[] = {SLICE("http://"), SLICE("https://")};
    size_t skip = slice_starts_any_case(url, schemes[0])   ? schemes[0].len
                  : slice_starts_any_case(url, schemes[1]) ? schemes[1].len
                                                           : 0;
    if (skip == 0)
        return "is none of these";
    if (url.len > URL_BYTES_MAX)
        return "is longer than 8192 bytes";
    if (!is_plain(url))
        return "has characters that a URL must have written as %XX";
    struct slice rest = slice_sub(url, skip, url.len);
    size_t end = 0;
    while (end < rest.len && !strchr("/?#", rest.ptr[end]))
        end++;
    if (end == 0)
        return "has no host";
    /* Credentials would go to a host of the client's choice, and they are a way to disguise a host. */
    return memchr(rest.ptr, '@', end) ? "has a user name or password in it" : NULL;
}
