/* Shared by the parts of the library. See README.md for what is served and why. */
#ifndef TORCH_DOCTOR_SHM_H
#define TORCH_DOCTOR_SHM_H

#include <fcntl.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

/* Served names are far shorter: torch_<pid>_<random>_<counter> is at most 46 bytes. */
#define NAME_SIZE 64
#define PATH_SIZE 512
/* "/proc/" pid "/fd/" number, two 32-bit numbers at most */
#define LINK_SIZE 48

/* The bits of torch_doctor_shm_status(): a contract, see README.md. */
enum status_bit {
    STATUS_LOADED = 1,
    STATUS_ACTIVE = 2,
    STATUS_FORCED = 4,
    STATUS_OFF = 8,
    STATUS_LARGE = 16,
    STATUS_SMALL = 32,
    STATUS_MISSING = 64,
    STATUS_UNWRITABLE = 128,
    STATUS_NO_MEMFD = 256,
    STATUS_NO_FOLDER = 512,
    STATUS_BAD_SETTING = 1024,
};

EXPORT int torch_doctor_shm_status(void);

/* real.c: the functions that this library stands in front of */
struct real_functions {
    int (*shm_open)(const char *, int, mode_t);
    int (*shm_unlink)(const char *);
    int (*close)(int);
    int (*ftruncate)(int, off_t);
    int (*fallocate)(int, int, off_t, off_t);
    int (*mkstemp)(char *);
    sem_t *(*sem_open)(const char *, int, ...);
    int (*sem_close)(sem_t *);
    int (*sem_unlink)(const char *);
};
const struct real_functions *real(void);

/* settings.c: decided once per process, at the first name that concerns us */
int shm_status(void);
static inline bool shm_active(void) { return (shm_status() & STATUS_ACTIVE) != 0; }
/* True when names are kept in /dev/shm itself, beside the real ones. */
static inline bool names_in_dev_shm(void) {
    return (shm_status() & (STATUS_MISSING | STATUS_UNWRITABLE)) == 0;
}
/* The folder of names. False when there is none. */
bool names_folder(char path[PATH_SIZE]);
/* The private folder outside /dev/shm, made on demand. False when there is none. */
bool private_folder(char path[PATH_SIZE]);

/* names.c */
enum name_kind { NAME_OTHER, NAME_TORCH, NAME_PSM };
enum name_kind name_kind(const char *name);
bool name_is_semaphore(const char *name);
const char *name_of_nccl(const char *path);
bool join_path(char path[PATH_SIZE], const char *folder, const char *name);
void format_link(char link[LINK_SIZE], pid_t pid, int fd);
bool parse_link(const char *link, pid_t *pid, int *fd);

/* pending.c: descriptors whose next call decides what becomes of them */
enum pending_kind {
    PENDING_NAMED, /* a memfd that is published: closing it hands it to the keeper */
    PENDING_SIZE,  /* a real, empty object: moves to a memfd if its size does not fit */
};
bool pending_any(void);
bool pending_add(enum pending_kind kind, int fd, const char *name);
bool pending_take(enum pending_kind kind, int fd, char name[NAME_SIZE]);
void pending_forget_name(const char *name);

/* objects.c */
int memfd_named(const char *name, mode_t mode);
int object_create(const char *name, mode_t mode);
/* The same, with the keeper from the start: it outlives its maker however that ends. */
int object_create_kept(const char *name, mode_t mode);
/* A descriptor, or -1: ENOENT no such name, EINVAL the name is not one of ours. */
int object_open(const char *name, int flags);
void object_closing(int fd);
/* Moves the empty object fd, known as name, to a memfd of that size. */
bool object_move(int fd, const char *name, off_t size);

/* keeper_client.c: gives fd to the keeper and lets name lead there. */
bool keeper_keep(int fd, const char *folder, const char *name);

/* semaphores.c */
sem_t *semaphore_open(const char *name, int flags, mode_t mode, unsigned value);
bool semaphore_is_ours(sem_t *semaphore);
int semaphore_close(sem_t *semaphore);
int semaphore_unlink(const char *name);

#endif
