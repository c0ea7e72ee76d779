package rpc

// What tests of hostile programs need to speak the protocol badly.
var Handshake = handshake

const (
	MaxFrame    = maxFrame
	LogitsFrame = logitsFrame
	Service     = service
)

// Calls returns how many calls of the client's latest process are going on.
func (c *Client) Calls() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc.calls.Load()
}
