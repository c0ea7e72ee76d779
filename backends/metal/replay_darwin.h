//go:build darwin && cgo

// The part of the driver that is native: what darwinkit lacks or gets wrong,
// and the replay of a list, which would cost too much call by call.
//
// Objects are passed as void pointers. The caller owns one reference to what a
// function returns, and none is taken over from it.

#ifndef ZOO_METAL_REPLAY_H
#define ZOO_METAL_REPLAY_H

#include <stddef.h>
#include <stdint.h>

// zoo_metal_dispatch is one dispatch of a list. Its arguments, buffers and
// offsets follow those of the dispatch before it.
typedef struct {
	void *pipeline;     // id<MTLComputePipelineState>
	uint32_t groups[3]; // at least one in each direction
	uint32_t threads;   // of a group
	uint32_t shared_bytes;
	uint32_t args_bytes;
	uint32_t buffers; // bound to the indices from 1 on; NULL binds none
} zoo_metal_dispatch;

// zoo_metal_device returns the default id<MTLDevice>, or NULL.
void *zoo_metal_device(void);

// zoo_metal_suffices returns 1 if a device shares the processor's memory and
// has all that the kernels use, else 0.
int zoo_metal_suffices(void *device);

// zoo_metal_max_threads returns the largest number of threads of a group.
size_t zoo_metal_max_threads(void *device);

// zoo_metal_list returns a copy of dispatches and of what they name, or NULL if
// there is no memory for it. It holds no references: pipelines and buffers must
// outlive its last submission. zoo_metal_free frees it.
void *zoo_metal_list(const zoo_metal_dispatch *dispatches, size_t count, void *const *buffers,
                     const size_t *offsets, size_t bindings, const void *args, size_t args_bytes);
void zoo_metal_free(void *list);

// zoo_metal_submit encodes lists into a command buffer, commits it and returns
// it, or NULL. The command buffer holds references to all that it uses. Behind
// each list an id<MTLSharedEvent> gets the next value, from first on: Metal
// promises the processor what the device has written only behind such a signal.
void *zoo_metal_submit(void *queue, void *event, uint64_t first, void *const *lists, size_t count);

// zoo_metal_wait returns 1 when a command buffer has ended well, 0 when it has failed.
int zoo_metal_wait(void *commands);

#endif
