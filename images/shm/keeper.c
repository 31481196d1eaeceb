/* torch-doctor-shm-keeper FOLDER: holds shared-memory objects for one process.

   A name outlives the descriptor of its maker, and often the maker itself. For each object
   that it is given, this program turns the name, an entry of FOLDER, into a symbolic link to
   its own descriptor. It lets an object go when the name is unlinked, by whomever, and ends
   when the process is gone and no name is left. */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fcntl.h>

#include "keeper.h"

/* Where inotify is refused (its instances are limited per user), names are looked at this often.
   Also a safety net beside it. */
#define LOOK_MS 250
#define LOOK_WITH_INOTIFY_MS 5000

struct object {
    uint32_t hash;
    int fd;
    char name[sizeof((struct keep_request *)0)->name];
};

static struct object *objects;
static size_t count;
static size_t capacity;

/* FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint32_t hash_of(const char *name) {
    uint32_t hash = 2166136261U;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * 16777619U;
    }
    return hash;
}

static void link_to(char link[64], int fd) {
    snprintf(link, 64, "/proc/%d/fd/%d", (int)getpid(), fd);
}

static bool still_named(const struct object *object) {
    char expected[64];
    char found[64];
    link_to(expected, object->fd);
    ssize_t length = readlink(object->name, found, sizeof found - 1);
    if (length < 0) {
        return false;
    }
    found[length] = '\0';
    return strcmp(found, expected) == 0;
}

static void drop_if_unnamed(size_t index) {
    if (!still_named(&objects[index])) {
        close(objects[index].fd);
        objects[index] = objects[--count];
    }
}

static void look_at_all(void) {
    for (size_t index = count; index-- > 0;) {
        drop_if_unnamed(index);
    }
}

static void look_at(const char *name) {
    uint32_t hash = hash_of(name);
    for (size_t index = count; index-- > 0;) {
        if (objects[index].hash == hash && strcmp(objects[index].name, name) == 0) {
            drop_if_unnamed(index);
        }
    }
}

static bool make_room(void) {
    if (count < capacity) {
        return true;
    }
    size_t wanted = capacity == 0 ? 64 : capacity * 2;
    struct object *larger = realloc(objects, wanted * sizeof *objects);
    if (larger == NULL) {
        return false;
    }
    objects = larger;
    capacity = wanted;
    return true;
}

/* An exchange happens only while the name exists, so a name that was unlinked meanwhile does
   not come back. File systems without it get a rename. */
static bool take_over(const char *name, int fd) {
    char link[64];
    char spare[64];
    link_to(link, fd);
    snprintf(spare, sizeof spare, ".torch-doctor-%d", (int)getpid());
    unlink(spare);
    if (symlink(link, spare) != 0) {
        return false;
    }
    if (renameat2(AT_FDCWD, spare, AT_FDCWD, name, RENAME_EXCHANGE) == 0) {
        unlink(spare);
        return true;
    }
    if (errno == EINVAL || errno == ENOSYS) {
        return rename(spare, name) == 0;
    }
    unlink(spare);
    return false;
}

static bool keep(const struct keep_request *request, int fd) {
    if (strchr(request->name, '/') != NULL || !make_room() || !take_over(request->name, fd)) {
        return false;
    }
    struct object *object = &objects[count++];
    object->hash = hash_of(request->name);
    object->fd = fd;
    memcpy(object->name, request->name, sizeof object->name);
    return true;
}

static ssize_t receive(struct keep_request *request, int fds[2]) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = request, .iov_len = sizeof *request};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    fds[0] = fds[1] = -1;
    ssize_t length = recvmsg(KEEPER_SOCKET, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = length > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    }
    return length;
}

/* False when the process that we keep for is gone. */
static bool serve(void) {
    struct keep_request request;
    int fds[2];
    ssize_t length = receive(&request, fds);
    if (length == 0 || (length < 0 && errno != EINTR)) {
        return false;
    }
    if (length != (ssize_t)sizeof request || fds[1] < 0) {
        return true;
    }
    request.name[sizeof request.name - 1] = '\0';
    if (keep(&request, fds[0])) {
        send(fds[1], (char[]){KEEPER_DONE}, 1, MSG_NOSIGNAL);
    } else {
        close(fds[0]);
    }
    close(fds[1]);
    return true;
}

/* False when the watch is of no more use. */
static bool read_events(int watch) {
    _Alignas(struct inotify_event) char buffer[16384];
    ssize_t length = read(watch, buffer, sizeof buffer);
    if (length == 0 || (length < 0 && errno != EINTR && errno != EAGAIN)) {
        return false;
    }
    for (char *at = buffer; length > 0 && at < buffer + length;) {
        struct inotify_event *event = (struct inotify_event *)at;
        if (event->mask & IN_Q_OVERFLOW) {
            look_at_all();
        } else if (event->len > 0) {
            look_at(event->name);
        }
        at += sizeof *event + event->len;
    }
    return true;
}

static void run(int watch) {
    struct pollfd sources[] = {{.fd = KEEPER_SOCKET, .events = POLLIN},
                               {.fd = watch, .events = POLLIN}};
    while (sources[0].fd >= 0 || count > 0) {
        int timeout = count == 0 ? -1 : sources[1].fd < 0 ? LOOK_MS : LOOK_WITH_INOTIFY_MS;
        int ready = poll(sources, 2, timeout);
        if (ready < 0 && errno != EINTR) {
            return;
        }
        if (ready == 0) {
            look_at_all();
        }
        if (ready > 0 && sources[1].revents != 0 && !read_events(watch)) {
            close(watch);
            sources[1].fd = -1;
        }
        if (ready > 0 && sources[0].revents != 0 && !serve()) {
            close(KEEPER_SOCKET);
            sources[0].fd = -1;
        }
    }
}

/* Nothing of the process that started us may stay open: a pipe to its reader, above all. */
static void detach(void) {
    if (fork() != 0) {
        _exit(0);
    }
    setsid();
    close_range(KEEPER_SOCKET + 1, ~0U, 0);
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < KEEPER_SOCKET; fd++) {
        dup2(nowhere, fd);
    }
    fcntl(KEEPER_SOCKET, F_SETFD, FD_CLOEXEC);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv) {
    struct stat socket;
    if (argc != 2 || fstat(KEEPER_SOCKET, &socket) != 0 || !S_ISSOCK(socket.st_mode)) {
        fputs("torch-doctor-shm-keeper is started by libtorch_doctor_shm.so\n", stderr);
        return 2;
    }
    detach();
    if (chdir(argv[1]) != 0) {
        return 1;
    }
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watch >= 0 && inotify_add_watch(watch, ".", IN_DELETE | IN_MOVED_FROM) < 0) {
        close(watch);
        watch = -1;
    }
    run(watch);
    return 0;
}
