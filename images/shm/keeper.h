/* What the library and the keeper say to each other, over a SOCK_SEQPACKET pair. */
#ifndef TORCH_DOCTOR_KEEPER_H
#define TORCH_DOCTOR_KEEPER_H

/* The keeper's end of the pair. Its folder of names is argv[1]. */
#define KEEPER_SOCKET 3

/* Sent with two descriptors: the object, and a socket for the one-byte answer. */
struct keep_request {
    char name[64];
};

#define KEEPER_DONE 'y'

#endif
