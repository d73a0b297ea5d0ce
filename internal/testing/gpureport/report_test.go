package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/bench"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/golden"
	"github.com/spark-compile/spark-compile/runtime"
)

const steps = `ok    vectors (12.3 s)
      mma.sync: sums in f32
ok    machine (40.1 s)
FAIL  golden vision fp16 (exit status 1, 2.0 s)
LIMIT bench vision fp16 (45.0 s)
skip  profile vision fp16 (no ncu)
LATE  peer vision fp16 compile (the script's time is up)
`

func program(model, precision string) report.Program {
	return report.Program{Model: model, Target: "sm_90", Precision: precision}
}

func summary(ms float64) *report.Summary { return &report.Summary{P50: ms} }

// results of an H100 that is invented. Policy is measured, vision is not.
func write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	rank := 0.5
	machine := cost.File{Format: cost.FileFormat, Target: "sm_90", Device: "NVIDIA H100 80GB HBM3", Backend: "cuda",
		Figures: map[string]cost.Figure{"evict_first": figure(0.1, 0.2, 0.3), "launch_us": figure(0.7, 0.8, 0.9)},
		Left:    map[string]string{"exposed": "no measurement shows it alone"},
		Also:    map[string]cost.Figure{"pinned_gbps": figure(20, 21, 22)}}
	policy := bench.Result{Program: program("policy.onnx", "fp16"), Summary: *summary(0.066),
		LaunchToLaunch: summary(0.05), Cold: summary(0.06), Predicted: &bench.Predicted{Rank: &rank}}
	// Ratios 1, 2 … 11 and 1/12: of 12 launches the two nearest are left out.
	for i := range 12 {
		us, by, predicted := float64(i+1), "L2", 1.
		if i == 11 {
			us, by = 1./12, "DRAM"
		}
		kernel := "kernel" + string(rune('a'+i))
		policy.Layers = append(policy.Layers, bench.Layer{Index: i, Kernel: kernel, MS: us / 1e3, PredictedUS: &predicted, By: by})
	}
	ablated := bench.Result{Program: program("policy.onnx", "fp16"), Ablations: []bench.Ablation{
		{Mechanism: "pdl", LaunchToLaunch: &bench.Contrast{OnMS: 0.05, OffMS: 0.06, Ratio: 1.2, P: 1e-9}},
		{Mechanism: "hints", LaunchToLaunch: &bench.Contrast{OnMS: 0.05, OffMS: 0.045, Ratio: 0.9, P: 1e-9},
			Cold: &bench.Contrast{Ratio: 1.5, P: 0.5}},
		{Mechanism: "carveout", LaunchToLaunch: &bench.Contrast{Ratio: 0.9, P: 1e-9},
			Cold: &bench.Contrast{Ratio: 1.1, P: 1e-9}},
		{Mechanism: "prefetch", Unused: "no launch prefetches"},
	}}
	prediction := func(model string, us cost.Figure) report.Prediction {
		return report.Prediction{Program: program(model, "fp16"), US: us.Middle, Range: us,
			ColdRange: figure(50, 55, 60), Waited: figure(60, 65, 71)}
	}
	golden := report.Report{Outputs: []report.Output{{Metrics: runtime.Metrics{Cosine: 0.9999999, RelL2: 1e-4}},
		{Metrics: runtime.Metrics{Cosine: 0.9999, RelL2: 2e-3}}}}
	put(t, dir, "summary.txt", steps)
	put(t, dir, "machine.json", encoded(t, machine))
	benched := func(step string, r bench.Result) string {
		return lineOf(t, step, bench.Report{Version: bench.Version, Device: "NVIDIA H100 80GB HBM3 (cuda)",
			Results: []bench.Result{r}})
	}
	put(t, dir, "bench.jsonl", benched("ablate vision fp16", bench.Result{Program: program("vision.onnx", "fp16")})+
		benched("bench policy fp16", policy)+benched("ablate policy fp16", ablated))
	put(t, dir, "reports.jsonl", lineOf(t, "predicted", []report.Prediction{
		prediction("policy.onnx", figure(36, 40, 48)), prediction("vision.onnx", figure(115, 133, 203))})+
		lineOf(t, "golden policy fp16: policy_1", golden)+
		peerLine(`"mode": "graph", "wall": {"p50_ms": 0.2}, "event": {"p50_ms": 0.125}`)+
		peerLine(`"mode": "compile", "error": "no memory"`))
	return dir
}

