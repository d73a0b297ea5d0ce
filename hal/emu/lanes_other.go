//go:build !amd64

package emu

func addF(d, a, b, c *row32) { addFGo(d, a, b, c) }
func subF(d, a, b, c *row32) { subFGo(d, a, b, c) }
func mulF(d, a, b, c *row32) { mulFGo(d, a, b, c) }
func fmaF(d, a, b, c *row32) { fmaFGo(d, a, b, c) }

func mmaF16(r []row32, v []int32)  { mmaF16Go(r, v) }
func mmaBF16(r []row32, v []int32) { mmaBF16Go(r, v) }
