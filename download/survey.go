package download

import (
	"context"
	"errors"
	"net/http"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// describer is what a network origin also implements if it tells of a file without
// sending it.
type describer interface {
	// Describe returns what is known of a file. Errors are those of Origin.Open.
	Describe(ctx context.Context, src catalog.Source, file catalog.File) (Info, error)
}

// Found is what [Survey] knows of one file.
type Found struct {
	// File is the wanted file, with its size where that is known.
	File catalog.File
	// HaveBytes is how much of it lies in the folder: all, or the part that a Fetch
	// would go on from.
	HaveBytes int64
	// Origin is the name of the origin that has the file or, where only the catalog
	// tells its size, would be asked for it; "" if the folder has it, and if none does.
	Origin string
	// Network says that this origin is reached over a network, and Linked that its file
	// lies on this machine and takes no room where it can be linked.
	Network, Linked bool
	// Err says why no origin has the file or its size is not known. For an optional
	// file that is simply not there it matches fault.ErrNotFound.
	Err error
}

// Whole reports whether the folder has the file in full.
func (f Found) Whole() bool { return f.Err == nil && f.Origin == "" }

// Survey tells what a [Fetch] of the same request would have to do, as far as that
// can be told without reading or writing any file: what lies in the folder, which
// need not exist, by its size alone, and where the rest would come from. Where
// nobody here knows a file's size, network origins are asked, once, for the file's
// headers; after a failure that concerns all files no further one is asked about.
//
// It returns an entry for each wanted file in the order of the request, and the full
// commit that the files are of, if an origin told, else the request's revision. Its
// error is a malformed request or the cause of ctx; failures of origins stand in the
// entries.
func Survey(ctx context.Context, req Request) (list []Found, revision string, err error) {
	files := req.Files
	if files == nil {
		files = req.Source.Files
	}
	if err := checkRequest(req, files); err != nil {
		return nil, "", err
	}
	s := &survey{fetcher: newFetcher(req, nil)}
	if root, err := os.OpenRoot(req.Dir); err == nil {
		defer root.Close()
		s.root = root
	}
	list = make([]Found, len(files))
	var open []*Found
	for i, file := range files {
		list[i] = Found{File: file}
		if !s.local(ctx, &list[i]) {
			open = append(open, &list[i])
		}
	}
	if err := s.ask(ctx, open); err != nil {
		return nil, "", err
	}
	return list, s.source().Revision, context.Cause(ctx)
}

// survey is the state of one Survey; its root is nil if there is no folder yet.
type survey struct {
	*fetcher
	// down is set once the network origins can be asked no more.
	down error
}

// local looks for a file on this machine and reports whether nobody else need be asked.
func (s *survey) local(ctx context.Context, f *Found) bool {
	if s.root != nil {
		if info, err := s.root.Lstat(f.File.Path); err == nil && info.Mode().IsRegular() && (f.File.SizeBytes == 0 || info.Size() == f.File.SizeBytes) {
			f.File.SizeBytes, f.HaveBytes = info.Size(), info.Size()
			return true
		}
		f.HaveBytes = partSize(s.root, f.File.Path)
		if f.File.SizeBytes > 0 && f.HaveBytes > f.File.SizeBytes {
			f.HaveBytes = 0 // no part of this file
		}
	}
	for _, o := range s.req.Origins {
		if o.Network() {
			f.Origin, f.Network = o.Name(), true
			return f.File.SizeBytes > 0
		}
		info, linked, err := describeLocal(ctx, o, s.source(), f.File)
		if err == nil && (f.File.SizeBytes == 0 || f.File.SizeBytes == info.SizeBytes) && s.bind(o, f.File, info.Revision) == nil {
			f.File.SizeBytes, f.Origin, f.Linked = info.SizeBytes, o.Name(), linked
			return true
		}
	}
	f.Err = s.missing(f.File)
	return true
}

// describeLocal returns what an origin on this machine knows of a file, and whether the file can be linked.
func describeLocal(ctx context.Context, o Origin, src catalog.Source, file catalog.File) (info Info, linked bool, err error) {
	if l, ok := o.(LocalOrigin); ok {
		_, info, err = l.LocalPath(src, file)
		return info, true, err
	}
	body, info, err := o.Open(ctx, src, file, Position{})
	if err != nil {
		return Info{}, false, err
	}
	return info, false, body.Close()
}

// missing reports a file that no origin has.
func (s *survey) missing(file catalog.File) error {
	e := &MissingError{File: file.Path, Source: s.source()}
	for _, o := range s.req.Origins {
		e.Origins = append(e.Origins, o.Name())
		e.Network = e.Network || o.Network()
	}
	return e
}

// ask asks the network origins about files, the first alone: it binds the commit for
// the others, and shows whether there is anybody to ask.
func (s *survey) ask(ctx context.Context, open []*Found) error {
	if len(open) == 0 {
		return nil
	}
	s.network(ctx, open[0])
	if err := open[0].Err; errors.Is(err, fault.ErrNetwork) || errors.Is(err, fault.ErrNotPermitted) {
		s.down = err
	}
	group := new(errgroup.Group)
	group.SetLimit(s.req.Concurrency)
	for _, f := range open[1:] {
		group.Go(func() error {
			s.network(ctx, f)
			return nil
		})
	}
	_ = group.Wait() // whatever fails stands in the entries
	return context.Cause(ctx)
}

// network asks the network origins in turn about one file.
func (s *survey) network(ctx context.Context, f *Found) {
	if f.Err = s.down; f.Err != nil {
		return
	}
	for _, o := range s.req.Origins {
		d, ok := o.(describer)
		if !ok {
			continue
		}
		info, err := s.describe(ctx, d, o, f.File)
		if err != nil {
			f.Err = err
			continue
		}
		f.File.SizeBytes, f.Origin, f.Network, f.Err = info.SizeBytes, o.Name(), o.Network(), nil
		return
	}
	switch {
	case f.Err == nil:
		f.Err = &NetworkError{File: f.File.Path, Origin: f.Origin, Reason: "it does not tell the file's length beforehand"}
	case errors.Is(f.Err, fault.ErrNotFound):
		f.Origin, f.Network = "", false
	}
}

// describe asks one origin, for no longer than it may stall, and holds the answer against the pins.
func (s *survey) describe(ctx context.Context, d describer, o Origin, file catalog.File) (Info, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.req.StallTimeout, &NetworkError{File: file.Path, Origin: o.Name(), Reason: "no answer within " + s.req.StallTimeout.String()})
	defer cancel()
	info, err := d.Describe(ctx, s.source(), file)
	if err != nil {
		return Info{}, err
	}
	if info.SizeBytes < 0 || info.SizeBytes > maxFileBytes {
		return Info{}, &NetworkError{File: file.Path, Origin: o.Name(), Reason: "it does not tell the file's length"}
	}
	j := &job{fetcher: s.fetcher, file: file}
	if _, err := j.expect(o, info); err != nil {
		return Info{}, err
	}
	return info, s.bind(o, file, info.Revision)
}

// Describe asks for the headers of a file: its content is neither sent nor asked for
// from the host that the hub redirects to, where the hub itself says how long it is.
func (h *Hub) Describe(ctx context.Context, src catalog.Source, file catalog.File) (Info, error) {
	x, err := h.exchange(http.MethodHead, src, file)
	if err != nil {
		return Info{}, err
	}
	resp, own, said, err := x.follow(ctx, Position{}, func(said linked) bool { return said.sizeBytes >= 0 })
	if err != nil {
		return Info{}, err
	}
	defer discard(resp.Body)
	if isRedirect(resp.StatusCode) {
		info := Info{SizeBytes: said.sizeBytes, Revision: said.revision}
		info.SHA256, info.GitBlob = parseETag(said.etag)
		return info, nil
	}
	_, info, err := x.answer(resp, own, said, Position{})
	return info, err
}
