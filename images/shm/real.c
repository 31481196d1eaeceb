/* Finds the next definition of each function, so that other interposers still work. */
#include <dlfcn.h>

#include "shm.h"

static struct real_functions functions;

/* Where libc itself is preloaded (LD_PRELOAD=libc.so.6) nothing comes after this library. */
static void find(void *slot, const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    *(void **)slot = function != NULL ? function : dlsym(RTLD_DEFAULT, name);
}

/* In the constructor, since close() may be called where dlsym() must not be:
   in a signal handler, or between fork and exec. */
__attribute__((constructor)) static void find_all(void) {
    find(&functions.shm_open, "shm_open");
    find(&functions.shm_unlink, "shm_unlink");
    find(&functions.ftruncate, "ftruncate");
    find(&functions.fallocate, "fallocate");
    find(&functions.mkstemp, "mkstemp");
    find(&functions.sem_open, "sem_open");
    find(&functions.sem_close, "sem_close");
    find(&functions.sem_unlink, "sem_unlink");
    find(&functions.close, "close");
}

/* Another preloaded library's constructor may come before ours. */
const struct real_functions *real(void) {
    if (functions.close == NULL) {
        find_all();
    }
    return &functions;
}
