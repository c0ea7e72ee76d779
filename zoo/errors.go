package zoo

import (
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// The kinds of errors that this module returns. Each stands for one exit code of
// the command line; errors.Is tells which of them an error is.
var (
	// ErrUsage reports arguments or options that contradict each other or are out of range.
	ErrUsage = fault.ErrUsage
	// ErrNotFound reports a name, version, file or pack that does not exist.
	ErrNotFound = fault.ErrNotFound
	// ErrIntegrity reports bytes that are not what they should be: a digest, a size, a malformed file.
	ErrIntegrity = fault.ErrIntegrity
	// ErrGateFailed reports a pack that did not pass its gate, or has not been put to it.
	ErrGateFailed = fault.ErrGateFailed
	// ErrNetwork reports a server that could not be reached or did not answer as it should.
	ErrNetwork = fault.ErrNetwork
	// ErrNoSpace reports a device without enough room.
	ErrNoSpace = fault.ErrNoSpace
	// ErrNotPermitted reports a missing token, an unaccepted licence or a refused file operation.
	ErrNotPermitted = fault.ErrNotPermitted
)

// Hint returns what the user can do about err: the hint of the first error in its
// tree that has one, one sentence without a full stop, or "".
func Hint(err error) string { return fault.Hint(err) }

// WithHint returns err with a hint attached, which [Hint] finds: its text and its identity
// for errors.Is and errors.As stay the same. It returns nil for a nil err.
func WithHint(err error, hint string) error { return fault.WithHint(err, hint) }

// DamageError reports a part of a pack that is not what its manifest says. It
// matches [ErrIntegrity].
type DamageError struct {
	// Pack is the pack's folder.
	Pack string
	// Model is the name of the installed model that the pack belongs to, or "".
	Model string
	// File is the damaged file, by its path in the pack.
	File string
	// Tensor is the damaged tensor of the weights file, or "" for damage outside of tensors.
	Tensor string
	// Want and Got say what the manifest wants and what was found: digests, sizes,
	// or words.
	Want, Got string
}

// Error names the file, and the tensor if the damage lies in one.
func (e *DamageError) Error() string {
	place := fmt.Sprintf("%q of pack %q is damaged", e.File, e.Pack)
	if e.Tensor != "" {
		place = fmt.Sprintf("tensor %q in ", e.Tensor) + place
	}
	return fmt.Sprintf("%s: want %s, got %s", place, e.Want, e.Got)
}

// Is reports whether target is ErrIntegrity.
func (e *DamageError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to get a sound pack.
func (e *DamageError) Hint() string {
	if e.Model != "" {
		return fmt.Sprintf("run `zoo rm %[1]s` and then `zoo pull %[1]s`", e.Model)
	}
	return "make the pack again with `zoo convert`, or copy it again from where it came"
}

// ManifestError reports a pack.json that does not describe a pack that can be
// opened. It matches [ErrIntegrity].
type ManifestError struct {
	// Pack is the pack's folder, or "" if only the manifest is known.
	Pack string
	// Err says what is wrong.
	Err error
}

// Error gives the folder and the reason.
func (e *ManifestError) Error() string {
	if e.Pack == "" {
		return fmt.Sprintf("%s: %v", ManifestFile, e.Err)
	}
	return fmt.Sprintf("%s of pack %q: %v", ManifestFile, e.Pack, e.Err)
}

// Is reports whether target is ErrIntegrity. The cause is not unwrapped: a bad
// path in a manifest is not a wrong use of the command.
func (e *ManifestError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to get a sound pack.
func (e *ManifestError) Hint() string {
	return "make the pack again with `zoo convert` or `zoo pull`"
}

// FormatError reports a pack in a format that this build does not read. It matches
// [ErrIntegrity].
type FormatError struct {
	// Pack is the pack's folder, or "" if only the manifest is known.
	Pack string
	// Format is the format of the pack; [PackFormat] is what can be read.
	Format int
}

// Error gives both formats.
func (e *FormatError) Error() string {
	if e.Pack == "" {
		return fmt.Sprintf("a pack of format %d, this zoo reads format %d", e.Format, PackFormat)
	}
	return fmt.Sprintf("pack %q has format %d, this zoo reads format %d", e.Pack, e.Format, PackFormat)
}

// Is reports whether target is ErrIntegrity.
func (e *FormatError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says which side is the older one.
func (e *FormatError) Hint() string {
	if e.Format > PackFormat {
		return "use a newer zoo, or make the pack again with this one"
	}
	return "make the pack again with `zoo convert` or `zoo pull`"
}

// PackDigestError reports a conversion that did not yield the pack that is pinned
// by the catalog or recorded from an earlier conversion. It matches [ErrIntegrity].
type PackDigestError struct {
	Model, Version string
	// Pinned says who expects Want: the catalog, or an earlier conversion.
	Pinned string
	// Want and Got are digests.
	Want, Got string
}

// Error gives both digests.
func (e *PackDigestError) Error() string {
	return fmt.Sprintf("the pack of %s@%s has digest %s, %s says %s", e.Model, e.Version, e.Got, e.Pinned, e.Want)
}

// Is reports whether target is ErrIntegrity.
func (e *PackDigestError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says how to start over.
func (e *PackDigestError) Hint() string {
	return fmt.Sprintf("run `zoo rm %[1]s` and then `zoo pull %[1]s`; if it happens again, report it", e.Model)
}

// MissingPluginError reports that no plugin, built in or installed, satisfies a
// reference. It matches [ErrNotFound].
type MissingPluginError struct {
	// Name and Constraint are what was asked for.
	Name, Constraint string
	// Have lists the versions of the plugin that there are, newest first; it is
	// empty when there is no plugin of that name.
	Have []string
}

// Error gives the name and the constraint.
func (e *MissingPluginError) Error() string {
	if len(e.Have) == 0 {
		return fmt.Sprintf("no plugin is named %q", e.Name)
	}
	return fmt.Sprintf("no version of plugin %q satisfies %q", e.Name, e.Constraint)
}

// Is reports whether target is ErrNotFound.
func (e *MissingPluginError) Is(target error) bool { return target == fault.ErrNotFound }

// Hint says what there is, and where one could come from.
func (e *MissingPluginError) Hint() string {
	const elsewhere = "as a file for `zoo plugin install --from FILE`, or in another version of zoo"
	switch {
	case len(e.Have) == 0:
		return fmt.Sprintf("this build has no plugin %s, and none is installed; look for it in a catalog for --catalog, %s", e.Name, elsewhere)
	case e.Constraint == "*": // so they are all prereleases
		return fmt.Sprintf("there is %[1]s %[2]s, and a prerelease is taken only where it is named, as in %[1]s@%[3]s", e.Name, strings.Join(e.Have, ", "), e.Have[0])
	}
	return fmt.Sprintf("there is %s %s; look for one that satisfies %s in a catalog for --catalog, %s", e.Name, strings.Join(e.Have, ", "), e.Constraint, elsewhere)
}

// NotInstalledError reports a model, or a version of one, that is not in the store.
// It matches [ErrNotFound].
type NotInstalledError struct {
	Model string
	// Constraint is the version or constraint that was asked for, or "".
	Constraint string
	// Have lists the installed versions, newest first.
	Have []string
}

// Error gives the name and the constraint.
func (e *NotInstalledError) Error() string {
	if e.Constraint == "" {
		return fmt.Sprintf("model %q is not installed", e.Model)
	}
	return fmt.Sprintf("no version of model %q that satisfies %q is installed", e.Model, e.Constraint)
}

// Is reports whether target is ErrNotFound.
func (e *NotInstalledError) Is(target error) bool { return target == fault.ErrNotFound }

// Hint says how to install it.
func (e *NotInstalledError) Hint() string {
	hint := fmt.Sprintf("run `zoo pull %s`", e.Model)
	if e.Constraint != "" {
		hint = fmt.Sprintf("run `zoo pull '%s@%s'`", e.Model, e.Constraint)
	}
	if len(e.Have) > 0 {
		hint += "; installed are " + strings.Join(e.Have, ", ")
	}
	return hint
}
