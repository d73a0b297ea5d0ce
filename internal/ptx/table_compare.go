package ptx

// compareRows: comparison and selection (PTX ISA 9.7.6, 9.7.7). The comparisons are false with a NaN, but neu and nan.
var compareRows = []row{
	{op: "setp.eq.$", types: "u32 s32 u64 s64 f32 f64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(equal)},
	{op: "setp.ne.$", types: "u32 s32 s64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(less | greater)},
	{op: "setp.lt.$", types: "u32 s32 u64 s64 f32 f64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(less)},
	{op: "setp.le.$", types: "s32 s64 f32 f64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(less | equal)},
	{op: "setp.gt.$", types: "u32 s32 f32 f64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(greater)},
	{op: "setp.ge.$", types: "u32 s32", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(greater | equal)},
	{op: "setp.neu.$", types: "f32 f64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(less | greater | unordered)},
	{op: "setp.nan.f64", args: "=pred f64 f64", since: v10, kind: KindInt, eval: compare(unordered)["f64"]},
	{op: "selp.$", args: "=$ $? $! pred", since: v10, kind: KindInt, eval: by{"b32": choose[uint32], "b64": choose[uint64], "f32": choose[uint32], "f64": choose[uint64]}},
}

// relation is a set of outcomes of a comparison.
type relation uint32

const (
	less relation = 1 << iota
	equal
	greater
	unordered
)

// compare holds where one of the outcomes comes about.
func compare(r relation) by {
	return by{"u32": comparison[uint32, uint32](r), "s32": comparison[int32, uint32](r), "f32": comparison[float32, uint32](r),
		"u64": comparison[uint64, uint64](r), "s64": comparison[int64, uint64](r), "f64": comparison[float64, uint64](r)}
}

// comparison compares rows as values of T, which has the size of their elements.
func comparison[T lane, U integer](r relation) func(a, b *[32]U) uint32 {
	f := lanesOf[T](r)
	return func(a, b *[32]U) uint32 { return f(as[T](a), as[T](b)) }
}

// lanesOf compares lane by lane, a bit each.
func lanesOf[T lane](r relation) func(a, b *[32]T) uint32 {
	lt := func(a, b *[32]T) (m uint32) {
		for l := range a {
			if a[l] < b[l] {
				m |= 1 << l
			}
		}
		return m
	}
	eq := func(a, b *[32]T) (m uint32) {
		for l := range a {
			if a[l] == b[l] {
				m |= 1 << l
			}
		}
		return m
	}
	switch r {
	case equal:
		return eq
	case less | greater | unordered:
		return func(a, b *[32]T) uint32 { return ^eq(a, b) }
	case less:
		return lt
	case greater:
		return func(a, b *[32]T) uint32 { return lt(b, a) }
	case less | equal:
		return func(a, b *[32]T) uint32 { return lt(a, b) | eq(a, b) }
	case greater | equal:
		return func(a, b *[32]T) uint32 { return lt(b, a) | eq(a, b) }
	case less | greater:
		return func(a, b *[32]T) uint32 { return lt(a, b) | lt(b, a) }
	}
	return func(a, b *[32]T) uint32 { return ^(lt(a, b) | lt(b, a) | eq(a, b)) } // unordered
}

// choose takes a where the predicate is set, else b.
func choose[T integer](d, a, b *[32]T, p uint32) {
	for l := range d {
		d[l] = b[l] ^ (a[l]^b[l])&-T(p&1)
		p >>= 1
	}
}
