package download

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/zoo-sdk/zoo/catalog"
)

// Limits on what a server may do.
const (
	maxRedirects   = 10
	maxErrorBody   = 64 << 10
	maxReasonBytes = 300
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

// Network reports true.
func (h *Hub) Network() bool { return true }

// Open requests a file; see [Origin]. Errors are fault.ErrNotFound, [*AccessError],
// [*NetworkError], [*SizeError], and a [*TemporaryError] around what may pass.
func (h *Hub) Open(ctx context.Context, src catalog.Source, file catalog.File, pos Position) (io.ReadCloser, Info, error) {
	x, err := h.exchange(http.MethodGet, src, file)
	if err != nil {
		return nil, Info{}, err
	}
	body, info, err := x.open(ctx, pos)
	if errors.Is(err, errRestart) {
		body, info, err = x.open(ctx, Position{})
	}
	return body, info, err
}

// exchange prepares the way to a file. Errors are those of [Hub.Open].
func (h *Hub) exchange(method string, src catalog.Source, file catalog.File) (*exchange, error) {
	if src.Kind != catalog.KindHub {
		return nil, notHere(h, file)
	}
	if err := errors.Join(catalog.ValidateRepository(src.Repository), catalog.ValidateRevision(src.Revision), catalog.ValidatePath(file.Path)); err != nil {
		return nil, err
	}
	base, err := h.endpoint()
	if err != nil {
		return nil, err
	}
	return &exchange{hub: h, base: base, src: src, file: file, method: method}, nil
}

// client returns the client to use: one that reports redirects instead of following
// them, since each hop is looked at, and keeps no cookies.
func (h *Hub) client() *http.Client {
	c := http.Client{}
	if h.Client != nil {
		c = *h.Client
	}
	c.Jar = nil
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// errRestart says that the wanted range cannot be had: ask for the whole file.
var errRestart = errors.New("start again at the beginning")

// exchange is the way to one file: the hub's answer and the redirects after it.
type exchange struct {
	hub  *Hub
	base *url.URL
	src  catalog.Source
	file catalog.File
	// method is GET, or HEAD to be told about the file without its content.
	method string
}

// linked is what the hub itself, not the host it redirects to, says of a file.
type linked struct {
	etag      string
	sizeBytes int64 // -1 when not told
	revision  string
}

// learn takes what a response of the hub says; the first word counts.
func (l *linked) learn(header http.Header) {
	if l.etag == "" {
		l.etag = header.Get("X-Linked-Etag")
	}
	if n, err := strconv.ParseInt(header.Get("X-Linked-Size"), 10, 64); err == nil && n >= 0 && l.sizeBytes < 0 {
		l.sizeBytes = n
	}
	if c := header.Get("X-Repo-Commit"); l.revision == "" && catalog.IsCommit(c) {
		l.revision = c
	}
}

// open follows the hub's redirects to the file.
func (x *exchange) open(ctx context.Context, pos Position) (io.ReadCloser, Info, error) {
	resp, own, said, err := x.follow(ctx, pos, func(linked) bool { return false })
	if err != nil {
		return nil, Info{}, err
	}
	body, info, err := x.answer(resp, own, said, pos)
	if err != nil {
		discard(resp.Body)
	}
	return body, info, err
}

// follow follows the hub's redirects to where enough is known, or to their end. It
// returns the last response, whether the hub itself gave it, and what the hub said.
func (x *exchange) follow(ctx context.Context, pos Position, enough func(said linked) bool) (resp *http.Response, own bool, said linked, err error) {
	u := x.base.JoinPath(append(strings.Split(x.src.Repository, "/"), "resolve", url.PathEscape(x.src.Revision), x.file.Path)...)
	client := x.hub.client()
	said = linked{sizeBytes: -1}
	for range maxRedirects + 1 {
		resp, err := x.send(ctx, client, u, pos)
		if err != nil {
			return nil, false, said, err
		}
		own := sameOrigin(u, x.base)
		if own {
			said.learn(resp.Header)
			if want, _ := splitTag(pos.Tag); pos.Offset > 0 && want != "" && said.etag != "" && said.etag != want {
				// The file has changed since the first part was fetched.
				discard(resp.Body)
				return nil, false, said, errRestart
			}
		}
		if !isRedirect(resp.StatusCode) || enough(said) {
			return resp, own, said, nil
		}
		next, err := u.Parse(resp.Header.Get("Location"))
		discard(resp.Body)
		switch {
		case err != nil || resp.Header.Get("Location") == "" || next.Host == "" || next.Scheme != "https" && next.Scheme != "http":
			return nil, false, said, x.fail(resp.StatusCode, "it redirects to nowhere", nil)
		case u.Scheme == "https" && next.Scheme != "https":
			return nil, false, said, x.fail(resp.StatusCode, "it redirects from https to http", nil)
		}
		u = next
	}
	return nil, false, said, x.fail(0, fmt.Sprintf("it redirects more than %d times", maxRedirects), nil)
}

// send makes one request. The token goes along only to the hub's own address.
func (x *exchange) send(ctx context.Context, client *http.Client, u *url.URL, pos Position) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, x.method, u.String(), nil)
	if err != nil {
		return nil, x.fail(0, "", withoutURL(err))
	}
	agent := x.hub.UserAgent
	if agent == "" {
		agent = "zoo"
	}
	req.Header.Set("User-Agent", agent)
	// Ranges and lengths must be those of the file, not of a compressed form.
	req.Header.Set("Accept-Encoding", "identity")
	if x.hub.Token != "" && sameOrigin(u, x.base) {
		req.Header.Set("Authorization", "Bearer "+string(x.hub.Token))
	}
	if pos.Offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", pos.Offset))
		if _, etag := splitTag(pos.Tag); etag != "" {
			req.Header.Set("If-Range", etag)
		}
	}
	resp, err := client.Do(req)
	if err == nil {
		return resp, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	err = x.fail(0, "", withoutURL(err))
	if certificate := new(tls.CertificateVerificationError); errors.As(err, &certificate) {
		return nil, err
	}
	return nil, &TemporaryError{Err: err}
}

