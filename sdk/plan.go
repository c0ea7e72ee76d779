package sdk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// planTimeout is how long a hub may take to tell a file's size.
	planTimeout = 10 * time.Second
	// maxConfigBytes bounds what is read of a config.json.
	maxConfigBytes = 1 << 20
	// maxIndexBytes bounds what is read of an index of shards.
	maxIndexBytes = 64 << 20
)

// Answer is yes, no, or that it cannot be told.
type Answer string

// The answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// Plan is what [Zoo.Pull] would do for a release and what the model would take, as far
// as it can be told before anything is fetched.
type Plan struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Title   string `json:"title"`
	// Installed says that the release is in the store, made by this plugin: nothing is
	// left to do but, where it has not passed, its gate, with what that compares with.
	// Gate is as in [Entry].
	Installed bool   `json:"installed"`
	Gate      string `json:"gate,omitempty"`
	// Problem says why the release cannot be installed or run here, or is "", and Hint what
	// to do about it.
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`

	Source  PlanSource        `json:"source"`
	Plugin  PlanPlugin        `json:"plugin"`
	Recipe  map[string]string `json:"recipe"`
	Licence PlanLicence       `json:"licence"`
	Token   PlanToken         `json:"token"`

	// Files are the wanted files: those of the checkpoint, then those that the gate compares with.
	Files []PlanFile `json:"files"`
	// Fetch sums up what is to be fetched.
	Fetch PlanFetch `json:"fetch"`
	// Pack is nil if nothing is known of the pack.
	Pack *PlanPack `json:"pack"`
	Disk PlanDisk  `json:"disk"`
	// Memory is nil if nothing is known of what the model computes.
	Memory *PlanMemory `json:"memory"`

	// Unknown says, in one phrase each, what could not be told and why.
	Unknown []string `json:"unknown"`
}

// PlanSource says where the files are from.
type PlanSource struct {
	Kind       string `json:"kind"`
	Repository string `json:"repository"`
	Revision   string `json:"revision,omitempty"`
	// Pinned says that the revision cannot move.
	Pinned bool `json:"pinned"`
	// Commit is what a revision that can move stands for now or, where an earlier pull
	// has seen the release, stood for then, which binds; "" where that is not known.
	Commit string `json:"commit,omitempty"`
}

// PlanPlugin names the plugin that converts and runs the release.
type PlanPlugin struct {
	Name       string `json:"name"`
	Constraint string `json:"constraint"`
	// Version is that of the plugin that is taken, "" if there is none that will do.
	Version string `json:"version,omitempty"`
}

// PlanLicence is the licence of the weights.
type PlanLicence struct {
	SPDX string `json:"spdx"`
	URL  string `json:"url"`
	// Gated says that it has to be accepted at the hub.
	Gated bool `json:"gated"`
}

// PlanToken tells of the hub's access token, which itself is in no plan.
type PlanToken struct {
	// Needed says that the hub gives the files to no one without a token, as the catalog
	// has it or as the hub just said.
	Needed bool `json:"needed"`
	// Set says that there is one.
	Set bool `json:"set"`
	// Refusal is what the hub says if it refuses the files, with or without a token, and
	// Hint what to do about it.
	Refusal string `json:"refusal,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// PlanFile is one wanted file.
type PlanFile struct {
	Path string `json:"path"`
	// Reference says that the gate compares with it and no pack is made of it, and
	// Adopted that it was adopted in place of what the catalog has; see [Zoo.AdoptReference].
	Reference bool `json:"reference,omitempty"`
	Adopted   bool `json:"adopted,omitempty"`
	// SizeBytes is nil if it is not known.
	SizeBytes *int64 `json:"size"`
	// HaveBytes is how much of it the store has already.
	HaveBytes int64 `json:"have"`
	// From is where the rest comes from, "" for nowhere, and Network whether that is
	// reached over a network.
	From    string `json:"from,omitempty"`
	Network bool   `json:"network,omitempty"`
	// Problem says why its size is not known or it cannot be had.
	Problem string `json:"problem,omitempty"`
}

// PlanFetch sums up files. Files of unknown size are counted, not summed.
type PlanFetch struct {
	// NetworkBytes have to come over a network, LocalBytes from this machine.
	NetworkBytes int64 `json:"network"`
	LocalBytes   int64 `json:"local"`
	UnknownFiles int   `json:"unknown_files"`
}

// PlanPack says what the pack is, or will be.
type PlanPack struct {
	SizeBytes int64 `json:"size"`
	// Estimated says that the pack is not there yet; From says which shapes its size
	// follows from, and Assumptions what only the weights can show.
	Estimated   bool     `json:"estimated"`
	From        string   `json:"from"`
	Assumptions []string `json:"assumptions"`
	// Digest is that of the pack that is there, or that the catalog demands; "" where it
	// is bound at the first conversion.
	Digest catalog.Digest `json:"digest,omitempty"`
}

