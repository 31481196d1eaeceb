/* torch_shm_manager serves the file_system strategy. It is started by a worker, inherits whatever that has open, and
   outlives it: under spawn and forkserver also the pipe of Python's resource tracker, which then never sees its end.
   From CPython 3.12.10, 3.13.3 and 3.14.0 on the interpreter waits for the tracker when it exits, and so for ever,
   whatever /dev/shm is: https://github.com/python/cpython/issues/146313 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "shm.h"

/* The manager talks through its standard output, and opens what it needs later. */
#define FIRST_INHERITED 3

__attribute__((constructor)) static void leave_to_the_worker_what_is_its_own(void) {
    if (strcmp(program_invocation_short_name, "torch_shm_manager") == 0) {
        int kept = errno;
        close_range(FIRST_INHERITED, ~0U, 0);
        errno = kept;
    }
}
