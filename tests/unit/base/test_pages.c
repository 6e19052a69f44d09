/* Ranges of memory that are committed and decommitted in pieces. */
#include "test.h"

#include "base/pages.h"

#include <string.h>
#include <sys/mman.h>

#define MIB   ((size_t)1 << 20)
#define RANGE (13 * MIB) /* several pieces, the last one not whole */

static char *reserve(void)
{
    char *p = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static size_t resident_bytes(char *p)
{
    static unsigned char pages[RANGE / 4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
    assert_int_equal(mincore(p, RANGE, pages), 0);
    for (size_t i = 0; i < RANGE / page; i++)
        count += pages[i] & 1;
    return count * page;
}

TEST(what_is_committed_is_resident_to_its_end)
{
    char *p = reserve();
    assert_int_equal(resident_bytes(p), 0);
    assert_int_equal(pages_commit(p, RANGE), 0);
    assert_int_equal(resident_bytes(p), RANGE);
    memset(p, 1, RANGE);
    pages_unmap(p, RANGE, p, RANGE);
}

TEST(what_is_decommitted_is_gone_to_its_end)
{
    char *p = reserve();
    assert_int_equal(pages_commit(p, RANGE), 0);
    memset(p, 1, RANGE);
    assert_int_equal(pages_decommit(p, RANGE), 0);
    assert_int_equal(resident_bytes(p), 0);
    assert_int_equal(pages_open(p, RANGE), 0);
    assert_int_equal(pages_populate(p + 5 * MIB, 8 * MIB), 0);
    assert_int_equal(resident_bytes(p), 8 * MIB);
    assert_true(p[5 * MIB] == 0 && p[RANGE - 1] == 0);
    pages_unmap(p, RANGE, p, RANGE);
}

TEST_MAIN()
