/* Which names are ours, and how a name leads to its object. No I/O. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shm.h"

#define NCCL_PREFIX "/dev/shm/nccl-"
#define SHM_PREFIX_LENGTH (sizeof "/dev/shm/" - 1)

static const char *skip_digits(const char *text) {
    const char *end = text;
    while (*end >= '0' && *end <= '9') {
        end++;
    }
    return end == text ? NULL : end;
}

static const char *skip_field(const char *text) {
    return text != NULL && *text == '_' ? skip_digits(text + 1) : NULL;
}

/* torch_<pid>_<random>, with _<counter> since 1.12: ATen/MapAllocator.cpp */
static bool is_torch(const char *name) {
    const char *end = strncmp(name, "torch", 5) == 0 ? skip_field(name + 5) : NULL;
    end = skip_field(end);
    if (end != NULL && *end == '_') {
        end = skip_field(end);
    }
    return end != NULL && *end == '\0';
}

/* psm_ and four random bytes: multiprocessing/shared_memory.py */
static bool is_psm(const char *name) {
    return strncmp(name, "psm_", 4) == 0 && strlen(name) == 12 &&
           strspn(name + 4, "0123456789abcdef") == 8;
}

enum name_kind name_kind(const char *name) {
    if (*name == '/') {
        name++;
    }
    if (strnlen(name, NAME_SIZE) >= NAME_SIZE) {
        return NAME_OTHER;
    }
    if (is_torch(name)) {
        return NAME_TORCH;
    }
    return is_psm(name) ? NAME_PSM : NAME_OTHER;
}

/* /mp- and eight characters of tempfile's alphabet: multiprocessing/synchronize.py */
bool name_is_semaphore(const char *name) {
    return strncmp(name, "/mp-", 4) == 0 && strlen(name) == 12 &&
           strspn(name + 4, "abcdefghijklmnopqrstuvwxyz0123456789_") == 8;
}

/* The name within /dev/shm of a file that NCCL makes: misc/shmutils.cc. NULL for any other. */
const char *name_of_nccl(const char *path) {
    bool matches = strncmp(path, NCCL_PREFIX, sizeof NCCL_PREFIX - 1) == 0 &&
                   strchr(path + SHM_PREFIX_LENGTH, '/') == NULL &&
                   strlen(path + SHM_PREFIX_LENGTH) < NAME_SIZE;
    return matches ? path + SHM_PREFIX_LENGTH : NULL;
}

bool join_path(char path[PATH_SIZE], const char *folder, const char *name) {
    int length = snprintf(path, PATH_SIZE, "%s/%s", folder, name);
    return length > 0 && length < PATH_SIZE;
}

void format_link(char link[LINK_SIZE], pid_t pid, int fd) {
    snprintf(link, LINK_SIZE, "/proc/%d/fd/%d", (int)pid, fd);
}

/* Digits only, few enough for an int: nothing else is ever followed. */
static const char *parse_number(const char *text, int *number) {
    const char *end = skip_digits(text);
    if (end == NULL || end - text > 9) {
        return NULL;
    }
    *number = 0;
    for (; text < end; text++) {
        *number = *number * 10 + (*text - '0');
    }
    return end;
}

bool parse_link(const char *link, pid_t *pid, int *fd) {
    if (strncmp(link, "/proc/", 6) != 0) {
        return false;
    }
    const char *rest = parse_number(link + 6, pid);
    if (rest == NULL || strncmp(rest, "/fd/", 4) != 0) {
        return false;
    }
    rest = parse_number(rest + 4, fd);
    return rest != NULL && *rest == '\0';
}
