package main

import (
	"bytes"
	"encoding"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"aead.dev/minisign"
	"github.com/rogpeppe/go-internal/testscript"
)

// minisignProgram is minisign as far as scripts and pages of documentation use it: it makes
// a pair of keys (-G -p FILE -s FILE -W) or signs a file (-S -s FILE -m FILE).
func minisignProgram() {
	set := flag.NewFlagSet("minisign", flag.ExitOnError)
	generate, sign, plain := set.Bool("G", false, "make keys"), set.Bool("S", false, "sign"), set.Bool("W", false, "without a password")
	public, secret := set.String("p", "minisign.pub", "public key"), set.String("s", "", "secret key")
	message := set.String("m", "", "file to sign")
	_ = set.Parse(os.Args[1:]) // it ends the process
	var err error
	switch {
	case set.NArg() > 0 || *secret == "" || *generate == *sign:
		err = errors.New("it makes keys or signs a file")
	case *generate && !*plain:
		err = errors.New("there is nobody to ask for a password")
	case *generate:
		err = makeKeys(*public, *secret)
	default:
		err = signFile(*secret, *message)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// keyCommand sets KEY to the public key in a file of minisign.
func keyCommand(ts *testscript.TestScript, neg bool, args []string) {
	lines := strings.Fields(ts.ReadFile(args[0]))
	ts.Setenv("KEY", lines[len(lines)-1])
}

// makeKeys writes a pair of keys to files that do not exist.
func makeKeys(public, secret string) error {
	key, private, err := minisign.GenerateKey(nil)
	if err != nil {
		return err
	}
	for file, key := range map[string]encoding.TextMarshaler{public: key, secret: private} {
		if _, err := os.Stat(file); err == nil {
			return fmt.Errorf("%s already exists", file)
		}
		text, err := key.MarshalText()
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// signFile writes the signature of a file beside it.
func signFile(secret, file string) error {
	key, err := os.ReadFile(secret)
	if err != nil {
		return err
	}
	var private minisign.PrivateKey
	if err := private.UnmarshalText(bytes.TrimSpace(key)); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r := minisign.NewReader(f)
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	return os.WriteFile(file+".minisig", r.SignWithComments(private, "timestamp:1796018556\tfile:a test", "of a test"), 0o600)
}
