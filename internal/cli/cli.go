// Package cli is what the commands share: exit codes, flags, settings from flags and environment, reading packages,
// progress.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// Exit codes.
const (
	Done     = 0
	Failed   = 1 // a comparison or a case failed
	BadInput = 2 // wrong use or bad input
	Bug      = 3 // a bug of ours
	// Refused is when the machine does not let a file be written or read: the disk is full, or it is not permitted.
	Refused = 4
	// Interrupted is 128 and the number of SIGINT, as shells have it.
	Interrupted = 130
)

// Failure is an error of a command that did its work and found something wrong: exit code Failed.
type Failure string

func (f Failure) Error() string { return string(f) }

// ErrInterrupted is the error of a command that stopped since another process of its group was interrupted: exit code Interrupted.
var ErrInterrupted = errors.New("interrupted")

// Main parses the arguments into a struct of kong flags, calls run with a context that ends on an interrupt, prints its
// error and returns the exit code. A later interrupt ends the process at once. --help prints the flags instead. The
// name is what was typed: spark-compile or spark compile. Outputs that would replace an input are refused; inputs are the
// files that Following and Inputs took out of the arguments.
func Main(flags any, name, summary string, args []string, stdout, stderr io.Writer, run func(context.Context) error, inputs ...string) int {
	ctx, stop := interruptible(repeats)
	defer stop()
	help := false
	var about about
	p, err := kong.New(flags, kong.Name(name), kong.Description(summary), kong.Writers(stdout, stdout), vars(name), kong.Embed(&about), kong.Exit(func(int) { help = true }))
	if err == nil {
		err = parse(p, args, inputs...)
	}
	if help {
		return Done
	}
	if err != nil && p != nil && about.asked(args) {
		err = nil
	}
	if err == nil {
		var done bool
		if done, err = about.print(p.Model, stdout); !done {
			defer memory.Limit(about.Memory)()
			err = caught(ctx, run)
		}
	}
	code := BadInput
	if refused(err) {
		code = Refused
	}
	var bug *panicked
	switch {
	case err == nil:
		return Done
	case errors.Is(err, context.Canceled) && ctx.Err() != nil, errors.Is(err, ErrInterrupted):
		code, err = Interrupted, ErrInterrupted
	case errors.As(err, new(Failure)):
		code = Failed
	case errors.As(err, &bug):
		code, err = Bug, bug.report(name, args)
	}
	fmt.Fprintf(stderr, "%s: %s\n", name, console.EscapeLines(withoutCall(err)))
	return code
}

// withoutCall is the text of an error without the name of the system call that failed on a path, with a remedy if it has none.
func withoutCall(err error) string {
	text := err.Error()
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		text = strings.Replace(text, failed.Error(), failed.Path+": "+failed.Err.Error(), 1)
		if errors.Is(failed, fs.ErrNotExist) && strings.HasSuffix(text, failed.Err.Error()) {
			text += "; check the path"
		}
	}
	return text
}

// repeats is how long signals after the first one count as the same interrupt: a terminal sends Ctrl-C to mpirun or
// torchrun and to its ranks, and the launcher passes it on.
const repeats = 200 * time.Millisecond

// interruptible is a context that ends on an interrupt, or where the terminal goes, unless nohup has that ignored. So
// much later signals are the system's again.
func interruptible(repeats time.Duration) (context.Context, context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, func() { time.AfterFunc(repeats, stop) })
	return ctx, stop
}

// refused reports whether an error is the machine's: no room, no permission, or a broken disk.
func refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) || slices.ContainsFunc([]error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO},
		func(e error) bool { return errors.Is(err, e) })
}

// Tables is where a command prints for people: standard output, or standard error where an argument names standard output for a file, which
// is then all that is there.
func Tables(args []string, stdout, stderr io.Writer) io.Writer {
	for i, arg := range args {
		if _, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "-") {
			arg = value
		} else if i == 0 || !strings.HasPrefix(args[i-1], "-") {
			continue // no value of a flag
		}
		if atomicfile.IsStdout(arg) {
			return stderr
		}
	}
	return stdout
}

