package toolchain

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUsageIsReadFromTheLog(t *testing.T) {
	log := `ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_121'
ptxas info    : Function properties for first
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_121'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
`
	require.Equal(t, []Usage{{"first", 40, 16, 1024}, {"second", 8, 0, 0}}, parseUsage(log))
}

// endless is a program that never ends, and a context that ends when it has begun.
func endless(t *testing.T) (path string, ctx context.Context) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "endless")
	begun := path + ".begun"
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n>\"$0.begun\"\nexec sleep 1000\n"), 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for _, err := os.Stat(begun); err != nil && ctx.Err() == nil; _, err = os.Stat(begun) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	return path, ctx
}

// TestAnInterruptIsNoFaultOfPtxas, which is killed then.
func TestAnInterruptIsNoFaultOfPtxas(t *testing.T) {
	path, ctx := endless(t)
	_, err := (&Ptxas{Path: path}).Assemble(ctx, tiny, "sm_121")
	require.ErrorIs(t, err, context.Canceled)
	path, ctx = endless(t)
	t.Setenv("PTXAS", path)
	_, err = FindPtxas(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

const tiny = ".version 8.8\n.target sm_121\n.address_size 64\n.visible .entry k()\n{\n\tret;\n}\n"

func tool(t *testing.T) *Ptxas {
	found, err := FindPtxas(context.Background())
	if errors.Is(err, ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return found
}

func TestAssemblesAndCachesByContent(t *testing.T) {
	p := tool(t)
	p.Cache = t.TempDir()
	first, err := p.Assemble(context.Background(), tiny, "sm_121")
	require.NoError(t, err)
	require.NotEmpty(t, first.Cubin)
	require.Equal(t, "k", first.Usage[0].Kernel)
	files, err := filepath.Glob(filepath.Join(p.Cache, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	documented := strings.Replace(tiny, ".visible", "// what it is for\n.visible", 1)
	fresh, err := (&Ptxas{Path: p.Path, Version: p.Version}).Assemble(context.Background(), documented, "sm_121")
	require.NoError(t, err)
	require.Equal(t, first, fresh, "a kernel's documentation does not reach the cubin")
	p.Path = filepath.Join(p.Cache, "gone")
	second, err := p.Assemble(context.Background(), tiny, "sm_121")
	require.NoError(t, err)
	require.Equal(t, first, second)
	second, err = p.Assemble(context.Background(), documented, "sm_121")
	require.NoError(t, err, "a kernel's documentation makes no other result")
	require.Equal(t, first, second)
	_, err = p.Assemble(context.Background(), tiny, "sm_90")
	require.Error(t, err, "another architecture is another result")
}

func TestRefusalCarriesTheMessage(t *testing.T) {
	_, err := tool(t).Assemble(context.Background(), "nonsense", "sm_121")
	require.ErrorContains(t, err, "ptxas")
	require.NotContains(t, err.Error(), os.TempDir())
}
