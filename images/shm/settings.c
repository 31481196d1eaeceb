/* Whether the fallback is active in this process, and where its names live. */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "shm.h"

#define DEV_SHM "/dev/shm"
/* Below this DataLoader workers with usual batches run out: 4 workers x 2 batches x 128 MiB. */
#define DEFAULT_MINIMUM (1ULL << 30)

static unsigned long long unit_of(const char *suffix) {
    static const struct {
        const char *name;
        unsigned long long bytes;
    } units[] = {{"", 1}, {"b", 1}, {"k", 1ULL << 10}, {"m", 1ULL << 20}, {"g", 1ULL << 30}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(suffix, units[i].name) == 0) {
            return units[i].bytes;
        }
    }
    return 0;
}

static bool parse_size(const char *text, unsigned long long *bytes) {
    if (*text < '0' || *text > '9') {
        return false;
    }
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned long long unit = unit_of(end);
    if (errno != 0 || unit == 0 || number > ULLONG_MAX / unit) {
        return false;
    }
    *bytes = number * unit;
    return true;
}

static int read_minimum(unsigned long long *minimum) {
    const char *text = getenv("TORCH_DOCTOR_SHM_MIN");
    *minimum = DEFAULT_MINIMUM;
    if (text == NULL || *text == '\0' || parse_size(text, minimum)) {
        return 0;
    }
    return STATUS_BAD_SETTING;
}

static int read_switch(void) {
    const char *text = getenv("TORCH_DOCTOR_SHM");
    if (text == NULL || *text == '\0' || strcmp(text, "auto") == 0) {
        return 0;
    }
    if (strcmp(text, "on") == 0) {
        return STATUS_FORCED;
    }
    return strcmp(text, "off") == 0 ? STATUS_OFF : STATUS_BAD_SETTING;
}

static int look_at_dev_shm(unsigned long long minimum) {
    struct statvfs system;
    if (statvfs(DEV_SHM, &system) != 0) {
        return STATUS_MISSING;
    }
    if (access(DEV_SHM, W_OK | X_OK) != 0) {
        return STATUS_UNWRITABLE;
    }
    unsigned long long size = (unsigned long long)system.f_blocks * system.f_frsize;
    return size < minimum ? STATUS_SMALL : 0;
}

static bool has_memfd(void) {
    int fd = memfd_create("torch-doctor", MFD_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    real()->close(fd);
    return true;
}

static int decide(void) {
    unsigned long long minimum;
    int status = STATUS_LOADED | read_switch() | read_minimum(&minimum);
    if (status & STATUS_OFF) {
        return status;
    }
    int lacks = look_at_dev_shm(minimum);
    if (lacks == 0 && !(status & STATUS_FORCED)) {
        return status | STATUS_LARGE;
    }
    status |= lacks;
    if (!has_memfd()) {
        return status | STATUS_NO_MEMFD;
    }
    char folder[PATH_SIZE];
    bool elsewhere = (lacks & (STATUS_MISSING | STATUS_UNWRITABLE)) != 0;
    if (elsewhere && !private_folder(folder)) {
        return status | STATUS_NO_FOLDER;
    }
    return status | STATUS_ACTIVE;
}

/* Two threads may both decide; they come to the same answer, so no lock is needed
   and none can be left locked in a forked child. */
int shm_status(void) {
    static _Atomic int known;
    int status = atomic_load_explicit(&known, memory_order_relaxed);
    if (status == 0) {
        int saved = errno;
        status = decide();
        errno = saved;
        atomic_store_explicit(&known, status, memory_order_relaxed);
    }
    return status;
}

/* Only this user's own folder, closed to others, is trusted. */
static bool usable_folder(char path[PATH_SIZE], const char *base) {
    if (base == NULL || *base != '/') {
        return false;
    }
    int length = snprintf(path, PATH_SIZE, "%s/.torch-doctor-shm-%u", base, (unsigned)geteuid());
    if (length < 0 || length >= PATH_SIZE - NAME_SIZE) {
        return false;
    }
    struct stat folder;
    if ((mkdir(path, 0700) != 0 && errno != EEXIST) || lstat(path, &folder) != 0) {
        return false;
    }
    return S_ISDIR(folder.st_mode) && folder.st_uid == geteuid() &&
           (folder.st_mode & 077) == 0 && access(path, W_OK | X_OK) == 0;
}

static bool find_folder(char path[PATH_SIZE]) {
    return usable_folder(path, getenv("TORCH_DOCTOR_SHM_DIR")) ||
           usable_folder(path, getenv("TMPDIR")) || usable_folder(path, "/tmp") ||
           usable_folder(path, "/var/tmp");
}

/* The first answer is kept, since a program may change TMPDIR later. A thread that comes
   while it is being written down looks for itself, and so does a child forked just then. */
bool private_folder(char path[PATH_SIZE]) {
    static char known[PATH_SIZE];
    static _Atomic int state; /* 0 unknown, 1 being written, 2 written */
    if (atomic_load_explicit(&state, memory_order_acquire) == 2) {
        memcpy(path, known, PATH_SIZE);
        return true;
    }
    int saved = errno;
    bool found = find_folder(path);
    errno = saved;
    int unknown = 0;
    if (found && atomic_compare_exchange_strong(&state, &unknown, 1)) {
        memcpy(known, path, PATH_SIZE);
        atomic_store_explicit(&state, 2, memory_order_release);
    }
    return found;
}

bool names_folder(char path[PATH_SIZE]) {
    if (names_in_dev_shm()) {
        memcpy(path, DEV_SHM, sizeof DEV_SHM);
        return true;
    }
    return private_folder(path);
}

int torch_doctor_shm_status(void) { return shm_status(); }
