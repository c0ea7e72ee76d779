package sdk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// programHead is how much of a program is read to see for which machines it is.
const programHead = 4096

// checkProgram refuses what is no program for this machine, as far as its first bytes tell.
func checkProgram(file string) error {
	// Before it is opened: nobody need write to the other end of a pipe.
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: no file %q", fault.ErrNotFound, file)
	case err != nil:
		return atomicfile.MapError(file, err)
	case !info.Mode().IsRegular():
		return fault.WithHint(fmt.Errorf("%w: %q is not a file", fault.ErrUsage, file), "name the program of the plugin")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o111 == 0:
		return fault.WithHint(fmt.Errorf("%w: %q may not be executed", fault.ErrNotPermitted, file), fmt.Sprintf("if it is the program of a plugin, run `chmod +x %s`", file))
	}
	head, err := readHead(file)
	if err != nil {
		return err
	}
	if system, arch := platform(head); system != "" && !isHost(system, arch) {
		return fault.WithHint(fmt.Errorf("%w: %q is a program for %s/%s, this is %s/%s", fault.ErrNotFound, file, system, arch, runtime.GOOS, runtime.GOARCH),
			fmt.Sprintf("build the plugin with GOOS=%s GOARCH=%s", runtime.GOOS, runtime.GOARCH))
	}
	return nil
}

// readHead reads the first bytes of a file.
func readHead(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, atomicfile.MapError(file, err)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, programHead))
	return head, atomicfile.MapError(file, err)
}

// isHost reports whether a program of the format of a system and for an architecture is
// for this machine.
func isHost(system, arch string) bool { return system == hostFormat() && arch == runtime.GOARCH }

// beginnings are what files begin with that systems run. Those of Apple may be for
// several architectures.
var beginnings = map[string][]string{
	"linux":   {"\x7fELF", "#!"},
	"darwin":  {"\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe", "\xca\xfe\xba\xbf", "#!"},
	"windows": {"MZ"},
}

// beginsAsProgram reports whether a file that begins with these bytes may be a program
// of this system.
func beginsAsProgram(head []byte) bool {
	return slices.ContainsFunc(beginnings[hostFormat()], func(b string) bool { return strings.HasPrefix(string(head), b) })
}

// hostFormat names the system whose format of programs this one has: all but Windows and
// Apple's have that of Linux.
func hostFormat() string {
	switch runtime.GOOS {
	case "windows", "darwin":
		return runtime.GOOS
	case "ios":
		return "darwin"
	}
	return "linux"
}

// machines gives Go's names for the machines in the heads of programs.
var machines = map[string]map[uint32]string{
	"linux":   {62: "amd64", 183: "arm64", 3: "386", 40: "arm", 243: "riscv64", 22: "s390x", 258: "loong64"},
	"darwin":  {0x01000007: "amd64", 0x0100000c: "arm64"},
	"windows": {0x8664: "amd64", 0xaa64: "arm64", 0x14c: "386"},
}

// platform returns for which machines a program is that begins with these bytes, by
// the system whose format it has, or "" if that is not known.
func platform(head []byte) (system, arch string) {
	const peOffset = 0x3c
	machine := uint32(0)
	switch {
	case len(head) >= 20 && string(head[:4]) == "\x7fELF":
		order := binary.ByteOrder(binary.LittleEndian)
		if head[5] == 2 {
			order = binary.BigEndian
		}
		system, machine = "linux", uint32(order.Uint16(head[18:]))
	case len(head) >= 8 && string(head[:4]) == "\xcf\xfa\xed\xfe":
		system, machine = "darwin", binary.LittleEndian.Uint32(head[4:])
	case len(head) >= peOffset+4 && string(head[:2]) == "MZ":
		at := binary.LittleEndian.Uint32(head[peOffset:])
		if uint64(at)+6 > uint64(len(head)) || string(head[at:at+4]) != "PE\x00\x00" {
			return "", ""
		}
		system, machine = "windows", uint32(binary.LittleEndian.Uint16(head[at+4:]))
	default:
		return "", ""
	}
	if arch = machines[system][machine]; arch == "" {
		return "", ""
	}
	return system, arch
}
