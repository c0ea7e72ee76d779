// What replay_darwin.m uses of Apple's header of this name.

#import <stdbool.h>
#import <stdint.h>

typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef bool BOOL;

#define nil ((id)0)

typedef struct {
	NSUInteger location, length;
} NSRange;

static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length) {
	return (NSRange){location, length};
}

@protocol NSObject
- (instancetype)retain;
- (oneway void)release;
@end
