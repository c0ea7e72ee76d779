// Package gate puts a pack to its gate: it runs the pack on a backend, holds
// the numbers against reference values, and says whether they pass.
//
//	pack, program, backend, reference -> [Run] -> [Report] -> zoo.Receipt, JSON, HTML
//
// # Three parts
//
// Reference runs: the prompt is fed, then one reference token after the other,
// whatever the pack itself would have said, so that one fork does not spoil the
// rest. Each step's likeliest token is compared with the reference's, and the
// logits with those that are known.
//
// The task score: questions are asked through the pack's chat template and
// answered greedily; an answer counts when it is exactly the expected one.
//
// Checks that need no reference: the same bits in one chunk and token by token,
// after a rewind and with another number of threads; numbers that are numbers.
// With no reference runs these are all there is, and the level is zoo.LevelSelf.
//
// # What passes
//
// Two kinds of arithmetic are judged differently. It is exact where neither
// side rounds activations or the cache: then only noise of float32 sums is
// between the two. It is rounded where the program has static grids (they are
// in the reference whatever the activations here), the cache is int8, or the
// activations have fewer than 24 bits: then a value near a tie may round the
// other way, and what that does depends on how sure the model is. A trained
// model's margins are tens of times larger than the difference; a random one's
// are of the same size.
//
// A pack fails when
//   - a reference token differs where the reference's margin between its two
//     best tokens is above the fork margin ([ExactForkMargin],
//     [RoundedForkMargin], or what the caller asks for);
//   - exact: a logit is off by more than [ExactLogitShare] of the run's largest;
//   - rounded: of all reference tokens together fewer than [RoundedMatchedShare]
//     are matched, or the logits of a run are off by more than [RoundedRelL2]
//     of their length;
//   - fewer questions are answered exactly than the reference answers, less an
//     allowance of one and a hundredth of those asked;
//   - any of the other checks fails.
package gate
