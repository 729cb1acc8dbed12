package pinfold

// Reason is why something was refused: one UPPER_SNAKE word of one table, the same in every
// language (see docs/errors.md). It is an error itself, for errors.Is.
type Reason string

func (r Reason) Error() string { return string(r) }

// The reasons that the supervisor knows.
const (
	// Agents.
	ErrAgentUnknown    Reason = "AGENT_UNKNOWN"
	ErrAgentStopped    Reason = "AGENT_STOPPED"
	ErrAgentIDReused   Reason = "AGENT_ID_REUSED"
	ErrAgentLimit      Reason = "AGENT_LIMIT"
	ErrAgentDepthLimit Reason = "AGENT_DEPTH_LIMIT"
	ErrRoleUnknown     Reason = "ROLE_UNKNOWN"
	ErrTurnUnknown     Reason = "TURN_UNKNOWN"
	ErrPromptLimit     Reason = "PROMPT_LIMIT"

	// Calls.
	ErrCallUnknown         Reason = "CALL_UNKNOWN"
	ErrCallIDReused        Reason = "CALL_ID_REUSED"
	ErrCallLimit           Reason = "CALL_LIMIT"
	ErrGroupLimit          Reason = "GROUP_LIMIT"
	ErrTaskLimit           Reason = "TASK_LIMIT"
	ErrNoControlSurface    Reason = "NO_CONTROL_SURFACE"
	ErrCallAlreadyCanceled Reason = "CALL_ALREADY_CANCELED"
	ErrCallAlreadyDone     Reason = "CALL_ALREADY_DONE"
	ErrCallNotCancellable  Reason = "CALL_NOT_CANCELLABLE"
	ErrCancelTargetUnknown Reason = "CANCEL_TARGET_UNKNOWN"
	ErrCallHasNoInput      Reason = "CALL_HAS_NO_INPUT"

	// Waits.
	ErrResultConsumed       Reason = "RESULT_CONSUMED"
	ErrCallReturnedNormally Reason = "CALL_RETURNED_NORMALLY"
	ErrWaitInProgress       Reason = "WAIT_IN_PROGRESS"
	ErrBareWaitInProgress   Reason = "BARE_WAIT_IN_PROGRESS"
	ErrInputWaitInProgress  Reason = "INPUT_WAIT_IN_PROGRESS"
	ErrNothingToWaitFor     Reason = "NOTHING_TO_WAIT_FOR"
	ErrWaitIDReused         Reason = "WAIT_ID_REUSED"
	ErrWaitCancelled        Reason = "WAIT_CANCELLED"
	ErrWaitLimit            Reason = "WAIT_LIMIT"

	// Messages and watches.
	ErrRecipientUnknown   Reason = "RECIPIENT_UNKNOWN"
	ErrRecipientStopped   Reason = "RECIPIENT_STOPPED"
	ErrWatchSelf          Reason = "WATCH_SELF"
	ErrWatchTargetUnknown Reason = "WATCH_TARGET_UNKNOWN"
	ErrWatchTargetStopped Reason = "WATCH_TARGET_STOPPED"
	ErrWatchCycle         Reason = "WATCH_CYCLE"
	ErrRequestIDReused    Reason = "REQUEST_ID_REUSED"

	// Tasks.
	ErrTaskUnknown Reason = "TASK_UNKNOWN"
	ErrTaskExpired Reason = "TASK_EXPIRED"

	// The supervisor itself.
	ErrDraining Reason = "DRAINING"

	// At the door.
	ErrInvalidArgument   Reason = "INVALID_ARGUMENT"
	ErrUnauthenticated   Reason = "UNAUTHENTICATED"
	ErrPermissionDenied  Reason = "PERMISSION_DENIED"
	ErrRevisionCompacted Reason = "REVISION_COMPACTED"
	ErrRevisionInFuture  Reason = "REVISION_IN_FUTURE"
	ErrStoreFailing      Reason = "STORE_FAILING"
	ErrKeeperUnavailable Reason = "KEEPER_UNAVAILABLE"
	ErrToolUnknown       Reason = "TOOL_UNKNOWN"
	ErrTokenUnknown      Reason = "TOKEN_UNKNOWN"

	// Of this client.
	ErrClientClosed    Reason = "CLIENT_CLOSED"
	ErrInvalidAddress  Reason = "INVALID_ADDRESS"
	ErrTLSFile         Reason = "TLS_FILE"
	ErrTokenWithoutTLS Reason = "TOKEN_WITHOUT_TLS"
)