func figure(low, middle, high float64) cost.Figure {
	return cost.Figure{Low: low, Middle: middle, High: high}
}

func peerLine(fields string) string {
	return `{"step": "peer policy", "report": {"model": "policy.onnx", "asked": "fp16", ` + fields + "}}\n"
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

func encoded(t *testing.T, x any) string {
	t.Helper()
	raw, err := json.Marshal(x)
	require.NoError(t, err)
	return string(raw)
}

func lineOf(t *testing.T, step string, x any) string {
	t.Helper()
	return encoded(t, map[string]any{"step": step, "report": x}) + "\n"
}

func markdown(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, run(&b, "", "", "", 0, []string{dir}))
	return b.String()
}

func TestReport_PredictedNextToMeasured(t *testing.T) {
	text := markdown(t, write(t))
	for _, want := range []string{
		"# H100\n\n6 steps: 2 passed, 1 skipped.\n\n- FAIL: `golden vision fp16` (exit status 1, 2.0 s)\n",
		"- LIMIT: `bench vision fp16` (45.0 s)\n",
		// 50 µs measured for 40 predicted.
		"| H100 | policy | fp16 | 40.0 (36.0–48.0) | 55.0 (50.0–60.0) | 65.0 (60.0–71.0) " +
			"| 50.0 | 60.0 | 66.0 | 1.25 | 0.50 | graph fp16 125 |\n",
		"| H100 | vision | fp16 | 133 (115–203) | 55.0 (50.0–60.0) | 65.0 (60.0–71.0) |  |  |  |  |  |  |\n",
		"- policy.onnx, compile of fp16: no memory\n- not measured: vision.onnx in fp16\n",
		"| policy fp16: policy_1 | 0.9999000 | 0.002 |\n",
		// (11!)^(1/11) = 4.91.
		"| DRAM | 1 | 0.08 |\n| L2 | 11 | 4.91 |\n",
		"| policy fp16 | 11 | `kernell` |  | DRAM | 1 | 0.0833 | 0.08 |\n" +
			"| policy fp16 | 10 | `kernelk` |  | L2 | 1 | 11.0 | 11.00 |\n",
		"| policy fp16 | pdl | 50.0 | 60.0 | 1.200 |  | |  | keep |\n",
		"| policy fp16 | hints | 50.0 | 45.0 | 0.900 | 0 | 0 | 1.500 | **off by default** |\n",
		"| policy fp16 | prefetch |  | | | | | | not measured: no launch prefetches |\n",
		"| `evict_first` | share | 1 (0–1) | 0.2 (0.1–0.3) |  |\n",
		"| `exposed` | share | 0.1 (0–0.3) | – no measurement shows it alone |  |\n",
		"| `pinned_gbps` | | | 21.0 (20.0–22.0) | not read by the model |\n",
		"## Decisions\n\n- `evict_first` is 0.2 (< 0.5): eviction hints off by default",
		"- policy.onnx fp16 takes 50.0 µs, outside the predicted 40.0 (36.0–48.0): see Terms\n",
		"- policy.onnx fp16: launches rank by 0.50, less than 0.8: ",
		"- policy.onnx fp16, hints: **off by default**\n- policy.onnx fp16, carveout: helps one and harms the other",
	} {
		require.Contains(t, text, want)
	}
	require.Equal(t, worst, strings.Count(text, "| `kernel"))
	require.NotContains(t, text, "`kernela`", "it takes what is predicted")
	require.NotContains(t, text, "- `launch_us`", "0.8 µs is not more than 1")
	require.NotContains(t, text, "policy.onnx fp16, pdl")
}

