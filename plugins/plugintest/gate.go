package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/gate"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
)

// reference asks for what a pack is held against.
func (s *suite) reference(ctx context.Context, call string, info zoo.PackInfo, dir string) (*zoo.Reference, error) {
	ref, err := ask(ctx, s, call, func(ctx context.Context) (*zoo.Reference, error) {
		return s.callGate(ctx, s.plugin, call, zoo.GateRequest{Pack: info, Dir: dir})
	})
	if err == nil && ref == nil {
		s.find(RuleGate, call, "neither reference values nor an error came back")
		return nil, errFaulty
	}
	return ref, err
}

// gate asks for reference values and puts the pack to its gate.
func (s *suite) gate(ctx context.Context) error {
	if s.pack == nil {
		return nil
	}
	for _, dir := range []string{"", s.o.Reference} {
		call := "Gate, without a folder"
		if dir != "" {
			call = "Gate, with a folder"
		} else if s.gated != nil {
			continue
		}
		ref, err := s.reference(ctx, call, s.info, dir)
		if !s.works(RuleGate, call, err) {
			continue
		}
		switch {
		case dir != "" && len(ref.Runs) == 0:
			s.find(RuleGate, call, "there are no reference runs")
		case dir == "" && len(ref.Prompts) == 0:
			s.find(RuleGate, call, "there are no prompts to check a pack with")
		}
		again, err := s.reference(ctx, call, s.info, dir)
		if s.works(RuleGateSame, call, err) && !reflect.DeepEqual(ref, again) {
			s.find(RuleGateSame, call, "the reference values were others when they were asked for again")
		}
		s.gated = ref
	}
	return s.passes(ctx)
}

// passes puts the pack to its gate. Questions are left out: how they are asked is not the plugin's.
func (s *suite) passes(ctx context.Context) error {
	if s.gated == nil || s.program == nil || s.o.Backend == nil || backends.CheckWeights(s.program, s.pack) != nil {
		return nil
	}
	compiled, err := s.pack.File(zoo.TokenizerFile)
	if err != nil {
		return nil // reported already
	}
	tokens, err := tokenizer.Open(compiled)
	if err != nil {
		return nil // reported already
	}
	ref := *s.gated
	ref.Questions = nil
	_, err = gate.Run(ctx, gate.Request{
		Pack: s.pack, Plugin: s.pack.Manifest().Plugin, Program: s.program, Backend: s.o.Backend, Text: plainText{tokens}, Reference: &ref,
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		s.find(RuleGatePasses, "Gate", "the pack does not pass its gate: %w", err)
	}
	return nil
}

// plainText asks without a chat template. It implements gate.Text.
type plainText struct{ *tokenizer.Tokenizer }

var _ gate.Text = plainText{}

// Prompt implements gate.Text.
func (t plainText) Prompt(_ context.Context, question string) ([]int32, error) {
	return t.Encode(question), nil
}

// Encode implements gate.Text.
func (t plainText) Encode(text string) []int32 {
	return t.Tokenizer.Encode(nil, text, tokenizer.MarkersAreText)
}

// StopIDs implements gate.Text.
func (plainText) StopIDs() []int32 { return nil }

// gateBroken asks for reference values of damaged folders.
func (s *suite) gateBroken(ctx context.Context) error {
	if s.pack == nil {
		return nil
	}
	wrong := func(call string, must bool, fill func(dir string) error) error {
		call = "Gate, " + call
		dir, around, err := s.folder()
		if err != nil {
			return err
		}
		if err := fill(dir); err != nil {
			return err
		}
		before, err := readTree(dir)
		if err != nil {
			return err
		}
		_, err = s.reference(ctx, call, s.info, dir)
		around(call)
		switch {
		case err != nil:
			s.judgeData(RuleGateBroken, call, err)
		case must:
			s.find(RuleGateBroken, call, "it was not refused")
		}
		after, err := readTree(dir)
		if err != nil {
			return err
		}
		if diff := before.diff(after); diff != "" {
			s.find(RuleOutside, call, "its folder has changed: %s", diff)
		}
		return os.RemoveAll(filepath.Dir(dir))
	}
	files := []string{zoo.GoldenFile, zoo.GoldenTensorsFile, zoo.QuestionsFile}
	if err := wrong("an empty folder", true, func(string) error { return nil }); err != nil {
		return err
	}
	for _, d := range damages {
		err := wrong(d.name+" in place of all files", true, func(dir string) error {
			for _, name := range files {
				if data, ok := d.change(garbage(4000)); ok {
					if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, name := range files {
			if s.o.Reference == "" || !exists(filepath.Join(s.o.Reference, name)) {
				continue
			}
			// Questions may be missing or none, and numbers may be anything.
			must := name != zoo.QuestionsFile || d.name == "garbage"
			err := wrong(fmt.Sprintf("%s in place of %s", d.name, name), must, func(dir string) error { return s.spoilReference(dir, name, d.change) })
			if err != nil {
				return err
			}
		}
	}
	if s.o.Reference == "" {
		return nil
	}
	s.gateBad(ctx)
	for what, change := range map[string]func(runs []any){
		"a token of no vocabulary": func(runs []any) { setFirst(runs, "prompt", 1<<30) },
		"a token below 0":          func(runs []any) { setFirst(runs, "greedy", -1) },
		"a margin below 0":         func(runs []any) { setFirst(runs, "margin", -1) },
		"a text for a margin":      func(runs []any) { setFirst(runs, "margin", "x") },
	} {
		err := wrong(what, true, func(dir string) error {
			return s.spoilReference(dir, zoo.GoldenFile, func(data []byte) ([]byte, bool) { return editRuns(data, change), true })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// gateBad asks for the reference values of packs that hold no model. A plugin may not look.
func (s *suite) gateBad(ctx context.Context) {
	spoiled := s.copyInfo()
	spoiled.Config = garbage(1000)
	for what, info := range map[string]zoo.PackInfo{"no pack": {}, "garbage as a configuration": spoiled} {
		call := "Gate, " + what
		if _, err := s.reference(ctx, call, info, s.o.Reference); err != nil {
			s.judge(RuleGateBroken, call, err)
		}
	}
}

// spoilReference copies the reference values into a folder with one file changed.
func (s *suite) spoilReference(dir, name string, change func(data []byte) ([]byte, bool)) error {
	for _, file := range []string{zoo.GoldenFile, zoo.GoldenTensorsFile, zoo.QuestionsFile} {
		if file != name && exists(filepath.Join(s.o.Reference, file)) {
			if err := copyFile(s.o.Reference, dir, file); err != nil {
				return err
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(s.o.Reference, name))
	if err != nil {
		return err
	}
	data, ok := change(data)
	if !ok {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, name), data, 0o600)
}

// editRuns changes the runs of golden.json. What is none of the form becomes no JSON.
func editRuns(data []byte, change func(runs []any)) []byte {
	var golden map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&golden); err != nil {
		return nil
	}
	runs, _ := golden["runs"].([]any)
	change(runs)
	edited, err := json.Marshal(golden)
	if err != nil {
		return nil
	}
	return edited
}

// setFirst sets the first number of a list of the first run.
func setFirst(runs []any, list string, value any) {
	if len(runs) == 0 {
		return
	}
	run, _ := runs[0].(map[string]any)
	if values, _ := run[list].([]any); len(values) > 0 {
		values[0] = value
	}
}
