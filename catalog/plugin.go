package catalog

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// Limits on the plugins of a catalog.
const (
	maxPlugins  = 1_000
	maxBinaries = 100
	// maxProtocol bounds versions of the protocol and of the operations.
	maxProtocol = 1_000
	// maxBinaryBytes bounds the program of a plugin.
	maxBinaryBytes = 4 << 30
)

// Plugin is a model family that others provide, with the programs of all its versions.
type Plugin struct {
	// Name is what releases name it by, under the rules of [Model].Name.
	Name string
	// Title is one line for listings.
	Title string
	// Licence is the licence of the programs.
	Licence Licence
	// Signed says that the catalog is the one in the binary, or that [ParseSigned] has
	// checked its signature: what stands here is what somebody whom the user trusts has
	// written.
	Signed bool
	// Versions are sorted newest first.
	Versions []PluginVersion
}

// PluginVersion is one version of a plugin.
type PluginVersion struct {
	// Version is a full semantic version such as "1.2.0".
	Version string
	// Protocol is the version of what hosts and plugins say to each other that it speaks.
	Protocol int
	// Operations is the version of the operations of a decoder that its programs are of.
	Operations int
	// Binaries has at most one program for an operating system and an architecture.
	Binaries []Binary
}

// Binary is the program of a plugin for one kind of machine.
type Binary struct {
	// OS and Arch are as Go names them, such as "linux" and "amd64".
	OS, Arch string
	// Source has exactly one file, on a hub, whose size and digest are known.
	Source Source
}

// File returns the one file of the source.
func (b Binary) File() File { return b.Source.Files[0] }

// Binary returns the program for this machine, or a [*PlatformError].
func (v PluginVersion) Binary(plugin string) (Binary, error) {
	e := &PlatformError{Plugin: plugin, Version: v.Version}
	for _, b := range v.Binaries {
		if b.OS == runtime.GOOS && b.Arch == runtime.GOARCH {
			return b, nil
		}
		e.Have = append(e.Have, b.OS+"/"+b.Arch)
	}
	return Binary{}, e
}

// PlatformError reports a plugin that is not there for this operating system and
// architecture. It matches fault.ErrNotFound.
type PlatformError struct {
	Plugin, Version string
	// Have lists for what it is there, such as "linux/amd64".
	Have []string
}

// Error names the plugin and the machine.
func (e *PlatformError) Error() string {
	return fmt.Sprintf("plugin %s %s is not there for %s/%s", e.Plugin, e.Version, runtime.GOOS, runtime.GOARCH)
}

// Is reports whether target is fault.ErrNotFound.
func (e *PlatformError) Is(target error) bool { return target == fault.ErrNotFound }

// Hint says for what it is there.
func (e *PlatformError) Hint() string {
	return "it is there for " + strings.Join(e.Have, ", ") + "; build it for this machine from its source and install that with `zoo plugin install --from FILE`"
}

