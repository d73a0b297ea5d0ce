package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/bench/machine"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/target"
)

// measureMachine measures the constants of the cost model on the device, prints them next to the published ones,
// and writes the machine file.
func (s *session) measureMachine(ctx context.Context) error {
	switch {
	case len(s.Models) > 0:
		return errors.New("--machine measures the device alone: leave out the models")
	case s.Predict || s.MachineFile != "" || s.Baseline != "" || s.HTML != "" || s.JSON != "" || s.Concurrent || s.Layers:
		return errors.New("--machine goes with -o, --device and --quiet alone")
	}
	if s.Output != "" {
		if err := report.CheckPath(s.Output); err != nil {
			return err
		}
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	defer s.device.Close()
	f, err := machine.Measure(ctx, s.device, machine.Options{Note: func(text string) { s.note("measuring " + text) }})
	if err != nil {
		err = detect.Explain(err)
	}
	if f == nil {
		return err
	}
	return errors.Join(err, s.keepMachine(ctx, f))
}

// keepMachine prints what was found and writes the machine file.
func (s *session) keepMachine(ctx context.Context, f *cost.File) error {
	if s.device.Info().Target != "" {
		f.State = s.state(ctx, s.device.Info().Name)
		if off := s.device.Info().Switches.Off(); len(off) > 0 {
			f.State["switched off"] = strings.Join(off, ", ")
		}
	}
	if err := machineTable(s.out, f); err != nil || s.Output == "" {
		return err
	}
	return atomicfile.WriteJSON(s.Output, f)
}

// state describes the device right after the measurement, in words for whoever reads the file.
func (s *session) state(ctx context.Context, name string) map[string]string {
	out := map[string]string{}
	source, err := nvml.Open(nvml.Options{})
	if err != nil {
		out["unknown"] = err.Error()
		return out
	}
	defer source.Close()
	seen, err := source.Read(ctx)
	if err != nil {
		out["unknown"] = err.Error()
		return out
	}
	out["driver"] = seen.Driver
	for i := range seen.GPUs {
		if g := &seen.GPUs[i]; g.Name == name || len(seen.GPUs) == 1 {
			for what, x := range map[string]nvml.Figure{"clock MHz": g.ClockMHz, "power W": g.PowerWatts, "temperature °C": g.Celsius} {
				if x.OK {
					out[what] = fmt.Sprintf("%.0f", x.Value)
				}
			}
			out["capped"] = fmt.Sprint(g.Capped())
		}
	}
	return out
}

// machineTable prints every constant: the published value, what was found, and what else was measured.
func machineTable(w io.Writer, f *cost.File) error {
	on, err := target.Lookup(f.Target)
	if err != nil {
		return err
	}
	m := cost.Of(on)
	fmt.Fprintf(w, "%s (%s), as %s\n", f.Device, f.Backend, f.Target)
	if f.DryRun != "" {
		fmt.Fprintf(w, "this describes no GPU: %s\n", f.DryRun)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "constant\tunit\tpublished\tfrom\tto\tmeasured\tfrom\tto\twhat\n")
	for _, c := range m.All() {
		p := m.Figure(c)
		found := []string{"–", "", ""}
		what := c.What
		if x, ok := f.Figures[c.Name]; ok {
			found = []string{digits(x.Middle), digits(x.Low), digits(x.High)}
		} else if why := f.Left[c.Name]; why != "" {
			what += " (" + why + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, c.Unit, digits(p.Middle), digits(p.Low), digits(p.High), strings.Join(found, "\t"), what)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Also)) {
		x := f.Also[name]
		fmt.Fprintf(t, "%s\t\t\t\t\t%s\t%s\t%s\tnot read by the model\n", name, digits(x.Middle), digits(x.Low), digits(x.High))
	}
	return t.Flush()
}

func digits(x float64) string { return fmt.Sprintf("%.3g", x) }
