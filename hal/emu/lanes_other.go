//go:build !amd64

package emu

var (
	addR    = addRGo
	madR    = madRGo
	andR    = andRGo
	shlR    = shlRGo
	shrR    = shrRGo
	minF    = minFGo
	maxF    = maxFGo
	widenF  = widenFGo
	halfF   = halfFGo
	halvesF = halvesFGo
	addF    = addFGo
	subF    = subFGo
	mulF    = mulFGo
	fmaF    = fmaFGo
)

func mmaF16(r []row32, v []int32)  { mmaF16Go(r, v) }
func mmaBF16(r []row32, v []int32) { mmaBF16Go(r, v) }