// PlanDisk says what installing takes of the device that holds the store. Where
// something is unknown the sums are of the rest.
type PlanDisk struct {
	// Dir is the store.
	Dir string `json:"dir"`
	// PeakBytes is the most that installing adds to what is there now: the rest of the
	// files and the pack beside them. LinkableBytes of it are of files on this machine,
	// which take no room if they can be linked into the store: on the same device, and
	// where the system permits it, which shows only then.
	PeakBytes     int64 `json:"peak"`
	LinkableBytes int64 `json:"linkable"`
	// KeptBytes is what the release takes in the store afterwards, and
	// WithoutCheckpointBytes if its source files are discarded then.
	KeptBytes              int64 `json:"kept"`
	WithoutCheckpointBytes int64 `json:"without_checkpoint"`
	// Complete says that nothing in these sums is unknown.
	Complete bool `json:"complete"`
	// FreeBytes is nil if the system does not tell.
	FreeBytes *int64 `json:"free"`
	// Enough says whether the peak fits.
	Enough Answer `json:"enough"`
}

// Plan tells what Pull would do for the release that a reference ("name" or
// "name@constraint") stands for in the catalog, and what running it would take. It
// fetches nothing, and writes nothing but a temporary copy of an index for the plugin:
// sizes that neither the catalog nor this machine knows are asked of the hub, as headers,
// unless the hub must not be asked. What cannot be told, because the hub is out of reach,
// say, is told to be unknown and is no error. The source files are looked for as by Pull,
// the settings of running are those of [Zoo.Open], and those that the model cannot be run
// with are zoo.ErrUsage.
func (z *Zoo) Plan(ctx context.Context, ref string, opts ...Option) (*Plan, error) {
	set, err := z.refine(opts)
	if err != nil {
		return nil, err
	}
	if err := set.check(z.backends); err != nil {
		if fault.Hint(err) == "" {
			err = fault.WithHint(err, "leave it out, or give 0, for the default")
		}
		return nil, err
	}
	release, err := z.resolve(ref)
	if err != nil {
		return nil, err
	}
	p := &planner{z: z, set: set, release: release, plan: newPlan(release)}
	if models, err := z.catalog(); err == nil {
		if m, err := models.Find(release.Model); err == nil {
			p.plan.Title = m.Title
		}
	}
	if err := p.run(ctx); err != nil {
		return nil, fmt.Errorf("plan of %s@%s: %w", release.Model, release.Version, err)
	}
	if err := p.memory(); err != nil {
		return nil, err
	}
	return p.plan, nil
}

// newPlan returns a plan with what the catalog says.
func newPlan(r *catalog.Release) *Plan {
	p := &Plan{
		Name:    r.Model,
		Version: r.Version,
		Source:  PlanSource{Kind: r.Source.Kind, Repository: r.Source.Repository, Revision: r.Source.Revision, Pinned: r.Source.Pinned()},
		Plugin:  PlanPlugin{Name: r.Plugin.Name, Constraint: r.Plugin.Constraint},
		Recipe:  maps.Clone(r.Recipe),
		Licence: PlanLicence{SPDX: r.Licence.SPDX, URL: r.Licence.URL, Gated: r.Gated},
		Token:   PlanToken{Needed: r.Gated},
		Files:   []PlanFile{},
		Unknown: []string{},
	}
	if p.Recipe == nil {
		p.Recipe = map[string]string{}
	}
	return p
}

// planner makes one plan.
type planner struct {
	z       *Zoo
	set     settings
	release *catalog.Release
	plan    *Plan

	plugin zoo.Plugin // nil if this build has none
	about  zoo.Description
	record *zoo.Record // of an earlier pull, or nil
	dir    string      // of the source files in the store
	// origins are where files come from.
	origins []download.Origin
	// source is the release's, at its commit once that is known.
	source catalog.Source
	// sources are the source files with what is known of their sizes.
	sources []catalog.File
	// left is what is still to be written of files, linkable what of it may be linked,
	// kept what they all take, and adopted what of that stays when source files go.
	left, linkable, kept, adopted int64
	program                       *program.Program // nil if nothing is known of it
}

// run fills in the plan.
func (p *planner) run(ctx context.Context) (err error) {
	p.plan.Token.Set = download.TokenFromEnvironment(p.set.getenv) != ""
	if p.origins, err = p.set.origins(); err != nil {
		return err
	}
	if p.dir, err = p.z.store.CheckpointDir(p.release.Model, p.release.Version); err != nil {
		return err
	}
	if p.plugin, p.about, err = p.z.registry.Find(ctx, p.release.Plugin); err != nil {
		p.plan.Problem, p.plan.Hint = err.Error(), fault.Hint(err)
	} else {
		p.plan.Plugin.Version = p.about.Version
	}
	if p.record, err = p.z.store.Record(p.release.Model, p.release.Version); err != nil {
		p.record = nil // none, or one that Pull would replace
	}
	done, err := p.installed(ctx)
	if err == nil && !done {
		if err = p.survey(ctx); err == nil {
			err = p.estimate(ctx)
		}
	}
	if err != nil {
		return err
	}
	p.disk()
	return nil
}