// TestReport_OfPartOfTheResults: whatever a script that was killed has left.
func TestReport_OfPartOfTheResults(t *testing.T) {
	for name, want := range map[string]string{
		"machine.json":  "missing: machine.json (step `machine`): no constant is measured",
		"bench.jsonl":   "missing: bench.jsonl: no program is measured",
		"reports.jsonl": "missing: reports.jsonl: neither predictions, golden outputs nor peers",
	} {
		dir := write(t)
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
		require.Contains(t, markdown(t, dir), want)
		if name != "machine.json" {
			put(t, dir, name, "")
			require.Contains(t, markdown(t, dir), want)
		}
	}
	dir := write(t)
	raw, err := os.ReadFile(filepath.Join(dir, "bench.jsonl"))
	require.NoError(t, err)
	put(t, dir, "bench.jsonl", strings.TrimSuffix(string(raw), "}\n"))
	text := markdown(t, dir)
	require.Contains(t, text, "missing: bench.jsonl: the last line is cut off")
	require.Contains(t, text, "| 1.25 | 0.50 |")
	require.NotContains(t, text, "## Mechanisms")

	// PyTorch's sums may overflow, and Python's JSON has numbers that JSON has not.
	dir = write(t)
	raw, err = os.ReadFile(filepath.Join(dir, "reports.jsonl"))
	require.NoError(t, err)
	put(t, dir, "reports.jsonl", peerLine(`"rel_l2": NaN`)+string(raw))
	text = markdown(t, dir)
	require.Contains(t, text, "missing: reports.jsonl:1: left out: invalid character 'N'")
	require.Contains(t, text, "| 1.25 | 0.50 | graph fp16 125 |")
}

// TestReport_DeviceOfAProgram: without machine.json, what measured a program names the device.
func TestReport_DeviceOfAProgram(t *testing.T) {
	dir := write(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "machine.json")))
	require.Contains(t, markdown(t, dir), "# H100\n")
	require.NoError(t, os.Remove(filepath.Join(dir, "bench.jsonl")))
	require.Contains(t, markdown(t, dir), "# unknown device\n")
	require.ErrorContains(t, run(&bytes.Buffer{}, "doc.md", "", "", 0, []string{dir}), "unknown device: nothing is filled in")
}

func TestReport_ErrorsNameFileAndFault(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"summary.txt", "", "summary.txt: no line of a step"},
		{"machine.json", "{", "machine.json: unexpected end"},
		{"machine.json", `{"format": 1, "target": "sm_90"}`, "machine.json: a machine file of format 1"},
		{"machine.json", `{"format": 2, "target": "sm_90", "figures": {"speed": {}}}`, `json: no constant "speed"`},
		{"bench.jsonl", "{}\n", "bench.jsonl:1: no step"},
		{"bench.jsonl", `{"step": "bench vision", "report": {"version": 9}}` + "\n",
			`bench.jsonl:1: report version 9 of step "bench vision", want 1`},
		{"reports.jsonl", `{"step": "predicted", "report": {}}` + "\n", "reports.jsonl:1: json: cannot unmarshal"},
	} {
		dir := write(t)
		put(t, dir, c.name, c.text)
		require.ErrorContains(t, run(&bytes.Buffer{}, "", "", "", 0, []string{dir}), c.want)
	}
	none := &bytes.Buffer{}
	require.ErrorContains(t, run(none, "", "", "", 0, []string{t.TempDir()}), "summary.txt: no such file or directory: want ")
	require.ErrorContains(t, run(none, "", "", "", 0, nil), "want one argument")
	require.ErrorContains(t, run(none, "", "p.json", "", 0, nil), "-predicted goes with -fill and -device")
}

// TestReport_OfADryRun: the CPU device's figures are no constants, and decide nothing.
func TestReport_OfADryRun(t *testing.T) {
	dir := write(t)
	put(t, dir, "machine.json", `{"format": 2, "target": "sm_90", "device": "cpu", "backend": "emu",
		"dry_run": "made on a CPU", "figures": {"evict_first": {"low": 0, "middle": 0.1, "high": 1}}}`)
	text := markdown(t, dir)
	require.Contains(t, text, "# cpu\n\n**This describes no GPU**: made on a CPU.\n")
	require.NotContains(t, text, "## Decisions")

	header := strings.Join(columns, ",") + "\n"
	put(t, dir, "times.csv", header)
	doc := filepath.Join(dir, "times.csv")
	require.ErrorContains(t, run(&bytes.Buffer{}, doc, "", "", 0, []string{dir}), "made on a CPU: nothing is filled in")
	require.NoError(t, os.Remove(filepath.Join(dir, "machine.json")))
	put(t, dir, "bench.jsonl", lineOf(t, "bench policy fp16", bench.Report{Version: bench.Version, Device: "cpu (emu)"}))
	require.ErrorContains(t, run(&bytes.Buffer{}, doc, "", "", 0, []string{dir}), "CPU device: nothing is filled in")
	require.NotContains(t, markdown(t, dir), "## Decisions")
	raw, err := os.ReadFile(doc)
	require.NoError(t, err)
	require.Equal(t, header, string(raw))
}

