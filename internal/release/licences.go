package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// thirdParty is the file with the licences of what the commands link.
const thirdParty = "THIRD-PARTY-LICENSES"

// dependency is a module that the commands link, or Go's own library, which is named std.
type dependency struct {
	path, version string // of std none: its licence does not change with it
	licence       string // SPDX identifier
	files         []licenceFile
}

type licenceFile struct{ name, text string }

// licenceName are the files that say under what terms a module may be used.
var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)(\..*)?$`)

// modules lists what the commands link on any architecture, Go's library last. One without a licence is an error.
func modules(ctx context.Context, root string) ([]dependency, error) {
	seen := map[string]bool{}
	var all []dependency
	add := func(path, version, dir string) error {
		m := dependency{path: path, version: version}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() || !licenceName.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			m.files = append(m.files, licenceFile{e.Name(), string(text)})
			m.licence = cmp.Or(m.licence, spdx(string(text)))
		}
		if m.licence == "" {
			return fmt.Errorf("%s %s: no licence that is known in %s", path, version, dir)
		}
		all = append(all, m)
		return nil
	}
	for _, arch := range architectures {
		text, err := output(ctx, root, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch}, "go", "list", "-deps",
			"-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}", "./cmd/"+program)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			f := strings.Split(strings.TrimSpace(line), "\t")
			if len(f) != 3 || seen[f[0]] {
				continue
			}
			seen[f[0]] = true
			if err := add(f[0], f[1], f[2]); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(all, func(a, b dependency) int { return strings.Compare(a.path, b.path) })
	goroot, err := output(ctx, root, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	return all, add("std", "", goroot)
}

// spdx names the licence of a text; "" if it is none of the usual ones.
func spdx(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case has("Apache License") && has("Version 2.0"):
		return "Apache-2.0"
	case has("Permission is hereby granted, free of charge, to any person obtaining a copy"):
		return "MIT"
	case has("Permission to use, copy, modify, and/or distribute this software for any purpose"):
		return "ISC"
	case has("Redistribution and use in source and binary forms") && (has("Neither the name") || has("names of its contributors")):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	}
	return ""
}

// licenceText is the whole file.
func licenceText(all []dependency) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "The commands of spark-compile contain code of these modules, under the licences that follow.\n\n")
	for _, m := range all {
		fmt.Fprintf(&b, "%s: %s\n", strings.TrimSpace(m.path+" "+m.version), m.licence)
	}
	for _, m := range all {
		for _, f := range m.files {
			fmt.Fprintf(&b, "\n%s\n%s, %s\n\n%s\n", strings.Repeat("=", 80), strings.TrimSpace(m.path+" "+m.version), f.name, strings.TrimSpace(f.text))
		}
	}
	return b.Bytes()
}

func writeLicences(ctx context.Context) error {
	root, err := output(ctx, ".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	all, err := modules(ctx, root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, thirdParty), licenceText(all), 0o644)
}
