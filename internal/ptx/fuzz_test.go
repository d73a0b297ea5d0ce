package ptx

import "testing"

// FuzzParse: a text is refused with an error or prints to a text that parses to the same print; never a panic.
func FuzzParse(f *testing.F) {
	m, _ := everyRow("sm_121a", func(d *Def) bool { return len(d.Op) == 27 })
	f.Add(m.String())
	f.Add(head + ".visible .entry k(.param .u64 p0)\n.maxntid 32, 1, 1\n{\n.reg .b32 %r<4>;\n.reg .pred %p<2>;\nl: @!%p0 bra l;\n" +
		"shfl.sync.bfly.b32 %r0|%p1, %r1, -1, 0x1f, %r2; ld.shared.v2.b32 {%r0, %r1}, [smem+-8]; // x\nret; }")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		printed := m.String()
		again, err := Parse(printed)
		if err != nil {
			t.Fatalf("%v in\n%s", err, printed)
		}
		if s := again.String(); s != printed {
			t.Fatalf("printed\n%s\nthen\n%s", printed, s)
		}
	})
}
