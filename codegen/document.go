package codegen

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// Bounds of a kernel's documentation. Unrolled recurrences launch one kernel hundreds of times.
const (
	docWidth    = 110 // characters of a line, but for a name that is longer
	docName     = 80  // bytes of a name
	docLaunches = 16  // that are listed
	docOrigins  = 64  // nodes of a launch that are listed
)

// document adds to each kernel a comment for readers: schedule, launches, types and the nodes of the file that they
// compute.
//
//	// matmul_f16_2: contraction, 32x64x128 stages=4 warps=1x2x4
//	// run 3, MatMul m=25 n=1152 k=384: f16[1,25,384], f16[1152,384], f32[1152] -> f16[1,25,1152]
//	//   of /blocks/blocks.0/qkv/MatMul, /blocks/blocks.0/qkv/Add
//
// run 3 is launch 3 of entry run, as in program.json.
func (d *driver) document() {
	kernels := map[string]*ptx.Kernel{}
	for i, k := range d.module.Kernels {
		kernels[k.Name] = k
		info := d.infos[i]
		k.Doc = wrap(k.Name+": ", info.Family, info.Schedule)
	}
	listed := map[string]int{}
	for _, l := range d.lists {
		for i, p := range l.pending {
			k := kernels[p.Kernel]
			if k == nil {
				continue
			}
			if listed[k.Name]++; listed[k.Name] > docLaunches {
				continue
			}
			what := fmt.Sprintf("%s %d", l.name, i)
			if p.Note != "" {
				what += ", " + docText(p.Note)
			}
			k.Doc = append(k.Doc, wrap(what+": ", typesOf(p.region)...)...)
			if names := originsOf(p.region); len(names) > 0 {
				k.Doc = append(k.Doc, wrap("  of ", names...)...)
			}
		}
	}
	for name, n := range listed {
		if n > docLaunches {
			kernels[name].Doc = append(kernels[name].Doc, fmt.Sprintf("and %d more launches", n-docLaunches))
		}
	}
}

// wrap appends words that are not empty to a beginning, separated by commas, on as many lines as they need.
func wrap(begin string, words ...string) (lines []string) {
	line, first := begin, true
	for _, w := range words {
		switch {
		case w == "":
			continue
		case first:
			line += w
		default:
			if !strings.HasPrefix(w, "-> ") {
				line += ","
			}
			if len(line)+len(w)+2 > docWidth {
				lines, line = append(lines, line), "   "
			}
			line += " " + w
		}
		first = false
	}
	return append(lines, line)
}

// typesOf lists what a region reads and, after an arrow, what it writes.
func typesOf(n *ir.Node) (words []string) {
	for _, v := range n.Inputs {
		words = append(words, v.Type.String())
	}
	for i, v := range n.Outputs {
		w := v.Type.String()
		if i == 0 {
			w = "-> " + w
		}
		words = append(words, w)
	}
	return words
}

// originsOf names the nodes of the file that a region computes, in the file's order.
func originsOf(n *ir.Node) (names []string) {
	from := n.Region.Origins()
	for i, o := range from {
		if i == docOrigins {
			return append(names, fmt.Sprintf("and %d more nodes", len(from)-i))
		}
		names = append(names, docText(o.Name))
	}
	return names
}

// docText is a text from a file as part of a comment: as it is if it is plain, else in quotes, with escapes for
// whatever ends a line or is no ASCII. Of a long one the end, which tells it from others.
func docText(s string) string {
	if len(s) > docName {
		s = "..." + s[len(s)-docName+3:]
	}
	plain := func(r rune) bool { return r > ' ' && r < 0x7f && r != '"' && r != '\\' && r != ',' || r == ' ' }
	if s != "" && strings.TrimFunc(s, plain) == "" && strings.TrimSpace(s) == s {
		return s
	}
	return strconv.QuoteToASCII(s)
}
