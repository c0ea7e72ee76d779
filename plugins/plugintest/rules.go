package plugintest

import (
	"errors"
	"fmt"
)

// Rule names one demand of the contract.
type Rule string

// The rules, in the order in which they are checked.
const (
	// RulePanics: no call panics or ends its goroutine, whatever it is given.
	RulePanics Rule = "never-panics"
	// RuleReturns: every call returns within [Options.Timeout].
	RuleReturns Rule = "returns"
	// RuleErrors: an error matches one of the sentinels of package zoo, so that people
	// and programs can tell what kind it is.
	RuleErrors Rule = "errors-have-a-kind"
	// RuleHints: an error about a checkpoint or reference values says what to do next.
	RuleHints Rule = "errors-have-hints"
	// RuleOutside: nothing but Convert and Synthesize writes, and these only into the folder they are given.
	RuleOutside Rule = "writes-where-it-may"
	// RuleRequests: a call leaves the lists and maps of its request as they are.
	RuleRequests Rule = "requests-unchanged"

	// RuleDescribe: name, version, title and version of operations are what the host accepts.
	RuleDescribe Rule = "describe-valid"
	// RuleDescribeSame: Describe always says the same.
	RuleDescribeSame Rule = "describe-stable"

	// RuleFetch: a plan is a valid list of files (catalog.ValidateFiles), and a release whose
	// files are all there can be planned.
	RuleFetch Rule = "fetch-valid"
	// RuleFetchSame: the same folder gives the same plan.
	RuleFetchSame Rule = "fetch-stable"
	// RuleFetchPins: files that the release lists keep their sizes and digests, and
	// every file of the plan that is not optional is one that the checkpoint has.
	RuleFetchPins Rule = "fetch-keeps-pins"
	// RuleFetchEnds: asked again after each download, Fetch has nothing more to ask for at last.
	RuleFetchEnds Rule = "fetch-ends"
	// RuleFetchEnough: what Fetch asks for is enough for Convert.
	RuleFetchEnough Rule = "fetch-enough"
	// RuleFetchHostile: garbage, links, folders, huge and unreadable files in the folder
	// give a valid plan or an error, links out of it are not followed, and nothing huge is
	// read, which is seen in the memory that it takes.
	RuleFetchHostile Rule = "fetch-hostile-folder"

	// RuleConvert: the checkpoint can be converted.
	RuleConvert Rule = "convert-works"
	// RulePack: the pack opens, verifies, names the plugin and the sources, and its tokenizer opens.
	RulePack Rule = "pack-valid"
	// RuleConvertSame: the same checkpoint gives the same bytes: again, from another
	// folder, with another order of sources, with or without a report, on any number of processors.
	RuleConvertSame Rule = "convert-reproducible"
	// RuleProgress: progress does not go back, comes in one call at a time, ends when
	// everything is done, before the call returns.
	RuleProgress Rule = "progress"
	// RuleConvertFolder: a folder that is not empty is refused and left as it is.
	RuleConvertFolder Rule = "convert-into-empty"
	// RuleConvertBroken: a damaged checkpoint is refused, and where Convert fails no pack is left.
	RuleConvertBroken Rule = "convert-broken"

	// RuleRun: the program is valid, of the described version of operations.
	RuleRun Rule = "run-valid"
	// RuleRunSame: the same pack gives the same program.
	RuleRunSame Rule = "run-stable"
	// RuleRunWeights: the pack holds every tensor of the program, with the same matrix.
	RuleRunWeights Rule = "run-weights"
	// RuleRunLogits: the program loads on the backend and gives finite logits.
	RuleRunLogits Rule = "run-logits"
	// RuleRunBad: packs that lack something, or hold something else, are refused.
	RuleRunBad Rule = "run-bad-pack"

	// RuleGate: without reference values there is something to check a pack with, and
	// with a folder of them there are runs.
	RuleGate Rule = "gate-valid"
	// RuleGateSame: the same folder gives the same reference values.
	RuleGateSame Rule = "gate-stable"
	// RuleGatePasses: the pack passes its gate.
	RuleGatePasses Rule = "gate-passes"
	// RuleGateBroken: damaged reference values are refused.
	RuleGateBroken Rule = "gate-broken"

	// RuleSynthesize: Synthesize refuses unknown models and makes a valid pack, the same each time.
	RuleSynthesize Rule = "synthesize"
	// RuleEstimate: Estimate comes close to the pack and tells its program, or, where the
	// checkpoint has no config.json, says that it cannot tell.
	RuleEstimate Rule = "estimate"

	// RuleCancelled: a call whose context has ended fails with the cause.
	RuleCancelled Rule = "cancelled-before"
	// RuleCancel: a call whose context ends meanwhile fails with the cause, soon, and leaves no pack.
	RuleCancel Rule = "cancelled-during"
	// RuleTogether: calls at the same time do what they do alone.
	RuleTogether Rule = "concurrent-calls"

	// RuleCrash: a process that is killed fails its calls, and the next call works.
	RuleCrash Rule = "crash"
	// RuleHang: a process that hangs fails its calls, cancelled or not, and the next call works.
	RuleHang Rule = "hang"
	// RuleSkew: a plugin claims to speak no version of the protocol but its own, and speaks
	// that one with a host that offers a newer one, too.
	RuleSkew Rule = "version-skew"
)

// Finding is one way in which a plugin differs from the contract.
type Finding struct {
	// Rule is what was broken.
	Rule Rule
	// Call is the method that broke it, and with what.
	Call string
	// Err says how.
	Err error
}

// Error gives all three.
func (f *Finding) Error() string { return fmt.Sprintf("%s: %s: %v", f.Rule, f.Call, f.Err) }

// Unwrap returns how.
func (f *Finding) Unwrap() error { return f.Err }

// Findings lists the findings in an error of [Test].
func Findings(err error) []*Finding {
	if f, ok := err.(*Finding); ok {
		return []*Finding{f}
	}
	var all []*Finding
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			all = append(all, Findings(err)...)
		}
	} else if inner := errors.Unwrap(err); inner != nil {
		all = Findings(inner)
	}
	return all
}
