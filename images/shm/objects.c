/* Objects: memfds that a symbolic link in the folder of names leads to. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm.h"

/* Linux 6.3; without it newer kernels log a warning, and vm.memfd_noexec=2 refuses.
   https://docs.kernel.org/userspace-api/mfd_noexec.html */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

/* shm_open closes on exec and applies the mode; so does this. The umask is left out:
   it cannot be read without being changed, and the modes served here are the owner's alone. */
int memfd_named(const char *name, mode_t mode) {
    static _Atomic unsigned extra = MFD_NOEXEC_SEAL;
    int fd = memfd_create(name, MFD_CLOEXEC | atomic_load(&extra));
    if (fd < 0 && errno == EINVAL && atomic_load(&extra) != 0) {
        atomic_store(&extra, 0);
        fd = memfd_create(name, MFD_CLOEXEC);
    }
    if (fd >= 0 && fchmod(fd, mode & 0700) != 0) {
        real()->close(fd);
        return -1;
    }
    return fd;
}

static bool path_of(char path[PATH_SIZE], const char *name) {
    char folder[PATH_SIZE];
    if (names_folder(folder) && join_path(path, folder, name)) {
        return true;
    }
    errno = ENOENT;
    return false;
}

/* symlink() refuses an existing name, of whatever kind: O_EXCL for both worlds.
   The slot comes first, so that a close() from now on finds it. */
static bool publish(int fd, const char *name) {
    char path[PATH_SIZE];
    char link[LINK_SIZE];
    if (!path_of(path, name)) {
        return false;
    }
    if (!pending_add(PENDING_NAMED, fd, name)) {
        errno = EMFILE;
        return false;
    }
    format_link(link, getpid(), fd);
    if (symlink(link, path) == 0) {
        return true;
    }
    int saved = errno;
    pending_forget_name(name);
    errno = saved;
    return false;
}

int object_create(const char *name, mode_t mode) {
    int fd = memfd_named(name, mode);
    if (fd < 0) {
        return -1;
    }
    if (!publish(fd, name)) {
        int saved = errno;
        real()->close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

int object_create_kept(const char *name, mode_t mode) {
    char folder[PATH_SIZE];
    int fd = object_create(name, mode);
    if (fd >= 0 && names_folder(folder) && keeper_keep(fd, folder, name)) {
        pending_forget_name(name);
    }
    return fd;
}

/* A pid may have been reused, or belong to another container that shares /dev/shm:
   the kernel's own label says whether the descriptor is the object that was meant. */
static bool leads_to(const char *link, const char *name) {
    char label[NAME_SIZE + 32];
    char expected[NAME_SIZE + 32];
    ssize_t length = readlink(link, label, sizeof label - 1);
    if (length < 0) {
        return false;
    }
    label[length] = '\0';
    snprintf(expected, sizeof expected, "/memfd:%s (deleted)", name);
    return strcmp(label, expected) == 0;
}

int object_open(const char *name, int flags) {
    char path[PATH_SIZE];
    char link[LINK_SIZE];
    pid_t pid;
    int number;
    if (!path_of(path, name)) {
        return -1;
    }
    ssize_t length = readlink(path, link, sizeof link - 1);
    if (length < 0) {
        return -1;
    }
    link[length] = '\0';
    if (!parse_link(link, &pid, &number)) {
        errno = EINVAL;
        return -1;
    }
    if (!leads_to(link, name)) {
        errno = errno == EACCES ? EACCES : ENOENT;
        return -1;
    }
    return open(link, (flags & (O_ACCMODE | O_TRUNC)) | O_CLOEXEC);
}

/* The last descriptor of a name that others may still open (file_system strategy): the keeper
   holds the object from here on. Without a keeper the name would lead nowhere, so it goes. */
void object_closing(int fd) {
    char name[NAME_SIZE];
    char folder[PATH_SIZE];
    char path[PATH_SIZE];
    int saved = errno;
    if (pending_take(PENDING_NAMED, fd, name) && names_folder(folder) &&
        !keeper_keep(fd, folder, name) && join_path(path, folder, name)) {
        unlink(path);
    }
    errno = saved;
}

bool object_move(int fd, const char *name, off_t size) {
    char folder[PATH_SIZE];
    int memfd = memfd_named(name, 0600);
    if (memfd < 0) {
        return false;
    }
    bool moved = real()->ftruncate(memfd, size) == 0 && names_folder(folder) &&
                 keeper_keep(memfd, folder, name) && dup3(memfd, fd, O_CLOEXEC) == fd;
    real()->close(memfd);
    return moved;
}
