package camera

// Index is what the log of a segment says of an encoded frame (roadEncodeIdx and its kin).
type Index struct {
	FrameID   uint32 // of the camera: the number by which the rest of the log knows it
	SegmentID uint32 // the frame's number in the file, from 0
	Segment   int32  // the encoder's count of segments, which need not be the directory's
	SOF       uint64 // start of the exposure, ns since the device started
}

// Matched says which frames of a file the log knows.
type Matched struct {
	Indices []Index // by the frame's number in the file; SOF is 0 where the log has none
	Unknown int     // frames of the file without an index
	Missing int     // indices without a frame: the file was cut off
}

// Match joins the frames of a file with the indices of its segment's log. Frames before the first keyframe are neither written nor indexed, so the n-th
// frame is that of segmentId n, also where the log has lost some indices; where segmentId does not rise, the n-th index is the n-th frame's.
func Match(frames int, indices []Index) Matched {
	m := Matched{Indices: make([]Index, frames)}
	rises := true
	for i := 1; i < len(indices); i++ {
		rises = rises && indices[i].SegmentID > indices[i-1].SegmentID
	}
	known := 0
	for n, x := range indices {
		at := n
		if rises {
			at = int(x.SegmentID)
		}
		if at >= frames {
			m.Missing++
			continue
		}
		m.Indices[at] = x
		known++
	}
	m.Unknown = frames - known
	return m
}

// PairWithin is how far apart frames of the road and the wide camera may begin to be a pair, in ns: more than that modeld complains of.
const PairWithin = 10_000_000

// Pair is the frame of a list, in the order of time, that begins nearest to a time; -1 if none is near.
func Pair(sof uint64, others []Index) int {
	best, distance := -1, uint64(PairWithin)
	for i, o := range others {
		d := max(o.SOF, sof) - min(o.SOF, sof)
		if o.SOF != 0 && d <= distance {
			best, distance = i, d
		}
	}
	return best
}
