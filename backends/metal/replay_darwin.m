//go:build darwin && cgo

// Compiled without automatic reference counting, as darwinkit is.

#include "replay_darwin.h"

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(size_t) == sizeof(NSUInteger), "offsets are handed to Metal as they are");

// zoo_metal_recorded is a list: one piece of memory, with the arrays behind it.
typedef struct {
	size_t count;
	const zoo_metal_dispatch *dispatches;
	const id<MTLBuffer> *buffers;
	const NSUInteger *offsets;
	const unsigned char *args;
} zoo_metal_recorded;

void *zoo_metal_device(void) {
	return MTLCreateSystemDefaultDevice();
}

int zoo_metal_suffices(void *device) {
	id<MTLDevice> gpu = (id<MTLDevice>)device;
	return [gpu hasUnifiedMemory] && [gpu supportsFamily:MTLGPUFamilyApple7] && [gpu supportsFamily:MTLGPUFamilyMetal3];
}

size_t zoo_metal_max_threads(void *device) {
	return [(id<MTLDevice>)device maxThreadsPerThreadgroup].width;
}

void *zoo_metal_list(const zoo_metal_dispatch *dispatches, size_t count, void *const *buffers,
                     const size_t *offsets, size_t bindings, const void *args, size_t args_bytes) {
	size_t dispatch_bytes = count * sizeof *dispatches;
	size_t buffer_bytes = bindings * sizeof *buffers;
	size_t offset_bytes = bindings * sizeof *offsets;
	zoo_metal_recorded *list = malloc(sizeof *list + dispatch_bytes + buffer_bytes + offset_bytes + args_bytes);
	if (list == NULL) {
		return NULL;
	}
	// All but the arguments is made of 8-byte words, so each part ends where the next may begin.
	unsigned char *part = (unsigned char *)(list + 1);
	list->count = count;
	list->dispatches = memcpy(part, dispatches, dispatch_bytes);
	list->buffers = memcpy(part += dispatch_bytes, buffers, buffer_bytes);
	list->offsets = memcpy(part += buffer_bytes, offsets, offset_bytes);
	list->args = memcpy(part + offset_bytes, args, args_bytes);
	return list;
}

void zoo_metal_free(void *list) {
	free(list);
}

// zoo_metal_replay encodes a list.
static void zoo_metal_replay(id<MTLComputeCommandEncoder> encoder, const zoo_metal_recorded *list) {
	const id<MTLBuffer> *buffers = list->buffers;
	const NSUInteger *offsets = list->offsets;
	const unsigned char *args = list->args;
	for (size_t i = 0; i < list->count; i++) {
		const zoo_metal_dispatch *d = &list->dispatches[i];
		[encoder setComputePipelineState:(id<MTLComputePipelineState>)d->pipeline];
		if (d->args_bytes > 0) {
			[encoder setBytes:args length:d->args_bytes atIndex:0];
			args += d->args_bytes;
		}
		if (d->buffers > 0) {
			[encoder setBuffers:buffers offsets:offsets withRange:NSMakeRange(1, d->buffers)];
			buffers += d->buffers;
			offsets += d->buffers;
		}
		if (d->shared_bytes > 0) {
			[encoder setThreadgroupMemoryLength:d->shared_bytes atIndex:0];
		}
		[encoder dispatchThreadgroups:MTLSizeMake(d->groups[0], d->groups[1], d->groups[2])
		        threadsPerThreadgroup:MTLSizeMake(d->threads, 1, 1)];
	}
}

void *zoo_metal_submit(void *queue, void *event, uint64_t first, void *const *lists, size_t count) {
	@autoreleasepool {
		// The pool owns the command buffer and the encoders. The command buffer
		// keeps references to pipelines and buffers until it has ended.
		id<MTLCommandBuffer> commands = [(id<MTLCommandQueue>)queue commandBuffer];
		if (commands == nil) {
			return NULL;
		}
		for (size_t i = 0; i < count; i++) {
			// Dispatches of a serial encoder see what those before have written.
			id<MTLComputeCommandEncoder> encoder =
			    [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
			if (encoder == nil) {
				return NULL;
			}
			zoo_metal_replay(encoder, lists[i]);
			[encoder endEncoding];
			[commands encodeSignalEvent:(id<MTLSharedEvent>)event value:first + i];
		}
		[commands commit];
		return [commands retain]; // the caller's reference, which outlives the pool
	}
}

int zoo_metal_wait(void *commands) {
	@autoreleasepool {
		[(id<MTLCommandBuffer>)commands waitUntilCompleted];
		return [(id<MTLCommandBuffer>)commands status] == MTLCommandBufferStatusCompleted;
	}
}
