package main

import (
	"context"
	"debug/elf"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/stretchr/testify/require"
)

// imported are glibc's functions that the dynamic programs call, all unversioned. Each is in glibc 2.2.5 on x86-64 and in
// 2.17, the first with AArch64: check another one's version before adding it, and docs/guide/install.md.
var imported = []string{
	"abort", "dlclose", "dlerror", "dlopen", "dlsym", "free", "malloc", "nanosleep", "pthread_attr_destroy",
	"pthread_attr_getstacksize", "pthread_attr_init", "pthread_cond_broadcast", "pthread_create", "pthread_detach",
	"pthread_mutex_lock", "pthread_mutex_unlock", "pthread_setspecific", "pthread_sigmask", "setenv", "sigfillset",
	"unsetenv",
}

// TestTargets_LinkWhatTheirNamesSay reads the ELF headers of the programs: a static one has neither a dynamic linker nor
// libraries, a dynamic one names glibc's without a version.
func TestTargets_LinkWhatTheirNamesSay(t *testing.T) {
	fulltest.Long(t)
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	linkers := map[string]string{"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}
	for _, of := range targets() {
		t.Run(of.String(), func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, build(context.Background(), root, dir, of))
			f, err := elf.Open(filepath.Join(dir, program))
			require.NoError(t, err)
			defer f.Close()
			require.Equal(t, machines[of.arch], f.Machine)
			linker := ""
			for _, p := range f.Progs {
				if p.Type == elf.PT_INTERP {
					text := make([]byte, p.Filesz)
					_, err := p.ReadAt(text, 0)
					require.NoError(t, err)
					linker = string(text[:len(text)-1])
				}
			}
			needed, err := f.DynString(elf.DT_NEEDED)
			require.NoError(t, err)
			if of.static {
				require.Empty(t, linker)
				require.Empty(t, needed)
				return
			}
			require.Equal(t, linkers[of.arch], linker)
			require.ElementsMatch(t, []string{"libdl.so.2", "libpthread.so.0", "libc.so.6"}, needed)
			symbols, err := f.ImportedSymbols()
			require.NoError(t, err)
			var names []string
			for _, s := range symbols {
				require.Empty(t, s.Version, "%s needs this version of glibc", s.Name)
				names = append(names, s.Name)
			}
			slices.Sort(names)
			require.Equal(t, imported, names)
		})
	}
}
