package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// sbom lists what the program was built of, as it says itself, with licences, in CycloneDX's JSON.
func sbom(info *buildinfo.BuildInfo, licensed []dependency, arch string, when time.Time) ([]byte, error) {
	bom := cyclonedx.NewBOM()
	purl := func(path, version string) string { return fmt.Sprintf("pkg:golang/%s@%s", path, version) }
	main := purl(info.Main.Path, info.Main.Version)
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: when.Format(time.RFC3339),
		Component: &cyclonedx.Component{BOMRef: main, Type: cyclonedx.ComponentTypeApplication, Name: "spark-compile", Version: info.Main.Version,
			PackageURL: main + "?goos=linux&goarch=" + arch, Licenses: licence("MIT")},
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			bom.Metadata.Component.Properties = &[]cyclonedx.Property{{Name: "go build -tags", Value: s.Value}}
		}
	}
	var components []cyclonedx.Component
	var refs []string
	add := func(path, version, sum string) error {
		i := slices.IndexFunc(licensed, func(m dependency) bool { return m.path == path && (m.version == version || path == "std") })
		if i < 0 {
			return fmt.Errorf("%s %s is linked, but is none of the modules whose licences are known", path, version)
		}
		c := cyclonedx.Component{BOMRef: purl(path, version), Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version,
			PackageURL: purl(path, version), Licenses: licence(licensed[i].licence)}
		if sum != "" {
			c.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: sum}}
		}
		components, refs = append(components, c), append(refs, c.BOMRef)
		return nil
	}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		if err := add(d.Path, d.Version, d.Sum); err != nil {
			return nil, err
		}
	}
	if err := add("std", strings.TrimPrefix(info.GoVersion, "go"), ""); err != nil {
		return nil, err
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main, Dependencies: &refs}}
	var b bytes.Buffer
	e := cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON)
	e.SetPretty(true)
	err := e.Encode(bom)
	return b.Bytes(), err
}

func licence(id string) *cyclonedx.Licenses {
	return &cyclonedx.Licenses{{License: &cyclonedx.License{ID: id}}}
}
