package expr

import "github.com/spark-compile/spark-compile/internal/ptx"

// Hold writes values to consecutive elements of an operand in shared memory, each as its register holds it, where
// pred holds (nil: always).
func (m *Emitter) Hold(operand int, index *Expr, values []*Expr, pred *Expr) {
	rs, where, ok := m.emitWhere(pred, values)
	if !ok {
		return
	}
	rs = rs[:len(values)]
	size := bytesOf(rs[0])
	at := constPart(index)
	base := m.B.Offset(index, -at)
	for i := 0; i < len(rs); {
		w, op := 1, "st.shared."
		if size == 4 && i+4 <= len(rs) && (at+int64(i))%4 == 0 && base.mult%4 == 0 && !base.wraps() && m.env.Align(operand)%16 == 0 {
			w, op = 4, "st.shared.v4."
		}
		var src ptx.Operand = rs[i]
		if w > 1 {
			src = ptx.V(rs[i : i+w]...)
		}
		m.K.Where(where, op+suffix(rs[i].Class), m.address(int64(operand), m.B.Offset(index, int64(i)), size), src)
		i += w
	}
}
