/* file_stamp.c - entries are summed, so the order in which the system lists them does not matter. */
#include "registry/file_stamp.h"

#include "base/hash.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t hash_of(int dir_fd, const char *name)
{
    struct stat st;
    uint64_t numbers[4] = {hash_bytes(name, strlen(name))};
    if (fstatat(dir_fd, name, &st, 0) == 0) {
        numbers[1] = (uint64_t)st.st_size;
        numbers[2] = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
        numbers[3] = (uint64_t)st.st_ino;
    }
    return hash_bytes(numbers, sizeof(numbers));
}

struct file_stamp file_stamp_of(const char *dir)
{
    struct file_stamp s = {0};
    DIR *d = opendir(dir);
    for (struct dirent *entry = d ? readdir(d) : NULL; entry; entry = readdir(d))
        if (entry->d_name[0] != '.')
            s.hash += hash_of(dirfd(d), entry->d_name) | 1;
    if (d)
        closedir(d);
    return s;
}
