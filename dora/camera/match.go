package camera

// Index is what the log of a segment says of an encoded frame (roadEncodeIdx and its kin).
type Index struct {
	FrameID   uint32 // of the camera: the number by which the rest of the log knows it
	SegmentID uint32 // the frame's number in the file, from 0
	Segment   int32  // the encoder's count of segments, which need not be the directory's
	SOF       uint64 // start of the exposure, ns since the device started
}

// Positions are the numbers in its file, from 0, of the frames that a segment's log has indices of. Frames before the first keyframe are neither written nor indexed,
// so a frame is number segmentId, also where the log has lost some indices or has them out of order or twice; where frames have the same segmentId, the n-th index is
// the n-th frame's.
func Positions(indices []Index) []int {
	of, own := map[uint32]uint32{}, true
	for _, x := range indices {
		frame, known := of[x.SegmentID]
		own = own && (!known || frame == x.FrameID)
		of[x.SegmentID] = x.FrameID
	}
	out := make([]int, len(indices))
	for n, x := range indices {
		if out[n] = n; own {
			out[n] = int(x.SegmentID)
		}
	}
	return out
}

// PairWithin is how much the start times of the road and the wide camera's frames of a pair may differ, in ns:
// more than modeld warns about.
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
