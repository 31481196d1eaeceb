/* The functions that stand in front of libc's. Each goes straight on to the real one unless
   the name, or the descriptor, is one of ours. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm.h"

static const char *bare(const char *name) { return *name == '/' ? name + 1 : name; }

/* Only what torch asks for: read and write, for the owner alone. */
static bool can_create(int flags, mode_t mode) {
    return (flags & O_CREAT) != 0 && (flags & O_ACCMODE) == O_RDWR && (mode & 077) == 0;
}

static int open_torch(const char *name, int flags, mode_t mode) {
    if (can_create(flags, mode)) {
        int fd = object_create(bare(name), mode);
        if (fd >= 0 || (errno == EEXIST && (flags & O_EXCL))) {
            return fd;
        }
    }
    int fd = object_open(bare(name), flags);
    if (fd >= 0 || (errno != EINVAL && !(flags & O_CREAT))) {
        return fd;
    }
    return real()->shm_open(name, flags, mode);
}

/* Small objects stay where they always were; see ftruncate below for the others. */
static int open_psm(const char *name, int flags, mode_t mode) {
    bool create = (flags & O_CREAT) != 0;
    bool exclusive = create && (flags & O_EXCL);
    int fd = exclusive ? -1 : object_open(bare(name), flags);
    if (fd >= 0) {
        return fd;
    }
    if (!names_in_dev_shm() && can_create(flags, mode)) {
        return object_create_kept(bare(name), mode);
    }
    fd = real()->shm_open(name, flags, mode);
    if (fd >= 0 && exclusive) {
        pending_add(PENDING_SIZE, fd, bare(name));
    }
    return fd;
}

EXPORT int shm_open(const char *name, int flags, mode_t mode) {
    enum name_kind kind = name_kind(name);
    if (kind == NAME_OTHER || !shm_active()) {
        return real()->shm_open(name, flags, mode);
    }
    int saved = errno;
    int fd = kind == NAME_TORCH ? open_torch(name, flags, mode) : open_psm(name, flags, mode);
    if (fd >= 0) {
        errno = saved;
    }
    return fd;
}

EXPORT int shm_unlink(const char *name) {
    char folder[PATH_SIZE];
    char path[PATH_SIZE];
    if (name_kind(name) == NAME_OTHER || !shm_active()) {
        return real()->shm_unlink(name);
    }
    pending_forget_name(bare(name));
    if (names_in_dev_shm() || !names_folder(folder) || !join_path(path, folder, bare(name))) {
        return real()->shm_unlink(name);
    }
    return unlink(path);
}

EXPORT int close(int fd) {
    if (pending_any()) {
        object_closing(fd);
    }
    return real()->close(fd);
}

/* A size that /dev/shm cannot give, to an object still empty: it moves to a memfd. What fits
   is reserved, so that it cannot end in a bus error later. */
static bool grow(int fd, off_t size) {
    char name[NAME_SIZE];
    if (size <= 0 || !pending_any() || !pending_take(PENDING_SIZE, fd, name)) {
        return false;
    }
    int saved = errno;
    bool done = real()->fallocate(fd, 0, 0, size) == 0 ||
                (errno == ENOSPC && object_move(fd, name, size));
    errno = saved;
    return done;
}

EXPORT int ftruncate(int fd, off_t size) {
    return grow(fd, size) ? 0 : real()->ftruncate(fd, size);
}

EXPORT int fallocate(int fd, int mode, off_t offset, off_t size) {
    if (mode == 0 && offset == 0) {
        grow(fd, size);
    }
    return real()->fallocate(fd, mode, offset, size);
}

EXPORT int mkstemp(char *path) {
    int fd = real()->mkstemp(path);
    const char *name = fd >= 0 ? name_of_nccl(path) : NULL;
    if (name != NULL && shm_active() && names_in_dev_shm()) {
        pending_add(PENDING_SIZE, fd, name);
    }
    return fd;
}

/* off_t has 64 bits on every platform that CUDA or torch has on Linux. */
_Static_assert(sizeof(off_t) == 8, "the 64-bit names are the same functions");
EXPORT int ftruncate64(int, off_t) __attribute__((alias("ftruncate")));
EXPORT int fallocate64(int, int, off_t, off_t) __attribute__((alias("fallocate")));
EXPORT int mkstemp64(char *) __attribute__((alias("mkstemp")));

/* Why the real one failed, if that is something which the private folder mends. */
static bool lacks_dev_shm(int error) {
    return error == ENOENT || error == EROFS || error == EACCES || error == ENOSPC;
}

EXPORT sem_t *sem_open(const char *name, int flags, ...) {
    mode_t mode = 0;
    unsigned value = 0;
    if (flags & O_CREAT) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        value = va_arg(rest, unsigned);
        va_end(rest);
    }
    sem_t *semaphore = real()->sem_open(name, flags, mode, value);
    if (semaphore != SEM_FAILED || !lacks_dev_shm(errno) || !name_is_semaphore(name) ||
        !shm_active()) {
        return semaphore;
    }
    return semaphore_open(name, flags, mode, value);
}

EXPORT int sem_close(sem_t *semaphore) {
    return semaphore_is_ours(semaphore) ? semaphore_close(semaphore)
                                        : real()->sem_close(semaphore);
}

EXPORT int sem_unlink(const char *name) {
    if (real()->sem_unlink(name) == 0) {
        return 0;
    }
    if (!lacks_dev_shm(errno) || !name_is_semaphore(name) || !shm_active()) {
        return -1;
    }
    return semaphore_unlink(name);
}
