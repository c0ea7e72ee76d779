// What replay_darwin.m uses of Apple's header of this name.

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t size);
