// Package config reads the settings of the machine layer: flags above the environment above defaults. Each setting knows
// its value and where it came from; a value of the environment that makes no sense costs one warning and counts as absent.
package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/precision"
)

// Variables of the environment. The first three are those of openpilot's DGX Spark proposal.
const (
	EnabledVariable   = "OPENPILOT_DGX_ENABLED"   // 1 or 0: whether a GPU is used
	DisableVariable   = "OPENPILOT_DISABLE_DGX"   // 1: no GPU is used, whatever OPENPILOT_DGX_ENABLED says
	PrecisionVariable = "OPENPILOT_DGX_PRECISION" // fp32, fp16, bf16, fp8, fp4
	DeviceVariable    = "SPARK_DEVICE"            // auto, cuda, cuda:N, emu
	CacheVariable     = "SPARK_CACHE"             // directory of what can be made again; off for none
)

// Names of devices.
const (
	Auto = "auto"
	CUDA = "cuda" // the best GPU; cuda:1 is the second one
	Emu  = "emu"
)

// Setting is a value and where it came from.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"` // default, --flag, or the variable
	// Warnings has a line for each value that is not used as it stands, and one if the value is experimental.
	Warnings []string `json:"warnings,omitempty"`
}

// Settings are all settings.
type Settings struct {
	GPU       Setting // on or off
	Device    Setting // auto, cuda, cuda:N or emu, after GPU was taken into account
	Precision Setting // fp32, fp16 …
	Cache     Setting // directory, or off
}

// All lists the settings in the order in which they are printed.
func (s *Settings) All() []Setting { return []Setting{s.GPU, s.Device, s.Precision, s.Cache} }

// Warnings are those of all settings.
func (s *Settings) Warnings() []string {
	var out []string
	for _, x := range s.All() {
		out = append(out, x.Warnings...)
	}
	return out
}

// CacheDir is the directory of a kind of cached things, or nothing if there is to be none.
func (s *Settings) CacheDir(kind string) string {
	if s.Cache.Value == "off" || s.Cache.Value == "" {
		return ""
	}
	return filepath.Join(s.Cache.Value, kind)
}

// Flags are values of the command line; empty where none was given.
type Flags struct {
	Device    string
	Precision string
}

// Read reads the settings. A wrong flag is an error, since whoever typed it is there to correct it. lookup is nil for the
// environment of the process.
func Read(f Flags, lookup func(string) (string, bool)) (*Settings, error) {
	if lookup == nil {
		lookup = os.LookupEnv
	}
	r := &reader{lookup: lookup}
	s := &Settings{GPU: r.taking(r.gpu()), Cache: r.taking(r.cache())}
	var err error
	if s.Precision, err = r.precision(f.Precision); err != nil {
		return nil, err
	}
	s.Precision = r.taking(s.Precision)
	if s.Device, err = r.device(f.Device, s.GPU); err != nil {
		return nil, err
	}
	s.Device = r.taking(s.Device)
	return s, nil
}

type reader struct {
	lookup   func(string) (string, bool)
	warnings []string
}

func (r *reader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// taking gives a setting the warnings that reading it cost.
func (r *reader) taking(s Setting) Setting {
	s.Warnings, r.warnings = r.warnings, nil
	return s
}

// value is a variable's value without spaces around it; an empty one counts as absent.
func (r *reader) value(variable string) (string, bool) {
	v, _ := r.lookup(variable)
	v = strings.TrimSpace(v)
	return v, v != ""
}

// yes reads a variable that is 1 or 0.
func (r *reader) yes(variable string) (on, ok bool) {
	v, ok := r.value(variable)
	if !ok {
		return false, false
	}
	switch strings.ToLower(v) {
	case "1", "true", "yes", "on":
		return true, true
	case "0", "false", "no", "off":
		return false, true
	}
	r.warn("%s=%s is neither 1 nor 0: it is not used", variable, v)
	return false, false
}

func (r *reader) gpu() Setting {
	s := Setting{Name: "gpu", Value: "on", From: "default"}
	enabled, given := r.yes(EnabledVariable)
	if given {
		s.From = EnabledVariable
		if !enabled {
			s.Value = "off"
		}
	}
	if disabled, _ := r.yes(DisableVariable); disabled {
		if given && enabled {
			r.warn("%s and %s contradict each other: no GPU is used", EnabledVariable, DisableVariable)
		}
		s.Value, s.From = "off", DisableVariable
	}
	return s
}

func (r *reader) cache() Setting {
	if v, ok := r.value(CacheVariable); ok {
		return Setting{Name: "cache", Value: v, From: CacheVariable}
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return Setting{Name: "cache", Value: "off", From: "default"}
	}
	return Setting{Name: "cache", Value: filepath.Join(dir, "spark-compile"), From: "default"}
}

func (r *reader) device(flag string, gpu Setting) (Setting, error) {
	if flag != "" && flag != Auto {
		if _, err := Ordinal(flag); err != nil {
			return Setting{}, fmt.Errorf("--device %w", err)
		}
		return Setting{Name: "device", Value: flag, From: "--device"}, nil
	}
	s := Setting{Name: "device", Value: Auto, From: "default"}
	if flag == Auto {
		s.From = "--device"
	}
	if v, ok := r.value(DeviceVariable); ok {
		if _, err := Ordinal(v); err != nil {
			r.warn("%s=%v: auto is used", DeviceVariable, err)
		} else {
			s = Setting{Name: "device", Value: v, From: DeviceVariable}
		}
	}
	if gpu.Value == "off" && s.Value != Emu {
		if s.Value != Auto {
			r.warn("%s=%s is not used: %s says that no GPU is", DeviceVariable, s.Value, gpu.From)
		}
		s = Setting{Name: "device", Value: Emu, From: gpu.From}
	}
	return s, nil
}

// Ordinal reads the name of a device: the number of cuda:N, and -1 where the name has none.
func Ordinal(name string) (int, error) {
	if name == Auto || name == CUDA || name == Emu {
		return -1, nil
	}
	if n, ok := strings.CutPrefix(name, CUDA+":"); ok {
		if i, err := strconv.Atoi(n); err == nil && i >= 0 && i < 1<<10 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s: want auto, cuda, cuda:N or emu", name)
}

// precision applies the rule for precisions: the flag, else the environment, else the default.
func (r *reader) precision(flag string) (Setting, error) {
	s := Setting{Name: "precision", Value: precision.Default, From: "default"}
	given, from := strings.ToLower(strings.TrimSpace(flag)), "--precision"
	if given == "" {
		var ok bool
		if given, ok = r.value(PrecisionVariable); !ok {
			return s, nil
		}
		given, from = strings.ToLower(given), PrecisionVariable
	}
	p, err := precision.Lookup(given)
	switch {
	case (err != nil || p.Name == precision.File) && flag != "":
		return s, fmt.Errorf("--precision %s: want %s", flag, precision.List("or"))
	case err != nil || p.Name == precision.File:
		r.warn("%s=%s is no precision (%s are): using %s", PrecisionVariable, given, precision.List("and"), precision.Default)
		return s, nil
	case p.Experimental:
		r.warn("precision %s is experimental: compare its accuracy before it drives anything", given)
	}
	return Setting{Name: "precision", Value: p.Name, From: from}, nil
}
