// Package metaltest is a [metal.Driver] for tests: it compiles the kernels, in
// the very source that Apple's compiler gets, as C++ and runs them on the
// processor. It needs Linux and clang++ 16 or later; [Require] skips a test
// where there is none, or fails it where ZOO_REQUIRE_CLANG is 1.
//
//	func TestKernel(t *testing.T) {
//		metaltest.Require(t)
//		driver := metaltest.New(metaltest.Options{Checked: true, Seed: 3})
//		device, err := driver.Open()
//		...
//		err = device.Load(t.Context(), metal.Source(), []string{"add_mul"})
//
// Only the kernels that Load names are compiled to machine code, so name no more
// than the test needs. Each is kept in the user's cache folder by the hash of
// the part of the source that it needs and of everything else that it depends on,
// and removed two days after its last use.
//
// # What runs
//
// A device is a process of its own, the runner, so that no kernel can harm the
// test. Buffers are memory that both processes map: what a kernel writes is in
// Buffer.Bytes at once, and words that are touched atomically may be shared while
// kernels run. Device.Map finds the file that memory is a mapping of, which there
// must be, and has the runner map it, too.
//
// Each thread of a group is a fiber, which runs until it comes to a barrier or
// an operation of its SIMD group; a switch takes some ten nanoseconds. Groups run
// on up to two of the system's threads. With a Seed, groups and threads run in
// another order, the same for the same seed: results must not differ. Threads
// come to every barrier and SIMD operation together, at the same place in the
// code, or the submission fails.
//
// # What is checked
//
// With Options.Checked the compiler has the runner look at every access. A
// submission fails with an error that matches metal.ErrDevice and names the
// kernel, the group, the thread, the buffer, the offset and the line if a thread
//
//   - touches a byte outside of what is bound to the index that it goes through,
//     be it a byte of another buffer or of another part of the same one, the
//     arguments, threadgroup memory, a local array or an unbound buffer;
//   - writes to what its parameter calls const, or what was given to Device.Map;
//   - touches a byte that another thread touches, one of them writing, with
//     nothing in between that orders the two: a threadgroup_barrier for threads of
//     a group, a simdgroup_barrier for those of a SIMD group, with the flag of the kind of
//     memory, and nothing at all for threads of different groups of a dispatch.
//     Atomic accesses are in order among themselves;
//   - reads threadgroup memory that its group has not written;
//   - touches memory that is not aligned for the type;
//   - converts a float to an integer that cannot hold it, shifts by more than
//     there are bits, divides by 0, or overflows a signed integer;
//   - takes min or max of what is not a number, which the language leaves undefined
//     (fmin, fmax and clamp are defined);
//   - sums floats with simd_sum, a prefix sum or a product of matrices where
//     rounding would make the result depend on an order that nobody promises.
//
// A check costs some nanoseconds for an access. After a finding the device goes on
// with the next submission. Always checked are the size of the arguments, which
// is that of the struct of buffer 0, and what Record is given.
//
// # What compiles
//
// What Load refuses matches metal.ErrKernel and holds the compiler's messages,
// with the lines of the source as given. Since no compiler of Apple's is at
// hand, the source is held to more than C++ asks:
//
//   - Parameters of kernels have the attributes that package metal allows;
//     other attributes are refused.
//   - Every pointer and reference names its address space, and clang's OpenCL
//     C++ checks that none is taken for another.
//   - Variables outside of functions are constant; none is static in a function.
//   - There are no doubles (numbers without a suffix are floats), no casts to
//     vectors, no exceptions, goto, virtual functions or the standard library,
//     and no names that are words or functions of the language.
//   - There are only functions whose results are the same everywhere: no exp, no rsqrt.
//
// The folder runner has the header that stands for Apple's (metal.h and what it
// includes). If a kernel needs a part of the language that is missing there, add
// it, and a test to the list in features_test.go.
//
// # Failing on purpose
//
// Options has limits for memory, threads and the like, FailAfter to have the
// device go away after some dispatches, and NoDevice. [Driver.Kill] kills the
// runner in the midst of work. [Driver.Counts] tells what was done and what is
// still held, so that tests can demand that nothing leaks. Releasing a buffer or a
// list twice, or waiting twice for a submission, panics.
package metaltest
