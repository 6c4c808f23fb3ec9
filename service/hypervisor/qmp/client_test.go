package qmp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

const hello = `{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": "stand-in"}, "capabilities": []}}` + "\r\n"

// standIn is the other end of a connection: it says what QEMU never would.
type standIn struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// listen is a socket on which script serves one client. What script returns from is
// hung up.
func listen(t *testing.T, script func(*standIn)) string {
	t.Helper()
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := l.Accept()
		if err != nil {
			return // the test is over
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
			t.Error(err)
		}
		script(&standIn{t: t, conn: conn, r: bufio.NewReader(conn)})
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
	return path
}

// connect is a client of a stand-in that negotiates as it should, then follows script.
func connect(t *testing.T, script func(*standIn)) *qmp.Client {
	t.Helper()
	path := listen(t, func(q *standIn) {
		q.say(hello)
		if name, id := q.command(); name != "qmp_capabilities" {
			t.Errorf("negotiation began with %s", name)
		} else {
			q.answer(id, "{}")
		}
		script(q)
	})
	c, err := qmp.Dial(deadline(t), path, qmp.Options{MaxLine: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// say writes; a client that has hung up meanwhile is its right.
func (q *standIn) say(format string, args ...any) { _, _ = fmt.Fprintf(q.conn, format, args...) }

func (q *standIn) answer(id uint64, result string) {
	q.say(`{"return": %s, "id": %d}`+"\n", result, id)
}

func (q *standIn) event(name string, data any) {
	b, err := json.Marshal(
		map[string]any{"event": name, "data": data, "timestamp": map[string]int64{"seconds": 1, "microseconds": 0}},
	)
	if err != nil {
		q.t.Error(err)
	}
	q.say("%s\n", b)
}

// command is the next one; its name is empty once the client has hung up.
func (q *standIn) command() (name string, id uint64) {
	var c struct {
		Execute string `json:"execute"`
		ID      uint64 `json:"id"`
	}
	line, err := q.r.ReadBytes('\n')
	if err != nil {
		return "", 0
	}
	if err := json.Unmarshal(line, &c); err != nil {
		q.t.Errorf("a command is no JSON: %q", line)
	}
	return c.Execute, c.ID
}

func (q *standIn) untilHungUp() { _, _ = io.Copy(io.Discard, q.r) }

func TestWhatIsNoQMPLosesTheConnectionAndSaysWhy(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"garbage\n":                         "not QMP",
		"\n":                                "not QMP",
		`{"return": {}, "id": NEXT}` + "\n": "which was never sent",
		`{"return": {}}` + "\n":             "no id",
		hello:                               "a second greeting",
		strings.Repeat("x", 2<<20):          "longer than 1048576 bytes",
		`{"event": "E", "data": "` + strings.Repeat("x", qmp.MaxEvent) + "\"}\n": "an event is longer",
		`{"return": {"status": "ru`: "QEMU ended or hung up",
		"":                          "QEMU ended or hung up",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			c := connect(t, func(q *standIn) {
				_, id := q.command()
				q.say("%s", strings.ReplaceAll(said, "NEXT", strconv.FormatUint(id+1, 10)))
				if strings.Contains(want, "hung up") {
					return
				}
				q.untilHungUp()
			})
			events := c.Subscribe()
			err := c.Execute(deadline(t), "query-status", nil, nil)
			if !errors.Is(err, qmp.ErrLost) || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "query-status") {
				t.Errorf("the call in flight: %v", err)
			}
			<-c.Done()
			if err := c.Err(); !errors.Is(err, qmp.ErrLost) || !strings.Contains(err.Error(), want) {
				t.Errorf("the client: %v", err)
			}
			if err := c.Stop(deadline(t)); !errors.Is(err, qmp.ErrLost) {
				t.Errorf("a later call: %v", err)
			}
			for _, s := range []*qmp.Subscription{events, c.Subscribe()} {
				if _, err := s.Next(deadline(t)); !errors.Is(err, qmp.ErrLost) {
					t.Errorf("a subscription: %v", err)
				}
			}
		})
	}
}

func TestNoClientComesOfASocketThatDoesNotGreetAsQEMU(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"SSH-2.0-OpenSSH_9.2\n":          "not QMP",
		`{"return": {}, "id": 1}` + "\n": "not a greeting",
		`{"QMP": `:                       "not QMP",
		hello:                            "hung up",
		hello + `{"id": THIS, "error": {"class": "CommandNotFound", "desc": "out of modes"}}` + "\n": "out of modes",
	} {
		path := listen(t, func(q *standIn) {
			greeting, answer, _ := strings.Cut(said, "\r\n")
			q.say("%s\r\n", greeting)
			if answer != "" {
				_, id := q.command()
				q.say("%s", strings.ReplaceAll(answer, "THIS", strconv.FormatUint(id, 10)))
			}
			if said != hello && strings.HasSuffix(said, "\n") {
				q.untilHungUp()
			}
		})
		if c, err := qmp.Dial(deadline(t), path, qmp.Options{}); err == nil || c != nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", said, err, want)
		}
	}
}

