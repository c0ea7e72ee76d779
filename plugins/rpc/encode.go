package rpc

import (
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// encodeFiles makes messages of files.
func encodeFiles(files []catalog.File) []*pluginpb.File {
	var list []*pluginpb.File
	for _, f := range files {
		list = append(list, &pluginpb.File{Path: f.Path, SizeBytes: f.SizeBytes, Sha256: f.SHA256, Optional: f.Optional})
	}
	return list
}

// decodeFiles is the reverse of encodeFiles.
func decodeFiles(list []*pluginpb.File) []catalog.File {
	var files []catalog.File
	for _, f := range list {
		files = append(files, catalog.File{Path: f.GetPath(), SizeBytes: f.GetSizeBytes(), SHA256: f.GetSha256(), Optional: f.GetOptional()})
	}
	return files
}

// encodeSource makes a message of a source.
func encodeSource(s *catalog.Source) *pluginpb.Source {
	if s == nil {
		return nil
	}
	return &pluginpb.Source{Kind: s.Kind, Repository: s.Repository, Revision: s.Revision, Files: encodeFiles(s.Files)}
}

// decodeSource is the reverse of encodeSource.
func decodeSource(s *pluginpb.Source) *catalog.Source {
	if s == nil {
		return nil
	}
	return &catalog.Source{Kind: s.GetKind(), Repository: s.GetRepository(), Revision: s.GetRevision(), Files: decodeFiles(s.GetFiles())}
}

// encodeRelease makes a message of a release.
func encodeRelease(r catalog.Release) *pluginpb.Release {
	return &pluginpb.Release{
		Model:            r.Model,
		Version:          r.Version,
		PluginName:       r.Plugin.Name,
		PluginConstraint: r.Plugin.Constraint,
		Source:           encodeSource(&r.Source),
		Reference:        encodeSource(r.Reference),
		Recipe:           r.Recipe,
		LicenceSpdx:      r.Licence.SPDX,
		LicenceUrl:       r.Licence.URL,
		Gated:            r.Gated,
		Pack:             string(r.Pack),
	}
}

// decodeRelease is the reverse of encodeRelease.
func decodeRelease(r *pluginpb.Release) catalog.Release {
	out := catalog.Release{
		Model:     r.GetModel(),
		Version:   r.GetVersion(),
		Plugin:    catalog.PluginRef{Name: r.GetPluginName(), Constraint: r.GetPluginConstraint()},
		Reference: decodeSource(r.GetReference()),
		Recipe:    r.GetRecipe(),
		Licence:   catalog.Licence{SPDX: r.GetLicenceSpdx(), URL: r.GetLicenceUrl()},
		Gated:     r.GetGated(),
		Pack:      catalog.Digest(r.GetPack()),
	}
	if s := decodeSource(r.GetSource()); s != nil {
		out.Source = *s
	}
	return out
}

// encodePack makes a message of what a plugin is told of a pack.
func encodePack(p zoo.PackInfo) (*pluginpb.Pack, error) {
	out := &pluginpb.Pack{Config: p.Config}
	if p.Manifest == nil {
		return out, nil
	}
	var err error
	if out.Manifest, err = p.Manifest.Encode(); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.ErrUsage, err)
	}
	return out, nil
}

// decodePack is the reverse of encodePack. The host has validated the manifest.
func decodePack(p *pluginpb.Pack) (zoo.PackInfo, error) {
	out := zoo.PackInfo{Config: p.GetConfig()}
	if len(p.GetManifest()) == 0 {
		return out, nil
	}
	out.Manifest = new(zoo.Manifest)
	if err := json.Unmarshal(p.GetManifest(), out.Manifest); err != nil {
		return out, fmt.Errorf("%w: %s: %w", fault.ErrUsage, zoo.ManifestFile, err)
	}
	return out, nil
}

// encodeDescription makes a message of what a plugin says of itself.
func encodeDescription(d zoo.Description, p zoo.Plugin) *pluginpb.Description {
	_, synthesizes := p.(zoo.Synthesizer)
	_, estimates := p.(zoo.Estimator)
	return &pluginpb.Description{
		Name: d.Name, Version: d.Version, Title: d.Title, Operations: int32(d.Operations),
		Synthesizes: synthesizes, Estimates: estimates,
	}
}

