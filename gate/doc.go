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
// after a rewind, with another number of threads and, where the backend has
// kernels of several kinds, with the plain ones; numbers that are numbers.
// With no reference runs these are all there is, and the level is zoo.LevelSelf.
//
// # What passes
//
// Two kinds of arithmetic are judged differently. It is exact where neither
// side rounds activations or the cache: then only the noise of float32 sums is
// between the two. It is rounded where the program has static grids (they are
// in the reference whatever the activations here), the cache is half or int8, or the
// activations have fewer than 24 bits: then a value near a tie may round the
// other way. What such a flip does depends on how sure the model is of itself:
// in a trained one it fades, in a random one it grows. The reference's margins
// tell which it is, by their median.
//
// A pack fails when
//   - a token differs where the reference's margin is above the fork margin:
//     [ExactForkMargin], [RoundedForkMargin], or what the caller asks for;
//   - exact: a logit is off by more than [ExactLogitShare] of the run's largest;
//   - rounded and sure: fewer than [SureMatchedShare] of all tokens match, a
//     logit is off by more than [SureLogitShare] of the run's largest, or the
//     logits of a run by more than [SureRelL2] of their length;
//   - rounded and unsure: fewer than [UnsureMatchedShare] match, or the logits
//     of a run are off by more than [UnsureRelL2] of their length;
//   - fewer questions are answered exactly than the reference answers, less an
//     allowance of one and a hundredth of those asked;
//   - a logit is not finite, or any of the other checks fails.
//
// How far apart sound and faulty packs lie, as measured on the built-in demo
// (trained, static grids) with an int8 cache against its float reference:
//
//	                                     tokens    logits      length
//	limit                                315/320   0.0625      0.1
//	sound                                318       0.051       0.059
//	scales of the per-layer table
//	  transposed                         316       0.16        0.11
//	gate and up swapped, any one layer   311-317   0.13-0.31   0.15-0.30
//	any one layer skipped                209-312   0.23-0.96   0.27-0.59
//
// A random model with the same faults matches less than half of its tokens.
// Not noticed are faults that a trained model hardly feels, such as scales
// mixed up within one small matrix of a late layer.
package gate
