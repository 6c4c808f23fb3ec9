//go:build pam

package main

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	stack "github.com/msteinert/pam/v2"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/vm/pam"
)

// confDirs are where libpam looks for the rules of a service.
var confDirs = []string{"/etc/pam.d", "/usr/lib/pam.d"}

// keepMemoryPrivate keeps the password out of core dumps and away from debuggers of other users.
func keepMemoryPrivate() error {
	return errors.Join(
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0), unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
	)
}

// ask asks the stack. confDir replaces /etc/pam.d unless it is empty.
func ask(q pam.Request, confDir string) pam.Response {
	if err := q.Check(); err != nil {
		return pam.Refuse(pam.Invalid, err.Error())
	}
	if !configured(q.Service, confDir) {
		return pam.Refuse(pam.Unconfigured, "there is no file "+q.Service+" with rules of the stack")
	}
	t, err := start(q, confDir)
	if err != nil {
		return refusal(err)
	}
	defer func() { _ = t.End() }()
	if q.Op == pam.Authenticate {
		if err := t.Authenticate(stack.Silent | stack.DisallowNullAuthtok); err != nil {
			return refusal(err)
		}
	}
	if err := t.AcctMgmt(stack.Silent | stack.DisallowNullAuthtok); err != nil {
		return refusal(err)
	}
	name, err := t.GetItem(stack.User) // modules may have replaced it
	if err != nil {
		return refusal(err)
	}
	return account(name)
}

// configured reports whether a service has a file. For one that has none, libpam takes the rules of
// "other".
func configured(service, confDir string) bool {
	folders := confDirs
	if confDir != "" {
		folders = []string{confDir}
	}
	for _, folder := range folders {
		if info, err := os.Stat(filepath.Join(folder, service)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

func start(q pam.Request, confDir string) (*stack.Transaction, error) {
	answer := func(style stack.Style, _ string) (string, error) {
		switch style {
		case stack.PromptEchoOff:
			return string(q.Password), nil
		case stack.TextInfo, stack.ErrorMsg:
			return "", nil
		}
		return "", errors.New("only the password can be asked for")
	}
	if confDir == "" {
		return stack.StartFunc(q.Service, q.Username, answer)
	}
	return stack.StartConfDir(q.Service, q.Username, stack.ConversationFunc(answer), confDir)
}

// refusal tells what the stack denies from what it cannot say.
func refusal(err error) pam.Response {
	code, ok := errors.AsType[stack.Error](err)
	if !ok {
		return pam.Refuse(pam.Failed, err.Error())
	}
	switch code {
	case stack.ErrOpen, stack.ErrSymbol, stack.ErrService, stack.ErrSystem, stack.ErrBuf, stack.ErrAbort,
		stack.ErrAuthinfoUnavail, stack.ErrCredUnavail, stack.ErrTryAgain, stack.ErrModuleUnknown:
		return pam.Refuse(pam.Failed, err.Error())
	}
	return pam.Refuse(pam.Denied, err.Error())
}

// account looks an account up where the host looks up names (NSS), which may be a directory server.
func account(name string) pam.Response {
	u, err := user.Lookup(name)
	if unknown := user.UnknownUserError(""); errors.As(err, &unknown) {
		return pam.Refuse(pam.Denied, "the stack accepts a user whom the host does not know")
	}
	if err != nil {
		return pam.Refuse(pam.Failed, err.Error())
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return pam.Refuse(pam.Failed, "the user id is not a number")
	}
	ids, err := u.GroupIds()
	if err != nil {
		return pam.Refuse(pam.Failed, err.Error())
	}
	out := pam.Account{Username: u.Username, UID: uid, Groups: []string{}}
	for _, id := range ids {
		g, err := user.LookupGroupId(id)
		if unknown := user.UnknownGroupIdError(""); errors.As(err, &unknown) {
			continue // a group without a name gives nobody a role
		}
		if err != nil {
			return pam.Refuse(pam.Failed, err.Error())
		}
		out.Groups = append(out.Groups, g.Name)
	}
	return pam.Accept(out)
}