func TestDialEndsWithItsContextAndAnAbsentSocketIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(deadline(t))
	silent := listen(t, func(q *standIn) {
		cancel()
		q.untilHungUp()
	})
	if _, err := qmp.Dial(ctx, silent, qmp.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a silent socket: %v", err)
	}
	if _, err := qmp.Dial(deadline(t), socket(t), qmp.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent socket: %v", err)
	}
	if _, err := qmp.Dial(deadline(t), "/"+strings.Repeat("x", 200), qmp.Options{}); err == nil ||
		!strings.Contains(err.Error(), "not 201") {
		t.Errorf("a long path: %v", err)
	}
	short, cancel := context.WithTimeout(deadline(t), 20*time.Millisecond)
	defer cancel()
	if _, err := qmp.Dial(short, socket(t), qmp.Options{Wait: true}); !errors.Is(err, context.DeadlineExceeded) ||
		!errors.Is(err, os.ErrNotExist) {
		t.Errorf("a socket that never comes: %v", err)
	}
}

func TestACallerWhoseContextEndsLeavesAtOnceAndTheLateAnswerHurtsNobody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(deadline(t))
	c := connect(t, func(q *standIn) {
		_, slow := q.command()
		cancel()
		_, quick := q.command()
		q.answer(slow, `{"status": "late"}`)
		q.answer(slow, `{"status": "twice"}`)
		q.answer(quick, `{"status": "prompt"}`)
		q.untilHungUp()
	})
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller who left: %v", err)
	}
	if s, err := c.Status(deadline(t)); err != nil || s.State != "prompt" {
		t.Errorf("the next caller: %+v, %v", s, err)
	}
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who had left before: %v", err)
	}
}

