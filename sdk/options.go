package sdk

import (
	"log/slog"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/zoo"
)

// Option is a setting of [New], [Open] and [Zoo.Open]. Values are checked by the
// call that takes the options, whose error then matches zoo.ErrUsage.
type Option func(*settings)

// settings is what options set. Its zero value holds every default.
type settings struct {
	home        string
	catalogFile string
	catalogKeys []string
	lockFile    string
	offline     bool
	from        []string
	endpoint    string
	token       download.Token
	logger      *slog.Logger
	events      Events
	discard     bool
	hintFlags   []string

	backend     string
	threads     int
	context     int
	cache       backends.CacheType
	activations backends.Activations
	tables      backends.TablePlacement
	policy      zoo.GatePolicy
}

// with returns the settings with further options applied.
func (s settings) with(opts []Option) settings {
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	return s
}

// WithHome sets the store's folder. Without it ZOO_HOME is taken, or the folder
// "zoo" among the user's data.
func WithHome(dir string) Option { return func(s *settings) { s.home = dir } }

// WithCatalog adds the models of a catalog file; where a name is in the built-in
// catalog too, the file's model is taken. "" takes the built-in catalog alone.
//
// Its models are taken as they stand there. Its plugins are programs, and are installed
// only if the catalog is signed; see [WithCatalogKeys].
func WithCatalog(file string) Option { return func(s *settings) { s.catalogFile = file } }

// WithCatalogKeys names public keys of minisign, as [catalog.ParseKey] reads them, of
// people whose catalogs are trusted. The file of [WithCatalog] must then have a signature
// by one of them beside it, in a file of the same name with ".minisig" after it; else
// all that needs the catalog is zoo.ErrIntegrity. Without keys no signature is looked for.
func WithCatalogKeys(keys ...string) Option {
	return func(s *settings) {
		s.catalogKeys = append(s.catalogKeys[:len(s.catalogKeys):len(s.catalogKeys)], keys...)
	}
}

// WithLock has names stand for what a lock file says (see [Zoo.Lock]): a version, made
// from the locked files, by the locked version and program of its plugin, into the
// locked pack. Models that are not in it stand for what they always do. "" takes none.
func WithLock(file string) Option { return func(s *settings) { s.lockFile = file } }

// WithOffline keeps everything away from the network.
func WithOffline() Option { return func(s *settings) { s.offline = true } }

// WithCheckpoint names folders in which source files are looked for before any other place.
func WithCheckpoint(dirs ...string) Option {
	return func(s *settings) { s.from = append(s.from[:len(s.from):len(s.from)], dirs...) }
}

// WithoutCheckpoint deletes the source files once they are converted. They are
// then fetched again when a pack has to be made anew.
func WithoutCheckpoint() Option { return func(s *settings) { s.discard = true } }

// WithEndpoint sets the hub's address in place of HF_ENDPOINT.
func WithEndpoint(url string) Option { return func(s *settings) { s.endpoint = url } }

// WithToken sets the hub's access token in place of HF_TOKEN. It is sent to the
// hub's endpoint only, and is neither stored nor logged.
func WithToken(token string) Option {
	return func(s *settings) { s.token = download.Token(token) }
}

// WithLogger sets where details are logged; the default discards them.
func WithLogger(logger *slog.Logger) Option { return func(s *settings) { s.logger = logger } }

// WithProgress sets callbacks that are told what a long call is doing.
func WithProgress(e Events) Option { return func(s *settings) { s.events = e } }

// WithBackend chooses what runs the model: "cpu", "metal" or another name that
// [Zoo.Doctor] lists, or "auto" for the best one that is available.
func WithBackend(name string) Option { return func(s *settings) { s.backend = name } }

// WithThreads sets the number of threads that share the work; 0 takes one for each processor.
func WithThreads(n int) Option { return func(s *settings) { s.threads = n } }

// WithContext sets the most tokens of a conversation; 0 takes as many as the
// model was made for and the memory allows.
func WithContext(tokens int) Option { return func(s *settings) { s.context = tokens } }

// WithCache sets the number type of cached keys and values: "float", "half", which
// is float16, or "int8". The default is "int8" where the checkpoint has scales for
// it, else "float". On the CPU "half" takes as much memory as "float".
func WithCache(kind string) Option {
	return func(s *settings) { s.cache = backends.CacheType(kind) }
}

// WithActivations sets how the inputs of products become integers: "static", "float",
// "16" or "8"; see package backends. The default is "static" where the checkpoint has
// scales for it, else "16".
func WithActivations(kind string) Option {
	return func(s *settings) { s.activations = backends.Activations(kind) }
}

// WithTables sets how tables are kept that rows are only looked up in: "mapped"
// leaves them in the pack's file, of which the rows of the tokens are read and nothing
// else, "resident" keeps them in the memory of the device: opening then reads all of
// them, of which it tells no progress. The default is "mapped" on the CPU, and
// "resident" on a GPU, which is slower without them. It makes no difference to any result.
func WithTables(place string) Option {
	return func(s *settings) { s.tables = backends.TablePlacement(place) }
}

// WithHintFlags names flags, with their values, that the commands in hints about plugins
// repeat after their arguments, such as "--catalog", FILE: those without which the
// commands would not see what this Zoo sees.
func WithHintFlags(flags ...string) Option {
	return func(s *settings) { s.hintFlags = slices.Clone(flags) }
}

// AllowUngated opens packs, too, that have not passed their gate.
func AllowUngated() Option { return func(s *settings) { s.policy = zoo.GateOptional } }
