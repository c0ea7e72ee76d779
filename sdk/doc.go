// Package sdk opens models by name and talks to them.
//
//	m, err := sdk.Open("demo")
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	reply, err := m.Respond(ctx, "What is the capital of France?")
//
// Open takes the whole road when it has to: it resolves the name in a catalog,
// fetches the checkpoint, converts it into a pack, puts the pack to its gate, and
// loads it on a backend. What is done already is not done again.
//
//	name@constraint -> Pull -> Record, Pack, Receipt (store) -> Open -> Model -> Respond, Stream, NewChat, Generate
//
// A [Zoo] is the same with every step in reach: [Zoo.Pull], [Zoo.Verify],
// [Zoo.Gate], [Zoo.Convert] and so on. Wherever a name is taken, the path of a
// folder that holds a pack may stand.
//
// The environment is read as the command line reads it: ZOO_HOME is the store,
// HF_TOKEN and HF_ENDPOINT are those of the hub's own tools, and ZOO_CPU names the
// kernels of the cpu backend ("generic", "avx2", "avx512" or "neon") in place of the
// fastest that the processor runs. Errors match the sentinels of package zoo
// (errors.Is), and [zoo.Hint] tells what to do about one.
package sdk