// memory fills in what running takes, if anything is known of the program. Its error
// is about settings that this model cannot be run with.
func (p *planner) memory() (err error) {
	if p.program == nil {
		return nil
	}
	p.plan.Memory, err = p.z.planMemory(p.set, p.program)
	switch {
	case errors.Is(err, fault.ErrUsage):
		return err
	case err != nil:
		p.unknown("the memory: %v", err)
	case p.plan.Memory.MachineBytes == 0:
		p.unknown("the memory of this machine: the system does not tell")
	}
	return nil
}

// unknown notes what could not be told.
func (p *planner) unknown(format string, args ...any) {
	p.plan.Unknown = append(p.plan.Unknown, fmt.Sprintf(format, args...))
}

// installed reports whether Pull would find the release installed, and if so takes
// the real figures from its pack.
func (p *planner) installed(ctx context.Context) (bool, error) {
	r := p.record
	if r == nil || p.plugin == nil || r.Plugin != pluginID(p.about) || p.release.Pack != "" && p.release.Pack != r.Pack {
		return false, nil
	}
	pack, err := zoo.OpenPack(p.z.packDir(r.Pack))
	if err != nil {
		return false, nil // Pull makes it anew
	}
	defer pack.Close()
	p.plan.Installed = true
	receipt, gate := p.z.verdict(ctx, r, pack)
	p.plan.Gate = gate
	p.plan.Source.Commit = r.Commit
	p.plan.Pack = &PlanPack{SizeBytes: pack.SizeBytes(), From: "the installed pack", Assumptions: []string{}, Digest: pack.Digest()}
	p.lies(p.dir, r.Sources, PlanFile{})
	if receipt != nil {
		p.passedReference(r)
	} else if err := p.reference(ctx, r); err != nil {
		return true, err
	}
	if p.program, err = p.plugin.Run(ctx, zoo.RunRequest{Pack: pack.Info()}); err != nil {
		p.plan.Problem, p.plan.Hint = err.Error(), fault.Hint(err)
	}
	return true, context.Cause(ctx)
}

// estimate asks the plugin what the pack will be. Its error is the context's.
func (p *planner) estimate(ctx context.Context) error {
	if p.plugin == nil {
		p.unknown("the size of the pack and the memory: %s", p.plan.Problem)
		return nil
	}
	estimator, ok := p.plugin.(zoo.Estimator)
	if !ok {
		p.unknown("the size of the pack and the memory: plugin %q estimates none", p.about.Name)
		return nil
	}
	config, from := p.config(ctx)
	e, err := estimator.Estimate(ctx, zoo.EstimateRequest{Release: *p.release, Sources: p.sources, Config: config})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		p.unknown("the size of the pack and the memory: %v", err)
		return nil
	}
	p.program = e.Program
	p.plan.Pack = &PlanPack{SizeBytes: e.PackBytes, Estimated: true, From: from, Assumptions: append([]string{}, e.Assumptions...), Digest: p.release.Pack}
	return nil
}

// config returns the checkpoint's config.json if it is on this machine, and says where shapes are from.
func (p *planner) config(ctx context.Context) (config []byte, from string) {
	i := slices.IndexFunc(p.sources, func(f catalog.File) bool { return f.Path == zoo.ConfigFile })
	if i >= 0 {
		if data, place := p.read(ctx, p.sources[i], maxConfigBytes); data != nil {
			return data, "its config.json " + place
		}
	}
	return nil, "the plugin's own figures of this model"
}

// disk sums up what installing takes.
func (p *planner) disk() {
	d := &p.plan.Disk
	d.Dir = p.z.store.Home()
	d.Complete = p.plan.Fetch.UnknownFiles == 0 && p.plan.Pack != nil
	d.PeakBytes, d.LinkableBytes, d.KeptBytes, d.WithoutCheckpointBytes = p.left, p.linkable, p.kept, p.adopted
	if pack := p.plan.Pack; pack != nil {
		d.KeptBytes += pack.SizeBytes
		d.WithoutCheckpointBytes += pack.SizeBytes
		if pack.Estimated {
			d.PeakBytes += pack.SizeBytes
		}
	}
	d.Enough = Unknown
	free, err := atomicfile.FreeBytes(d.Dir)
	if err != nil {
		p.unknown("the free space: %v", err)
		return
	}
	d.FreeBytes = &free
	switch {
	case d.PeakBytes-d.LinkableBytes > free:
		d.Enough = No
	case d.PeakBytes > free:
		p.unknown("whether the disk is enough: that depends on whether %d bytes of files can be linked into the store", d.LinkableBytes)
	case d.Complete:
		d.Enough = Yes
	}
}
