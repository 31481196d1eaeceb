/* A short list of descriptors whose next call matters: see enum pending_kind.

   A slot is owned by the process that wrote it (its pid is the slot's state), so a forked
   child ignores and reuses its parent's slots, and a vforked child, which shares this memory,
   leaves them alone. Slots are claimed by compare-and-swap: no lock to inherit. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm.h"

/* One per thread that is just making a shared tensor; more are not served. */
#define SLOTS 64
#define FREE 0
#define BUSY (-1)

static struct slot {
    _Atomic pid_t owner;
    enum pending_kind kind;
    int fd;
    dev_t device;
    ino_t inode;
    char name[NAME_SIZE];
} slots[SLOTS];

static _Atomic int used;

/* All that close() and ftruncate() cost while nothing is pending. */
bool pending_any(void) { return atomic_load_explicit(&used, memory_order_acquire) != 0; }

static bool claim(struct slot *slot, pid_t self) {
    pid_t owner = atomic_load_explicit(&slot->owner, memory_order_relaxed);
    if (owner == BUSY || owner == self ||
        !atomic_compare_exchange_strong(&slot->owner, &owner, BUSY)) {
        return false;
    }
    if (owner == FREE) {
        atomic_fetch_add(&used, 1);
    }
    return true;
}

bool pending_add(enum pending_kind kind, int fd, const char *name) {
    struct stat object;
    if (fstat(fd, &object) != 0) {
        return false;
    }
    pid_t self = getpid();
    for (struct slot *slot = slots; slot < slots + SLOTS; slot++) {
        if (claim(slot, self)) {
            slot->kind = kind;
            slot->fd = fd;
            slot->device = object.st_dev;
            slot->inode = object.st_ino;
            strncpy(slot->name, name, NAME_SIZE - 1);
            slot->name[NAME_SIZE - 1] = '\0';
            atomic_store_explicit(&slot->owner, self, memory_order_release);
            return true;
        }
    }
    return false;
}

static void release(struct slot *slot) {
    atomic_store_explicit(&slot->owner, FREE, memory_order_release);
    atomic_fetch_sub(&used, 1);
}

static bool matches_fd(const struct slot *slot, enum pending_kind kind, int fd) {
    return slot->fd == fd && slot->kind == kind;
}

/* Takes a slot of this process out of the hands of every other thread. */
static bool seize(struct slot *slot, pid_t self) {
    return atomic_compare_exchange_strong(&slot->owner, &self, BUSY);
}

/* Another thread may have reused the slot between our look and our grip. */
static void put_back(struct slot *slot, pid_t self) {
    atomic_store_explicit(&slot->owner, self, memory_order_release);
}

static bool is_own(const struct slot *slot, pid_t self) {
    return atomic_load_explicit(&slot->owner, memory_order_acquire) == self;
}

/* The descriptor may have been closed behind our back and be another file by now. */
static bool still_there(const struct slot *slot) {
    struct stat object;
    return fstat(slot->fd, &object) == 0 && object.st_dev == slot->device &&
           object.st_ino == slot->inode;
}

bool pending_take(enum pending_kind kind, int fd, char name[NAME_SIZE]) {
    pid_t self = getpid();
    for (struct slot *slot = slots; slot < slots + SLOTS; slot++) {
        if (!is_own(slot, self) || !matches_fd(slot, kind, fd) || !seize(slot, self)) {
            continue;
        }
        if (!matches_fd(slot, kind, fd)) {
            put_back(slot, self);
            continue;
        }
        bool valid = still_there(slot);
        memcpy(name, slot->name, NAME_SIZE);
        release(slot);
        if (valid) {
            return true;
        }
    }
    return false;
}

void pending_forget_name(const char *name) {
    pid_t self = getpid();
    for (struct slot *slot = slots; slot < slots + SLOTS; slot++) {
        if (!is_own(slot, self) || strcmp(slot->name, name) != 0 || !seize(slot, self)) {
            continue;
        }
        if (strcmp(slot->name, name) == 0) {
            release(slot);
        } else {
            put_back(slot, self);
        }
    }
}
