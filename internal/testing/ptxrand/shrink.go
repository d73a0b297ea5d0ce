package ptxrand

import "github.com/spark-compile/spark-compile/internal/ptx"

// Shrink removes instructions from the first kernel of a text as long as it still fails, and returns what is left. It calls
// fails with texts that parse, but may have undefined results.
func Shrink(text string, fails func(text string) bool) string {
	m, err := ptx.Parse(text)
	if err != nil || len(m.Kernels) == 0 {
		return text
	}
	k := m.Kernels[0]
	try := func(body []ptx.Stmt) bool {
		was := k.Body
		k.Body = body
		t := m.String()
		if _, err := ptx.Parse(t); err == nil && fails(t) {
			text = t
			return true
		}
		k.Body = was
		return false
	}
	for n := len(k.Body) / 2; n > 0; {
		cut := false
		for at := 0; at+n <= len(k.Body); {
			body := append(append([]ptx.Stmt(nil), k.Body[:at]...), k.Body[at+n:]...)
			if try(body) {
				cut = true
			} else {
				at += n
			}
		}
		if !cut || n > 1 {
			n /= 2
		}
	}
	return text
}
