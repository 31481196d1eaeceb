/* multiprocessing's named semaphores, where /dev/shm cannot hold them.

   A semaphore is a small file in the private folder, mapped. It becomes visible by link(),
   when it is ready for use: another process never sees half of one. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm.h"

/* "tdshmsem": tells our mappings from those of libc when they are closed */
#define MARK 0x74647368736d656dULL

struct shared_semaphore {
    uint64_t mark;
    uint64_t padding[7];
    sem_t semaphore; /* a cache line into the page; libc's stand at its start */
};

static bool path_of(char path[PATH_SIZE], const char *name) {
    char folder[PATH_SIZE];
    char file[NAME_SIZE];
    snprintf(file, sizeof file, "sem.%s", name + 1);
    return private_folder(folder) && join_path(path, folder, file);
}

static sem_t *map(int fd) {
    struct shared_semaphore *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return shared == MAP_FAILED ? SEM_FAILED : &shared->semaphore;
}

static struct shared_semaphore *around(sem_t *semaphore) {
    return (struct shared_semaphore *)((char *)semaphore -
                                       offsetof(struct shared_semaphore, semaphore));
}

static sem_t *open_existing(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return SEM_FAILED;
    }
    sem_t *semaphore = map(fd);
    real()->close(fd);
    return semaphore;
}

static sem_t *fill(int fd, unsigned value) {
    if (real()->ftruncate(fd, sizeof(struct shared_semaphore)) != 0) {
        return SEM_FAILED;
    }
    sem_t *semaphore = map(fd);
    if (semaphore != SEM_FAILED) {
        around(semaphore)->mark = MARK;
        if (sem_init(semaphore, 1, value) != 0) {
            semaphore_close(semaphore);
            return SEM_FAILED;
        }
    }
    return semaphore;
}

static sem_t *create(const char *path, mode_t mode, unsigned value) {
    char spare[PATH_SIZE];
    if (snprintf(spare, sizeof spare, "%s.XXXXXX", path) >= (int)sizeof spare) {
        errno = ENAMETOOLONG;
        return SEM_FAILED;
    }
    int fd = real()->mkstemp(spare);
    if (fd < 0) {
        return SEM_FAILED;
    }
    fchmod(fd, mode & 0700);
    sem_t *semaphore = fill(fd, value);
    int saved = errno;
    real()->close(fd);
    if (semaphore != SEM_FAILED && link(spare, path) != 0) {
        saved = errno;
        semaphore_close(semaphore);
        semaphore = SEM_FAILED;
    }
    unlink(spare);
    errno = saved;
    return semaphore;
}

sem_t *semaphore_open(const char *name, int flags, mode_t mode, unsigned value) {
    char path[PATH_SIZE];
    if (!path_of(path, name)) {
        errno = ENOENT;
        return SEM_FAILED;
    }
    if (!(flags & O_CREAT)) {
        return open_existing(path);
    }
    sem_t *semaphore = create(path, mode, value);
    if (semaphore == SEM_FAILED && errno == EEXIST && !(flags & O_EXCL)) {
        return open_existing(path);
    }
    return semaphore;
}

bool semaphore_is_ours(sem_t *semaphore) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bool placed = (uintptr_t)semaphore % page == offsetof(struct shared_semaphore, semaphore);
    return placed && around(semaphore)->mark == MARK;
}

int semaphore_close(sem_t *semaphore) {
    return munmap(around(semaphore), sizeof(struct shared_semaphore));
}

int semaphore_unlink(const char *name) {
    char path[PATH_SIZE];
    if (!path_of(path, name)) {
        errno = ENOENT;
        return -1;
    }
    return unlink(path);
}