func TestFill_ReplacesRowsOfTheSameProgram(t *testing.T) {
	dir := t.TempDir()
	doc, predicted := filepath.Join(dir, "times.csv"), filepath.Join(dir, "predicted.json")
	header := strings.Join(columns, ",") + "\n"
	put(t, dir, "times.csv", header)
	policy := []report.Prediction{{Program: program("policy.onnx", "fp16"), Range: figure(1, 2, 3)}}
	put(t, dir, "predicted.json", encoded(t, policy))
	read := func() string {
		raw, err := os.ReadFile(doc)
		require.NoError(t, err)
		return string(raw)
	}
	require.NoError(t, run(&bytes.Buffer{}, doc, predicted, "GB10", 0, nil))
	require.NoError(t, run(&bytes.Buffer{}, doc, predicted, "H100", 0, nil))
	zero := ",policy,fp16,2 (1–3),0 (0–0),0 (0–0),"
	require.Equal(t, header+"GB10"+zero+",,\nH100"+zero+",,\n", read())

	require.NoError(t, run(&bytes.Buffer{}, doc, "", "", 0, []string{write(t)}))
	measured := "40.0 (36.0–48.0),55.0 (50.0–60.0),65.0 (60.0–71.0),50.0,60.0,66.0\n"
	require.Contains(t, read(), "GB10"+zero+",,\nH100,policy,fp16,"+measured+"H100,vision,")
	require.NoError(t, run(&bytes.Buffer{}, doc, predicted, "H100", 0, nil))
	require.Contains(t, read(), "H100"+zero+"50.0,60.0,66.0\n", "new predictions leave what was measured")

	for text, want := range map[string]string{"": "want the columns device,", "one,two\n": "want the columns device,",
		header + "one\n": "wrong number of fields"} {
		put(t, dir, "times.csv", text)
		require.ErrorContains(t, run(&bytes.Buffer{}, doc, predicted, "H100", 0, nil), want)
	}
}

func TestLongest_LeavesOutCopies(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "profile.json")
	kernels := []profile.Sum{{Kernel: "first"}, {Kernel: "copy"}, {}, {Kernel: "second"}, {Kernel: "third"}}
	put(t, dir, "profile.json", encoded(t, map[string]any{"profile": profile.Profile{Kernels: kernels}}))
	var b bytes.Buffer
	require.NoError(t, run(&b, "", "", "", 2, []string{path}))
	require.Equal(t, "first\nsecond\n", b.String())
	require.ErrorContains(t, run(&b, "", "", "", 4, []string{path}), "3 kernels, want 4")
	put(t, dir, "profile.json", "{}")
	require.ErrorContains(t, run(&b, "", "", "", 1, []string{path}), "no profile")
}

func TestLevers_NameConstants(t *testing.T) {
	names := map[string]bool{}
	for _, on := range target.All() {
		for _, c := range cost.Of(on).All() {
			names[c.Name] = true
		}
	}
	for _, l := range levers {
		require.True(t, names[l.constant], l.constant)
		require.True(t, l.of == "" || l.of == "published" || names[l.of], l.of)
	}
	figures := map[string]cost.Figure{"launch_us": {Middle: 1}, "launch_plain_us": {Middle: 1.05},
		"clock_ghz": {Middle: 1.5}, "atomic_us": {Middle: 2}}
	var pulled []string
	for _, l := range levers {
		if yes, _ := l.pulled(figures, 2); yes {
			pulled = append(pulled, l.constant+" "+l.condition())
		}
	}
	want := []string{"clock_ghz < 0.8 × published", "launch_plain_us < 1.1 × `launch_us`", "atomic_us > 1"}
	require.Equal(t, want, pulled)
	delete(figures, "launch_us")
	at := slices.IndexFunc(levers, func(l lever) bool { return l.constant == "launch_plain_us" })
	_, known := levers[at].pulled(figures, 2)
	require.False(t, known)
}

// TestLevers_AreListed: docs/data/gpu-decisions.csv says what each constant decides. UPDATE=1 writes it.
func TestLevers_AreListed(t *testing.T) {
	golden.CSV(t, filepath.Join("..", "..", "..", "docs", "data", "gpu-decisions.csv"), leverTable())
}

// TestTimes_HaveTheColumns: docs/data/gpu-times.csv can be filled in.
func TestTimes_HaveTheColumns(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "data", "gpu-times.csv"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "times.csv")
	require.NoError(t, os.WriteFile(path, raw, 0o644))
	require.NoError(t, fillFile(path, nil))
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(raw), string(have))
}
