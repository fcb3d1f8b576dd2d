package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
)

// Daemon is a curfew serve that is running.
type Daemon struct {
	URL string // of its HTTP interface
	Log string // the file with its log lines

	cmd  *exec.Cmd
	over chan struct{}
}

// Serve starts curfew serve on a free port, and waits until it is ready.
func (s *Stage) Serve(ctx context.Context) (*Daemon, error) {
	s.Say("$ curfew serve --listen 127.0.0.1:0 2> serve.log &")
	d := &Daemon{Log: s.Path("serve.log"), cmd: s.command(ctx, "serve", "--listen", "127.0.0.1:0", "--log-level", "info"), over: make(chan struct{})}
	log, err := os.Create(d.Log)
	if err != nil {
		return nil, err
	}
	said, err := d.cmd.StderrPipe()
	if err != nil {
		log.Close()
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		log.Close()
		return nil, err
	}
	address := make(chan string, 1)
	go func() {
		defer close(d.over)
		defer log.Close()
		for lines := bufio.NewReader(said); ; {
			text, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			log.Write(text)
			var line struct{ Msg, Address string }
			if json.Unmarshal(text, &line) == nil && line.Msg == "listening" {
				address <- line.Address // it says so once
			}
		}
		_ = d.cmd.Wait() // its exit code is asked for by Stop
	}()
	select {
	case a := <-address:
		d.URL = "http://" + a
	case <-d.over:
		return nil, fmt.Errorf("curfew serve ended with exit code %d; what it said is in %s", d.cmd.ProcessState.ExitCode(), d.Log)
	}
	if err := Until(ctx, Patience, "curfew serve is ready", d.ready); err != nil {
		d.Kill()
		return nil, err
	}
	s.Line("listening on %s, and ready", d.URL)
	return d, nil
}

func (d *Daemon) ready() (bool, error) {
	res, err := http.Get(d.URL + "/readyz")
	if err != nil {
		return false, err
	}
	return res.StatusCode == http.StatusOK, res.Body.Close()
}

// Stop asks the daemon to end, as systemd and Kubernetes do, and returns its exit code.
func (d *Daemon) Stop() (int, error) {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	<-d.over
	return d.cmd.ProcessState.ExitCode(), nil
}

// Kill ends it at once, if it has not ended yet: for an example that went wrong.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill()
	<-d.over
}
