package plugintest

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// maxTitle is how many characters of a title a list has room for.
const maxTitle = 200

// describe asks the plugin who it is, and for its optional interfaces.
func (s *suite) describe(ctx context.Context) error {
	const call = "Describe"
	about, err := ask(ctx, s, call, s.plugin.Describe)
	if !s.works(RuleDescribe, call, err) {
		return nil
	}
	s.about = about
	if err := catalog.ValidateName(about.Name); err != nil {
		s.find(RuleDescribe, call, "the name: %w", err)
	}
	if _, err := semver.StrictNewVersion(about.Version); err != nil {
		s.find(RuleDescribe, call, "the version %q is not semantic: %w", about.Version, err)
	}
	control := func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp) }
	if n := utf8.RuneCountInString(about.Title); n == 0 || n > maxTitle || !utf8.ValidString(about.Title) || strings.ContainsFunc(about.Title, control) {
		s.find(RuleDescribe, call, "the title %.300q is not one line of 1 to %d characters", about.Title, maxTitle)
	}
	if about.Operations != program.Version {
		s.find(RuleDescribe, call, "programs are of version %d of the operations, this host has version %d", about.Operations, program.Version)
	}
	again, err := ask(ctx, s, call, s.plugin.Describe)
	if s.works(RuleDescribeSame, call, err) && again != about {
		s.find(RuleDescribeSame, call, "it said %+v, and then %+v", about, again)
	}
	if r, ok := s.plugin.(zoo.Resolver); ok {
		resolved, err := ask(ctx, s, "Resolve", r.Resolve)
		if s.works(RuleDescribe, "Resolve", err) {
			s.plugin = resolved
		}
	}
	return nil
}
