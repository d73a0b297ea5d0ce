package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/ptx/foreign"
	"github.com/spark-compile/spark-compile/ir"
)

// ptxFlags are those of a run of a PTX file.
type ptxFlags struct {
	PTX    string   `name:"ptx" help:"Run a kernel of a PTX file that any compiler wrote, on the CPU device with all checks." placeholder:"FILE.ptx"`
	Kernel string   `help:"With --ptx, the kernel; may be left out if there is only one." placeholder:"NAME"`
	Grid   string   `help:"With --ptx, the blocks." default:"1" placeholder:"X,Y,Z"`
	Block  string   `help:"With --ptx, the threads of a block; default: what the kernel requires." placeholder:"X,Y,Z"`
	Shared int      `help:"With --ptx, bytes of dynamic shared memory of a block." placeholder:"BYTES"`
	Arg    []string `help:"With --ptx, the parameters in order: a buffer with what FILE.npy holds, of zeros, or out: one that was never written; a number; null." placeholder:"FILE.npy|zeros:TYPE[SHAPE]|out:TYPE[SHAPE]|NUMBER|null" sep:"none"`
}

// argument is a parameter's value, or what a pointer points to.
type argument struct {
	bits   uint64
	memory hal.Memory
	array  *npy.Array // its type and shape
	fresh  bool       // it was never written
}

var made = regexp.MustCompile(`^(zeros|out):(\w+)\[([\d,]*)\]$`)

// runPTX runs a kernel of a PTX file.
func (f *flags) runPTX(ctx context.Context, w io.Writer) error {
	raw, err := memory.ReadFile(f.PTX)
	if err != nil {
		return err
	}
	if bytes.IndexByte(raw, 0) >= 0 || !utf8.Valid(raw) {
		return fmt.Errorf("%s is no text: want PTX, not a cubin, a fatbin or an object file (cuobjdump -ptx takes PTX out of these, where it is in them)", f.PTX)
	}
	lines, registers := strings.Split(string(raw), "\n"), map[string]string(nil)
	fail := func(err error) error { return fmt.Errorf("%s: %w", f.PTX, asWritten(err, lines, registers)) }
	var names []string
	if f.Kernel != "" {
		names = []string{f.Kernel}
	}
	m, err := foreign.Rewrite(string(raw), names...)
	if err != nil {
		return fail(err)
	}
	if len(m.Kernels) != 1 {
		var have []string
		for _, k := range m.Kernels {
			have = append(have, k.Name)
		}
		return fmt.Errorf("%s has the kernels %s: name one with --kernel", f.PTX, strings.Join(have, ", "))
	}
	if _, err := ptx.Parse(m.Text); err != nil {
		return fail(err)
	}
	k := m.Kernels[0]
	registers = k.Registers
	op := hal.Op{Kernel: k.Name, Shared: k.Static + f.Shared}
	if op.Grid, err = dims("--grid", f.Grid); err != nil {
		return err
	}
	switch {
	case f.Block != "":
		if op.Block, err = dims("--block", f.Block); err != nil {
			return err
		}
		if k.Threads[0] > 0 && op.Block != k.Threads {
			return fmt.Errorf("--block %s: kernel %s requires blocks of %v (.reqntid)", f.Block, k.Name, k.Threads)
		}
	case k.Threads[0] > 0:
		op.Block = k.Threads
	default:
		return fmt.Errorf("kernel %s does not say how many threads a block has: give --block", k.Name)
	}
	if len(f.Arg) != len(k.Params) {
		var want []string
		for i, p := range k.Params {
			want = append(want, fmt.Sprintf("%d: %s .%s", i, p.Name, p.Type))
		}
		return fmt.Errorf("kernel %s has %d parameters (%s), not %d: give an --arg for each", k.Name, len(k.Params), strings.Join(want, ", "), len(f.Arg))
	}
	d, err := emu.Open(emu.Options{Check: true})
	if err != nil {
		return err
	}
	defer d.Close()
	if op.Module, err = d.Load(ctx, hal.Image{Name: f.PTX, PTX: m.Text}); err != nil {
		return fail(err)
	}
	args := make([]argument, len(k.Params))
	for i, p := range k.Params {
		if args[i], err = readArgument(d, f.Arg[i], p); err != nil {
			return fmt.Errorf("--arg %s (parameter %d, %s): %w", f.Arg[i], i, p.Name, err)
		}
		a := &args[i]
		op.Params, op.Sizes = append(op.Params, a.bits), append(op.Sizes, p.Size())
		if a.memory == nil {
			continue
		}
		r := hal.Range{Memory: a.memory, Bytes: a.memory.Size()}
		op.Writes = append(op.Writes, r)
		if !a.fresh {
			op.Reads = append(op.Reads, r)
		}
	}
	g, err := d.Capture(ctx, []hal.Op{op})
	if err != nil {
		return fail(err)
	}
	defer g.Close()
	if err := g.Run(ctx); err != nil {
		var v *emu.Violation
		if errors.As(err, &v) {
			return cli.Failure(fail(v).Error())
		}
		return fail(err)
	}
	fmt.Fprintf(w, "%s on cpu (emu): grid %v, block %v, %d bytes of shared memory\n", k.Name, op.Grid, op.Block, op.Shared)
	fmt.Fprintln(w, "checked: bounds, alignment and initialisation of memory, registers, races, synchronisation; nothing found")
	return f.writeArguments(w, args)
}

