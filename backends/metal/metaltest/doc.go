// Package metaltest is a [metal.Driver] for tests: it compiles the kernels, in
// the very source that Apple's compiler gets, as C++ and runs them on the
// processor. It needs Linux and clang++ 16 or later; [Require] skips a test without.
//
//	func TestKernel(t *testing.T) {
//		metaltest.Require(t)
//		device, err := metaltest.New(metaltest.Options{}).Open()
//		...
//		err = device.Load(t.Context(), metal.Source(), []string{"add_mul"})
//
// Only the kernels that Load names are compiled, so name no more than the test needs.
package metaltest
