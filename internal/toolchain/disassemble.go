package toolchain

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Disassemble returns the machine code of a cubin as text. It needs nvdisasm in ptxas's directory or on the PATH,
// and returns ErrNotFound if it is in neither.
func (t *Ptxas) Disassemble(ctx context.Context, cubin []byte) (string, error) {
	tool := filepath.Join(filepath.Dir(t.Path), "nvdisasm")
	if _, err := os.Stat(tool); err != nil {
		if tool, err = exec.LookPath("nvdisasm"); err != nil {
			return "", fmt.Errorf("nvdisasm: %w", ErrNoPtxas)
		}
	}
	dir, err := os.MkdirTemp("", "nvdisasm")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "k.cubin")
	if err := os.WriteFile(file, cubin, 0o600); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, tool, "-c", file).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nvdisasm: %w\n%s", err, out)
	}
	return string(out), nil
}