// FindPlugin returns the plugin of a name, or nil. It must not be modified.
func (c *Catalog) FindPlugin(name string) *Plugin {
	i := slices.IndexFunc(c.Plugins, func(p Plugin) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Plugins[i]
}

type pluginYAML struct {
	Name     string              `yaml:"name"`
	Title    string              `yaml:"title"`
	Licence  Licence             `yaml:"licence"`
	Versions []pluginVersionYAML `yaml:"versions"`
}

type pluginVersionYAML struct {
	Version    string       `yaml:"version"`
	Protocol   wholeNumber  `yaml:"protocol"`
	Operations wholeNumber  `yaml:"operations"`
	Binaries   []binaryYAML `yaml:"binaries"`
}

type binaryYAML struct {
	OS     string     `yaml:"os"`
	Arch   string     `yaml:"arch"`
	Source sourceYAML `yaml:"source"`
}

// plugin checks one plugin.
func (y *pluginYAML) plugin() (Plugin, error) {
	if err := ValidateName(y.Name); err != nil {
		return Plugin{}, err
	}
	switch {
	case y.Title == "":
		return Plugin{}, errors.New("the title is missing")
	case len(y.Title) > maxTextBytes:
		return Plugin{}, fmt.Errorf("the title is longer than %d bytes", maxTextBytes)
	case len(y.Versions) == 0 || len(y.Versions) > maxReleases:
		return Plugin{}, fmt.Errorf("%d versions are not 1 to %d", len(y.Versions), maxReleases)
	}
	if err := y.Licence.validate(); err != nil {
		return Plugin{}, locate("licence", err)
	}
	p := Plugin{Name: y.Name, Title: y.Title, Licence: y.Licence}
	for i := range y.Versions {
		v, err := y.Versions[i].version()
		if err != nil {
			return Plugin{}, locate(fmt.Sprintf("version %q", fault.Shorten(y.Versions[i].Version)), err)
		}
		p.Versions = append(p.Versions, v)
	}
	slices.SortFunc(p.Versions, func(a, b PluginVersion) int { return compareVersions(b.Version, a.Version) })
	for i := 1; i < len(p.Versions); i++ {
		if compareVersions(p.Versions[i-1].Version, p.Versions[i].Version) == 0 {
			return Plugin{}, fmt.Errorf("the version %q stands twice", p.Versions[i].Version)
		}
	}
	return p, nil
}

// version checks one version of a plugin.
func (y *pluginVersionYAML) version() (PluginVersion, error) {
	if _, err := semver.StrictNewVersion(y.Version); err != nil || len(y.Version) > maxNameBytes {
		return PluginVersion{}, errors.New("the version is not a full semantic version such as 1.0.0")
	}
	switch {
	case y.Protocol < 1 || y.Protocol > maxProtocol:
		return PluginVersion{}, fmt.Errorf("the protocol %d is not 1 to %d", y.Protocol, maxProtocol)
	case y.Operations < 1 || y.Operations > maxProtocol:
		return PluginVersion{}, fmt.Errorf("the version %d of the operations is not 1 to %d", y.Operations, maxProtocol)
	case len(y.Binaries) == 0 || len(y.Binaries) > maxBinaries:
		return PluginVersion{}, fmt.Errorf("%d binaries are not 1 to %d", len(y.Binaries), maxBinaries)
	}
	v := PluginVersion{Version: y.Version, Protocol: int(y.Protocol), Operations: int(y.Operations)}
	taken := make(map[string]bool)
	for i := range y.Binaries {
		b, err := y.Binaries[i].binary()
		where := fmt.Sprintf("binary %q", fault.Shorten(y.Binaries[i].OS+"/"+y.Binaries[i].Arch))
		if err == nil && taken[b.OS+"/"+b.Arch] {
			err = errors.New("it stands twice")
		}
		if err != nil {
			return PluginVersion{}, locate(where, err)
		}
		taken[b.OS+"/"+b.Arch] = true
		v.Binaries = append(v.Binaries, b)
	}
	return v, nil
}

// binary checks one program.
func (y *binaryYAML) binary() (Binary, error) {
	for _, name := range []string{y.OS, y.Arch} {
		if err := ValidateName(name); err != nil {
			return Binary{}, err
		}
	}
	source, err := y.Source.source()
	if err != nil {
		return Binary{}, locate("source", err)
	}
	switch {
	case source.Kind != KindHub:
		return Binary{}, locate("source", fmt.Errorf("the kind is not %q", KindHub))
	case len(source.Files) != 1 || source.Files[0].Optional:
		return Binary{}, locate("source", errors.New("it does not have exactly one file that is not optional"))
	}
	switch f := source.Files[0]; {
	case f.SHA256 == "":
		return Binary{}, locate("source", fmt.Errorf("the sha256 of %q is missing", f.Path))
	case f.SizeBytes == 0 || f.SizeBytes > maxBinaryBytes:
		return Binary{}, locate("source", fmt.Errorf("the size of %q is not 1 to %d", f.Path, int64(maxBinaryBytes)))
	}
	return Binary{OS: y.OS, Arch: y.Arch, Source: source}, nil
}
