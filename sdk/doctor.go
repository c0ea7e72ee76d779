package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/cpu"

	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// Diagnosis is what [Zoo.Doctor] has found out about this machine and its set-up.
type Diagnosis struct {
	// Version is that of zoo, Go the compiler's, OS and Arch name the platform.
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	// Processors is the number that this process may use, and Features are the
	// instruction sets that kernels care about.
	Processors int      `json:"processors"`
	Features   []string `json:"features"`
	// MemoryBytes is the memory that this process may use; 0 when not known.
	MemoryBytes int64 `json:"memory"`
	// Home is the store's folder, Exists whether it is there, and Writable whether
	// it, or the folder that it would be made in, can be written.
	Home     string `json:"home"`
	Exists   bool   `json:"home_exists"`
	Writable bool   `json:"home_writable"`
	// FreeBytes is the free space there, and Used what the store takes.
	FreeBytes int64     `json:"free"`
	Used      zoo.Usage `json:"used"`
	// Endpoint is the hub's address and Offline whether it is left alone.
	Endpoint string `json:"endpoint"`
	Offline  bool   `json:"offline"`
	// Token says whether there is an access token; its value is not told.
	Token bool `json:"token"`
	// HubCache is the folder of the hub's own tools, "" when it does not exist.
	HubCache string `json:"hub_cache"`
	// Models is the number of models in the catalog.
	Models int `json:"models"`
	// CatalogFile is the file that goes before the built-in catalog, "" for none.
	// CatalogKey is the ID of the key that has signed it, "" if that was not checked, and
	// CatalogComment what the signer has noted.
	CatalogFile    string `json:"catalog_file,omitempty"`
	CatalogKey     string `json:"catalog_key,omitempty"`
	CatalogComment string `json:"catalog_comment,omitempty"`
	// LockFile is the lock file that is in force, "" for none, and Locked how many models it has.
	LockFile string `json:"lock_file,omitempty"`
	Locked   int    `json:"locked,omitempty"`
	// Plugins are those that can be used.
	Plugins  []zoo.Description `json:"plugins"`
	Backends []BackendDetails  `json:"backends"`
	// Problems are sentences about what will not work.
	Problems []string `json:"problems"`
}

// BackendDetails says what a backend can do here.
type BackendDetails struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	// About says what it runs on, or why it is not available and what to do about that.
	About string `json:"about"`
	// Chosen says that "auto" takes it, and Why for what reason.
	Chosen bool   `json:"chosen"`
	Why    string `json:"why,omitempty"`
}

// Doctor looks at the store, the hub's settings, the backends and the machine. It
// changes nothing but for a file that it writes to the store and deletes, and does
// not use the network.
func (z *Zoo) Doctor(ctx context.Context) (*Diagnosis, error) {
	d := &Diagnosis{
		Version:     Version(),
		Go:          runtime.Version(),
		OS:          runtime.GOOS,
		Arch:        runtime.GOARCH,
		Processors:  runtime.GOMAXPROCS(0),
		Features:    cpuFeatures(),
		MemoryBytes: totalMemory(),
		Home:        z.store.Home(),
		Token:       download.TokenFromEnvironment(z.set.getenv) != "",
		Plugins:     []zoo.Description{},
		Backends:    []BackendDetails{},
		Problems:    []string{},
	}
	problem := func(err error) { d.Problems = append(d.Problems, err.Error()) }
	z.examineStore(ctx, d, problem)
	z.examineHub(d, problem)
	d.CatalogFile = z.set.catalogFile
	if models, err := z.catalog(); err != nil {
		problem(err)
	} else {
		d.Models = len(models.Models)
		if s := models.Signature; s != nil {
			d.CatalogKey, d.CatalogComment = s.Key.ID(), s.Comment
		}
	}
	d.LockFile = z.set.lockFile
	if l, err := z.lock(); err == nil && l != nil { // the plugins, too, tell of one that cannot be read
		d.Locked = len(l.Models)
	}
	plugins, err := z.verified(ctx)
	if err != nil {
		problem(err)
	}
	for _, c := range plugins {
		if c.problem != nil {
			problem(c.problem)
			continue
		}
		d.Plugins = append(d.Plugins, c.about)
	}
	chosen, err := chooseBackend(z.backends, AutoBackend)
	if err != nil {
		problem(err)
	}
	for _, b := range z.backends {
		details := BackendDetails{Name: b.Name(), Available: true, About: b.Describe(), Chosen: chosen != nil && b == chosen.device}
		if details.Chosen {
			details.Why = chosen.why
		}
		if err := b.Available(); err != nil {
			details.Available, details.About = false, err.Error()
			if hint := fault.Hint(err); hint != "" {
				details.About += " (" + hint + ")"
			}
		}
		d.Backends = append(d.Backends, details)
	}
	return d, context.Cause(ctx)
}

// examineStore looks at the store's folder.
func (z *Zoo) examineStore(ctx context.Context, d *Diagnosis, problem func(error)) {
	d.Exists = exists(d.Home)
	var err error
	if d.FreeBytes, err = atomicfile.FreeBytes(d.Home); err != nil {
		problem(err)
	}
	// A store that does not exist yet is made in its nearest existing parent.
	dir := d.Home
	for !exists(dir) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
	}
	f, err := os.CreateTemp(dir, atomicfile.TempPrefix)
	if err == nil {
		d.Writable = true
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		problem(fmt.Errorf("the store cannot be written: %w", err))
	}
	if !d.Exists {
		return
	}
	if d.Used, err = z.store.Usage(ctx); err != nil {
		problem(err)
	}
	records, err := z.store.Installed(ctx)
	if err != nil {
		problem(err)
	}
	for i := range records {
		pack, err := zoo.OpenPack(z.packDir(records[i].Pack))
		if err != nil {
			problem(fmt.Errorf("%s@%s: %w", records[i].Name(), records[i].Version(), err))
			continue
		}
		_ = pack.Close()
	}
}

// examineHub looks at what decides how a hub is asked.
func (z *Zoo) examineHub(d *Diagnosis, problem func(error)) {
	d.Endpoint = download.DefaultEndpoint
	if text := z.set.getenv("HF_ENDPOINT"); text != "" {
		d.Endpoint = "not an address"
		if u, err := url.Parse(text); err == nil {
			d.Endpoint = u.Redacted() // it may hold a password
		}
	}
	d.Offline = true
	origins, err := z.set.origins()
	if err != nil {
		problem(err)
	}
	for _, o := range origins {
		if o.Network() {
			d.Offline = false
		}
	}
	if dir, err := download.HubCacheDir(z.set.getenv); err == nil && exists(dir) {
		d.HubCache = dir
	}
}

// cpuFeatures lists the instruction sets of this processor that matter for kernels.
func cpuFeatures() []string {
	features := []string{}
	for _, f := range [...]struct {
		name string
		has  bool
	}{
		{"avx2", cpu.X86.HasAVX2},
		{"fma", cpu.X86.HasFMA},
		{"avx512f", cpu.X86.HasAVX512F},
		{"avx512bw", cpu.X86.HasAVX512BW},
		{"avx512vnni", cpu.X86.HasAVX512VNNI},
		{"asimd", cpu.ARM64.HasASIMD},
		{"asimddp", cpu.ARM64.HasASIMDDP},
		{"i8mm", cpu.ARM64.HasI8MM},
	} {
		if f.has {
			features = append(features, f.name)
		}
	}
	return features
}