// asWritten puts the file's own lines and names of registers in place of rewritten ones.
func asWritten(err error, lines []string, registers map[string]string) error {
	source := func(n int, text *string) {
		if n >= 1 && n <= len(lines) {
			*text = strings.TrimSpace(lines[n-1])
		}
	}
	var v *emu.Violation
	var p *ptx.ParseError
	switch {
	case errors.As(err, &v):
		w := *v
		source(w.Line, &w.Text)
		if r, ok := strings.CutPrefix(w.Where, "register "); ok && registers[r] != "" {
			w.Where = "register " + registers[r]
		}
		if w.Conflict != nil {
			c := *w.Conflict
			source(c.Line, &c.Text)
			w.Conflict = &c
		}
		return &w
	case errors.As(err, &p):
		q := *p
		source(q.Line, &q.Text)
		return &q
	}
	return err
}

// dims reads up to three numbers.
func dims(flag, s string) ([3]int, error) {
	out := [3]int{1, 1, 1}
	parts := strings.Split(s, ",")
	for i, p := range parts {
		n, err := strconv.Atoi(strings.TrimSpace(p))
		if err != nil || n < 1 || i > 2 {
			return out, fmt.Errorf("%s %s: want one to three positive numbers, as in 4 or 4,2", flag, s)
		}
		out[i] = n
	}
	return out, nil
}

func readArgument(d hal.Device, s string, p ptx.Param) (a argument, err error) {
	kind := hal.DeviceMemory
	switch m := made.FindStringSubmatch(s); {
	case s == "null":
		return a, nil
	case m != nil:
		t, err := ir.ParseDType(m[2])
		if err != nil {
			return a, err
		}
		var shape []int
		for _, n := range strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' }) {
			v, err := strconv.Atoi(n)
			if err != nil {
				return a, err
			}
			shape = append(shape, v)
		}
		if err := ir.CheckShape(shape); err != nil {
			return a, err
		}
		n := ir.T(t, shape...).Bytes()
		if n > 1<<32 {
			return a, fmt.Errorf("%d bytes: more than 4 GiB", n)
		}
		a.array = &npy.Array{DType: t.String(), Shape: shape, Data: make([]byte, n)}
		if a.fresh = m[1] == "out"; a.fresh {
			kind = hal.ScratchMemory
		}
	case strings.HasSuffix(s, ".npy"):
		if a.array, err = npy.ReadFile(s); err != nil {
			return a, err
		}
	default:
		return number(s, p)
	}
	if p.Size() != 8 {
		return a, fmt.Errorf("a buffer for a parameter of type .%s: a pointer has 8 bytes", p.Type)
	}
	if a.memory, err = d.Alloc(len(a.array.Data), kind); err != nil {
		return a, err
	}
	if !a.fresh {
		err = a.memory.Write(a.array.Data, 0)
	}
	a.bits = a.memory.Addr()
	return a, err
}

// number is a scalar of the parameter's type. Compilers declare floats as .b32 or .u32, too: what is written with a point or an
// exponent is one.
func number(s string, p ptx.Param) (a argument, err error) {
	n := 8 * p.Size()
	v, err := strconv.ParseInt(s, 0, 64)
	if u, unsigned := strconv.ParseUint(s, 0, 64); err != nil && unsigned == nil {
		v, err = int64(u), nil
	}
	tooMuch := fmt.Errorf("more than %d bits hold", n)
	if errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(p.Type, "f") {
		return a, tooMuch
	}
	if err == nil && !strings.HasPrefix(p.Type, "f") {
		if n < 64 && (v >= 1<<n || v < -1<<(n-1)) {
			return a, tooMuch
		}
		a.bits = uint64(v) & (1<<(n-1)<<1 - 1)
		return a, nil
	}
	x, err := strconv.ParseFloat(s, n)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return a, tooMuch
	case err != nil:
		return a, errors.New("want FILE.npy, zeros:TYPE[SHAPE], out:TYPE[SHAPE], a number or null")
	}
	if a.bits = math.Float64bits(x); n == 32 {
		a.bits = uint64(math.Float32bits(float32(x)))
	}
	return a, nil
}

// writeArguments writes the buffers to --output-dir, by number of parameter.
func (f *flags) writeArguments(w io.Writer, args []argument) error {
	if f.OutputDir == "" {
		return nil
	}
	if err := os.MkdirAll(f.OutputDir, 0o755); err != nil {
		return err
	}
	for i, a := range args {
		if a.memory == nil {
			continue
		}
		if err := a.memory.Read(a.array.Data, 0); err != nil {
			return err
		}
		path := filepath.Join(f.OutputDir, fmt.Sprintf("arg%d.npy", i))
		if err := npy.WriteFile(path, a.array); err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: %s%v\n", path, a.array.DType, a.array.Shape)
	}
	return nil
}

// checkPTX refuses flags that mean nothing together.
func (f *flags) checkPTX() error {
	given := f.Kernel != "" || f.Block != "" || f.Shared != 0 || len(f.Arg) > 0 || f.Grid != "1"
	switch {
	case f.PTX == "" && given:
		return errors.New("--kernel, --grid, --block, --shared and --arg need --ptx")
	case f.PTX == "":
		return nil
	case f.Model != "" || len(f.Input)+len(f.Suite)+len(f.Trace) > 0 || f.Random != nil || f.Expect != "" || f.Profile || f.JSON != "":
		return errors.New("--ptx runs a file of PTX: a model, --input, --random, --expect, --suite, --trace, --profile and --json do not go with it")
	case f.Device != "auto" && f.Device != "emu":
		return fmt.Errorf("--device %s: --ptx runs on the CPU device", f.Device)
	case f.Shared < 0:
		return fmt.Errorf("--shared %d: want bytes", f.Shared)
	}
	return nil
}
