package toolchain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// ErrNoPtxas reports that there is no ptxas.
var ErrNoPtxas = errors.New("ptxas not found: set PTXAS, put it on the PATH, or pip install nvidia-cuda-nvcc")

// Ptxas is an installed ptxas.
type Ptxas struct {
	Path    string
	Version string
	Cache   string // directory for results; "" for none
}

// Usage is what ptxas -v reports about a kernel.
type Usage struct {
	Kernel string
	Regs   int
	Spills int // bytes of spill stores and loads
	Shared int // bytes of static shared memory
}

// Assembled is an assembled module.
type Assembled struct {
	Cubin []byte
	Usage []Usage
}

// FindPtxas looks at $PTXAS, the PATH, where CUDA is ($CUDA_HOME, $CUDA_PATH, /usr/local/cuda), and a virtual environment (.venv) in
// the current directory or above it.
func FindPtxas(ctx context.Context) (*Ptxas, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "--version")
	OwnProcessGroup(cmd)
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", path, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return &Ptxas{Path: path, Version: lines[len(lines)-1]}, nil
}

func find() (string, error) {
	if p := os.Getenv("PTXAS"); p != "" {
		if _, err := os.Stat(p); err != nil {
			return "", fmt.Errorf("PTXAS: %w", err)
		}
		return p, nil
	}
	if p, err := exec.LookPath("ptxas"); err == nil {
		return p, nil
	}
	for _, cuda := range []string{os.Getenv("CUDA_HOME"), os.Getenv("CUDA_PATH"), "/usr/local/cuda"} {
		if p, err := exec.LookPath(filepath.Join(cuda, "bin", "ptxas")); cuda != "" && err == nil {
			return p, nil
		}
	}
	if p := FindAbove(filepath.Join(".venv", "lib", "python3*", "site-packages", "nvidia", "cu*", "bin", "ptxas")); p != "" {
		return p, nil
	}
	return "", ErrNoPtxas
}

// Assemble assembles PTX for an architecture (sm_121), or for its specific variant if the text asks for it (.target
// sm_121a). The error includes ptxas' messages.
func (t *Ptxas) Assemble(ctx context.Context, text, arch string) (*Assembled, error) {
	if strings.Contains(text, "\n.target "+arch+"a\n") {
		arch += "a"
	}
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(t.Version+"\x00"+arch+"\x00"+ptx.Undocumented(text))))
	if r := t.cached(key); r != nil {
		return r, nil
	}
	dir, err := os.MkdirTemp("", "ptxas")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	in, out := filepath.Join(dir, "k.ptx"), filepath.Join(dir, "k.cubin")
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		return nil, err
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, t.Path, "-arch="+arch, "-v", in, "-o", out)
	OwnProcessGroup(cmd)
	cmd.Stdout, cmd.Stderr = &log, &log
	err = cmd.Run()
	if ctx.Err() != nil { // it was killed
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("ptxas -arch=%s: %w\n%s", arch, err, strings.ReplaceAll(log.String(), dir+string(filepath.Separator), ""))
	}
	r := &Assembled{Usage: parseUsage(log.String())}
	if r.Cubin, err = os.ReadFile(out); err != nil {
		return nil, err
	}
	return r, t.store(key, r)
}

func (t *Ptxas) cached(key string) *Assembled {
	if t.Cache == "" {
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(t.Cache, key+".json"))
	if err != nil {
		return nil
	}
	var r Assembled
	if json.Unmarshal(raw, &r) != nil {
		return nil
	}
	return &r
}

func (t *Ptxas) store(key string, r *Assembled) error {
	if t.Cache == "" {
		return nil
	}
	if err := os.MkdirAll(t.Cache, 0o755); err != nil {
		return err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(t.Cache, key+".json"), raw)
}

var (
	reEntry  = regexp.MustCompile(`Compiling entry function '([^']+)'`)
	reSpills = regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads`)
	reUsed   = regexp.MustCompile(`Used (\d+) registers`)
	reShared = regexp.MustCompile(`(\d+) bytes smem`)
)

func parseUsage(log string) []Usage {
	var all []Usage
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	for line := range strings.Lines(log) {
		if m := reEntry.FindStringSubmatch(line); m != nil {
			all = append(all, Usage{Kernel: m[1]})
		}
		if len(all) == 0 {
			continue
		}
		u := &all[len(all)-1]
		if m := reSpills.FindStringSubmatch(line); m != nil {
			u.Spills = number(m[1]) + number(m[2])
		}
		if m := reUsed.FindStringSubmatch(line); m != nil {
			u.Regs = number(m[1])
		}
		if m := reShared.FindStringSubmatch(line); m != nil {
			u.Shared = number(m[1])
		}
	}
	return all
}
