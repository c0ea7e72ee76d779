// What replay_darwin.m uses of Apple's header of this name.

#include <stddef.h>

void *malloc(size_t size);
void free(void *memory);
