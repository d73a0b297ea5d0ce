//go:build !amd64

package emu

func addR(d, a, b, c *row32)    { addRGo(d, a, b, c) }
func madR(d, a, b, c *row32)    { madRGo(d, a, b, c) }
func andR(d, a, b, c *row32)    { andRGo(d, a, b, c) }
func shlR(d, a, b, c *row32)    { shlRGo(d, a, b, c) }
func shrR(d, a, b, c *row32)    { shrRGo(d, a, b, c) }
func minF(d, a, b, c *row32)    { minFGo(d, a, b, c) }
func maxF(d, a, b, c *row32)    { maxFGo(d, a, b, c) }
func widenF(d, a, b, c *row32)  { widenFGo(d, a, b, c) }
func halfF(d, a, b, c *row32)   { halfFGo(d, a, b, c) }
func halvesF(d, a, b, c *row32) { halvesFGo(d, a, b, c) }
func addF(d, a, b, c *row32)    { addFGo(d, a, b, c) }
func subF(d, a, b, c *row32)    { subFGo(d, a, b, c) }
func mulF(d, a, b, c *row32)    { mulFGo(d, a, b, c) }
func fmaF(d, a, b, c *row32)    { fmaFGo(d, a, b, c) }

func mmaF16(r []row32, v []int32)  { mmaF16Go(r, v) }
func mmaBF16(r []row32, v []int32) { mmaBF16Go(r, v) }