// Parse parses arguments into a struct of kong flags, of a caller that has no terminal: nothing is printed, and flags that only print
// something, such as --help, are refused as unknown.
func Parse(flags any, name string, args []string) error {
	p, err := kong.New(flags, kong.Name(name), kong.NoDefaultHelp(), kong.Writers(io.Discard, io.Discard), vars(name))
	if err != nil {
		return err
	}
	return parse(p, args)
}

// parse refuses empty values, which mostly come from unset variables of a shell and would be read as flags not given; - for anything
// but a file to write; and outputs as checkOutputs does.
func parse(p *kong.Kong, args []string, inputs ...string) error {
	parsed, err := p.Parse(args)
	if err != nil {
		if flag, rest, _ := strings.Cut(err.Error(), ": expected "); strings.Contains(rest, `value but got "EOL"`) { // of kong
			return fmt.Errorf("%s: its value is missing", flag)
		}
		return err
	}
	for _, value := range given(parsed) {
		list, _ := value.Target.Interface().([]string)
		if kind := value.Target.Kind(); slices.Contains(list, "") || (kind == reflect.String || kind == reflect.Slice) && value.Target.Len() == 0 {
			return fmt.Errorf("%s is empty: give a value, or leave it out", value.ShortSummary())
		}
		if slices.Contains(texts(value.Target), atomicfile.Stdout) && !value.Tag.Has(tagWrites) {
			return fmt.Errorf("%s: - is neither standard input nor output here: give a path", value.ShortSummary())
		}
	}
	return checkOutputs(parsed, inputs)
}

// panicked is a panic, which is a bug of ours.
type panicked struct {
	value any
	trace []byte
}

func (p *panicked) Error() string { return fmt.Sprint("panic: ", p.value) }

// caught is run(ctx), whose panic is an error.
func caught(ctx context.Context, run func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return run(ctx)
}

// report writes what we need to find the bug into a file, and says where.
func (p *panicked) report(name string, args []string) error {
	text := fmt.Sprintf("%s %s, %s %s/%s\narguments: %q\n\npanic: %v\n\n%s", name, Version(), goruntime.Version(), goruntime.GOOS, goruntime.GOARCH, args, p.value, p.trace)
	f, err := os.CreateTemp("", linkOf(name)+"-panic-*.txt")
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("this is a bug in %s; please report it with this text, since it could not be written to a file (%w):\n%s", name, err, text)
	}
	return fmt.Errorf("this is a bug in %s (%v): please report it with %s, and the model if you can", name, p.value, f.Name())
}

// Following removes a flag that accepts any number of values, and the values that follow it, from the arguments.
// They end at the next flag, or after the first value at an argument that does not belong to them. A flag without
// a value stays, so that parsing reports it.
func Following(args []string, flag string, belongs func(arg string) bool) (rest, values []string) {
	value := func(i int) bool { return i < len(args) && args[i] != "" && args[i][0] != '-' }
	for i := 0; i < len(args); i++ {
		if args[i] != flag || !value(i+1) {
			rest = append(rest, args[i])
			continue
		}
		for i++; ; i++ {
			values = append(values, args[i])
			if !value(i+1) || !belongs(args[i+1]) {
				break
			}
		}
	}
	return rest, values
}

// Inputs is Following of a flag for files of inputs, which a shell makes of --calibrate *.npz. Each value may hold several, with
// commas between them.
func Inputs(args []string, flag string) (rest, files []string) {
	rest, values := Following(args, flag, func(arg string) bool { return strings.HasSuffix(arg, ".npz") })
	for _, v := range values {
		files = append(files, strings.Split(v, ",")...)
	}
	return rest, files
}

// ONNX is the ONNX file that a path names: itself, or the only one in a directory.
func ONNX(path string) (string, error) {
	if path == "-" {
		return "", errors.New("-: a model is not read from standard input: give the path of an ONNX file")
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, nil // reading it says what is wrong
	}
	files, err := filepath.Glob(filepath.Join(path, "*.onnx"))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", path, err)
	case len(files) == 1:
		return files[0], nil
	case len(files) > 1:
		return "", fmt.Errorf("%s: %d ONNX files in this directory, want one: %s", path, len(files), strings.Join(files, ", "))
	}
	if _, err := os.Stat(filepath.Join(path, runtime.ProgramFile)); err == nil {
		return "", fmt.Errorf("%s: a compiled package, not a model: give the ONNX file", path)
	}
	return "", fmt.Errorf("%s: no ONNX file (*.onnx) in this directory", path)
}

