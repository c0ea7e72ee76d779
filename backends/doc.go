// Package backends defines what a device must do to run a program.
//
// A [Backend] compiles a [program.Program] over the mapped weights of a pack
// into an [Executor], which replays it for batches of rows. Backends know
// operations, not models. Which backends exist is a list that the caller
// makes; there is no global registry.
//
// An executor takes single steps, and whoever calls it picks the tokens, as
// [Pick] defines it. A device to which each step is a journey may go on by
// itself for several tokens: its executor is a [Generator], too.
//
// # Arithmetic
//
// Every backend gives the same bits for the same program, weights and rows,
// however rows are batched and however many threads work:
//
//   - A product with packed codes is an exact integer sum. The activation
//     vector is turned into integers: with a static scale s, n =
//     clamp(round_half_even(x/s), -128, 127); otherwise fixed point with the
//     row's own scale s = max|x| / N, n = clamp(round_half_even(x/s), -N, N),
//     where N is 2^23-32896-1 (24 bits, [ActivationsFloat]), 32639 (16 bits) or
//     127 (8 bits), and n = 0 where s = 0. What is not a number becomes the
//     lowest code; in fixed point it also makes s, and so the row's products,
//     not a number. The product is (float32(sum of code*n) * s) * weight scale, then
//     the output grid. Sums count codes from their midpoint, and may take more than
//     32 bits: they become float32 in one rounding.
//   - Formats with groups compute such a product for each group, with the group's
//     scale and without the grid. Where there are minimums, (float32(sum of n) * s) *
//     minimum is then taken off it. What is left is added to the groups before, in the
//     order of columns, beginning with 0.
//   - A number that is looked up in a table of codes is float32(code*scale), code
//     counted from its midpoint, less the minimum if there is one.
//   - A float sum (bfloat16 products, norms, dot products of attention) adds
//     its terms in 16 lanes, lane = index mod 16, in order, and then the lanes
//     as a tree: lane i + lane i+8, then +4, +2, +1. Products are rounded
//     before they are added.
//   - Attention works in blocks of 256 absolute positions. For each block: the
//     largest score, the weights exp(score - largest), their sum in 16 lanes by
//     position, and for each column the sum of weight*value in the order of
//     positions. Blocks are combined in order.
//   - A half cache holds keys and values rounded to float16, to the nearest and from
//     the middle to even, and infinite where that has no finite number as large. All
//     else is as with float32.
//   - Over an int8 cache these products are integers, too: a head's query, and
//     the weights of a block, are 24-bit fixed point with steps s and t as above,
//     a score is (float32(sum of n*code) * s) * key scale, times the scale of the
//     operation; the sum of weights is float32(sum of n) * t, and a column's is
//     (float32(sum of n*code) * t) * value scale.
//   - exp, tanh, sine and cosine are those of package internal/fmath.
package backends
