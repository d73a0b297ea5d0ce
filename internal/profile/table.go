package profile

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spark-compile/spark-compile/internal/console"
)

// bar draws a share of a width in eighths of a character.
func bar(share float64, width int) string {
	n := int(float64(share*float64(width)*8) + 0.5)
	n = min(max(n, 0), width*8)
	s := strings.Repeat("█", n/8)
	if r := n % 8; r > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[r-1])
	}
	return s + strings.Repeat(" ", width-utf8.RuneCountInString(s))
}

// si writes a number with a decimal prefix in four or five characters.
func si(n float64, unit string) string {
	for _, p := range []struct {
		scale float64
		name  string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= p.scale {
			return trim(n/p.scale) + " " + p.name + unit
		}
	}
	return strings.TrimRight(trim(n)+" "+unit, " ")
}

func trim(x float64) string {
	switch {
	case x >= 100 || x == float64(int(x)):
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func percent(part, whole float64) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*part/whole)
}

// clip shortens a text to a number of characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// columns pads each column of the rows to its widest cell; those of right are aligned right.
func columns(w io.Writer, rows [][]string, right string) error {
	width := map[int]int{}
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		line := ""
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if right[i] == 'r' {
				line += "  " + pad + c
			} else {
				line += "  " + c + pad
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// header are the columns of the kernels' table, here and in HTML.
var header = []string{"time", "", "share", "kernel", "launches", "blocks", "threads", "regs", "occupancy", "bound by", "MACs", "mma busy",
	"read", "written", "of L2", "to L2", "asked for", "coalesced", "conflicts", "lanes", "what"}

const aligned = "rlrlrrrrrlrrrrrrrrrrl"

// row is a kernel's line; busy is its tensor time.
func (p *Profile) row(k *Sum) []string {
	tensor := 0.0
	for i := range p.Launches {
		if p.Launches[i].Kernel == k.Kernel {
			tensor += p.Launches[i].Time.Tensor
		}
	}
	regs, occ := "?", "≤ "+percent(k.Occupancy.Share, 1)
	switch {
	case k.Occupancy.Registers > 0:
		regs, occ = fmt.Sprint(k.Occupancy.Registers), percent(k.Occupancy.Share, 1)
	case k.Occupancy.Warps == 0: // a copy
		regs, occ = "–", "–"
	}
	macs := "–"
	if n := k.MACs + k.FMAs; n > 0 {
		macs = si(float64(n), "")
	}
	return append([]string{trim(k.US) + " µs", bar(k.Share/max(p.Kernels[0].Share, 1e-9), 12), fmt.Sprintf("%.1f %%", 100*k.Share), k.Kernel, fmt.Sprintf("%d×", k.Launches),
		fmt.Sprint(k.Blocks), fmt.Sprint(k.Threads), regs, occ, k.By, macs, percent(tensor, k.US)},
		append(k.memory(), clip(cmp.Or(k.Region, k.Note), 40))...)
}

// memory is the cells from read to lanes.
func (c *Counts) memory() []string {
	return []string{si(float64(c.UniqueRead), "B"), si(float64(c.UniqueWrite), "B"), si(float64(32*c.L2Read), "B"), si(float64(32*c.L2Written), "B"), si(float64(32*c.Sectors), "B"),
		percent(c.Coalescing, 1), percent(float64(c.Conflicts), float64(c.Wavefronts)), fmt.Sprintf("%.1f", c.ActiveLanes)}
}

// WriteTable prints the profile for a terminal: the sum, what bounds the time, what was executed, and a line a kernel.
func (p *Profile) WriteTable(w io.Writer) error {
	t := &p.Total
	fmt.Fprintf(w, "%s %s for %s, counted on the CPU device, predicted for %s\n\n", p.Model, p.Precision, p.Target, p.Device)
	fmt.Fprintf(w, "  %s µs, range %s to %s: device uncertainty (%s with cold weights, %s to %s; %s one launch at a time) in %s of %s; executed: %sMACs on tensor cores, %s by fma\n",
		trim(t.US), trim(p.Range.Low), trim(p.Range.High), trim(t.ColdUS), trim(p.ColdRange.Low), trim(p.ColdRange.High), trim(p.AloneUS), console.Count(t.Launches, "launch"), console.Count(len(p.Kernels), "kernel"), si(float64(t.MACs), ""), si(float64(t.FMAs), ""))
	fmt.Fprintf(w, "  global memory: %s read (%s of it constants), %s written, %s asked for, %s of that used; %s read from L2, %s written to it\n", si(float64(t.UniqueRead), "B"),
		si(float64(t.Constants), "B"), si(float64(t.UniqueWrite), "B"), si(float64(32*t.Sectors), "B"), percent(t.Coalescing, 1), si(float64(32*t.L2Read), "B"), si(float64(32*t.L2Written), "B"))
	fmt.Fprintf(w, "  DRAM, by the model of L2: %s (%s with cold weights); %s of weights are asked for ahead of the launches that read them\n",
		si(float64(t.DRAM), "B"), si(float64(t.ColdDRAM), "B"), si(float64(t.Prefetched), "B"))
	fmt.Fprintf(w, "  shared memory: %s wavefronts, %s of them bank conflicts; %s barriers, %s atomics; %.1f of 32 lanes active, %s divergent branches\n\n",
		si(float64(t.Wavefronts), ""), percent(float64(t.Conflicts), float64(t.Wavefronts)), si(float64(t.Barriers), ""), si(float64(t.Atomics), ""), t.ActiveLanes, si(float64(t.Divergent), ""))

	rows := [][]string{{"bound by", "launches", "time", ""}}
	for _, l := range p.bounds() {
		rows = append(rows, []string{l.Name, l.Count, l.Value, bar(l.share, 30)})
	}
	if err := columns(w, rows, "lrrl"); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rows = [][]string{{"instructions", "warps", "share", ""}}
	for _, l := range p.mix() {
		rows = append(rows, []string{l.Name, l.Count, l.Value, bar(l.share, 30)})
	}
	for _, m := range t.MMA {
		rows = append(rows, []string{"  " + m.Op, si(float64(m.Warps), ""), si(float64(m.MACs), "MAC"), ""})
	}
	if err := columns(w, rows, "lrrl"); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rows = [][]string{header}
	for i := range p.Kernels {
		rows = append(rows, p.row(&p.Kernels[i]))
	}
	rows = append(rows, append([]string{trim(t.US) + " µs", "", "100 %", "total", fmt.Sprintf("%d×", t.Launches), "", "", "", "", t.By, si(float64(t.MACs+t.FMAs), ""), ""},
		t.memory()...))
	return columns(w, rows, aligned)
}

// line is a part of a whole: its share, and a bar as long.
type line struct {
	Name, Count, Value string
	share              float64
}

// Percent is how much of its column the bar spans in HTML.
func (l line) Percent() float64 { return 100 * l.share }

// bounds is what bounds the time, most first.
func (p *Profile) bounds() (out []line) {
	for _, b := range p.Bounds {
		out = append(out, line{b.By, fmt.Sprint(b.Launches), trim(b.US) + " µs", b.US / p.AloneUS})
	}
	return out
}

// mix is the classes of instructions, most first.
func (p *Profile) mix() (out []line) {
	of := p.Total.Instructions
	byCount := func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), strings.Compare(a, b)) }
	for _, c := range slices.SortedFunc(maps.Keys(of), byCount) {
		n, all := float64(of[c]), float64(p.Total.Warp)
		out = append(out, line{c, si(n, ""), percent(n, all), n / all})
	}
	return out
}
