package info

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/runtime"
)

// packageInfo is what --json prints of a package.
type packageInfo struct {
	Model      string             `json:"model"`
	Identity   string             `json:"identity"`
	Precision  string             `json:"precision"`
	Provenance runtime.Provenance `json:"provenance"`
	Inputs     []runtime.Port     `json:"inputs"`
	Outputs    []runtime.Port     `json:"outputs"`
	Weights    int                `json:"weights_bytes"`
	Variants   []variantInfo      `json:"variants"`
}

type variantInfo struct {
	Target   string `json:"target"`
	Launches int    `json:"launches"`
	Kernels  int    `json:"kernels"`
	Arena    int    `json:"arena_bytes"`
	Cubin    bool   `json:"cubin"`
}

// describe prints what the files of a package say of it, which reading them has compared with their digests.
func (t *tool) describe() error {
	p, err := cli.Package(t.Package)
	if err != nil {
		return err
	}
	if p == nil {
		return fmt.Errorf("%s is a file: give a directory that spark-compile wrote", t.Package)
	}
	info := packageInfo{p.Model, p.Identity, p.Precision, p.Provenance, p.Inputs, p.Outputs, len(p.Weights), nil}
	for i := range p.Variants {
		v := &p.Variants[i]
		info.Variants = append(info.Variants, variantInfo{v.Target, v.Launches(), len(v.Kernels), v.ArenaBytes, len(v.Cubin) > 0})
	}
	if t.JSON != "" {
		return t.write(info)
	}
	return info.print(t.out)
}

func (p *packageInfo) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	line("model", "%s, sha256 %s", p.Model, p.Provenance.SHA256)
	if c := p.Provenance.Checkpoint; c != "" {
		line("checkpoint", "%s", c)
	}
	line("compiled", "to %s by spark-compile %s %s", p.Precision, p.Provenance.Compiler, strings.Join(p.Provenance.Flags, " "))
	if c := p.Provenance.Calibration; c != nil {
		drawn := ""
		if c.Generated {
			drawn = "generated "
		}
		line("calibrated", "on %s, sha256 %s", console.Count(c.Inputs, drawn+"input"), c.SHA256)
	}
	if a := p.Provenance.Accuracy; a != nil {
		line("accuracy", "lowest cosine %.6f (%s, %s inputs); asked for %g", a.Cosine, a.Of, a.On, a.Budget)
	}
	line("identity", "%s; all files are as they were written", p.Identity)
	for _, v := range p.Variants {
		code := "PTX"
		if v.Cubin {
			code = "PTX and cubin"
		}
		line(v.Target, "%s, %s (%s), arena %.2f MB, weights %.2f MB", console.Count(v.Launches, "launch"), console.Count(v.Kernels, "kernel"), code, float64(v.Arena)/1e6, float64(p.Weights)/1e6)
	}
	for _, q := range p.Inputs {
		line("input", "%s: %v", q.Name, q)
	}
	for _, q := range p.Outputs {
		line("output", "%s: %v", q.Name, q)
	}
	return w.Flush()
}
