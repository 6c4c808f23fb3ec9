package ota

// Phase is the progress of an update at this site. The words are those of the control plane.
type Phase string

// The phases.
const (
	Pending          Phase = "pending"
	Downloading      Phase = "downloading"
	Downloaded       Phase = "downloaded"
	Installing       Phase = "installing"
	Rebooting        Phase = "rebooting"
	Verifying        Phase = "verifying"
	Succeeded        Phase = "succeeded"
	Rejected         Phase = "rejected"
	AlreadyInstalled Phase = "already_installed"
	Failed           Phase = "failed"
	RollingBack      Phase = "rolling_back"
	RolledBack       Phase = "rolled_back"
	// Stopped means that the update was withdrawn or replaced. It is never reported.
	Stopped Phase = "stopped"
)

// Terminal reports whether the update has ended.
func (p Phase) Terminal() bool {
	switch p {
	case Succeeded, Rejected, AlreadyInstalled, Failed, RolledBack, Stopped:
		return true
	}
	return false
}

// Outcome is the result of a phase's work.
type Outcome uint8

// The outcomes.
const (
	Done Outcome = iota
	Reboots
	Broken
	Unwanted  // from pending only: the update cannot or must not be installed here
	Installed // from pending only: the device already has this version
)

// Next returns the phase that follows p after the outcome o.
func Next(p Phase, o Outcome) Phase {
	switch p {
	case Pending:
		switch o {
		case Done:
			return Downloading
		case Installed:
			return AlreadyInstalled
		case Unwanted:
			return Rejected
		}
		return Failed
	case Downloading:
		if o == Done {
			return Downloaded
		}
		return Failed
	case Downloaded:
		if o == Done {
			return Installing
		}
		return Failed
	case Installing:
		switch o {
		case Done:
			return Verifying
		case Reboots:
			return Rebooting
		}
		return RollingBack
	case Rebooting:
		return Verifying
	case Verifying:
		if o == Done {
			return Succeeded
		}
		return RollingBack
	case RollingBack:
		if o == Done {
			return RolledBack
		}
		return Failed
	}
	return p
}
