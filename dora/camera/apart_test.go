//go:build unix

package camera

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// TestATerminalsInterruptDoesNotEndAProcess: it would end as if the file were cut off. A terminal interrupts all processes of the group.
func TestATerminalsInterruptDoesNotEndAProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fcamera.hevc")
	require.NoError(t, os.WriteFile(path, []byte("video"), 0o644))
	v, err := OpenVideo(t.Context(), path, program(t, "printf 'YUV4MPEG2 W16 H16\n'\nexec yes\n"))
	require.NoError(t, err)
	defer v.Close()
	theirs, err := syscall.Getpgid(v.cmd.Process.Pid)
	require.NoError(t, err)
	assert.NotEqual(t, syscall.Getpgrp(), theirs)
}

// TestAnEncoderIsEndedByItsContext, which is what is said then, and nothing is left of the file. A terminal does not interrupt it either.
func TestAnEncoderIsEndedByItsContext(t *testing.T) {
	endless := func(yield func(modeld.Picture) bool) {
		for yield(modeld.Picture{Data: make([]byte, 384), Width: 16, Height: 16}) {
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	out, begun := filepath.Join(dir, "out.hevc"), filepath.Join(dir, "pid")
	opt := program(t, "touch '"+out+".partial'; echo $$ >'"+begun+"'\nexec cat >/dev/null\n")
	group := make(chan int, 1)
	go func() {
		pid := 0
		for ctx.Err() == nil && pid == 0 {
			data, _ := os.ReadFile(begun)
			_, _ = fmt.Sscanf(string(data), "%d\n", &pid)
			time.Sleep(time.Millisecond)
		}
		of, _ := syscall.Getpgid(pid)
		group <- of
		cancel()
	}()
	assert.ErrorIs(t, Encode(ctx, out, endless, opt), context.Canceled)
	assert.NoFileExists(t, out+".partial")
	assert.NotEqual(t, syscall.Getpgrp(), <-group)
}
