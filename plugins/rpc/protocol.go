package rpc

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// Protocol is the newest version of what hosts and plugins say to each other that
// this package speaks.
const Protocol = 1

// protocols lists all versions that this package speaks.
var protocols = []int{Protocol}

// handshake tells a program that it was started as a plugin. It is no secret.
var handshake = plugin.HandshakeConfig{
	MagicCookieKey:   "ZOO_PLUGIN",
	MagicCookieValue: "36b2c1a4f0f94b0e8f6f3f5f0e7c9d21",
}

// service is the name of the one thing that a plugin serves.
const service = "zoo"

const (
	// maxFrame bounds what a plugin may send at once: the largest is a program.
	maxFrame = program.MaxEncoded + 64<<10
	// maxRequest bounds what a host may send: the largest is a manifest, of at most 16 MiB.
	maxRequest = 32 << 20
	// logitsFrame is how many logits are sent at once.
	logitsFrame = 1 << 18
	// partBytes is about how much a part of the reference values holds.
	partBytes = 1 << 20
)

// Limits on texts and lists from plugins.
const (
	maxTextBytes   = 16 << 10
	maxHintBytes   = 1 << 10
	maxTitle       = 200 // characters
	maxNameBytes   = 200
	maxPackBytes   = 1 << 50
	maxRounding    = 1 << 16
	maxAssumptions = 256
)

// wire makes the two ends of the one service for go-plugin.
type wire struct {
	plugin.NetRPCUnsupportedPlugin
	// served is the plugin behind the service; nil on the host's side.
	served zoo.Plugin
}

var _ plugin.GRPCPlugin = wire{}

// GRPCServer implements plugin.GRPCPlugin.
func (w wire) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	pluginpb.RegisterPluginServer(s, &server{plugin: w.served})
	return nil
}

// GRPCClient implements plugin.GRPCPlugin: what it dispenses is the connection.
func (wire) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// versions returns the service under versions of the protocol.
func (w wire) versions(list []int) map[int]plugin.PluginSet {
	sets := make(map[int]plugin.PluginSet, len(list))
	for _, v := range list {
		sets[v] = plugin.PluginSet{service: w}
	}
	return sets
}

// announcement is the line by which a plugin says where it listens.
type announcement struct {
	protocol         int
	network, address string
}

// errNoAnnouncement says that a line is none.
var errNoAnnouncement = errors.New("it is not the line of a plugin")

// parseAnnouncement reads a line of the form
// "core version|protocol|network|address|transport|certificate", of a plugin to which
// versions of the protocol were offered.
func parseAnnouncement(line string, offered []int) (announcement, error) {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) < 4 || parts[0] != strconv.Itoa(plugin.CoreProtocolVersion) {
		return announcement{}, errNoAnnouncement
	}
	version, err := strconv.Atoi(parts[1])
	if err != nil {
		return announcement{}, errNoAnnouncement
	}
	a := announcement{version, parts[2], parts[3]}
	switch {
	case !slices.Contains(offered, version):
		return a, &ProtocolError{Plugin: version, Host: slices.Clone(offered)}
	case len(parts) < 6 || parts[4] != string(plugin.ProtocolGRPC) || parts[5] == "":
		return a, errors.New("it offers no encrypted gRPC")
	}
	return a, nil
}
