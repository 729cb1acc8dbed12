"""The clients that make the load: the same operations in Python (`client.py`) and Go (`main.go`).

A client is a process of its own. It reads one request per line (JSON, with an `id` and an `op`),
carries them out side by side, and answers each with one line: `{"id": …, "ok": {…}}` or
`{"id": …, "error": "…"}`. Times are nanoseconds; those named `at` are of CLOCK_MONOTONIC, so
that they can be compared between processes.

    echo    n                              GetInfo, one after the other            -> took
    load    rate                           GetInfo at a fixed rate, until `stop`   -> took, late
    stop                                   ends `load` and stalled readers
    run     agent n concurrency script     RunShell, awaited                       -> took, total
    start   agent n concurrency script     RunShell, not awaited                   -> calls
    cancel  agent n script ready grace     start, await `ready` bytes, cancel      -> accepted,
    (with echo)                            until the end is at a watcher; before it    ended, left,
                                           a GetInfo of the server `echo`              echoed
    wait    agent calls connections        one exact wait per id, all parked       -> at, outcome
    stream  agent calls                    the same over one WaitStream            -> at, outcome
    bare    agent                          bare waits until nothing is left        -> at, calls
    release agent call                     CancelCall                              -> at (its begin)
    prompt  agent                          SendPrompt                              -> at (its begin)
    read    agent call offset limit stall file   ReadOutput                        -> bytes, total
    watch   start watchers until name      Watch, by so many watchers              -> at, events,
                                                                                      responses
    report  agent n concurrency            ReportStatus: an event and no process   -> took, total
"""
