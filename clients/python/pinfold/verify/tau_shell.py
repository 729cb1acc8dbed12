"""Shell calls in the foreground: results, headers, output lines."""

from __future__ import annotations

import asyncio

from pinfold.verify import texts
from pinfold.verify.actor import ERROR, PLACEHOLDER, RESULT
from pinfold.verify.expect import between, containing, like, starting, without
from pinfold.verify.phase import TAU, Phase, phase


@phase("shell", TAU, "shell in the foreground", 4)
async def shell(p: Phase) -> None:
    me = await p.agent()

    quick = await me.shell("sleep 0.5; echo done")
    p.check(
        "a quick call answers with its result", expected=(RESULT, texts.out("done")), got=quick.said
    )
    events = await p.log.read()
    ends = [e.name for e in events if e.call_id == quick.id and e.name.startswith("tool.")]
    p.check("its one terminal event", expected=["tool.result"], got=ends)
    p.check("no completion prompt for it", expected=[], got=await me.take())

    answer = await me.shell("exit 7")
    p.check(
        "a non-zero exit is a result",
        expected=(RESULT, "termination_reason: exit\nstatus: 7"),
        got=answer.said,
    )
    answer = await me.shell("kill -TERM $$")
    p.check(
        "a signal is a result",
        expected=(RESULT, "termination_reason: signal\nsignal: 15"),
        got=answer.said,
    )

    p.route("shell timeout")
    answer = await me.shell("printf 'before\\n'; sleep 30", timeout=1)
    p.check("kind", expected=RESULT, got=answer.kind)
    p.check(
        "text",
        expected=like(
            r"timed_out: true\ntermination_reason: timeout\n(.*\n)?signal: 15\n.*\n?\nout before"
        ),
        got=answer.text,
    )
    p.check("no argument is echoed", expected=without("timeout_secs", "sleep 30"), got=answer.text)
    answer = await me.shell("sleep 30", timeout=0)
    p.check(
        "timeout 0 ends it at once",
        expected=(RESULT, "timed_out: true\ntermination_reason: timeout"),
        got=answer.said,
    )
    marker = f"{await p.scratch()}/ran"
    for wrong, text in (
        ("-1", "`timeout` must be at least 0"),
        ('"1"', "`timeout` must be an integer"),
        ("1.0", "`timeout` must be an integer"),
        ("true", "`timeout` must be an integer"),
    ):
        answer = await me.raw("shell", f'{{"command": "touch {marker}", "timeout": {wrong}}}')
        p.check(f"timeout {wrong}", expected=(ERROR, f"error: {text}"), got=answer.said)
    p.check("a refused command does not run", expected=False, got=await p.exists(marker))


@phase("shell-output", TAU, "shell output", 3)
async def shell_output(p: Phase) -> None:
    me = await p.agent()

    answer = await me.shell("printf early; (sleep 4; printf late) &")
    p.check("leftovers don't hold the answer", expected=RESULT, got=answer.kind)
    p.check(
        "early output, and leftovers are counted",
        expected=like(r"status: 0\nleftover_processes: [12]\n\nout\(no_nl\) early"),
        got=answer.text,
    )
    answer = await me.shell("printf '\\377\\n'; printf '\\376' >&2")
    p.check(
        "undecodable bytes are flagged and shown",
        expected=containing("valid_utf8: false\n"),
        got=answer.text,
    )
    p.check("on each stream", expected=containing("out(invalid-utf8) \ufffd"), got=answer.text)
    p.check(
        "with all flags",
        expected=containing("err(no_nl,invalid-utf8) \ufffd"),
        got=answer.text.replace("invalid-utf8,no_nl", "no_nl,invalid-utf8"),
    )
    answer = await me.shell("printf 'a\\r\\nb\\rc\\n'")
    p.check(
        "line ends are flagged",
        expected="status: 0\n\nout(crlf) a\nout(cr) b\nout c",
        got=answer.text,
    )
    answer = await me.shell("echo 'error: no'; echo; echo 'status: 1'")
    p.check(
        "output makes no header",
        expected="status: 0\n\nout error: no\nout \nout status: 1",
        got=answer.text,
    )
    answer = await me.shell("seq 1 4002")
    p.check(
        "long output is capped",
        expected=containing(
            "truncated: true\ntotal_lines: 4002\n",
            "\nout 1000\n",
            "...",
            "\nout 3003\n",
            "\nout 4002",
        ),
        got=answer.text,
    )
    p.check("the middle is left out", expected=without("out 1001\n", "out 3002\n"), got=answer.text)
    answer = await me.shell("pwd", cwd="/no/such/directory")
    p.check("a start that fails is an error", expected=ERROR, got=answer.kind)
    p.check(
        "which says why",
        expected=like("error: failed to start shell command: .+\ntermination_reason: start_error"),
        got=answer.text,
    )