// QEMU gives it to whoever is there: a daemon that was killed did not wait for its answers.
func TestAnAnswerToAClientOfBeforeIsIgnored(t *testing.T) {
	t.Parallel()
	path := listen(t, func(q *standIn) {
		q.say(hello)
		q.answer(9, "{}")
		_, id := q.command()
		q.answer(1, `{"status": "another's"}`)
		q.answer(id, "{}")
		_, id = q.command()
		q.say(`{"error": {"class": "GenericError", "desc": "another's"}, "id": %d}`+"\n", 2)
		q.answer(id, `{"status": "running", "running": true}`)
		q.untilHungUp()
	})
	c, err := qmp.Dial(deadline(t), path, qmp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s, err := c.Status(deadline(t)); err != nil || !s.Running {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAQEMUThatDoesNotAnswerCostsACallItsTimeAndTheConnectionStands(t *testing.T) {
	t.Parallel()
	path := listen(t, func(q *standIn) {
		q.say(hello)
		_, id := q.command()
		q.answer(id, "{}")
		_, silent := q.command()
		_, id = q.command()
		q.answer(silent, "{}") // late
		q.answer(id, `{"status": "running", "running": true}`)
		q.untilHungUp()
	})
	c, err := qmp.Dial(deadline(t), path, qmp.Options{CallLimit: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Stop(t.Context()); !errors.Is(err, qmp.ErrSilent) {
		t.Errorf("stop: %v", err)
	}
	if s, err := c.Status(deadline(t)); err != nil || !s.Running {
		t.Errorf("the next command: %+v, %v", s, err)
	}
}

func TestAnswersFindTheirCallersInAnyOrderAndInAnyPieces(t *testing.T) {
	t.Parallel()
	c := connect(t, func(q *standIn) {
		first, id1 := q.command()
		second, id2 := q.command()
		for _, b := range []byte(fmt.Sprintf(`{"return": "%s", "id": %d}`+"\r\n"+`{"event": "STOP"}`+"\n"+`{"return": "%s", "id": %d}`+"\n", second, id2, first, id1)) {
			q.say("%c", b)
		}
		q.untilHungUp()
	})
	answers := make(chan error, 2)
	for _, name := range []string{"a", "b"} {
		go func() {
			var got string
			err := c.Execute(deadline(t), name, nil, &got)
			if err == nil && got != name {
				err = fmt.Errorf("%s was answered to %s", got, name)
			}
			answers <- err
		}()
	}
	for range 2 {
		must(t, <-answers)
	}
}

func TestCallersLeaveAQEMUThatDoesNotRead(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	c := connect(t, func(*standIn) { <-over })
	defer close(over)
	ctx, cancel := context.WithTimeout(deadline(t), 50*time.Millisecond)
	defer cancel()
	big := map[string]string{"padding": strings.Repeat("x", 4<<20)} // more than a socket holds
	for range 3 {
		if err := c.Execute(ctx, "x", big, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
	c.Close() // it returns though a command is half written
}

func TestArgumentsThatCannotBeSentAreRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	c := connect(t, func(q *standIn) {
		if name, id := q.command(); name == "query-status" {
			q.answer(id, `[]`)
		} else {
			t.Errorf("%s was sent", name)
		}
		q.untilHungUp()
	})
	err := c.Execute(deadline(t), "x", map[string]string{"secret": strings.Repeat("hunter2", 3<<20)}, nil)
	if err == nil || !strings.Contains(err.Error(), "longer than") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("arguments that are too long: %.200v", err)
	}
	if err := c.Execute(deadline(t), "x", func() {}, nil); err == nil ||
		!strings.Contains(err.Error(), "its arguments") {
		t.Errorf("arguments that are no JSON: %v", err)
	}
	if _, err := c.Status(deadline(t)); err == nil || !strings.Contains(err.Error(), "its result") {
		t.Errorf("a result of another type: %v", err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("the connection: %v", err)
	}
}

func TestAFloodOfEventsNeitherBlocksCallsNorGoesUnnoticed(t *testing.T) {
	t.Parallel()
	const flood = 10 * qmp.Queued
	c := connect(t, func(q *standIn) {
		_, id := q.command()
		for i := range flood {
			q.event("STOP", i)
			q.event("OTHER", i)
		}
		q.answer(id, "{}")
		q.untilHungUp()
	})
	slow, all := c.Subscribe("STOP", "NEVER"), c.Subscribe()
	must(t, c.Cont(deadline(t))) // it is answered after the flood, which nobody reads
	for i := range qmp.Queued {
		e := next(t, slow, "STOP")
		var n int
		must(t, e.Decode(&n))
		wantMissed := 0
		if i == 0 {
			wantMissed = flood - qmp.Queued
		}
		if n != flood-qmp.Queued+i || e.Missed != wantMissed {
			t.Fatalf("event %d is number %d, %d missed before", i, n, e.Missed)
		}
	}
	if e := next(t, all, "STOP"); e.Missed != 2*flood-qmp.Queued {
		t.Errorf("of all events %d were missed", e.Missed)
	}
	none, cancel := context.WithCancel(deadline(t))
	cancel()
	if e, err := slow.Next(none); !errors.Is(err, context.Canceled) {
		t.Errorf("after the last event: %+v, %v", e, err)
	}
	all.Close()
	if e, err := all.Next(deadline(t)); err == nil {
		t.Errorf("a closed subscription gave %+v", e)
	}
}

func TestEventsThatCameBeforeTheLossAreStillRead(t *testing.T) {
	t.Parallel()
	c := connect(t, func(q *standIn) {
		q.command()
		q.event("SHUTDOWN", map[string]any{"guest": true, "reason": "guest-shutdown"})
	})
	events := c.Subscribe(qmp.EventShutdown)
	if err := c.PowerDown(deadline(t)); !errors.Is(err, qmp.ErrLost) {
		t.Errorf("%v", err)
	}
	var why qmp.Shutdown
	if err := next(t, events, qmp.EventShutdown).Decode(&why); err != nil || !why.Guest ||
		why.Reason != "guest-shutdown" {
		t.Errorf("%+v, %v", why, err)
	}
	for range 2 { // the end is told to everyone who asks
		if _, err := events.Next(deadline(t)); !errors.Is(err, qmp.ErrLost) {
			t.Errorf("%v", err)
		}
	}
}

func TestWaitJobLosesItsJobWithTheConnection(t *testing.T) {
	t.Parallel()
	c := connect(t, func(q *standIn) {
		_, id := q.command()
		q.answer(id, `[{"id": "j", "type": "backup", "status": "running", "current-progress": 1, "total-progress": 2}]`)
		q.event("JOB_STATUS_CHANGE", map[string]string{"id": "another", "status": "concluded"})
	})
	if err := c.WaitJob(deadline(t), "j", nil); !errors.Is(err, qmp.ErrLost) ||
		!strings.Contains(err.Error(), "job j") {
		t.Errorf("%v", err)
	}
}
