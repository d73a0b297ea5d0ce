package regionrand

import "math/rand/v2"

// tape is a sequence of decisions. A region follows from it alone, so a shorter tape, or one of smaller numbers, is a simpler
// region: choices list what is simple first, and what is not on the tape is 0.
type tape struct {
	taken []int
	at    int
	rng   *rand.Rand // draws what is not on the tape; nil: 0
}

// below decides for a number less than n.
func (t *tape) below(n int) int {
	if t.at == len(t.taken) {
		x := 0
		if t.rng != nil {
			x = t.rng.IntN(n)
		}
		t.taken = append(t.taken, x)
	}
	x := t.taken[t.at] % n
	t.at++
	return x
}

// oneIn decides with a chance of 1 in n.
func (t *tape) oneIn(n int) bool { return t.below(n) == n-1 }

// pick decides for one of xs, the simplest of which stands first.
func pick[T any](t *tape, xs ...T) T { return xs[t.below(len(xs))] }

// shrink looks for a simpler tape on which fails still holds, in at most so many tries.
func shrink(taken []int, tries int, fails func(taken []int) bool) []int {
	try := func(next []int) bool {
		if tries--; tries < 0 || !fails(next) {
			return false
		}
		taken = next
		return true
	}
	for again := true; again && tries > 0; {
		again = false
		for n := max(1, len(taken)/2); n > 0; n /= 2 {
			for at := 0; at+n <= len(taken); {
				if try(append(append([]int(nil), taken[:at]...), taken[at+n:]...)) {
					again = true
				} else {
					at++
				}
			}
		}
		for i := range taken {
			for _, x := range []int{0, taken[i] / 2, taken[i] - 1} {
				if x < 0 || x >= taken[i] {
					continue
				}
				next := append([]int(nil), taken...)
				next[i] = x
				if try(next) {
					again = true
					break
				}
			}
		}
	}
	return taken
}
