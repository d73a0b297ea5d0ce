package compile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	pythonpkg "github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
)

// The peer answers each line of its input with the milliseconds of processor time of one run in ONNX
// Runtime, on one core. Files that fix
// the batch as 1 get another leading dimension, where that is all that fixes it; the others run as often as the batch says.
const onnxRuntimePeer = `
import sys, time, numpy as np, onnx, onnxruntime as ort
ort.set_default_logger_severity(4)
file, batch = sys.argv[1], int(sys.argv[2])
model = onnx.load(file)
weights = {w.name for w in model.graph.initializer}
for v in list(model.graph.input) + list(model.graph.output):
    if v.name not in weights and v.type.tensor_type.shape.dim:
        v.type.tensor_type.shape.dim[0].dim_value = batch
del model.graph.value_info[:]
o = ort.SessionOptions()
o.intra_op_num_threads = o.inter_op_num_threads = 1
def opened(source, batch):
    s = ort.InferenceSession(source, o, providers=["CPUExecutionProvider"])
    t = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8, "tensor(int64)": np.int64}
    x = {i.name: np.zeros([batch] + list(i.shape[1:]), t[i.type]) for i in s.get_inputs()}
    s.run(None, x)
    return s, x
times = 1
try:
    s, x = opened(model.SerializeToString(), batch)
except Exception:
    (s, x), times = opened(file, 1), batch
for _ in sys.stdin:
    a = time.process_time()
    for _ in range(times):
        s.run(None, x)
    print((time.process_time() - a) * 1e3, flush=True)
`

// peer is ONNX Runtime with a model.
type peer struct {
	in  io.Writer
	out *bufio.Reader
}

func newPeer(b *testing.B, file string, batch int) *peer {
	interpreter, err := pythonpkg.FindPython()
	if err != nil {
		b.Skip(err)
	}
	cmd := exec.CommandContext(b.Context(), interpreter, "-c", onnxRuntimePeer, file, strconv.Itoa(batch))
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	return &peer{in, bufio.NewReader(out)}
}

// run is the milliseconds of one run.
func (p *peer) run(b *testing.B) float64 {
	_, err := fmt.Fprintln(p.in)
	require.NoError(b, err)
	line, err := p.out.ReadString('\n')
	if err == io.EOF {
		b.Skip("this Python has no ONNX Runtime, or that cannot run the model")
	}
	require.NoError(b, err)
	ms, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	require.NoError(b, err)
	return ms
}

// BenchmarkONNXRuntime runs models on the CPU device and in ONNX Runtime in turn, each on one core: the median
// milliseconds of processor time of both, and the median of the ratios of neighbouring runs, with quartiles. Waiting for
// a core that others have does not count, but what they do to caches and clock does.
func BenchmarkONNXRuntime(b *testing.B) {
	for _, m := range []struct{ file, precision string }{
		{"models/dmonitoring_model", "fp16"}, {"models/driving_policy", "fp16"}, {"peers/controls/tinyphysics", "fp32"},
		{"peers/controls/tinyphysics", "fp16"},
	} {
		file := filepath.Join("..", "..", "..", "shared", m.file+".onnx")
		for _, batch := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%s/batch=%d", filepath.Base(m.file), m.precision, batch), func(b *testing.B) {
				if _, err := os.Stat(file); err != nil {
					b.Skip("no models beside the repository: ", err)
				}
				run, theirs := onOneCore(b, file, m.precision, batch), newPeer(b, file, batch)
				var ours, ratios, peers []float64
				for b.Loop() {
					ort := theirs.run(b)
					before := processorTime(b)
					run()
					ms := (processorTime(b) - before).Seconds() * 1e3
					ours, peers, ratios = append(ours, ms), append(peers, ort), append(ratios, ms/ort)
				}
				for _, s := range [][]float64{ours, peers, ratios} {
					slices.Sort(s)
				}
				b.ReportMetric(peers[len(peers)/2], "ort-ms")
				b.ReportMetric(ours[len(ours)/2], "ms")
				b.ReportMetric(ratios[len(ratios)/2], "ratio")
				b.ReportMetric(ratios[len(ratios)/4], "ratio-25%")
				b.ReportMetric(ratios[len(ratios)*3/4], "ratio-75%")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// processorTime is that of this process.
func processorTime(b *testing.B) time.Duration {
	var t unix.Timespec
	require.NoError(b, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}

// onOneCore returns what runs a model on the CPU device with one worker.
func onOneCore(b *testing.B, file, precision string, batch int) (run func()) {
	ctx := context.Background()
	m, err := onnx.Load(file)
	require.NoError(b, err)
	opt := Options{Precision: precision, Targets: []string{"sm_121"}}
	opt.Import.Batch = batch
	r, err := Compile(ctx, m, opt)
	require.NoError(b, err)
	d, err := emu.Open(emu.Options{Workers: 1})
	require.NoError(b, err)
	loaded, err := runtime.NewModel(ctx, r.Program, d, runtime.ModelOptions{})
	require.NoError(b, err)
	s, err := loaded.NewSession(ctx, runtime.SessionOptions{})
	require.NoError(b, err)
	run = func() { require.NoError(b, s.Run(ctx)) }
	run()
	return run
}