// answer makes a body, or an error, of the response at the end of the redirects.
func (x *exchange) answer(resp *http.Response, own bool, said linked, pos Position) (io.ReadCloser, Info, error) {
	info := Info{SizeBytes: resp.ContentLength, Revision: said.revision}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusPartialContent:
		from, size, ok := parseContentRange(resp.Header.Get("Content-Range"))
		if !ok || from != pos.Offset {
			return nil, Info{}, errRestartOr(pos, x.fail(resp.StatusCode, "it sends a range that was not asked for", nil))
		}
		if want, etag := splitTag(pos.Tag); want != "" && said.etag == "" && etag == "" {
			// Nothing shows any more that this is the file that the part is of.
			return nil, Info{}, errRestart
		}
		info.From, info.SizeBytes = from, size
	case http.StatusRequestedRangeNotSatisfiable:
		// Nothing may be left: then the size is what the caller has.
		if size := resp.Header.Get("Content-Range"); pos.Offset == 0 || pos.Tag == "" || size != fmt.Sprintf("bytes */%d", pos.Offset) {
			return nil, Info{}, errRestartOr(pos, x.fail(resp.StatusCode, x.reason(resp), nil))
		}
		discard(resp.Body)
		resp.Body = http.NoBody
		info.From, info.SizeBytes = pos.Offset, pos.Offset
		resp.Header.Del("Content-Type")
	default:
		return nil, Info{}, x.refusal(resp)
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, Info{}, x.fail(resp.StatusCode, fmt.Sprintf("it sends the file in the encoding %q, which was not asked for", oneLine(enc)), nil)
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/html" && !strings.HasSuffix(x.file.Path, ".html") {
		return nil, Info{}, x.fail(resp.StatusCode, "it answers with a web page instead of the file (a proxy or a login page?)", nil)
	}
	if said.sizeBytes >= 0 {
		if info.SizeBytes >= 0 && info.SizeBytes != said.sizeBytes {
			return nil, Info{}, &SizeError{File: x.file.Path, Want: said.sizeBytes, Got: info.SizeBytes, Origin: x.hub.Name()}
		}
		info.SizeBytes = said.sizeBytes
	}
	etag := resp.Header.Get("ETag")
	switch {
	case said.etag != "":
		info.SHA256, info.GitBlob = parseETag(said.etag)
	case own:
		info.SHA256, info.GitBlob = parseETag(etag)
	}
	info.Tag = joinTag(said.etag, etag)
	return resp.Body, info, nil
}

