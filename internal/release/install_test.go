package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// TestGoInstallTakesTheLastCommit: the commit as a module, as Go's proxy would pack it, can be installed by its path.
func TestGoInstallTakesTheLastCommit(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("SPARK_FULL=1 builds everything again")
	}
	ctx := context.Background()
	dir := t.TempDir()
	repository := filepath.Join(dir, "clone")
	clone(t, repository)
	const path, version = "github.com/spark-compile/spark-compile", "v0.0.1"
	proxy := filepath.Join(dir, "proxy", path, "@v")
	require.NoError(t, os.MkdirAll(proxy, 0o755))
	packed, err := os.Create(filepath.Join(proxy, version+".zip"))
	require.NoError(t, err)
	require.NoError(t, zip.CreateFromVCS(packed, module.Version{Path: path, Version: version}, repository, "HEAD", ""))
	require.NoError(t, packed.Close())
	mod, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	require.NoError(t, err)
	require.NotContains(t, string(mod), "\nreplace ", "go install refuses such a module")
	for name, text := range map[string]string{"list": version + "\n", version + ".info": `{"Version": "` + version + `"}`, version + ".mod": string(mod)} {
		require.NoError(t, os.WriteFile(filepath.Join(proxy, name), []byte(text), 0o644))
	}
	cache, err := output(ctx, repository, nil, "go", "env", "GOMODCACHE")
	require.NoError(t, err)
	env := []string{"CGO_ENABLED=0", "GOBIN=" + filepath.Join(dir, "bin"), "GOMODCACHE=" + filepath.Join(dir, "modules"), "GOFLAGS=-modcacherw -trimpath",
		"GOSUMDB=off", "GOWORK=off", "GOPROXY=file://" + filepath.Join(dir, "proxy") + ",file://" + filepath.Join(cache, "cache", "download")}
	_, err = output(ctx, dir, env, "go", "install", path+"/cmd/...@latest")
	require.NoError(t, err)
	for _, name := range append(commands, program) {
		says, err := output(ctx, dir, nil, filepath.Join(dir, "bin", name), "--version")
		require.NoError(t, err)
		require.Equal(t, name+" "+version, strings.TrimSpace(says))
	}
}