// decodeDescription checks and returns what a plugin says of itself.
func decodeDescription(d *pluginpb.Description) (zoo.Description, error) {
	if err := catalog.ValidateName(d.GetName()); err != nil {
		return zoo.Description{}, err
	}
	if _, err := semver.StrictNewVersion(d.GetVersion()); err != nil || len(d.GetVersion()) > maxNameBytes {
		return zoo.Description{}, fmt.Errorf("version %.80q is not semantic", d.GetVersion())
	}
	if title := d.GetTitle(); utf8.RuneCountInString(title) > maxTitle || title != cleanLine(title, len(title)) {
		return zoo.Description{}, fmt.Errorf("title %.300q is not one line of at most %d characters", title, maxTitle)
	}
	return zoo.Description{
		Name: d.GetName(), Version: d.GetVersion(), Title: d.GetTitle(), Operations: int(d.GetOperations()),
	}, nil
}

// decodePlan checks and returns the files to fetch.
func decodePlan(p *pluginpb.FetchPlan) (zoo.FetchPlan, error) {
	plan := zoo.FetchPlan{Files: decodeFiles(p.GetFiles())}
	return plan, catalog.ValidateFiles(plan.Files)
}

// encodeConversion makes a message of what is told of a conversion.
func encodeConversion(c zoo.Conversion) *pluginpb.Conversion {
	out := &pluginpb.Conversion{}
	for _, r := range c.Rounding {
		out.Rounding = append(out.Rounding, &pluginpb.RoundingError{
			Family: r.Family, Grid: r.Grid, Tensors: int64(r.Tensors), Numbers: r.Numbers,
			Problem: clean(r.Problem, maxTextBytes), RelL2: r.RelL2, MaxAbs: r.MaxAbs,
		})
	}
	return out
}

// decodeConversion checks and returns what a plugin tells of a conversion.
func decodeConversion(c *pluginpb.Conversion) (zoo.Conversion, error) {
	var out zoo.Conversion
	if n := len(c.GetRounding()); n > maxRounding {
		return out, fmt.Errorf("%d errors of rounding, at most %d are allowed", n, maxRounding)
	}
	for i, r := range c.GetRounding() {
		if r.GetTensors() < 0 || r.GetTensors() > math.MaxInt32 || r.GetNumbers() < 0 || !size(r.GetRelL2()) || !size(r.GetMaxAbs()) {
			return zoo.Conversion{}, fmt.Errorf("error of rounding %d is none: %d tensors, %d numbers, %g, %g", i, r.GetTensors(), r.GetNumbers(), r.GetRelL2(), r.GetMaxAbs())
		}
		out.Rounding = append(out.Rounding, zoo.RoundingError{
			Family: cleanLine(r.GetFamily(), maxHintBytes), Grid: cleanLine(r.GetGrid(), maxHintBytes), Tensors: int(r.GetTensors()), Numbers: r.GetNumbers(),
			Problem: clean(r.GetProblem(), maxTextBytes), RelL2: r.GetRelL2(), MaxAbs: r.GetMaxAbs(),
		})
	}
	return out, nil
}

// size reports whether f can be the size of something: finite and not negative.
func size(f float64) bool { return f >= 0 && !math.IsInf(f, 0) }

// encodeProgram makes a message of a program.
func encodeProgram(p *program.Program) (*pluginpb.Program, error) {
	if p == nil {
		return nil, fmt.Errorf("%w: no program", errAnswer)
	}
	data, err := program.Encode(p)
	if err != nil {
		return nil, fmt.Errorf("%w: the program: %w", errAnswer, err)
	}
	return &pluginpb.Program{Program: data}, nil
}

// encodeEstimate makes a message of an estimate.
func encodeEstimate(e zoo.Estimate) (*pluginpb.Estimation, error) {
	p, err := encodeProgram(e.Program)
	if err != nil {
		return nil, err
	}
	out := &pluginpb.Estimation{PackBytes: e.PackBytes, Program: p.GetProgram()}
	for _, a := range e.Assumptions {
		out.Assumptions = append(out.Assumptions, cleanLine(a, maxHintBytes))
	}
	return out, nil
}

// decodeEstimate checks and returns an estimate.
func decodeEstimate(e *pluginpb.Estimation) (zoo.Estimate, error) {
	out := zoo.Estimate{PackBytes: e.GetPackBytes()}
	if out.PackBytes < 0 || out.PackBytes > maxPackBytes {
		return zoo.Estimate{}, fmt.Errorf("a pack of %d bytes", out.PackBytes)
	}
	if n := len(e.GetAssumptions()); n > maxAssumptions {
		return zoo.Estimate{}, fmt.Errorf("%d assumptions, at most %d are allowed", n, maxAssumptions)
	}
	for _, a := range e.GetAssumptions() {
		out.Assumptions = append(out.Assumptions, cleanLine(a, maxHintBytes))
	}
	var err error
	out.Program, err = program.Decode(e.GetProgram())
	return out, err
}
