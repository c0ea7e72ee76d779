package download

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
)

// Hub is the origin of sources of kind [catalog.KindHub]: a Hugging Face compatible
// server. The token goes to the endpoint's own scheme, host and port and nowhere
// else, whatever redirects say. The fields must not change while it is used.
type Hub struct {
	// Endpoint is the address of the hub; "" stands for [DefaultEndpoint].
	Endpoint string
	// Token is sent to the endpoint, or "" for none.
	Token Token
	// Client makes the requests; nil takes one that honours the proxy variables.
	// Its CheckRedirect and its Jar are not used.
	Client *http.Client
	// UserAgent is sent along; "" sends "zoo".
	UserAgent string
}

// Name gives the endpoint.
func (h *Hub) Name() string {
	if u, err := h.endpoint(); err == nil {
		return "hub " + u.String()
	}
	return "hub"
}

// endpoint returns the parsed address.
func (h *Hub) endpoint() (*url.URL, error) {
	if h.Endpoint == "" {
		return parseEndpoint(DefaultEndpoint)
	}
	return parseEndpoint(h.Endpoint)
}

// Open requests a file; see [Origin].
func (h *Hub) Open(ctx context.Context, src catalog.Source, file catalog.File, pos Position) (io.ReadCloser, Info, error) {
	return nil, Info{}, errors.ErrUnsupported
}

// parseETag takes the digest out of an ETag of a hub: a sha256 for large files, a git
// blob hash for small ones, else neither.
func parseETag(etag string) (sha256Hex, gitBlob string) {
	etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	switch {
	case !isHex(etag):
	case len(etag) == 64:
		return etag, ""
	case len(etag) == 40:
		return "", etag
	}
	return "", ""
}

// isHex reports whether s holds nothing but 0-9 and a-f.
func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
