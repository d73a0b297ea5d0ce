package loss

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Parse reads weights of terms as text: NAME=WEIGHT,… Names are those of the model's terms, which Driving checks. Text of blanks stands for
// the defaults, nil.
func Parse(text string) (map[string]float64, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	out := map[string]float64{}
	for _, item := range strings.Split(text, ",") {
		at := strings.LastIndex(item, "=") // names of inner values may have one
		if at < 0 {
			return nil, fmt.Errorf("%q says no weight: write NAME=WEIGHT, as in plan=1,lead=0.5,%s=0.1", strings.TrimSpace(item), features)
		}
		name, number := strings.TrimSpace(item[:at]), strings.TrimSpace(item[at+1:])
		w, err := strconv.ParseFloat(number, 64)
		switch {
		case name == "":
			return nil, fmt.Errorf("%q names no term: write NAME=WEIGHT", item)
		case err != nil || math.IsNaN(w) || math.IsInf(w, 0) || w < 0:
			return nil, fmt.Errorf("the weight of %s is %q: give a number from 0 on", name, number)
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("the term %s is given twice: name it once", name)
		}
		out[name] = w
	}
	return out, nil
}
