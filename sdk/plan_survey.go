package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// lies enters which files of an installed release are in a folder: Pull does not need
// them, and they take room all the same. The entries are like a given one.
func (p *planner) lies(dir string, files []catalog.File, like PlanFile) {
	for _, f := range files {
		file := like
		file.Path = f.Path
		if f.SizeBytes > 0 {
			file.SizeBytes = &f.SizeBytes
		}
		if size, ok := regularSize(dir, f); ok {
			file.HaveBytes = size
			p.kept += size
		}
		p.plan.Files = append(p.plan.Files, file)
	}
}

// regularSize returns the size of a file in a folder, if it is there.
func regularSize(dir string, f catalog.File) (sizeBytes int64, ok bool) {
	info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(f.Path)))
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}

// reference finds out what the gate of a record will compare with, and what of it is
// still to be fetched.
func (p *planner) reference(ctx context.Context, r *zoo.Record) error {
	adopted, err := p.adoption(r)
	if err != nil { // as the gate will find
		if p.plan.Problem == "" {
			p.plan.Problem = err.Error()
		}
		return nil
	}
	published := r.Release.Reference
	switch {
	case published == nil:
		return nil
	case adopted:
		p.unusedReference(published)
		return nil
	}
	list, _, err := download.Survey(ctx, p.inquiry(*published, published.Files, filepath.Join(p.dir, referenceDir)))
	if err != nil {
		return err
	}
	first := len(p.plan.Files)
	p.note(list)
	for i := range p.plan.Files[first:] {
		p.plan.Files[first+i].Reference = true
	}
	return nil
}

// passedReference enters what is there of what a pack that has passed its gate was compared with.
func (p *planner) passedReference(r *zoo.Record) {
	adopted, err := p.adoption(r)
	if err != nil {
		p.unknown("what the adopted reference values take: %v", err)
	}
	switch published := r.Release.Reference; {
	case published == nil:
	case adopted:
		p.unusedReference(published)
	default:
		p.lies(filepath.Join(p.dir, referenceDir), published.Files, PlanFile{Reference: true})
	}
}

// unusedReference enters published reference values that are there though others were
// adopted in their place.
func (p *planner) unusedReference(published *catalog.Source) {
	dir := filepath.Join(p.dir, referenceDir)
	there := slices.DeleteFunc(slices.Clone(published.Files), func(f catalog.File) bool {
		_, ok := regularSize(dir, f)
		return !ok
	})
	p.lies(dir, there, PlanFile{Reference: true})
}

