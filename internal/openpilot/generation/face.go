package generation

import "slices"

// Face is the input with the driver's picture of driver-monitoring models.
type Face struct {
	Planes   int    // of the input, as [1,Planes,height/2,width/2] of floats; 0: luma alone, as u8[1,width·height]
	Aspect   [2]int // width to height of luma
	Phases   []int  // row and column of the planes of luma
	Sampling string // runtime.Nearest or Linear
	Fill     int    // what lies outside the picture; -1: the edge goes on
	Grey     float64
	// OneSeat says that the driver's side of the picture is cropped and the other one mirrored; else the camera's
	// picture is warped.
	OneSeat bool
}

// Seat is how an output without output_slices says what is seen of the seats: Len elements each, the left one
// first.
type Seat struct {
	Len, Seats, Total int
	Softplus          bool // of deviations, else e^x
	Probabilities     bool // the graph took the sigmoid
	Wheel             int  // offset of the logit of a wheel on the right; 0: none
	Offsets           SeatOffsets
}

// SeatOffsets are into a seat; of a face, from 0 on, orientation 3, position 2, size and their deviations come
// first.
type SeatOffsets struct {
	Face, LeftEye, RightEye, LeftBlink, RightBlink, Sunglasses int
	Occluded                                                   int    // 0: it does not say
	Ready, NotReady                                            [2]int // from and to
}

// FaceLen are the numbers of a face: orientation 3, position 2, size.
const FaceLen = 6

// Faces are the generations of driver-monitoring models.
func Faces() []Row {
	return slices.DeleteFunc(All(), func(r Row) bool { return r.Kind != Monitoring })
}

// SeatOf is the layout of an output of that length; nil: none has it.
func SeatOf(length int) *Seat {
	for _, r := range rows {
		if r.Seat != nil && r.Seat.Total == length {
			return r.Seat
		}
	}
	return nil
}

// SeatTotals are the lengths of outputs without output_slices.
func SeatTotals() (totals []int) {
	for _, r := range rows {
		if r.Seat != nil {
			totals = append(totals, r.Seat.Total)
		}
	}
	return totals
}
