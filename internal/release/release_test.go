package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// TestTheLicencesOfWhatIsLinkedAreThere: go run ./internal/release -licences writes the file again.
func TestTheLicencesOfWhatIsLinkedAreThere(t *testing.T) {
	all, err := modules(context.Background(), root)
	require.NoError(t, err)
	require.Greater(t, len(all), 4)
	have, err := os.ReadFile(filepath.Join(root, thirdParty))
	require.NoError(t, err)
	require.True(t, bytes.Equal(have, licenceText(all)), "%s is out of date: go run ./internal/release -licences", thirdParty)
}

func TestALicenceThatNobodyKnowsIsRefused(t *testing.T) {
	require.Empty(t, spdx("All rights reserved."))
	require.Equal(t, "BSD-2-Clause", spdx("Redistribution and use in source\n and binary forms, with or without modification"))
	sums := &buildinfo.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "m", Version: "v1.0.0"},
		Settings: []debug.BuildSetting{{Key: "-tags", Value: "nodriver"}}, Deps: []*debug.Module{{Path: "example.com/a", Version: "v1.2.3", Sum: "h1:x"}}}
	known := []dependency{{path: "example.com/a", version: "v1.2.3", licence: "MIT"}, {path: "std", licence: "BSD-3-Clause"}}
	text, err := sbom(sums, known, "amd64", time.Unix(1e9, 0).UTC())
	require.NoError(t, err)
	var bom struct {
		BOMFormat string
		Metadata  struct {
			Timestamp string
			Component struct {
				Properties []struct{ Name, Value string }
			}
		}
		Components []struct {
			PURL     string
			Licenses []struct{ License struct{ ID string } }
		}
	}
	require.NoError(t, json.Unmarshal(text, &bom))
	require.Equal(t, "CycloneDX", bom.BOMFormat)
	require.Equal(t, "2001-09-09T01:46:40Z", bom.Metadata.Timestamp)
	require.Equal(t, []struct{ Name, Value string }{{"go build -tags", "nodriver"}}, bom.Metadata.Component.Properties)
	require.Len(t, bom.Components, 2)
	require.Equal(t, "pkg:golang/example.com/a@v1.2.3", bom.Components[0].PURL)
	require.Equal(t, "MIT", bom.Components[0].Licenses[0].License.ID)
	require.Equal(t, "pkg:golang/std@1.26.8", bom.Components[1].PURL)
	known[0].version = "v1.2.4"
	_, err = sbom(sums, known, "amd64", time.Unix(1e9, 0))
	require.ErrorContains(t, err, "example.com/a v1.2.3")
}

func TestAnArchiveSaysNothingOfWhoMadeIt(t *testing.T) {
	files := map[string]entry{"bin/b": {data: []byte("b"), program: true}, "a": {data: []byte("a")}, "bin/c": {link: "b"}}
	when := time.Unix(1e9, 0)
	data, err := archive("dir", files, when)
	require.NoError(t, err)
	again, err := archive("dir", files, when.UTC())
	require.NoError(t, err)
	require.Equal(t, data, again)
	z, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	require.True(t, z.ModTime.IsZero())
	r := tar.NewReader(z)
	for _, want := range []struct {
		name, link string
		mode       int64
	}{{"dir/a", "", 0o644}, {"dir/bin/b", "", 0o755}, {"dir/bin/c", "b", 0o777}} {
		h, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want.name, h.Name)
		require.Equal(t, want.link, h.Linkname)
		require.Equal(t, want.mode, h.Mode)
		require.True(t, h.ModTime.Equal(when))
		require.Zero(t, h.Uid+h.Gid)
		require.Empty(t, h.Uname+h.Gname)
	}
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)
}

// clone copies the last commit into a directory, which shares nothing with this one.
func clone(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.Command("git", "clone", "-q", "--no-hardlinks", root, dir).CombinedOutput()
	if err != nil {
		t.Skipf("no clone of this tree: %v\n%s", err, out)
	}
}

// TestAReleaseMadeTwiceIsTheSameBytes makes it in two clones, in directories of different names. The commands of the archive
// for this machine run.
func TestAReleaseMadeTwiceIsTheSameBytes(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("SPARK_FULL=1 builds everything for two architectures")
	}
	var sums []map[string]string
	for _, name := range []string{"one", "another/two"} {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
		clone(t, dir)
		cmd := exec.Command("go", "run", "./internal/release", "-o", "dist")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		made := map[string]string{}
		list, err := os.ReadDir(filepath.Join(dir, "dist"))
		require.NoError(t, err)
		for _, e := range list {
			data, err := os.ReadFile(filepath.Join(dir, "dist", e.Name()))
			require.NoError(t, err)
			made[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(data))
		}
		require.Len(t, made, 2*len(targets())+1)
		sums = append(sums, made)
		check := exec.Command("sha256sum", "-c", "SHA256SUMS")
		check.Dir = filepath.Join(dir, "dist")
		out, err = check.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if len(sums) == 1 {
			installs(t, filepath.Join(dir, "dist"), target{arch: runtime.GOARCH})
			installs(t, filepath.Join(dir, "dist"), target{arch: runtime.GOARCH, static: true})
		}
	}
	require.Equal(t, sums[0], sums[1])
}

// installs unpacks an archive for this machine, as the guide says, and runs the commands.
func installs(t *testing.T, dist string, of target) {
	list, err := filepath.Glob(filepath.Join(dist, fmt.Sprintf("*-linux-%s.tar.gz", of)))
	require.NoError(t, err)
	require.Len(t, list, 1)
	prefix := t.TempDir()
	out, err := exec.Command("tar", "-xzf", list[0], "--strip-components=1", "-C", prefix).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range append(slices.Clone(commands), program) {
		version, err := output(context.Background(), prefix, nil, filepath.Join(prefix, "bin", name), "--version")
		require.NoError(t, err)
		version, named := strings.CutPrefix(version, name+" ")
		require.True(t, named, "%s says that it is %s", name, version)
		require.True(t, strings.Contains(list[0], strings.ReplaceAll(version, "+", "-")), "%s of %s", version, list[0])
		for _, file := range []string{"share/man/man1/" + name + ".1", "share/bash-completion/completions/" + name, "share/zsh/site-functions/_" + name, "share/fish/vendor_completions.d/" + name + ".fish"} {
			text, err := os.ReadFile(filepath.Join(prefix, file))
			require.NoError(t, err)
			require.Contains(t, string(text), "completion", file) // a flag of every command
		}
	}
	for _, name := range []string{"LICENSE", thirdParty, "README.md", "CHANGELOG.md", "sbom.cdx.json"} {
		require.FileExists(t, filepath.Join(prefix, "share/doc/spark-compile", name))
	}
	info, err := output(context.Background(), prefix, nil, filepath.Join(prefix, "bin/spark-info"))
	require.NoError(t, err)
	require.Equal(t, of.static, strings.Contains(info, "-tags nodriver"), "%s", info)
	bom, err := os.ReadFile(filepath.Join(prefix, bomFile))
	require.NoError(t, err)
	require.Equal(t, of.static, strings.Contains(string(bom), `"nodriver"`))
	require.NotEqual(t, of.static, strings.Contains(string(bom), "purego"))
}
