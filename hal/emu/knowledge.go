package emu

// knowledge is the set of accesses of other blocks that happen before the present one: by block, and for each of its
// warps up to a clock. Release and acquire pass it on.
type knowledge map[int32]*[maxWarps]horizon

// maxWarps is how many warps a block can have.
const maxWarps = 32

// horizon says what is known of a warp: all accesses before the clock, and those of some lanes at it.
type horizon struct{ clock, lanes uint32 }

func (h *horizon) learn(o horizon) {
	switch {
	case o.clock > h.clock:
		*h = o
	case o.clock == h.clock:
		h.lanes |= o.lanes
	}
}

func (h horizon) covers(clock, lane uint32) bool {
	return clock < h.clock || clock == h.clock && h.lanes>>lane&1 != 0
}

func (k knowledge) of(block int32) *[maxWarps]horizon {
	h := k[block]
	if h == nil {
		h = new([maxWarps]horizon)
		k[block] = h
	}
	return h
}

func (k knowledge) merge(from knowledge) {
	for b, hs := range from {
		to := k.of(b)
		for i := range hs {
			to[i].learn(hs[i])
		}
	}
}

// covers reports whether an access of another block is known.
func (k knowledge) covers(block int32, warp, clock, lane uint32) bool {
	h := k[block]
	return h != nil && h[warp].covers(clock, lane)
}

// ownKnowledge is what the threads of a block know of other blocks: all of it, the lanes of a warp after a warp
// barrier, single lanes before one. pending is what relaxed atomics saw, known once the lane executes a fence.
type ownKnowledge struct {
	block   knowledge
	warps   [maxWarps]knowledge
	lanes   [maxWarps]map[uint32]knowledge
	pending [maxWarps]map[uint32]knowledge
	fenced  [maxWarps]uint32 // lanes that executed a fence
}

func (o *ownKnowledge) covers(warp, lane uint32, block int32, otherWarp, clock, otherLane uint32) bool {
	return o.block.covers(block, otherWarp, clock, otherLane) || o.warps[warp].covers(block, otherWarp, clock, otherLane) ||
		o.lanes[warp][lane].covers(block, otherWarp, clock, otherLane)
}

// nothing reports whether a lane knows of no other block.
func (o *ownKnowledge) nothing(warp, lane uint32) bool {
	return len(o.block)+len(o.warps[warp])+len(o.lanes[warp][lane]) == 0
}

// into adds all that a lane knows.
func (o *ownKnowledge) into(k knowledge, warp, lane uint32) {
	k.merge(o.block)
	k.merge(o.warps[warp])
	k.merge(o.lanes[warp][lane])
}

func learnLane(m *map[uint32]knowledge, lane uint32, k knowledge) {
	if len(k) == 0 {
		return
	}
	if *m == nil {
		*m = map[uint32]knowledge{}
	}
	if (*m)[lane] == nil {
		(*m)[lane] = knowledge{}
	}
	(*m)[lane].merge(k)
}

// warpBarrier tells the warp what its lanes know.
func (o *ownKnowledge) warpBarrier(warp int) {
	for _, k := range o.lanes[warp] {
		if o.warps[warp] == nil {
			o.warps[warp] = knowledge{}
		}
		o.warps[warp].merge(k)
	}
	o.lanes[warp] = nil
}

// barrier tells the block what its warps know.
func (o *ownKnowledge) barrier() {
	for w := range o.warps {
		o.warpBarrier(w)
		if o.warps[w] == nil {
			continue
		}
		if o.block == nil {
			o.block = knowledge{}
		}
		o.block.merge(o.warps[w])
		o.warps[w] = nil
	}
}
