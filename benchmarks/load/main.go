// Command load makes load on a supervisor, so that no Python client is what is measured.
//
// See __init__.py for its requests and answers.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// request has the fields of all operations.
type request struct {
	ID          int      `json:"id"`
	Op          string   `json:"op"`
	Address     string   `json:"address"`
	Echo        string   `json:"echo"`
	Agent       string   `json:"agent"`
	Call        string   `json:"call"`
	Calls       []string `json:"calls"`
	N           int      `json:"n"`
	Concurrency int      `json:"concurrency"`
	Connections int      `json:"connections"`
	Rate        float64  `json:"rate"`
	Script      string   `json:"script"`
	Shell       string   `json:"shell"`
	Ready       int      `json:"ready"`
	Grace       float64  `json:"grace"`
	Offset      int64    `json:"offset"`
	Limit       int64    `json:"limit"`
	Stall       bool     `json:"stall"`
	File        string   `json:"file"`
	Start       int64    `json:"start"`
	Watchers    int      `json:"watchers"`
	Until       int      `json:"until"`
	Name        string   `json:"name"`
}

type answer map[string]any

// now is CLOCK_MONOTONIC, which all processes of a machine share.
func now() int64 {
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		panic(errno)
	}
	return t.Nano()
}

type load struct {
	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
	stop  chan struct{}
}

// conn returns one connection for each address and number.
func (l *load) conn(address string, number int) *grpc.ClientConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := fmt.Sprint(address, " ", number)
	if c, ok := l.conns[key]; ok {
		return c
	}
	c, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(4<<20), grpc.WithInitialConnWindowSize(8<<20),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		panic(err)
	}
	l.conns[key] = c
	return c
}

func (l *load) calls(address string, number int) pb.CallServiceClient {
	return pb.NewCallServiceClient(l.conn(address, number))
}

func (l *load) stopped() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stop
}

func (l *load) handle(r request) (answer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch r.Op {
	case "echo":
		return l.echo(ctx, r)
	case "load":
		return l.steady(ctx, r)
	case "stop":
		l.mu.Lock()
		close(l.stop)
		l.stop = make(chan struct{})
		l.mu.Unlock()
		return answer{}, nil
	case "run":
		return l.run(ctx, r)
	case "release":
		at := now()
		_, err := l.calls(r.Address, 3).CancelCall(ctx, &pb.CancelCallRequest{
			AgentId: r.Agent, CallId: r.Call,
		})
		return answer{"at": at}, err
	case "prompt":
		at := now()
		agents := pb.NewAgentServiceClient(l.conn(r.Address, 3))
		_, err := agents.SendPrompt(ctx, &pb.SendPromptRequest{AgentId: r.Agent, Text: "come"})
		return answer{"at": at}, err
	case "start":
		return l.start(ctx, r)
	case "cancel":
		return l.cancel(ctx, r)
	case "wait":
		return l.wait(ctx, r)
	case "stream":
		return l.stream(ctx, r)
	case "bare":
		return l.bare(ctx, r)
	case "read":
		return l.read(ctx, r)
	case "watch":
		return l.watch(ctx, r)
	case "report":
		return l.report(ctx, r)
	}
	return nil, fmt.Errorf("no such operation: %q", r.Op)
}

func (l *load) echo(ctx context.Context, r request) (answer, error) {
	client := pb.NewSupervisorServiceClient(l.conn(r.Address, 0))
	return lanes(r.N, 1, func(int) error {
		_, err := client.GetInfo(ctx, &pb.GetInfoRequest{})
		return err
	})
}

