package foreignkernels

import (
	"embed"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx/foreign"
)

//go:embed testdata/ptx/*.ptx
var files embed.FS

// Case is a kernel and its launch.
type Case struct {
	File   string // without .ptx
	Kernel string // "" where the file has only one
	Grid   [3]int
	Block  [3]int // of files of Triton: what their first line says
	// Make draws the arguments, as emu.RunKernel takes them, and returns what compares the results with the reference.
	Make func(r *rand.Rand) (args []any, check func() error)
}

// Name is that of the file and, if it has several, of the kernel.
func (c *Case) Name() string { return strings.TrimSuffix(c.File+"/"+c.Kernel, "/") }

// By is the compiler that wrote the kernel.
func (c *Case) By() string {
	return map[string]string{"triton": "Triton", "nvcc": "nvcc", "cute": "CuTe"}[strings.Split(c.File, "_")[0]]
}

// Source is the file's text.
func (c *Case) Source() (string, error) {
	raw, err := files.ReadFile("testdata/ptx/" + c.File + ".ptx")
	return string(raw), err
}

// Rewritten is the kernel in the dialect of package ptx.
func (c *Case) Rewritten() (*foreign.Module, error) {
	text, err := c.Source()
	if err != nil {
		return nil, err
	}
	var names []string
	if c.Kernel != "" {
		names = []string{c.Kernel}
	}
	m, err := foreign.Rewrite(text, names...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	return m, nil
}

var launch = regexp.MustCompile(`; (\d+) warps, (\d+) bytes of shared memory`)

// Run runs the kernel with the drawn arguments on the CPU device and compares its results. edit, if there is one, changes the
// rewritten text first.
func (c *Case) Run(opts emu.Options, edit func(text string) (string, error)) error {
	source, err := c.Source()
	if err != nil {
		return err
	}
	m, err := c.Rewritten()
	if err != nil {
		return err
	}
	text := m.Text
	if edit != nil {
		if text, err = edit(text); err != nil {
			return err
		}
	}
	k, block, shared := m.Kernels[0], c.Block, m.Kernels[0].Static
	if l := launch.FindStringSubmatch(source); l != nil {
		warps, _ := strconv.Atoi(l[1])
		dynamic, _ := strconv.Atoi(l[2])
		block, shared = [3]int{32 * warps, 1, 1}, shared+dynamic
	}
	args, check := c.Make(rand.New(rand.NewPCG(1, 2)))
	if len(args)+2 == len(k.Params) && c.By() == "Triton" { // scratch memory that the kernel does not use
		args = append(args, uint64(0), uint64(0))
	}
	if err := emu.RunKernelWith(opts, text, k.Name, c.Grid, block, shared, args...); err != nil {
		return err
	}
	return check()
}
