package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/webpage"
	"github.com/spark-compile/spark-compile/runtime"
)

const (
	timelineRuns   = 21 // of which each stamp's median is reported
	timelineWarmup = 3
	timelineDry    = 2 // runs on the CPU device, whose interpreter alone has a clock
)

// Timeline is when the launches of a run were seen to run, by stamps that kernels write.
type Timeline struct {
	Runs         int                   `json:"runs"`
	ResolutionNS int                   `json:"resolution_ns"` // of the device's clock: its least step
	RefinedNS    int                   `json:"refined_ns"`    // how well times are known where cycle counters refine a coarse clock; else its step
	StampedMS    float64               `json:"stamped_ms"`    // median time of a run with stamps, to compare with that of Samples
	Launches     []TimelineLaunch      `json:"launches"`      // medians
	Last         []profile.LaunchTimes `json:"last"`          // the last run as it was
}

// TimelineLaunch is a launch on the timeline.
type TimelineLaunch struct {
	profile.LaunchTimes
	PredictedUS float64 `json:"predicted_us,omitempty"`
}

// String is what the page shows of a launch.
func (l *TimelineLaunch) String() string {
	us := func(ns int) float64 { return float64(ns) / 1e3 }
	text := fmt.Sprintf("launch %d: %s; begun at %.2f µs, released at %.2f, ended at %.2f", l.Index, l.Note, us(l.Begun), us(l.Released), us(l.Ended))
	if l.PredictedUS > 0 {
		text += fmt.Sprintf("; predicted %.2f µs", l.PredictedUS)
	}
	return text
}

// timeline runs the program with stamps in its kernels.
func timeline(ctx context.Context, p *runtime.Program, v *runtime.Variant, d hal.Device, w *watcher) (*Timeline, error) {
	stamped, err := profile.WithTimeline(p, v.Target)
	if err != nil {
		return nil, err
	}
	s, err := Open(ctx, stamped, d, v.Target)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	t := &Timeline{Runs: timelineRuns}
	warmup := timelineWarmup
	if !hasClock(d) {
		t.Runs, warmup = timelineDry, 0
	}
	var runs []*profile.Timeline
	var took []float64
	err = w.during(func() error {
		for i := range warmup + t.Runs {
			one, err := s.Replay(ctx, hal.Timing{})
			if err != nil {
				return err
			}
			r, err := profile.ReadTimeline(s, "run")
			if err != nil {
				return err
			}
			if i >= warmup {
				runs, took = append(runs, r), append(took, report.Milliseconds(one))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.StampedMS = report.Summarise(took).P50
	t.summarise(runs)
	return t, nil
}

// summarise takes the medians of runs, and how well times are known.
func (t *Timeline) summarise(runs []*profile.Timeline) {
	middle := func(of func(r *profile.Timeline) int) int {
		var x []int
		for _, r := range runs {
			x = append(x, of(r))
		}
		slices.Sort(x)
		return x[len(x)/2]
	}
	t.Last = runs[len(runs)-1].Launches
	for i := range t.Last {
		l := t.Last[i]
		l.Begun = middle(func(r *profile.Timeline) int { return r.Launches[i].Begun })
		l.Released = middle(func(r *profile.Timeline) int { return r.Launches[i].Released })
		l.Ended = middle(func(r *profile.Timeline) int { return r.Launches[i].Ended })
		t.Launches = append(t.Launches, TimelineLaunch{LaunchTimes: l})
	}
	t.ResolutionNS = middle(func(r *profile.Timeline) int { return r.TickNS })
	t.RefinedNS = middle(func(r *profile.Timeline) int { return cmp.Or(r.RefinedNS, r.TickNS) })
}

// traceEvent is an event of the Trace Event Format, which Perfetto and chrome://tracing read. Times are in microseconds.
type traceEvent struct {
	Name     string         `json:"name"`
	Phase    string         `json:"ph"`
	Category string         `json:"cat,omitempty"`
	Begin    float64        `json:"ts"`
	Took     float64        `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]any `json:"args,omitempty"`
}

// WriteTrace writes the timelines of a report as a trace: a process for each model and precision; launches that overlap are in several rows.
func (r *Report) WriteTrace(path string) error {
	events := []traceEvent{}
	for i := range r.Results {
		x := &r.Results[i]
		if x.Timeline == nil {
			continue
		}
		events = append(events, traceEvent{Name: "process_name", Phase: "M", Process: i, Args: map[string]any{"name": x.Model + " " + x.Precision}})
		var free []int // when the last bar of a row ends
		for _, l := range x.Timeline.Launches {
			row := slices.IndexFunc(free, func(end int) bool { return end <= l.Begun })
			if row < 0 {
				row, free = len(free), append(free, 0)
			}
			free[row] = l.Ended
			us := func(ns int) float64 { return float64(ns) / 1e3 }
			name := fmt.Sprintf("%d %s", l.Index, l.Kernel)
			args := map[string]any{"note": l.Note}
			if l.PredictedUS > 0 {
				args["predicted_us"] = l.PredictedUS
			}
			if l.Released > l.Begun {
				events = append(events, traceEvent{Name: name + " waits", Phase: "X", Category: "wait", Begin: us(l.Begun), Took: us(l.Released - l.Begun), Process: i, Thread: row})
			}
			events = append(events, traceEvent{Name: name, Phase: "X", Category: "work", Begin: us(l.Released), Took: us(l.Ended - l.Released), Process: i, Thread: row, Args: args})
		}
	}
	raw, err := json.MarshalIndent(map[string]any{"displayTimeUnit": "ns", "traceEvents": events}, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(raw, '\n'))
}

// span is a bar on the timeline's axis, in percent of it.
type span struct{ From, Width float64 }

// timelineRow is a launch on the page.
type timelineRow struct {
	Launch, Title, Took string
	Waits, Works        span
	Predicted           *span
}

// tick is a mark on the timeline's axis, in percent of it.
type tick struct {
	At    float64
	Label string
}

// Axis are the marks of the timeline's axis, in µs.
func (t *Timeline) Axis() (out []tick) {
	x := t.scale()
	ticks := x.Ticks()
	for i, label := range x.Labels(ticks) {
		out = append(out, tick{x.At(ticks[i]), label})
	}
	return out
}

// scale maps µs to percent of the axis.
func (t *Timeline) scale() webpage.Scale {
	ends := []float64{0, 1}
	for _, l := range t.Launches {
		ends = append(ends, float64(l.Ended)/1e3)
	}
	return webpage.NewScale(ends, 0, 100, false)
}

// Rows are the launches.
func (t *Timeline) Rows() (out []timelineRow) {
	x := t.scale()
	bar := func(from, to float64) span { return span{x.At(from), x.At(min(to, x.High)) - x.At(from)} }
	for i := range t.Launches {
		l := &t.Launches[i]
		begun, released, ended := float64(l.Begun)/1e3, float64(l.Released)/1e3, float64(l.Ended)/1e3
		row := timelineRow{Launch: fmt.Sprintf("#%d %s", l.Index, l.Kernel), Title: l.String(), Took: fmt.Sprintf("%.2f", ended-released),
			Waits: bar(begun, released), Works: bar(released, ended)}
		if l.PredictedUS > 0 {
			predicted := bar(released, released+l.PredictedUS)
			row.Predicted = &predicted
		}
		out = append(out, row)
	}
	return out
}
