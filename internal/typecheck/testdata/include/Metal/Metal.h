// What replay_darwin.m uses of Apple's header of this name.

#import <Foundation/Foundation.h>

typedef struct {
	NSUInteger width, height, depth;
} MTLSize;

static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
	return (MTLSize){width, height, depth};
}

typedef enum : NSInteger {
	MTLGPUFamilyApple7 = 1007,
	MTLGPUFamilyMetal3 = 5001,
} MTLGPUFamily;

typedef enum : NSUInteger {
	MTLDispatchTypeSerial = 0,
} MTLDispatchType;

typedef enum : NSUInteger {
	MTLCommandBufferStatusCompleted = 4,
} MTLCommandBufferStatus;

@protocol MTLBuffer <NSObject>
@end

@protocol MTLEvent <NSObject>
@end

@protocol MTLSharedEvent <MTLEvent>
@end

@protocol MTLComputePipelineState <NSObject>
@end

@protocol MTLComputeCommandEncoder <NSObject>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setBuffers:(const id<MTLBuffer> _Nullable[_Nonnull])buffers
           offsets:(const NSUInteger[_Nonnull])offsets
         withRange:(NSRange)range;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)endEncoding;
@end

@protocol MTLCommandBuffer <NSObject>
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type;
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value;
- (void)commit;
- (void)waitUntilCompleted;
- (MTLCommandBufferStatus)status;
@end

@protocol MTLCommandQueue <NSObject>
- (id<MTLCommandBuffer>)commandBuffer;
@end

@protocol MTLDevice <NSObject>
- (BOOL)hasUnifiedMemory;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
- (MTLSize)maxThreadsPerThreadgroup;
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) __attribute__((ns_returns_retained));