// vars are the variables of help texts and defaults, read from the tables of targets and precisions.
func vars(name string) kong.Vars {
	return kong.Vars{
		"target":      target.Default().Name,
		"calibrating": precision.Calibrating(),
		"precision":   precision.Default,
		"precisions":  precision.List("or"),
		"targets":     strings.Join(target.Names(), ", "),
		"version":     name + " " + Version(),
		"devices":     strings.Join(target.Devices(), ", "),
		"switches":    strings.Join(hal.SwitchNames(), ", "),
	}
}

// Version is the version of this build: of the module, with the commit where it was built from a checkout; (devel) if Go
// recorded none.
func Version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok || b.Main.Version == "" {
		return "(devel)"
	}
	return b.Main.Version
}

// Package reads the compiled package in a directory. It returns nil if path is a file, which is an ONNX model then.
func Package(path string) (*runtime.Program, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return nil, err
	}
	p, err := runtime.Read(os.DirFS(path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Precision resolves --precision as hal/config does: the flag, else the environment, else the default. An invalid flag is an
// error; an invalid environment variable produces a warning and the default.
func Precision(flag string, stderr io.Writer) (string, error) {
	return PrecisionOf(flag, func(text string) { fmt.Fprintln(stderr, "warning:", text) })
}

// PrecisionOf is Precision whose warnings go elsewhere.
func PrecisionOf(flag string, warn func(string)) (string, error) {
	s, err := config.Read(config.Flags{Precision: flag}, nil)
	if err != nil {
		return "", err
	}
	for _, w := range s.Precision.Warnings {
		warn(w)
	}
	return s.Precision.Value, nil
}

// CheckMinCosine is an error unless the flag --min-cosine, nil if it is not given, is an accuracy budget.
func CheckMinCosine(c *float64) error {
	if c != nil && !(*c >= 0 && *c < 1) {
		return fmt.Errorf("--min-cosine %g: want 0 (no budget) or more, and less than 1", *c)
	}
	return nil
}

// Bounds is the flag --max-output, once for each node: node=100.
type Bounds = map[string]int

// Values is the flag --input of a compilation, once for each input: sr=16000.
type Values = map[string]string

// Shapes is the flag --shape, once for each input: input=1x3x48x192.
type Shapes map[string][]int

// Decode implements kong.MapperValue.
func (s Shapes) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("shape", &text); err != nil {
		return err
	}
	name, dims, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return fmt.Errorf("%s: want input=1x3x48x192", text)
	}
	if s[name] != nil {
		return fmt.Errorf("%s: input %q already has a shape", text, name)
	}
	s[name] = []int{}
	for _, d := range strings.Split(dims, "x") {
		if dims == "" { // a scalar
			break
		}
		n, err := strconv.Atoi(d)
		if err != nil || n < 0 {
			return fmt.Errorf("%s: %q is not a dimension", text, d)
		}
		s[name] = append(s[name], n)
	}
	return nil
}

// Progress shows how far long work has come, on a terminal in one line with the time left, elsewhere by a line for every
// phase that takes long. clear takes the line away, before something else is printed. With quiet nothing is shown, and tell is
// nil.
func Progress(stderr io.Writer, quiet bool) (tell func(console.Event), clear func()) {
	if quiet {
		return nil, func() {}
	}
	if w, ok := stderr.(console.EscapeWriter); ok {
		stderr = w.Writer
	}
	if f, ok := stderr.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			line := console.NewLine(f, func() int { return columns(f) }, time.Now)
			return line.Tell, line.Clear
		}
	}
	return console.Lines(stderr), func() {}
}

// columns is the width of a terminal; 0: not known.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// JSON prints a value, indented.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(v)
}
