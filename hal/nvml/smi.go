package nvml

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// smi runs nvidia-smi and parses its output.
type smi struct {
	path    string
	timeout time.Duration
	columns []string
}

// allColumns are the columns to query. Some versions of nvidia-smi lack some of them; Read drops those that are
// rejected.
var allColumns = []string{
	"index", "name", "uuid", "pci.bus_id", "driver_version", "compute_cap", "memory.total", "memory.used", "clocks.sm", "clocks.max.sm", "clocks.mem",
	"power.draw", "power.limit", "temperature.gpu", "utilization.gpu", "clocks_throttle_reasons.active",
}

func openSMI(opt Options) (Source, error) {
	path := opt.SMI
	if path == "" {
		path = "nvidia-smi"
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return nil, errors.New("nvidia-smi is not installed")
	}
	if opt.Timeout == 0 {
		opt.Timeout = 10 * time.Second
	}
	return &smi{path: path, timeout: opt.Timeout, columns: allColumns}, nil
}

func (s *smi) Name() string { return "nvidia-smi" }
func (s *smi) Close() error { return nil }

func (s *smi) Read(ctx context.Context) (Snapshot, error) {
	columns := s.columns
	for {
		out, err := s.run(ctx, "--query-gpu="+strings.Join(columns, ","), "--format=csv,noheader,nounits")
		if unknown := unknownColumn(out); err != nil && slices.Contains(columns, unknown) && len(columns) > 1 {
			columns = slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return c == unknown })
			continue
		}
		if err != nil {
			return Snapshot{}, err
		}
		return parseSMI(columns, out)
	}
}

// run runs nvidia-smi and kills it after the timeout: it hangs if the driver does.
func (s *smi) run(ctx context.Context, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, s.timeout)
	defer stop()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, s.path, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // a child of a wrapper script may hold the pipe open
	err := cmd.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("nvidia-smi did not answer within %v: the driver hangs", s.timeout)
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		text, _, _ := strings.Cut(strings.TrimSpace(out.String()), "\n")
		return out.String(), fmt.Errorf("nvidia-smi: %w: %s", err, clip(text))
	}
	return out.String(), nil
}

// clip shortens text of other programs to fit an error message.
func clip(s string) string {
	const limit = 200
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

var reUnknownColumn = regexp.MustCompile(`Field "([^"]+)" is not a valid field to query`)

func unknownColumn(out string) string {
	if m := reUnknownColumn.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

// parseSMI parses the table. Rows with the wrong number of cells or without a numeric index are errors.
func parseSMI(columns []string, out string) (Snapshot, error) {
	s := Snapshot{GPUs: []GPU{}}
	if t := strings.TrimSpace(out); t == "" || strings.HasPrefix(t, "No devices were found") {
		return s, nil
	}
	r := csv.NewReader(strings.NewReader(out))
	r.TrimLeadingSpace, r.FieldsPerRecord, r.LazyQuotes = true, len(columns), true
	rows, err := r.ReadAll()
	if err != nil {
		return s, fmt.Errorf("nvidia-smi did not print its table: %q", clip(strings.TrimSpace(out)))
	}
	for _, row := range rows {
		cells := map[string]string{}
		for i, c := range columns {
			cells[c] = strings.TrimSpace(row[i])
		}
		g, err := parseRow(cells)
		if err != nil {
			return Snapshot{}, err
		}
		if d := cells["driver_version"]; present(d) {
			s.Driver = d
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s, nil
}

func parseRow(cells map[string]string) (GPU, error) {
	index, err := strconv.Atoi(cells["index"])
	if err != nil || index < 0 {
		return GPU{}, fmt.Errorf("nvidia-smi: %q is not the index of a GPU", clip(cells["index"]))
	}
	const mebi = 1 << 20
	g := GPU{Index: index, Name: text(cells["name"]), UUID: text(cells["uuid"]), Bus: strings.ToLower(text(cells["pci.bus_id"])),
		MemoryTotal: number(cells["memory.total"], mebi), MemoryUsed: number(cells["memory.used"], mebi),
		ClockMHz: number(cells["clocks.sm"], 1), ClockMax: number(cells["clocks.max.sm"], 1), MemoryMHz: number(cells["clocks.mem"], 1),
		PowerWatts: number(cells["power.draw"], 1), PowerLimit: number(cells["power.limit"], 1),
		Celsius: number(cells["temperature.gpu"], 1), Utilisation: number(cells["utilization.gpu"], 1)}
	if g.MemoryTotal.OK && g.MemoryTotal.Value == 0 {
		g.MemoryTotal, g.MemoryUsed = Figure{}, Figure{}
	}
	if major, minor, ok := strings.Cut(cells["compute_cap"], "."); ok {
		a, errA := strconv.Atoi(major)
		b, errB := strconv.Atoi(minor)
		if errA == nil && errB == nil {
			g.Major, g.Minor = a, b
		}
	}
	if bits, err := strconv.ParseUint(cells["clocks_throttle_reasons.active"], 0, 64); err == nil {
		g.Throttle = Reasons(bits)
	}
	return g, nil
}

// present reports whether a cell has a value: nvidia-smi prints [N/A], [Not Supported] or [Unknown Error] instead of
// one.
func present(cell string) bool {
	return cell != "" && cell != "N/A" && !strings.HasPrefix(cell, "[")
}

func text(cell string) string {
	if !present(cell) {
		return ""
	}
	return cell
}

func number(cell string, unit float64) Figure {
	v, err := strconv.ParseFloat(cell, 64)
	if !present(cell) || err != nil || v < 0 || v != v {
		return Figure{}
	}
	return Known(v * unit)
}