// steady is an open loop: a late answer does not delay the next request.
func (l *load) steady(ctx context.Context, r request) (answer, error) {
	client := pb.NewSupervisorServiceClient(l.conn(r.Address, 1))
	stop := l.stopped()
	var mu sync.Mutex
	var group sync.WaitGroup
	var took []int64
	var failure error
	begin := time.Now()
	for count := 0; ; count++ {
		due := begin.Add(time.Duration(float64(count) / r.Rate * 1e9))
		select {
		case <-stop:
			group.Wait()
			return answer{"took": took, "total": time.Since(begin).Nanoseconds()}, failure
		case <-time.After(time.Until(due)):
		}
		group.Go(func() {
			from := now()
			_, err := client.GetInfo(ctx, &pb.GetInfoRequest{})
			mu.Lock()
			defer mu.Unlock()
			took = append(took, now()-from)
			failure = errors.Join(failure, err)
		})
	}
}

func (l *load) run(ctx context.Context, r request) (answer, error) {
	return lanes(r.N, r.Concurrency, func(lane int) error {
		response, err := l.calls(r.Address, lane%4).RunShell(ctx, &pb.RunShellRequest{
			AgentId: r.Agent,
			Program: &pb.RunShellRequest_Script{Script: []byte(r.Script)},
			Shell:   []byte(r.Shell),
			// Never into the background, however busy the machine is.
			ForegroundBudget: durationpb.New(time.Hour),
		})
		if err == nil && response.GetResult() == nil {
			return errors.New("it went to the background")
		}
		return err
	})
}

func (l *load) start(ctx context.Context, r request) (answer, error) {
	var mu sync.Mutex
	var calls []string
	told, err := lanes(r.N, max(1, r.Concurrency), func(lane int) error {
		response, err := l.calls(r.Address, lane%4).RunShell(ctx, detached(r))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, response.CallId)
		return nil
	})
	told["calls"] = calls
	return told, err
}

func detached(r request) *pb.RunShellRequest {
	return &pb.RunShellRequest{
		AgentId:          r.Agent,
		Program:          &pb.RunShellRequest_Script{Script: []byte(r.Script)},
		Shell:            []byte(r.Shell),
		Detach:           true,
		ForegroundBudget: durationpb.New(time.Hour),
	}
}

func (l *load) report(ctx context.Context, r request) (answer, error) {
	return lanes(r.N, r.Concurrency, func(lane int) error {
		client := pb.NewAgentServiceClient(l.conn(r.Address, lane%4))
		_, err := client.ReportStatus(ctx, &pb.ReportStatusRequest{
			AgentId: r.Agent,
			Status: &pb.StatusReport{
				State: pb.ReportedState_REPORTED_STATE_WORKING,
				Title: fmt.Sprint("step ", now()),
			},
		})
		return err
	})
}

func (l *load) cancel(ctx context.Context, r request) (answer, error) {
	client := l.calls(r.Address, 0)
	watcher, err := pb.NewWatchServiceClient(l.conn(r.Address, 0)).Watch(ctx, &pb.WatchRequest{
		Filter: &pb.EventFilter{AgentIds: []string{r.Agent}, Names: []string{"tool.*"}},
	})
	if err != nil {
		return nil, err
	}
	for {
		response, err := watcher.Recv()
		if err != nil {
			return nil, err
		}
		if response.Bookmark != nil {
			break
		}
	}
	var accepted, ended, echoed []int64
	left, killed := 0, 0
	for range r.N {
		started, err := client.RunShell(ctx, detached(r))
		if err != nil {
			return nil, err
		}
		if err := l.ready(ctx, r, started.CallId); err != nil {
			return nil, err
		}
		if r.Echo != "" {
			begin := now()
			echo := pb.NewSupervisorServiceClient(l.conn(r.Echo, 0))
			if _, err := echo.GetInfo(ctx, &pb.GetInfoRequest{}); err != nil {
				return nil, err
			}
			echoed = append(echoed, now()-begin)
		}
		begin := now()
		if _, err = client.CancelCall(ctx, &pb.CancelCallRequest{
			AgentId: r.Agent,
			CallId:  started.CallId,
			Grace:   durationpb.New(time.Duration(r.Grace * 1e9)),
		}); err != nil {
			return nil, err
		}
		accepted = append(accepted, now()-begin)
		result, err := endOf(watcher, started.CallId)
		if err != nil {
			return nil, err
		}
		ended = append(ended, now()-begin)
		left += len(result.Receipt.GetSurvivors())
		killed += int(result.Receipt.GetEnded())
	}
	return answer{
		"accepted": accepted, "ended": ended, "echoed": echoed, "left": left, "killed": killed,
	}, nil
}

