package rpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// FuzzFrames takes frames of a plugin as a client does.
func FuzzFrames(f *testing.F) {
	add := func(frames ...*pluginpb.PluginFrame) {
		var b bytes.Buffer
		for _, frame := range frames {
			if _, err := protodelim.MarshalTo(&b, frame); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes())
	}
	var reference []*pluginpb.PluginFrame
	err := sendReference(f.Context(), &zoo.Reference{
		Runs: []zoo.ReferenceRun{{
			Prompt: []int32{1, 2}, Greedy: []int32{3}, Margin: []float32{0.5},
			PromptLogits: [][]float32{{1, 2, 3}, {4, 5, 6}}, LastLogits: []float32{7, 8, 9},
		}},
		Questions: []zoo.Question{{Question: "q", Expected: "e"}},
		Prompts:   []string{"p"},
	}, func(frame *pluginpb.PluginFrame) error {
		reference = append(reference, frame)
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	add(append(reference, doneFrame())...)
	add(encodeFault(context.Canceled))
	add(&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Progress{Progress: &pluginpb.Progress{DoneBytes: 1, TotalBytes: 2}}},
		&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Conversion{Conversion: encodeConversion(zoo.Conversion{Rounding: []zoo.RoundingError{{Family: "f", RelL2: 0.5}}})}})
	add(&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Description{Description: encodeDescription(zoo.Description{Name: "a", Version: "1.0.0"}, nil)}})
	add(&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Plan{Plan: &pluginpb.FetchPlan{Files: []*pluginpb.File{{Path: "a"}}}}})
	add(&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Estimation{Estimation: &pluginpb.Estimation{PackBytes: 1, Program: []byte(`{"version":1}`)}}})

	f.Fuzz(func(t *testing.T, data []byte) {
		const allowed = 1 << 20
		done := int64(0)
		k := &call{gathering: &gathering{left: allowed}, started: time.Now(), progress: func(n, total int64) {
			if n < done || n > total {
				t.Errorf("progress %d after %d of %d", n, done, total)
			}
			done = n
		}}
		r := bufio.NewReader(bytes.NewReader(data))
		for {
			n, err := binary.ReadUvarint(r)
			if err != nil || n > uint64(len(data)) {
				return
			}
			raw, frame := make([]byte, n), &pluginpb.PluginFrame{}
			if _, err := io.ReadFull(r, raw); err != nil || decodeFrame(raw, frame) != nil {
				return
			}
			last, err := k.take(frame)
			if err != nil {
				return
			}
			if last {
				checkLast(t, frame, k.gathering)
				if kept := memory(&k.gathering.ref); kept > allowed-k.gathering.left {
					t.Errorf("%d bytes are kept, %d were counted", kept, allowed-k.gathering.left)
				}
				return
			}
		}
	})
}

// checkLast decodes a last frame, and checks what must hold of everything that is accepted.
func checkLast(t *testing.T, frame *pluginpb.PluginFrame, g *gathering) {
	switch f := frame.GetFrame().(type) {
	case *pluginpb.PluginFrame_Fault:
		if text := decodeFault(f.Fault).Error(); text == "" || text != clean(text, len(text)) {
			t.Errorf("error %q", text)
		}
	case *pluginpb.PluginFrame_Description:
		_, _ = decodeDescription(f.Description)
	case *pluginpb.PluginFrame_Plan:
		_, _ = decodePlan(f.Plan)
	case *pluginpb.PluginFrame_Conversion:
		_, _ = decodeConversion(f.Conversion)
	case *pluginpb.PluginFrame_Estimation:
		_, _ = decodeEstimate(f.Estimation)
	case *pluginpb.PluginFrame_Program:
		_, _ = program.Decode(f.Program.GetProgram())
	case *pluginpb.PluginFrame_Done:
		ref, err := g.whole()
		if err != nil {
			return
		}
		for _, run := range ref.Runs {
			if len(run.Margin) != len(run.Greedy) || len(run.PromptLogits) != 0 && len(run.PromptLogits) != len(run.Prompt) {
				t.Errorf("a run was accepted: %+v", run)
			}
			for _, row := range run.PromptLogits {
				if len(row) != len(run.PromptLogits[0]) || len(row) == 0 {
					t.Errorf("rows of %d and %d logits", len(row), len(run.PromptLogits[0]))
				}
			}
		}
	}
}

// memory is what reference values take.
func memory(ref *zoo.Reference) int64 {
	n := 120*cap(ref.Runs) + 48*cap(ref.Questions) + 16*cap(ref.Prompts)
	for _, r := range ref.Runs {
		n += 4*(cap(r.Prompt)+cap(r.Greedy)+cap(r.Margin)+cap(r.LastLogits)) + 24*cap(r.PromptLogits)
		for _, row := range r.PromptLogits {
			n += 4 * cap(row)
		}
	}
	for _, q := range ref.Questions {
		n += len(q.Question) + len(q.Expected) + len(q.Reference)
	}
	for _, text := range ref.Prompts {
		n += len(text)
	}
	return int64(n)
}

// FuzzOutput reads what a program prints.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("1|1|unix|/tmp/x/plugin1|grpc|" + strings.Repeat("A", 60) + "\n"))
	f.Add([]byte("noise\n1|9|tcp|127.0.0.1:80|grpc|x|true\npanic: boom\n\n"))
	f.Add([]byte("\x1b[2J\ta line\x00\n"))
	f.Add([]byte(`{"time":"2026-01-02T03:04:05Z","level":"WARN+1","msg":"m","n":[1,{"a":null}]}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		book := &logbook{logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
		var lines, written []byte
		readLines(bytes.NewReader(data), func(line []byte) {
			if len(line) == 0 || len(line) > maxLineBytes {
				t.Errorf("a line of %d bytes", len(line))
			}
			lines = append(lines, line...)
			book.add(line, slog.LevelInfo)
			if a, err := parseAnnouncement(string(line), protocols); err == nil && !slices.Contains(protocols, a.protocol) {
				t.Errorf("accepted %q", line)
			}
		})
		w := &lineWriter{line: func(line []byte) { written = append(written, line...) }}
		for chunk := range slices.Chunk(data, 7) {
			if _, err := w.Write(chunk); err != nil {
				t.Error(err)
			}
		}
		w.end()
		if !bytes.Equal(lines, data) || !bytes.Equal(written, data) {
			t.Error("lines are not what was printed")
		}
		for _, line := range append(book.lastLines(), book.lastPanic()...) {
			if len(line) > 3*keptLineBytes || line != cleanLine(line, len(line)) {
				t.Errorf("kept %q", line)
			}
		}
	})
}
