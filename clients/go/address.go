package pinfold

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
)

const (
	socketName = "pinfold.sock"
	// sun_path is 108 bytes with its closing zero.
	socketPathLimit = 107
)

var (
	hostPort = regexp.MustCompile(`^.+:\d{1,5}$`)
	loopback = regexp.MustCompile(`^(localhost|127\.\d+\.\d+\.\d+|\[::1\]):`)
)

// Address is where a supervisor listens. One of the two is set.
type Address struct {
	// Socket is the absolute path of a unix socket.
	Socket string
	// Host is "host:port" of a TCP address.
	Host string
}

func (a Address) String() string {
	if a.Socket != "" {
		return "unix:" + a.Socket
	}
	return a.Host
}

// private: nothing that is sent there leaves this machine.
func (a Address) private() bool {
	return a.Socket != "" || loopback.MatchString(a.Host)
}

// resolve gives the first that is there of: address, the socket in state, PINFOLD_ADDRESS, the
// socket in the default state directory.
func resolve(address, state string) (Address, error) {
	if address == "" && state == "" {
		address = os.Getenv("PINFOLD_ADDRESS")
	}
	switch {
	case address == "":
		if state == "" {
			found, err := defaultState()
			if err != nil {
				return Address{}, err
			}
			state = found
		}
		return socket(filepath.Join(state, socketName))
	case strings.HasPrefix(address, "unix:"):
		path := strings.TrimPrefix(address, "unix:")
		if strings.HasPrefix(path, "///") {
			path = path[2:]
		}
		return socket(path)
	case strings.Contains(address, "/"):
		return socket(address)
	case hostPort.MatchString(address):
		return Address{Host: address}, nil
	default:
		return Address{}, badAddress("not an address: " + strconv.Quote(address) +
			" (expected unix:PATH or HOST:PORT)")
	}
}

func socket(path string) (Address, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return Address{}, badAddress(err.Error())
	}
	return Address{Socket: absolute}, nil
}

func badAddress(message string) *Error {
	return &Error{Reason: ErrInvalidAddress, Code: codes.InvalidArgument, Message: message}
}

// defaultState is PINFOLD_STATE, or the user's state directory for pinfold.
func defaultState() (string, error) {
	if state := os.Getenv("PINFOLD_STATE"); state != "" {
		return state, nil
	}
	if base := strings.TrimSpace(os.Getenv("XDG_STATE_HOME")); base != "" {
		return filepath.Join(base, "pinfold"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", badAddress("no state directory: set PINFOLD_STATE or PINFOLD_ADDRESS (" +
			err.Error() + ")")
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "pinfold"), nil
	}
	return filepath.Join(home, ".local", "state", "pinfold"), nil
}

// dialSocket connects to a unix socket, also where its path is too long for the kernel: then
// through a descriptor of its directory.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	if len(path) <= socketPathLimit || runtime.GOOS != "linux" {
		return dialer.DialContext(ctx, "unix", path)
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(directory.Fd())), filepath.Base(path))
	return dialer.DialContext(ctx, "unix", short)
}