// ready returns when a call has written so many bytes.
func (l *load) ready(ctx context.Context, r request, call string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.calls(r.Address, 0).ReadOutput(ctx, &pb.ReadOutputRequest{
		AgentId: r.Agent, CallId: call, Follow: true, UntilEnd: true,
	})
	if err != nil {
		return err
	}
	for got := 0; got < r.Ready; {
		response, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("%s was not ready: %w", call, err)
		}
		got += len(response.Data)
	}
	return nil
}

func endOf(watcher pb.WatchService_WatchClient, call string) (*pb.CallResult, error) {
	for {
		response, err := watcher.Recv()
		if err != nil {
			return nil, err
		}
		for _, event := range response.Events {
			if ended := event.GetCallEnded(); ended != nil && event.CallId == call {
				return ended.Result, nil
			}
		}
	}
}

func exact(agent, call string) *pb.WaitRequest {
	return &pb.WaitRequest{
		AgentId: agent,
		Form:    &pb.WaitRequest_Exact_{Exact: &pb.WaitRequest_Exact{CallId: call}},
	}
}

func (l *load) wait(ctx context.Context, r request) (answer, error) {
	at, outcome := make([]int64, len(r.Calls)), make([]string, len(r.Calls))
	var group sync.WaitGroup
	for i, call := range r.Calls {
		client := l.calls(r.Address, i%max(1, r.Connections))
		group.Go(func() {
			response, err := client.Wait(ctx, exact(r.Agent, call))
			at[i] = now()
			outcome[i] = outcomeOf(response, err)
		})
	}
	group.Wait()
	return answer{"at": at, "outcome": outcome}, nil
}

func (l *load) stream(ctx context.Context, r request) (answer, error) {
	stream, err := l.calls(r.Address, 0).WaitStream(ctx)
	if err != nil {
		return nil, err
	}
	var sent error
	go func() {
		var waits []*pb.WaitRequest
		for i, call := range r.Calls {
			wait := exact(r.Agent, call)
			wait.WaitId = fmt.Sprintf("stream-%d-%d", now(), i)
			waits = append(waits, wait)
		}
		if sent = stream.Send(&pb.WaitStreamRequest{Waits: waits}); sent == nil {
			sent = stream.CloseSend()
		}
	}()
	var at []int64
	var outcome []string
	for {
		response, err := stream.Recv()
		if err == io.EOF {
			return answer{"at": at, "outcome": outcome}, sent
		}
		if err != nil {
			return nil, err
		}
		for _, answer := range response.Answers {
			at = append(at, now())
			if failure := answer.GetFailure(); failure != nil {
				outcome = append(outcome, failure.Reason)
			} else {
				outcome = append(outcome, outcomeOf(answer.GetResponse(), nil))
			}
		}
	}
}

func (l *load) bare(ctx context.Context, r request) (answer, error) {
	client := l.calls(r.Address, 0)
	at, calls := []int64{}, []string{}
	for {
		response, err := client.Wait(ctx, &pb.WaitRequest{
			AgentId: r.Agent,
			Form:    &pb.WaitRequest_Bare_{Bare: &pb.WaitRequest_Bare{}},
		})
		if err != nil {
			reason := outcomeOf(nil, err)
			if reason == "BARE_WAIT_IN_PROGRESS" {
				continue
			}
			return answer{"at": at, "calls": calls, "end": reason}, nil
		}
		at = append(at, now())
		for _, result := range response.Results {
			calls = append(calls, result.CallId)
		}
	}
}

