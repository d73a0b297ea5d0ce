//go:build !amd64

package ptx

var (
	addR    = add[uint32]
	madR    = multiplyAdd[uint32]
	andR    = bitsAnd[uint32]
	shlR    = shlGo
	shrR    = shrGo
	maxF    = maxFGo
	widenF  = widenFGo
	halfF   = halfFGo
	halvesF = halvesFGo
	addF    = addFGo
	subF    = subFGo
	mulF    = mulFGo
	fmaF    = fmaFGo
)

func mmaF16(r []Row32, v []int32)  { mmaF16Go(r, v) }
func mmaBF16(r []Row32, v []int32) { mmaBF16Go(r, v) }
