package rpc

import "os"

// Signal sends a signal to the process of the plugin, as somebody else might: it is how
// a conformance suite lets it crash or hang. Without a process it is os.ErrProcessDone.
func (c *Client) Signal(s os.Signal) error {
	c.mu.Lock()
	p := c.proc
	c.mu.Unlock()
	if p == nil {
		return os.ErrProcessDone
	}
	child := p.running()
	if child == nil {
		return os.ErrProcessDone
	}
	child.mu.Lock()
	defer child.mu.Unlock()
	if child.reaped || child.cmd.Process == nil {
		return os.ErrProcessDone
	}
	return child.cmd.Process.Signal(s)
}

// Running reports whether there is a process that the next call would use: a conformance
// suite sees by it that a call was ended by force.
func (c *Client) Running() bool {
	c.mu.Lock()
	p := c.proc
	c.mu.Unlock()
	if p == nil {
		return false
	}
	select {
	case <-p.over:
		return false
	default:
		return true
	}
}
