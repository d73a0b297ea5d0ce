package b

func Area(w, h float64) float64    { return w * h }
func Rounded(w, h float64) float64 { return float64(w * h) }
func Sum(x, y float64) float64     { return x + y }
func Twice(x float64) float64      { return Sum(x, x) }

func Both(x float64) (a, b float64) { return x, x * x }
