//go:build linux

package metaltest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/zoo-sdk/zoo/backends/metal"
)

// Kinds of requests and replies, and outcomes, as in runner/wire.h.
const (
	requestBuffer = 1 + iota
	requestRelease
	requestList
	requestDrop
	requestSubmit
)

const (
	replyReady = 1 + iota
	replyBuffer
	replyDone
	replyCrash
)

const (
	outcomeOK = iota
	outcomeFailed
	outcomeLost
)

// reply is what the runner answers.
type reply struct {
	code uint32
	text string
}

// process is a running runner.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ready chan struct{}
	ended chan struct{} // closed when it is gone

	mu      sync.Mutex
	queue   [][]byte // what is not written yet
	wake    chan struct{}
	buffers map[uint64]chan reply
	done    map[uint64]chan reply
	lost    error // why it is gone
}

// start runs a runner.
func start(path string, options Options) (*process, error) {
	seconds := max(1, int(options.TimeLimit/time.Second))
	args := []string{
		fmt.Sprintf("parent=%d", os.Getpid()),
		fmt.Sprintf("seed=%d", options.Seed),
		fmt.Sprintf("workers=%d", options.Workers),
		fmt.Sprintf("fail_after=%d", options.FailAfter),
		fmt.Sprintf("seconds=%d", seconds),
	}
	if options.FlushDenormals {
		args = append(args, "flush=1")
	}
	p := &process{
		cmd: exec.Command(path, args...), ready: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}, 1),
		buffers: map[uint64]chan reply{}, done: map[uint64]chan reply{},
	}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	messages := &tail{}
	p.cmd.Stderr = messages
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.write()
	go p.read(out, messages)
	select {
	case <-p.ready:
		return p, nil
	case <-p.ended:
		return nil, p.reason()
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - 8<<10; over > 0 {
		t.text = t.text[over:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// write sends what is queued, so that nobody waits for the runner to read.
func (p *process) write() {
	defer p.in.Close()
	for {
		select {
		case <-p.wake:
		case <-p.ended:
			return
		}
		for {
			p.mu.Lock()
			queue := p.queue
			p.queue = nil
			p.mu.Unlock()
			if len(queue) == 0 {
				break
			}
			for _, m := range queue {
				if m == nil {
					return
				}
				if _, err := p.in.Write(m); err != nil {
					return
				}
			}
		}
	}
}

// send queues a message; nil ends the runner.
func (p *process) send(message []byte) {
	p.mu.Lock()
	p.queue = append(p.queue, message)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// read takes replies until the runner ends.
func (p *process) read(out io.Reader, messages *tail) {
	crash := p.replies(bufio.NewReader(out))
	err := p.cmd.Wait()
	text := []string{}
	if crash != "" {
		text = append(text, crash)
	}
	if err != nil {
		text = append(text, err.Error())
	}
	if m := strings.TrimSpace(messages.String()); m != "" {
		text = append(text, m)
	}
	p.mu.Lock()
	if p.lost == nil {
		p.lost = fmt.Errorf("%w: %s", metal.ErrDevice, strings.Join(append(text, "the runner ended"), ": "))
	}
	p.mu.Unlock()
	close(p.ended)
}

// replies hands out replies and returns what a crash told.
func (p *process) replies(out *bufio.Reader) string {
	for {
		var head [8]byte
		if _, err := io.ReadFull(out, head[:]); err != nil {
			return ""
		}
		body := make([]byte, binary.LittleEndian.Uint32(head[4:]))
		if _, err := io.ReadFull(out, body); err != nil || len(body) < 12 {
			return ""
		}
		id := binary.LittleEndian.Uint64(body)
		r := reply{binary.LittleEndian.Uint32(body[8:]), string(body[12:])}
		p.mu.Lock()
		switch binary.LittleEndian.Uint32(head[:]) {
		case replyReady:
			close(p.ready)
		case replyBuffer:
			p.buffers[id] <- r
			delete(p.buffers, id)
		case replyDone:
			if r.code == outcomeLost {
				p.lost = fmt.Errorf("%w: %s", metal.ErrDevice, r.text)
			}
			p.done[id] <- r
			delete(p.done, id)
		case replyCrash:
			p.mu.Unlock()
			return r.text
		}
		p.mu.Unlock()
	}
}

// reason returns why the device is lost, or nil.
func (p *process) reason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// expect returns where the reply to a number will come.
func (p *process) expect(replies map[uint64]chan reply, id uint64) chan reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan reply, 1)
	replies[id] = c
	return c
}

// await waits for a reply.
func (p *process) await(c chan reply) (reply, error) {
	select {
	case r := <-c:
		return r, nil
	case <-p.ended:
	}
	select {
	case r := <-c:
		return r, nil
	default:
		return reply{}, p.reason()
	}
}

// stop ends the runner when it has done what it was told.
func (p *process) stop() {
	p.send(nil)
	<-p.ended
}

// message builds a request.
type message struct{ data []byte }

func newMessage(kind uint32) *message {
	return &message{binary.LittleEndian.AppendUint64(nil, uint64(kind))}
}

func (m *message) u32(values ...uint32) {
	for _, v := range values {
		m.data = binary.LittleEndian.AppendUint32(m.data, v)
	}
}

func (m *message) u64(values ...uint64) {
	for _, v := range values {
		m.data = binary.LittleEndian.AppendUint64(m.data, v)
	}
}

// bytes returns the message with its length in place.
func (m *message) bytes() []byte {
	binary.LittleEndian.PutUint32(m.data[4:], uint32(len(m.data)-8))
	return m.data
}