func (l *load) read(ctx context.Context, r request) (answer, error) {
	number := 0
	if r.Stall {
		number = 2
	}
	var to io.Writer = io.Discard
	if r.File != "" {
		file, err := os.Create(r.File)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		to = file
	}
	stop := l.stopped()
	begin := now()
	stream, err := l.calls(r.Address, number).ReadOutput(ctx, &pb.ReadOutputRequest{
		AgentId: r.Agent, CallId: r.Call, Offset: r.Offset, Limit: r.Limit, Follow: true,
		UntilEnd: true,
	})
	if err != nil {
		return nil, err
	}
	received, messages := 0, 0
	for {
		response, err := stream.Recv()
		if err == io.EOF {
			return answer{"bytes": received, "messages": messages, "total": now() - begin}, nil
		}
		if err != nil {
			return nil, err
		}
		received += len(response.Data)
		messages++
		if _, err := to.Write(response.Data); err != nil {
			return nil, err
		}
		if r.Stall {
			<-stop
		}
	}
}

func (l *load) watch(ctx context.Context, r request) (answer, error) {
	watchers := max(1, r.Watchers)
	at := make([]int64, watchers)
	events, responses := make([]int, watchers), make([]int, watchers)
	failures := make([]error, watchers)
	watch := &pb.WatchRequest{StartRevision: r.Start, StopAtEnd: r.Until == 0}
	if r.Name != "" {
		watch.Filter = &pb.EventFilter{CallId: r.Name}
	}
	stop := l.stopped()
	begin := now()
	var group sync.WaitGroup
	for i := range watchers {
		client := pb.NewWatchServiceClient(l.conn(r.Address, 10+i%8))
		group.Go(func() {
			defer func() { at[i] = now() }()
			stream, err := client.Watch(ctx, watch)
			for err == nil {
				var response *pb.WatchResponse
				if response, err = stream.Recv(); err != nil {
					break
				}
				events[i] += len(response.Events)
				responses[i]++
				if r.Stall {
					<-stop
					return
				}
				if r.Until > 0 && events[i] >= r.Until {
					return
				}
			}
			if err != io.EOF {
				failures[i] = err
			}
		})
	}
	group.Wait()
	last, total, messages := int64(math.MinInt64), 0, 0
	for i := range watchers {
		last = max(last, at[i])
		total += events[i]
		messages += responses[i]
	}
	return answer{"at": at, "events": total, "responses": messages, "total": last - begin},
		errors.Join(failures...)
}

// lanes does the work n times, so many at a time.
func lanes(n, width int, work func(lane int) error) (answer, error) {
	width = max(1, width)
	took := make([][]int64, width)
	failures := make([]error, width)
	numbers := make(chan struct{}, n)
	for range n {
		numbers <- struct{}{}
	}
	close(numbers)
	var group sync.WaitGroup
	begin := now()
	for lane := range width {
		group.Go(func() {
			for range numbers {
				from := now()
				if failures[lane] = work(lane); failures[lane] != nil {
					return
				}
				took[lane] = append(took[lane], now()-from)
			}
		})
	}
	group.Wait()
	total := now() - begin
	var all []int64
	for _, lane := range took {
		all = append(all, lane...)
	}
	return answer{"took": all, "total": total}, errors.Join(failures...)
}

func outcomeOf(response *pb.WaitResponse, err error) string {
	if err == nil {
		return strings.TrimPrefix(response.Outcome.String(), "WAIT_OUTCOME_")
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return err.Error()
}

func main() {
	l := &load{conns: map[string]*grpc.ClientConn{}, stop: make(chan struct{})}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(reply answer) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(reply); err != nil {
			os.Exit(1)
		}
	}
	say(answer{"id": 0, "ok": answer{}})
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			os.Exit(2)
		}
		go func() {
			reply, err := l.handle(r)
			if err != nil {
				say(answer{"id": r.ID, "error": err.Error()})
				return
			}
			say(answer{"id": r.ID, "ok": reply})
		}()
	}
}
