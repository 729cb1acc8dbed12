"""The verification plan: every rule about background calls, waits, cancels, sub-agents and
tasks, checked against a live supervisor through its public RPCs.

A phase is an async function that reads as a specification; `plan` runs phases side by side,
`report` holds what they found, `show` prints it.
"""
