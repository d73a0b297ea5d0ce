package ir

// tileRows is how many rows of length k fit a tile of 256 KiB.
func tileRows(k int) int { return min(max((1<<15)/max(k, 1)/4*4, 4), 64) }
