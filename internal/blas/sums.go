package blas

// sumLanes is the number of sums that are added side by side.
const sumLanes = 8

// Squares sums, in float64, the squares of the differences of two lists and those of the second: in eight sums each, of every eighth
// element, which are then added in pairs.
func Squares(x, y []float32) (differences, second float64) {
	x = x[:len(y)]
	var d, s [sumLanes]float64
	i := 0
	if vectors {
		if i = len(y) &^ (sumLanes - 1); i > 0 {
			squares(&d, &s, &x[0], &y[0], i)
		}
	}
	for ; i < len(y); i++ {
		b := float64(y[i])
		e := float64(x[i]) - b
		d[i%sumLanes] += float64(e * e)
		s[i%sumLanes] += float64(b * b)
	}
	return pairs(&d), pairs(&s)
}

func pairs(s *[sumLanes]float64) float64 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// nearby is the number of elements of rows whose columns are added before others: they fit the first-level cache.
const nearby = 2048

// ColumnSums adds rows of f32, as long as sums, to sums, one after another.
func ColumnSums(sums []float64, x []float32) {
	width := len(sums)
	if !vectors || width%sumLanes != 0 {
		for ; len(x) > 0; x = x[width:] {
			for k, v := range x[:width] {
				sums[k] += float64(v)
			}
		}
		return
	}
	for some := max(1, nearby/width) * width; len(x) > 0; x = x[min(some, len(x)):] {
		for k := 0; k < width; k += sumLanes {
			columns(&sums[k], &x[k], min(some, len(x))/width, 4*width)
		}
	}
}

// ColumnDifferences adds the differences of rows of x and y, as long as sums, to sums, one after another.
func ColumnDifferences(sums []float64, x, y []float32) {
	width := len(sums)
	y = y[:len(x)]
	if !vectors || width%sumLanes != 0 {
		for ; len(x) > 0; x, y = x[width:], y[width:] {
			row := y[:width]
			for k, v := range x[:width] {
				sums[k] += float64(v) - float64(row[k])
			}
		}
		return
	}
	for some := max(1, nearby/width) * width; len(x) > 0; x, y = x[min(some, len(x)):], y[min(some, len(x)):] {
		for k := 0; k < width; k += sumLanes {
			columnDifferences(&sums[k], &x[k], &y[k], min(some, len(x))/width, 4*width)
		}
	}
}