// errRestartOr returns errRestart for a request of a part, else err.
func errRestartOr(pos Position, err error) error {
	if pos.Offset > 0 {
		return errRestart
	}
	return err
}

// refusal makes an error of a response that is not the file.
func (x *exchange) refusal(resp *http.Response) error {
	reason := x.reason(resp)
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return &AccessError{
			File: x.file.Path, Origin: x.hub.Name(), Status: code, HaveToken: x.hub.Token != "",
			Page: x.base.JoinPath(x.src.Repository).String(), Reason: reason,
		}
	case code == http.StatusNotFound || code == http.StatusGone:
		return &absentError{x.file.Path, x.hub.Name(), reason}
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500 && code != http.StatusNotImplemented:
		return &TemporaryError{Err: x.fail(code, reason, nil), RetryAfter: parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())}
	default:
		return x.fail(code, reason, nil)
	}
}

// reason returns what a server says about its refusal, as one short line without the
// token, or "". Web pages say nothing.
func (x *exchange) reason(resp *http.Response) string {
	text := resp.Header.Get("X-Error-Message")
	if text == "" {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		if err != nil {
			return ""
		}
		switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind {
		case "application/json":
			var said struct {
				Error string `json:"error"`
			}
			if json.Unmarshal(body, &said) == nil {
				text = said.Error
			}
		case "text/plain":
			text = string(body)
		}
	}
	if x.hub.Token != "" {
		text = strings.ReplaceAll(text, string(x.hub.Token), redacted)
	}
	return oneLine(text)
}

// fail makes a NetworkError.
func (x *exchange) fail(status int, reason string, err error) error {
	return &NetworkError{File: x.file.Path, Origin: x.hub.Name(), Status: status, Reason: reason, Err: err}
}

// sameOrigin reports whether two addresses have one scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// port returns the port of an address, the scheme's own if none is written.
func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// isRedirect reports whether a status names another place for the same request.
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// withoutURL takes the address out of a client's error: its query may be a secret.
func withoutURL(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// discard reads what little is left of a body, so that the connection can be used
// again, and closes it.
func discard(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, maxErrorBody))
	_ = body.Close()
}

// oneLine makes text from a server fit for a message: its first line, printable
// characters only, cut to a sensible length.
func oneLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.TrimSpace(s))
	if len(s) > maxReasonBytes {
		s = strings.ToValidUTF8(s[:maxReasonBytes], "") + "…"
	}
	return s
}

// parseContentRange reads "bytes from-to/size"; size is -1 for "*".
func parseContentRange(s string) (from, size int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, total, ok2 := strings.Cut(s, "/")
	first, last, ok3 := strings.Cut(span, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	if !ok || !ok2 || !ok3 || err != nil || err2 != nil || from < 0 || to < from {
		return 0, 0, false
	}
	if total == "*" {
		return from, -1, true
	}
	size, err = strconv.ParseInt(total, 10, 64)
	if err != nil || to >= size {
		return 0, 0, false
	}
	return from, size, true
}

// parseRetryAfter reads a Retry-After header: seconds or a date; 0 if it says nothing.
func parseRetryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil && t.After(now) {
		return t.Sub(now)
	}
	return 0
}

// joinTag makes an Info.Tag of the hub's ETag of a file and of the ETag under which
// its bytes were served. Of the latter only a strong one can resume a range.
func joinTag(linkedETag, etag string) string {
	if !isStrongETag(etag) {
		etag = ""
	}
	if strings.ContainsAny(linkedETag, " ") || linkedETag+etag == "" {
		return ""
	}
	return linkedETag + " " + etag
}

// splitTag undoes joinTag.
func splitTag(tag string) (linkedETag, etag string) {
	linkedETag, etag, _ = strings.Cut(tag, " ")
	return linkedETag, etag
}

// isStrongETag reports whether an ETag may stand in If-Range.
func isStrongETag(etag string) bool {
	return len(etag) > 2 && etag[0] == '"' && etag[len(etag)-1] == '"' && !strings.ContainsAny(etag, " ")
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