// adoption enters the reference values that were adopted for a release, and reports
// whether gates of its record are held against them.
func (p *planner) adoption(r *zoo.Record) (bool, error) {
	// What is adopted goes with the record.
	if _, err := p.z.store.Record(r.Name(), r.Version()); errors.Is(err, fault.ErrNotFound) {
		return false, nil
	}
	adopted, err := p.z.store.Reference(r.Name(), r.Version())
	switch {
	case errors.Is(err, fault.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	p.kept, p.adopted = p.kept+adopted.SizeBytes(), p.adopted+adopted.SizeBytes()
	if !adopted.Fits(r) {
		if slices.ContainsFunc(r.Sources, func(f catalog.File) bool { return f.SHA256 == "" }) {
			p.unknown("whether the adopted reference values are of these source files, whose digests are not all known")
		}
		return false, nil
	}
	for _, f := range adopted.Files {
		p.plan.Files = append(p.plan.Files, PlanFile{Path: f.Path, Reference: true, Adopted: true, SizeBytes: &f.SizeBytes, HaveBytes: f.SizeBytes})
	}
	return true, nil
}

// survey finds out which files are wanted, how large they are and where they are. As
// in a pull, the plugin may want more once it sees an index.
func (p *planner) survey(ctx context.Context) error {
	p.source = p.release.Source
	// What an earlier pull of the release has seen binds, as it does for Pull.
	known := make(map[string]catalog.File)
	if r := p.record; r != nil && sameSource(r.Release.Source, p.source) {
		for _, f := range r.Sources {
			known[f.Path] = f
		}
		if r.Commit != "" {
			p.source.Revision = r.Commit
		}
	}
	list, err := p.round(ctx, known, "", nil)
	if err != nil {
		return err
	}
	if dir := p.indexed(ctx, list); dir != "" {
		defer os.RemoveAll(dir)
		if list, err = p.round(ctx, known, dir, list); err != nil {
			return err
		}
	}
	if p.source.Kind == catalog.KindHub && !p.plan.Source.Pinned && catalog.IsCommit(p.source.Revision) {
		p.plan.Source.Commit = p.source.Revision
	}
	p.sources = p.note(list)
	if reason := unnamed(list); reason != "" {
		p.unknown("which files hold the weights: %s", reason)
		p.plan.Fetch.UnknownFiles++
	}
	return p.reference(ctx, &zoo.Record{Release: *p.release, Sources: p.sources})
}

// round surveys the files that the plugin asks for, given the folder that it may look
// into, and returns them behind those of an earlier round. All are of one commit.
func (p *planner) round(ctx context.Context, known map[string]catalog.File, dir string, before []download.Found) ([]download.Found, error) {
	files, err := p.wanted(ctx, dir)
	if err != nil {
		return nil, err
	}
	wanted := []catalog.File{}
	for _, f := range files {
		if !slices.ContainsFunc(before, func(b download.Found) bool { return b.File.Path == f.Path }) {
			wanted = append(wanted, bind(f, known[f.Path]))
		}
	}
	if len(wanted) == 0 {
		return before, nil
	}
	list, revision, err := download.Survey(ctx, p.inquiry(p.source, wanted, p.dir))
	if err != nil {
		return nil, err
	}
	p.source.Revision = revision
	return append(before, list...), nil
}

// indexed returns a temporary folder with the index that names the files with the
// weights, if there is one on this machine and no single file with all of them; else
// "". The caller removes it.
func (p *planner) indexed(ctx context.Context, list []download.Found) string {
	found := func(name string) int {
		return slices.IndexFunc(list, func(f download.Found) bool { return f.File.Path == name && f.Err == nil })
	}
	i := found(checkpoint.IndexFile)
	if i < 0 || found(checkpoint.WeightsFile) >= 0 || p.plugin == nil {
		return ""
	}
	index, _ := p.read(ctx, list[i].File, maxIndexBytes)
	if index == nil {
		return ""
	}
	dir, err := os.MkdirTemp("", "zoo-plan-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, checkpoint.IndexFile), index, 0o600)
	}
	if err != nil {
		p.unknown("what %s names: %v", checkpoint.IndexFile, err)
		return ""
	}
	return dir
}

// read returns a source file that is on this machine, and says where, or nil if it is
// not or is longer than a limit.
func (p *planner) read(ctx context.Context, file catalog.File, limit int64) (data []byte, where string) {
	right := func(data []byte, err error) bool {
		return err == nil && int64(len(data)) <= limit && (file.SHA256 == "" || catalog.DigestOf(data).Hex() == file.SHA256)
	}
	if data, err := readAtMost(filepath.Join(p.dir, filepath.FromSlash(file.Path)), limit); right(data, err) {
		return data, "in the store"
	}
	for _, o := range p.origins {
		if o.Network() {
			continue
		}
		body, _, err := o.Open(ctx, p.source, file, download.Position{})
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(body, limit+1))
		if err = errors.Join(err, body.Close()); right(data, err) {
			return data, "from " + o.Name()
		}
	}
	return nil, ""
}

// unnamed says why it is not known which files hold the weights, or returns "".
func unnamed(list []download.Found) string {
	open, index, named, found := error(nil), false, false, false
	for _, f := range list {
		if isChoice(f) && f.Err != nil {
			open = f.Err
			continue
		}
		found = found || isChoice(f)
		index = index || f.File.Path == checkpoint.IndexFile && f.Err == nil
		named = named || filepath.Ext(f.File.Path) == filepath.Ext(checkpoint.WeightsFile)
	}
	switch {
	case index && !named:
		return checkpoint.IndexFile + ", which names them, is not here yet"
	case open != nil && !found:
		return sizeProblem(open)
	}
	return ""
}

// isChoice reports whether a file is one of the two of which a release needs one, where
// a plugin leaves it open.
func isChoice(f download.Found) bool {
	return f.File.Optional && (f.File.Path == checkpoint.WeightsFile || f.File.Path == checkpoint.IndexFile)
}

// absent reports whether a file is one that need not be there, and is not.
func absent(f download.Found) bool {
	return f.File.Optional && f.Origin == "" && errors.Is(f.Err, fault.ErrNotFound)
}

// inquiry asks for files of a source that belong into a folder.
func (p *planner) inquiry(source catalog.Source, files []catalog.File, dir string) download.Request {
	return download.Request{Source: source, Files: files, Origins: p.origins, Dir: dir, Logger: p.set.logger, StallTimeout: planTimeout}
}

// wanted lists the files that the plugin asks for, with what it can see in a folder;
// without a plugin those that the catalog lists.
func (p *planner) wanted(ctx context.Context, dir string) ([]catalog.File, error) {
	if p.plugin == nil {
		return p.release.Source.Files, nil
	}
	plan, err := p.plugin.Fetch(ctx, zoo.FetchRequest{Release: *p.release, Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("files to fetch: %w", err)
	}
	return plan.Files, catalog.ValidateFiles(plan.Files)
}

// note enters what was found into the plan, and returns the files with their sizes.
func (p *planner) note(list []download.Found) []catalog.File {
	var files []catalog.File
	var reasons []string
	unknown := make(map[string]int)
	for _, f := range list {
		if f.Err != nil {
			p.refused(f.Err)
		}
		if absent(f) || isChoice(f) && f.Err != nil { // see unnamed
			continue
		}
		files = append(files, f.File)
		file := PlanFile{Path: f.File.Path, HaveBytes: f.HaveBytes, From: f.Origin, Network: f.Network}
		if size := f.File.SizeBytes; size > 0 || f.Err == nil {
			file.SizeBytes = &size
			left := max(0, size-f.HaveBytes)
			p.left, p.kept = p.left+left, p.kept+size
			if f.Linked {
				p.linkable += left
			}
			if f.Origin != "" && !f.Network {
				p.plan.Fetch.LocalBytes += left
			} else {
				p.plan.Fetch.NetworkBytes += left
			}
		} else {
			p.plan.Fetch.UnknownFiles++
			reason := sizeProblem(f.Err)
			if unknown[reason]++; unknown[reason] == 1 {
				reasons = append(reasons, reason)
			}
		}
		if f.Err != nil {
			file.Problem = f.Err.Error()
		}
		p.plan.Files = append(p.plan.Files, file)
	}
	for _, reason := range reasons {
		p.unknown("the size of %s: %s", counted(unknown[reason], "file"), reason)
	}
	return files
}

// sizeProblem says in short why a file's size is not known.
func sizeProblem(err error) string {
	var missing *download.MissingError
	switch {
	case errors.As(err, &missing) && !missing.Network:
		return "not on this machine, and the hub must not be asked"
	case errors.Is(err, fault.ErrNotFound):
		return "nobody who was asked has it"
	}
	return err.Error()
}

// counted writes a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// refused notes that the hub gives no files.
func (p *planner) refused(err error) {
	var access *download.AccessError
	if errors.As(err, &access) && p.plan.Token.Refusal == "" {
		p.plan.Token.Needed = true
		p.plan.Token.Refusal, p.plan.Token.Hint = access.Error(), access.Hint()
	}
}