@phase("queue", TAU, "calls that queue", 6)
async def queue(p: Phase) -> None:
    """One place only: the budget of 2 s begins with the execution, not with the request."""
    me = await p.agent(max_running_calls=1)
    first = me.begin("shell", "first", command="sleep 3.2; echo one")
    await me.happened("call.started", "first")
    second = me.begin("shell", "second", command="echo two")
    await me.happened("call.queued", "second")
    third = me.begin("shell", "third", command="echo three")
    p.check("the first goes to the background", expected=PLACEHOLDER, got=(await first).kind)
    answers = [(await second).said, (await third).said]
    p.check(
        "those behind it start when it has ended, and answer in the foreground",
        expected=[(RESULT, texts.out("two")), (RESULT, texts.out("three"))],
        got=answers,
    )
    events = await p.log.read()
    order = [
        (e.name, e.call_id)
        for e in events
        if e.name in ("call.starting", "tool.result", "tool.background_result")
    ]
    p.check(
        "in order, never two at a time",
        expected=[
            ("call.starting", "first"),
            ("tool.background_result", "first"),
            ("call.starting", "second"),
            ("tool.result", "second"),
            ("call.starting", "third"),
            ("tool.result", "third"),
        ],
        got=order,
        kind="order",
    )

    p.route("exclusive calls")
    other = await p.agent()
    await other.gated("held")
    alone = other.begin("shell", "alone", command="echo alone", exclusive=True)
    await other.happened("call.queued", "alone")
    behind = other.begin("shell", "behind", command="echo behind")
    await other.happened("call.queued", "behind")
    started = [
        e.call_id
        for e in await p.log.read()
        if e.name == "call.starting" and e.agent_id == other.id
    ]
    p.check("an exclusive call waits until it is alone", expected=["held"], got=started)
    await other.open("held")
    await asyncio.gather(alone, behind)
    started = [
        e.call_id
        for e in await p.log.read()
        if e.name == "call.starting" and e.agent_id == other.id
    ]
    p.check("then in order", expected=["held", "alone", "behind"], got=started)


@phase("duration", TAU, "duration_seconds", 6.5)
async def duration(p: Phase) -> None:
    me = await p.agent()
    await me.background("sleep 5.4; echo slow", "slow")
    await me.background("sleep 4; echo quick", "quick")
    quick = await me.wait("quick")
    p.check("a wait never goes to the background", expected=RESULT, got=quick.kind)
    p.check("not up to 5 s", expected="status: 0\n\nout quick", got=quick.text)
    slow = await me.wait("slow")
    p.check(
        "over 5 s, in whole seconds, after the status",
        expected=like(r"status: 0\nduration_seconds: \d+\n\nout slow"),
        got=slow.text,
        kind="timing",
    )
    seconds = int(slow.headers.get("duration_seconds", "0"))
    p.check("rounded up", expected=between(6, 20), got=seconds, kind="timing")
    if seconds > 7:
        p.note(f"5.4 s were reported as {seconds}", "timing")
    p.check("a header of the result", expected=starting("status: 0"), got=slow.text)
