// Command release makes what a version is handed out as: archives of the program, linked with glibc and static, for each
// architecture, with links, licences, manual pages, completions and an SBOM; and checksums of all. The same commit gives the
// same bytes, wherever and whenever it is built, with the Go version of go.mod or of GOTOOLCHAIN.
//
//	go run ./internal/release -o dist
//	go run ./internal/release -licences      # writes THIRD-PARTY-LICENSES again, after a change of go.mod
package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// program is what is handed out; commands are links to it.
const program = "spark"

var commands = []string{"spark-bench", "spark-compile", "spark-dora", "spark-info", "spark-opt", "spark-run", "spark-sim"}

var architectures = []string{"amd64", "arm64"}

// target is what a program is built for.
type target struct {
	arch   string
	static bool // needs no C library, and opens no GPU driver
}

// targets are two of each architecture.
func targets() (all []target) {
	for _, arch := range architectures {
		all = append(all, target{arch: arch}, target{arch: arch, static: true})
	}
	return all
}

// String ends the names of its files.
func (t target) String() string {
	if t.static {
		return t.arch + "-static"
	}
	return t.arch
}

func main() {
	out := flag.String("o", "dist", "directory of the archives; what is in it is replaced")
	licences := flag.Bool("licences", false, "write "+thirdParty+" and nothing else")
	dirty := flag.Bool("dirty", false, "also with changes that are not committed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *licences {
		err = writeLicences(ctx)
	} else {
		err = release(ctx, *out, *dirty)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release writes the archives into a directory.
func release(ctx context.Context, dir string, dirty bool) error {
	root, err := output(ctx, ".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if changed, err := output(ctx, root, nil, "git", "status", "--porcelain"); err != nil || changed != "" && !dirty {
		return errors.Join(err, fmt.Errorf("there are changes that are not committed: commit them, or say -dirty for a trial\n%s", changed))
	}
	seconds, err := output(ctx, root, nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	when := time.Unix(unix, 0).UTC()
	if !slices.Contains(architectures, runtime.GOARCH) || runtime.GOOS != "linux" {
		return fmt.Errorf("a release is made on Linux, on one of %s: its commands print their manual pages", strings.Join(architectures, " and "))
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, t := range targets() {
		if err := build(ctx, root, filepath.Join(work, t.String()), t); err != nil {
			return err
		}
	}
	shared, err := documents(ctx, root, filepath.Join(work, target{runtime.GOARCH, true}.String()))
	if err != nil {
		return err
	}
	licences, err := modules(ctx, root)
	if err != nil {
		return err
	}
	made := map[string][]byte{}
	for _, t := range targets() {
		name, files, err := content(filepath.Join(work, t.String(), program), t, shared, licences, when)
		if err != nil {
			return err
		}
		if !dirty && !strings.HasPrefix(name, archivePrefix+"v") {
			return fmt.Errorf("go build found no version in git: make the release in a clone of its own, not in a linked worktree")
		}
		made[name+".cdx.json"] = files[bomFile].data
		if made[name+".tar.gz"], err = archive(name, files, when); err != nil {
			return err
		}
	}
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(made)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(made[name]), name)
	}
	made["SHA256SUMS"] = []byte(sums.String())
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, data := range made {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	fmt.Print(sums.String())
	return nil
}

const (
	archivePrefix = "spark-compile-"
	bomFile       = "share/doc/spark-compile/sbom.cdx.json"
)

// content returns the name of a target's archive, without its extension, and what is in it.
func content(built string, t target, shared map[string]entry, licences []dependency, when time.Time) (string, map[string]entry, error) {
	data, err := os.ReadFile(built)
	if err != nil {
		return "", nil, err
	}
	info, err := buildinfo.ReadFile(built)
	if err != nil {
		return "", nil, err
	}
	files := maps.Clone(shared)
	files["bin/"+program] = entry{data: data, program: true}
	for _, name := range commands {
		files["bin/"+name] = entry{link: program}
	}
	bom, err := sbom(info, licences, t.arch, when)
	if err != nil {
		return "", nil, err
	}
	files[bomFile] = entry{data: bom}
	version := strings.Trim(strings.ReplaceAll(info.Main.Version, "+", "-"), "()")
	return fmt.Sprintf("%s%s-linux-%s", archivePrefix, version, t), files, nil
}

// build compiles the program. Paths and settings of this machine stay out of it.
func build(ctx context.Context, root, dir string, t target) error {
	args := []string{"build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", filepath.Join(dir, program)}
	if t.static {
		args = append(args, "-tags=nodriver")
	}
	args = append(args, "./cmd/"+program)
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off"}
	_, err := output(ctx, root, env, "go", args...)
	return err
}

// documents are the files that do not depend on the architecture. The program prints its own and those of each command.
func documents(ctx context.Context, root, bin string) (map[string]entry, error) {
	files := map[string]entry{}
	for _, name := range []string{"LICENSE", thirdParty, "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		files["share/doc/spark-compile/"+name] = entry{data: data}
	}
	for _, name := range append(slices.Clone(commands), program) {
		command := strings.TrimPrefix(name, "spark-")
		for at, args := range map[string][]string{
			"share/man/man1/" + name + ".1":                     {"--man"},
			"share/bash-completion/completions/" + name:         {"--completion", "bash"},
			"share/zsh/site-functions/_" + name:                 {"--completion", "zsh"},
			"share/fish/vendor_completions.d/" + name + ".fish": {"--completion", "fish"},
		} {
			if name != program {
				args = slices.Insert(args, 0, command)
			}
			text, err := output(ctx, root, nil, filepath.Join(bin, program), args...)
			if err != nil {
				return nil, err
			}
			files[at] = entry{data: []byte(text + "\n")}
		}
	}
	return files, nil
}

// output runs a program in a directory and returns what it prints, without the last line's end.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}
