// Package config reads the settings of the machine layer: flags take precedence over the environment, and the
// environment over defaults. Each setting records its value and where it came from. An invalid value in the
// environment produces one warning and is ignored.
package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/precision"
)

// Environment variables. The first three are those of openpilot's DGX Spark proposal.
const (
	EnabledVariable   = "OPENPILOT_DGX_ENABLED"   // 1 or 0: whether to use a GPU
	DisableVariable   = "OPENPILOT_DISABLE_DGX"   // 1: do not use a GPU, even with OPENPILOT_DGX_ENABLED=1
	PrecisionVariable = "OPENPILOT_DGX_PRECISION" // a name of internal/precision
	DeviceVariable    = "SPARK_DEVICE"            // auto, cuda, cuda:N, emu
	CacheVariable     = "SPARK_CACHE"             // cache directory, or off
)

// SwitchVariable is the environment variable of a mechanism of hal.SwitchNames: SPARK_PDL, SPARK_PREFETCH … on or off.
func SwitchVariable(name string) string { return "SPARK_" + strings.ToUpper(name) }

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
	// Warnings has a line for each value that was ignored or overridden, and one if the value is experimental.
	Warnings []string `json:"warnings,omitempty"`
}

func (s *Setting) warn(format string, args ...any) {
	s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
}

func (s *Setting) set(value, from string) { s.Value, s.From = value, from }

// Settings are all settings.
type Settings struct {
	GPU       Setting // on or off
	Device    Setting // auto, cuda, cuda:N or emu; emu if GPU is off, unless a flag names a device
	Precision Setting // fp32, fp16 …
	Cache     Setting // directory, or off

	Switches []Setting // on or off, for each of hal.SwitchNames
}

// All lists the settings in the order in which they are printed.
func (s *Settings) All() []Setting {
	return append([]Setting{s.GPU, s.Device, s.Precision, s.Cache}, s.Switches...)
}

// Off returns the mechanisms that a device is to be opened without.
func (s *Settings) Off() (out hal.Switches, err error) {
	for _, x := range s.Switches {
		if err := out.Set(x.Name, x.Value == "on"); err != nil {
			return out, err
		}
	}
	return out, nil
}

// CacheDir returns the cache directory for one kind of file, or "" if caching is off.
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
	Switches  map[string]bool // by names of hal.SwitchNames: true for on
}

// Read reads the settings. An invalid flag is an error; an invalid environment variable only produces a warning. lookup
// reads the environment; nil means the process's own.
func Read(f Flags, lookup func(string) (string, bool)) (*Settings, error) {
	if lookup == nil {
		lookup = os.LookupEnv
	}
	env := variables(lookup)
	s := &Settings{GPU: env.gpu(), Cache: env.cache()}
	var err error
	if s.Precision, err = env.precision(f.Precision); err != nil {
		return nil, err
	}
	if s.Device, err = env.device(f.Device, s.GPU); err != nil {
		return nil, err
	}
	s.Switches, err = env.switches(f.Switches)
	return s, err
}

// variables looks an environment variable up.
type variables func(string) (string, bool)

// value returns a variable's value without surrounding spaces; an empty variable counts as unset.
func (env variables) value(variable string) (string, bool) {
	v, _ := env(variable)
	v = strings.TrimSpace(v)
	return v, v != ""
}

// yes reads a variable that is 1 or 0.
func (env variables) yes(variable string, s *Setting) (on, ok bool) {
	v, ok := env.value(variable)
	switch strings.ToLower(v) {
	case "1", "true", "yes", "on":
		return true, true
	case "0", "false", "no", "off":
		return false, true
	}
	if ok {
		s.warn("%s=%s is ignored: want 1 or 0, on or off", variable, v)
	}
	return false, false
}

// switches reads a setting for each mechanism. A flag of another name is an error.
func (env variables) switches(flags map[string]bool) (out []Setting, err error) {
	for name := range flags {
		if err := new(hal.Switches).Set(name, true); err != nil {
			return nil, err
		}
	}
	for _, name := range hal.SwitchNames() {
		s := Setting{Name: name, From: "default"}
		on, from := true, "default"
		if given, ok := flags[name]; ok {
			on, from = given, "--"+name
			if !on {
				from = "--no-" + name
			}
		} else if given, ok := env.yes(SwitchVariable(name), &s); ok {
			on, from = given, SwitchVariable(name)
		}
		if s.set("on", from); !on {
			s.Value = "off"
		}
		out = append(out, s)
	}
	return out, nil
}

func (env variables) gpu() Setting {
	s := Setting{Name: "gpu", Value: "on", From: "default"}
	enabled, given := env.yes(EnabledVariable, &s)
	switch {
	case given && enabled:
		s.set("on", EnabledVariable)
	case given:
		s.set("off", EnabledVariable)
	}
	if disabled, _ := env.yes(DisableVariable, &s); disabled {
		if enabled {
			s.warn("%s and %s contradict each other: not using a GPU", EnabledVariable, DisableVariable)
		}
		s.set("off", DisableVariable)
	}
	return s
}

func (env variables) cache() Setting {
	s := Setting{Name: "cache", Value: "off", From: "default"}
	if v, ok := env.value(CacheVariable); ok {
		s.set(v, CacheVariable)
	} else if dir, err := os.UserCacheDir(); err == nil {
		s.Value = filepath.Join(dir, "spark-compile")
	}
	return s
}

func (env variables) device(flag string, gpu Setting) (Setting, error) {
	s := Setting{Name: "device", Value: Auto, From: "default"}
	if flag != "" {
		if _, err := Ordinal(flag); err != nil {
			return s, fmt.Errorf("--device %w", err)
		}
		if s.set(flag, "--device"); flag != Auto {
			return s, nil
		}
	}
	if v, ok := env.value(DeviceVariable); ok {
		if _, err := Ordinal(v); err != nil {
			s.warn("%s=%v; using auto", DeviceVariable, err)
		} else {
			s.set(v, DeviceVariable)
		}
	}
	if gpu.Value == "off" && s.Value != Emu {
		if s.Value != Auto {
			s.warn("%s=%s is ignored: %s turns the GPU off", DeviceVariable, s.Value, gpu.From)
		}
		s.set(Emu, gpu.From)
	}
	return s, nil
}

// Ordinal parses the name of a device: N of cuda:N, or -1 for a name without a number.
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

// precision takes the flag, else the environment variable, else the default.
func (env variables) precision(flag string) (Setting, error) {
	s := Setting{Name: "precision", Value: precision.Default, From: "default"}
	given, from := strings.TrimSpace(flag), "--precision"
	if given == "" {
		var ok bool
		if given, ok = env.value(PrecisionVariable); !ok {
			return s, nil
		}
		from = PrecisionVariable
	}
	given = strings.ToLower(given)
	p, err := precision.Lookup(given)
	switch {
	case err == nil:
		if s.set(p.Name, from); p.Experimental {
			s.warn("precision %s is experimental: check its accuracy before driving with it", given)
		}
	case flag != "":
		return s, fmt.Errorf("--precision %s: want %s", flag, precision.List("or"))
	default:
		s.warn("%s=%s is not a precision (want %s); using %s", PrecisionVariable, given, precision.List("or"), precision.Default)
	}
	return s, nil
}
