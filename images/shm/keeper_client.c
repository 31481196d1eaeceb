/* Starts this process's keeper when it is first needed, and hands objects to it.

   No lock: each request carries its own socket for the answer, and a SOCK_SEQPACKET message
   is sent whole or not at all. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper.h"
#include "shm.h"

/* Out of the way of programs that count on low numbers, within the usual limit of 1024. */
#define LOWEST_SOCKET 200

/* The socket to the keeper, with its inode: when a program has closed every descriptor, the
   number alone would lead to something else. A forked child shares its parent's keeper. */
#define NONE (-1)
#define BUSY (-2)
static struct {
    _Atomic int fd;
    _Atomic ino_t inode;
} keeper = {.fd = NONE};

static bool keeper_path(char path[PATH_SIZE]) {
    Dl_info self;
    if (dladdr(&keeper, &self) == 0 || self.dli_fname == NULL) {
        return false;
    }
    const char *slash = strrchr(self.dli_fname, '/');
    if (slash == NULL) {
        return false;
    }
    int length = snprintf(path, PATH_SIZE, "%.*s/torch-doctor-shm-keeper",
                          (int)(slash - self.dli_fname), self.dli_fname);
    return length > 0 && length < PATH_SIZE;
}

/* posix_spawn does not copy this process's memory, and the program leaves its parent at once,
   so that nobody's wait() meets it. Its environment is empty. Signals are as a daemon wants. */
static bool spawn(int socket, const char *folder) {
    char path[PATH_SIZE];
    char title[] = "torch-doctor-shm-keeper";
    char *arguments[] = {title, (char *)folder, NULL};
    char *environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigset_t all;
    pid_t child;
    if (!keeper_path(path) || posix_spawn_file_actions_init(&actions) != 0) {
        return false;
    }
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_adddup2(&actions, socket, KEEPER_SOCKET);
    int error = posix_spawn(&child, path, &actions, &attributes, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) {
        return false;
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return true;
}

static ino_t inode_of(int fd) {
    struct stat file;
    return fstat(fd, &file) == 0 ? file.st_ino : 0;
}

static int start_keeper(const char *folder) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return -1;
    }
    int ours = fcntl(pair[0], F_DUPFD_CLOEXEC, LOWEST_SOCKET);
    if (ours < 0) {
        ours = fcntl(pair[0], F_DUPFD_CLOEXEC, KEEPER_SOCKET + 1);
    }
    /* dup2 onto itself would leave close-on-exec set */
    int theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, KEEPER_SOCKET + 1);
    real()->close(pair[0]);
    real()->close(pair[1]);
    bool started = ours >= 0 && theirs >= 0 && spawn(theirs, folder);
    if (theirs >= 0) {
        real()->close(theirs);
    }
    if (!started && ours >= 0) {
        real()->close(ours);
    }
    return started ? ours : -1;
}

/* Threads that come together may start a keeper each; all serve, and all end by themselves.
   One that is not remembered is reachable for its own request only. */
static int keeper_socket(const char *folder, bool *remembered) {
    int known = atomic_load_explicit(&keeper.fd, memory_order_acquire);
    if (known >= 0 && inode_of(known) == atomic_load(&keeper.inode)) {
        *remembered = true;
        return known;
    }
    int fd = start_keeper(folder);
    if (fd < 0) {
        return -1;
    }
    *remembered = known != BUSY && atomic_compare_exchange_strong(&keeper.fd, &known, BUSY);
    if (*remembered) {
        atomic_store(&keeper.inode, inode_of(fd));
        atomic_store_explicit(&keeper.fd, fd, memory_order_release);
    }
    return fd;
}

static bool send_request(int socket, const struct keep_request *request, int object, int reply) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)request, .iov_len = sizeof *request};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(header), (int[]){object, reply}, 2 * sizeof(int));
    ssize_t sent;
    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof *request;
}

/* A keeper that dies closes the other end: the read then returns 0. */
static bool wait_for_answer(int socket) {
    char answer = 0;
    ssize_t count;
    do {
        count = read(socket, &answer, 1);
    } while (count < 0 && errno == EINTR);
    return count == 1 && answer == KEEPER_DONE;
}

static bool ask(int socket, int fd, const char *name) {
    struct keep_request request = {.name = {0}};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return false;
    }
    snprintf(request.name, sizeof request.name, "%s", name);
    bool sent = send_request(socket, &request, fd, pair[1]);
    real()->close(pair[1]);
    bool done = sent && wait_for_answer(pair[0]);
    real()->close(pair[0]);
    return done;
}

bool keeper_keep(int fd, const char *folder, const char *name) {
    /* Twice: a keeper that was killed is replaced. */
    for (int attempt = 0; attempt < 2; attempt++) {
        bool remembered;
        int socket = keeper_socket(folder, &remembered);
        if (socket < 0) {
            return false;
        }
        bool done = ask(socket, fd, name);
        if (!remembered) {
            real()->close(socket);
        }
        if (done) {
            return true;
        }
        if (remembered) {
            atomic_compare_exchange_strong(&keeper.fd, &socket, NONE);
        }
    }
    return false;
}
