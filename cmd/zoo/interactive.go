package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/adrg/xdg"
	"github.com/chzyer/readline"

	"github.com/zoo-sdk/zoo/sdk"
)

// chatHelp is what /help prints.
const chatHelp = `/clear          forget the conversation
/system [TEXT]  set the system prompt, or none, and forget the conversation
/stats          print how long each answer takes, or stop doing so
/bye            leave (so does Ctrl-D)
/help           print this
"""             begin and end a message of several lines
Ctrl-C stops an answer.
`

// errStopped is the cause of a context that ends an answer because of Ctrl-C.
var errStopped = errors.New("stopped")

// chat talks with a person until they leave.
func (s *session) chat(ctx context.Context) error {
	history := ""
	if dir := filepath.Join(xdg.StateHome, "zoo"); os.MkdirAll(dir, 0o700) == nil {
		history = filepath.Join(dir, "chat_history")
	}
	lines, err := readline.NewEx(&readline.Config{
		Prompt:            s.app.style(styleBold, ">>> "),
		HistoryFile:       history,
		HistorySearchFold: true,
		// The answers alone are standard output.
		Stdout: s.app.err,
		Stderr: s.app.err,
		FuncIsTerminal: func() bool {
			return isTerminal(s.app.in)
		},
	})
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer lines.Close()
	// A signal that ends the command must end the wait for a line, too.
	defer context.AfterFunc(ctx, func() { _ = lines.Close() })()
	return s.converse(ctx, lines)
}

// lineReader reads lines from a person.
type lineReader interface {
	// Readline returns a line, io.EOF at the end, or readline.ErrInterrupt at Ctrl-C.
	Readline() (string, error)
	// SetPrompt sets what stands before the line.
	SetPrompt(text string)
}

// converse answers line by line.
func (s *session) converse(ctx context.Context, lines lineReader) error {
	s.app.note("%s; /help lists the commands", s.describe())
	chat := s.newChat()
	defer func() { _ = chat.Close() }()
	for {
		text, err := s.read(lines)
		switch {
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case errors.Is(err, readline.ErrInterrupt):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a line: %w", err)
		case strings.TrimSpace(text) == "":
			continue
		}
		if command, rest, ok := chatCommand(text); ok {
			switch command {
			case "bye", "exit", "quit":
				return nil
			case "clear":
				_ = chat.Close()
				chat = s.newChat()
			case "system":
				s.system = rest
				_ = chat.Close()
				chat = s.newChat()
			case "stats":
				s.stats = !s.stats
			case "help", "?":
				fmt.Fprint(s.app.err, chatHelp)
			default:
				fmt.Fprintf(s.app.err, "no command is named /%s; /help lists them\n", command)
			}
			continue
		}
		if err := s.turn(ctx, chat, text); err != nil {
			return err
		}
	}
}

// describe says in one line who answers.
func (s *session) describe() string {
	info := s.model.Info()
	name := info.Name
	if info.Version != "" {
		name += "@" + info.Version
	}
	return fmt.Sprintf("%s on %s", name, info.Backend)
}

// newChat begins a conversation with the session's system prompt.
func (s *session) newChat() *sdk.Chat {
	return s.model.NewChat(append(s.opts[:len(s.opts):len(s.opts)], sdk.System(s.system))...)
}

// chatCommand splits a line that is a command: a slash and a word of letters.
func chatCommand(line string) (name, rest string, ok bool) {
	line, ok = strings.CutPrefix(strings.TrimSpace(line), "/")
	if !ok {
		return "", "", false
	}
	name, rest, _ = strings.Cut(line, " ")
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && r != '?' }) {
		return "", "", false // such as a path
	}
	return name, strings.TrimSpace(rest), true
}

// read reads a message: a line, or several between lines that begin and end with
// three quotes.
func (s *session) read(lines lineReader) (string, error) {
	const quotes = `"""`
	prompt := s.app.style(styleBold, ">>> ")
	lines.SetPrompt(prompt)
	line, err := lines.Readline()
	if err != nil {
		return "", err
	}
	text, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), quotes)
	if !ok {
		return line, nil
	}
	lines.SetPrompt(s.app.style(styleBold, "... "))
	defer lines.SetPrompt(prompt)
	for {
		if body, ok := strings.CutSuffix(strings.TrimRight(text, " \t"), quotes); ok {
			return body, nil
		}
		line, err := lines.Readline()
		if err != nil {
			return "", err
		}
		text += "\n" + line
	}
}

// turn answers one message. Errors that the person can do something about do not
// end the chat.
func (s *session) turn(ctx context.Context, chat *sdk.Chat, text string) error {
	answerCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer s.app.interrupts.during(func() { stop(errStopped) })()
	var usage sdk.Usage
	var err error
	if s.raw {
		err = s.write(s.model.Stream(answerCtx, text, append(s.opts[:len(s.opts):len(s.opts)], sdk.Measure(&usage))...))
	} else {
		err = s.write(chat.Stream(answerCtx, text, sdk.Measure(&usage)))
	}
	switch {
	case err == nil:
		s.printStats(usage)
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case errors.Is(err, errStopped):
		fmt.Fprintln(s.app.err, s.app.style(styleDim, "(stopped)"))
	case exitCode(err) == exitUsage:
		s.app.report(err)
	default:
		return err
	}
	return nil
}
