package rpc

// What tests of hostile programs need to speak the protocol badly.
var Handshake = handshake

const (
	MaxFrame    = maxFrame
	LogitsFrame = logitsFrame
	Service     = service
)
