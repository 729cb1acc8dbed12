"""What a child is started with, and every way in which it can't be (K6, K11, K12)."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keeper.harness import ENV, Harness, descriptors, eventually
from pinfoldd.keeper.messages import (
    Acknowledge,
    Base,
    Empty,
    Exited,
    Input,
    InputTaken,
    Resize,
    SpawnFailed,
    TerminalSize,
)

pytestmark = pytest.mark.timeout(30)


def test_the_common_environment(own: Harness) -> None:
    """What it has that no process can have is left out, and not a reason to start nothing."""
    common = {"PATH": "/usr/bin:/bin", "A": "base", "B": "base", "bad=name": "x", "C": "a\0b"}
    own.link.send(Base(common))
    group = own.run(b"", argv=["env", "-0"], env={"B": "own", "ENV": "/x"}).group
    found = dict(entry.split(b"=", 1) for entry in own.output(group).split(b"\0") if entry)
    assert {name for name in found if not name.startswith(b"PINFOLD_")} == {b"PATH", b"A", b"B"}
    assert (found[b"A"], found[b"B"]) == (b"base", b"own")


def _fails(keeper: Harness, script: str | bytes = "true", **fields: Any) -> SpawnFailed:
    group = keeper.spawn(script, **fields)
    return keeper.link.wait(SpawnFailed, group)


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"cwd": "/nonexistent"}, errno.ENOENT, "working directory does not exist: /nonexistent"),
        (
            {"cwd": "/etc/passwd"},
            errno.ENOTDIR,
            "working directory is not a directory: /etc/passwd",
        ),
        ({"cwd": "/a\nb"}, errno.ENOENT, "working directory does not exist: /a\\x0ab"),
        ({"shell": "/bin/none"}, errno.ENOENT, "shell does not exist: /bin/none"),
        ({"shell": "/etc/passwd"}, errno.EACCES, "shell is not executable: /etc/passwd"),
        ({"shell": "/etc"}, errno.EACCES, "shell is not executable: /etc"),
        ({"argv": ["none-such"]}, errno.ENOENT, "program not found: none-such"),
        ({"argv": ["/none/such"]}, errno.ENOENT, "program does not exist: /none/such"),
        ({"argv": ["echo", "a\0b"]}, errno.EINVAL, "argument 1 holds a NUL byte"),
        ({"argv": ["echo", "a" * 131072]}, errno.E2BIG, "argument 1 is too long: 131072 bytes"),
        ({"env": {"BIG": "x" * 200_000}}, errno.E2BIG, "environment variable BIG is too long"),
        ({"env": {"A": "x\0y"}}, errno.EINVAL, "environment variable A holds a NUL byte"),
        ({"env": {"A=B": "x"}}, errno.EINVAL, "not the name of a variable: 'A=B'"),
        ({"cwd": "/tmp\0"}, errno.EINVAL, "working directory holds a NUL byte"),
    ],
)
def test_refused_before_the_fork(
    keeper: Harness, fields: dict[str, Any], code: int, reason: str
) -> None:
    failed = _fails(keeper, **fields)
    assert failed.reason.startswith(reason)
    assert failed.errno == code
    assert "\n" not in failed.reason


def test_script_with_a_nul(keeper: Harness) -> None:
    assert _fails(keeper, b"echo a\0b").reason == "the script holds a NUL byte at offset 6"


def test_not_a_program(keeper: Harness, tmp_path: Path) -> None:
    file = tmp_path / "nonsense"
    file.write_bytes(b"\x7fELF nonsense")
    file.chmod(0o755)
    failed = _fails(keeper, b"", argv=[str(file)])
    assert failed.errno == errno.ENOEXEC
    assert str(file) in failed.reason


def test_missing_interpreter(keeper: Harness, tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text("#!/none/such\n")
    file.chmod(0o755)
    assert str(file) in _fails(keeper, b"", argv=[str(file)]).reason


def test_all_arguments_too_long(keeper: Harness) -> None:
    failed = _fails(keeper, b"", argv=["true", *["x" * 100_000] * 100])
    assert failed.errno == errno.E2BIG


def test_failures_leak_nothing(own: Harness, tmp_path: Path) -> None:
    _fails(own, cwd="/nonexistent")
    before = len(descriptors(own.process.pid))
    file = tmp_path / "nonsense"
    file.write_bytes(b"\x7fELF nonsense")
    file.chmod(0o755)
    for _ in range(50):
        _fails(own, cwd="/nonexistent")
        _fails(own, b"", argv=[str(file)])
        _fails(own, b"", argv=[str(file)], terminal=TerminalSize())
        _fails(own, b"", argv=[str(file)], stdin="pipe")
    assert len(descriptors(own.process.pid)) == before


def test_spawns_leak_nothing(own: Harness) -> None:
    def one(**fields: Any) -> None:
        group = own.spawn("echo hi", **fields)
        own.link.wait(Empty, group)
        own.link.send(Acknowledge([group]))

    one()
    before = len(descriptors(own.process.pid))
    for _ in range(200):
        one()
    for _ in range(20):
        one(terminal=TerminalSize())
        one(stdin="pipe")
    own.run("true")
    eventually(lambda: len(descriptors(own.process.pid)) <= before)
    eventually(lambda: not os.listdir(os.path.join(own.state, "groups")))


def test_a_child_has_three_descriptors(keeper: Harness) -> None:
    group = keeper.run("ls -l /proc/self/fd | grep -c -- '->'; ls /proc/$$/fd").group
    # ls itself opens the directory, and bash its script
    assert keeper.output(group).split() == [b"4", b"0", b"1", b"2", b"255"]


# glibc's posix_spawn ignores its two internal signals in every child, 32 and 33
_INTERNAL = 3 << 31


def signals_of(output: bytes) -> dict[str, int]:
    lines = (line.split() for line in output.decode().splitlines() if line.startswith("Sig"))
    return {name.rstrip(":"): int(value, 16) for name, value in lines if name != "SigQ:"}


def test_dispositions_mask_umask_and_limits(keeper: Harness) -> None:
    script = "cat /proc/self/status; umask; ulimit -Sn; echo $PPID; ps -o tty= $$"
    group = keeper.run(script).group
    output = keeper.output(group)
    masks = signals_of(output)
    assert (masks["SigBlk"], masks["SigCgt"]) == (0, 0)
    assert masks["SigIgn"] & ~_INTERNAL == 0
    assert output.split()[-4:] == [b"0022", b"1024", b"%d" % keeper.process.pid, b"?"]


def test_stdin_is_at_its_end(keeper: Harness) -> None:
    group = keeper.run("cat; read x; echo rc=$?").group
    assert keeper.output(group) == b"rc=1\n"


def test_no_terminal(keeper: Harness) -> None:
    exited = keeper.run("echo hi >/dev/tty")
    assert exited.code == 1
    assert b"/dev/tty" in keeper.output(exited.group, 2)


def test_script_byte_for_byte(keeper: Harness) -> None:
    body = b"printf '%s' \"\xff\xfe \xf0\x28\x8c\x28 $0\"\r\n"
    group = keeper.run(body).group
    assert keeper.output(group).startswith(b"\xff\xfe \xf0\x28\x8c\x28 ")
    eventually(lambda: not os.path.exists(keeper.output(group).split(b" ")[-1].strip()))


def test_long_script(keeper: Harness) -> None:
    body = b": " + b"x" * (1 << 20) + b"\necho end\n"
    group = keeper.run(body).group
    assert keeper.output(group) == b"end\n"


def test_no_profile_files(keeper: Harness, tmp_path: Path) -> None:
    file = tmp_path / "rc"
    file.write_text("echo profile\n")
    group = keeper.run("echo x", env=dict(ENV, BASH_ENV=str(file), ENV=str(file))).group
    assert keeper.output(group) == b"x\n"


def test_environment_is_exact(keeper: Harness) -> None:
    raw = b"\xff\xfe".decode("utf-8", "surrogateescape")
    group = keeper.run(b"", argv=["env", "-0"], env={"PATH": "/usr/bin:/bin", "A": raw}).group
    env = dict(e.split(b"=", 1) for e in keeper.output(group).split(b"\0") if e)
    assert env.pop(b"PINFOLD_KEEPER")
    assert env == {b"PATH": b"/usr/bin:/bin", b"A": b"\xff\xfe", b"PINFOLD_GROUP": b"%d" % group}


def test_paths_are_bytes(keeper: Harness, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff dir"
    os.makedirs(name)
    group = keeper.run("pwd", cwd=name.decode("utf-8", "surrogateescape")).group
    assert keeper.output(group) == name + b"\n"


def test_directory_removed_while_it_runs(keeper: Harness, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    group = keeper.started("read x; echo $x; exit 3", cwd=str(gone), stdin="pipe")
    gone.rmdir()
    keeper.link.send(Input(group, 1, True, b"go\n"))
    assert keeper.link.wait(Exited, group).code == 3
    assert _fails(keeper, cwd=str(gone)).reason == f"working directory does not exist: {gone}"


def test_other_shell_and_direct_programs(keeper: Harness) -> None:
    group = keeper.run("echo $0 ${BASH_VERSION:-none}", shell="/bin/sh").group
    assert keeper.output(group).split()[0].endswith(b".script")
    assert keeper.run(b"", argv=["sh", "-c", "exit 9"]).code == 9
    group = keeper.run(b"stdin\n", argv=["cat"]).group
    assert keeper.output(group) == b"stdin\n"


def test_large_initial_input(keeper: Harness) -> None:
    group = keeper.run(b"x" * 3_000_000, argv=["wc", "-c"]).group
    assert keeper.output(group).strip() == b"3000000"


def test_relative_program_is_of_the_working_directory(keeper: Harness, tmp_path: Path) -> None:
    file = tmp_path / "tool"
    file.write_text("#!/bin/sh\necho tool\n")
    file.chmod(0o755)
    group = keeper.run(b"", argv=["./tool"], cwd=str(tmp_path)).group
    assert keeper.output(group) == b"tool\n"


def test_limits(keeper: Harness) -> None:
    # the hard limits are there by the time that the start is reported
    group = keeper.started(
        "ulimit -Sn; ulimit -Sv; ulimit -Sf; read x;"
        "ulimit -Hn; ulimit -Hv; ulimit -Hf; ulimit -St; ulimit -Ht",
        nofile=300,
        memory=1 << 30,
        file_size=1 << 20,
        cpu_seconds=7,
        stdin="pipe",
    )
    keeper.link.send(Input(group, 1, True, b"go\n"))
    keeper.link.wait(Exited, group)
    soft, hard = [b"300", b"1048576", b"1024"], [b"300", b"1048576", b"1024"]
    assert keeper.output(group).split() == [*soft, *hard, b"7", b"8"]
    assert keeper.run("ulimit -Sn; ulimit -t").code == 0
    assert keeper.run("head -c 4096 /dev/zero > f", file_size=1024).code == 153  # SIGXFSZ
    assert keeper.run("while :; do :; done", cpu_seconds=1).signal == 24  # SIGXCPU


def test_many_live_groups(keeper: Harness) -> None:
    """More descriptors in the keeper than a child may have."""
    groups = [keeper.started("sleep 100") for _ in range(600)]
    group = keeper.run("echo still; echo err >&2; ulimit -Sn").group
    assert keeper.output(group, 1) == b"still\n1024\n"
    assert keeper.output(group, 2) == b"err\n"
    for number in groups:
        keeper.link.send(Input(number, 1))
    for number in groups:
        keeper.stop(number, 0)


def test_input_in_pieces(keeper: Harness) -> None:
    group = keeper.started("cat; echo end", stdin="pipe")
    keeper.link.send(Input(group, 1, False, b"a"), Input(group, 2, True, b"b"))
    assert keeper.link.wait(Exited, group).code == 0
    assert keeper.output(group) == b"abend\n"
    taken = keeper.link.of(group, InputTaken)
    assert [(t.serial, t.accepted, t.error) for t in taken] == [(1, 1, ""), (2, 1, "")]
    keeper.link.send(Input(group, 3, False, b"c"))
    while len(keeper.link.of(group, InputTaken)) < 3:
        keeper.link.next()
    assert keeper.link.of(group, InputTaken)[2].error == "closed"


def test_input_nobody_reads_is_bounded(keeper: Harness) -> None:
    group = keeper.started("sleep 100", stdin="pipe")
    keeper.link.send(Input(group, 1, False, b"x" * (2 << 20)))
    keeper.link.send(Input(group, 2, False, b"y"))
    keeper.link.drain()
    assert not keeper.link.of(group, InputTaken)
    keeper.stop(group, 0)
    keeper.link.drain()
    answers = keeper.link.of(group, InputTaken)
    assert sorted(t.serial for t in answers) == [1, 2]
    assert {t.error for t in answers} <= {"closed", "full"}


def test_large_input_arrives_whole(keeper: Harness) -> None:
    group = keeper.started("md5sum", stdin="pipe")
    data = os.urandom(900_000)
    keeper.link.send(Input(group, 1, True, data))
    keeper.link.wait(Exited, group)
    want = subprocess.run(["md5sum"], input=data, capture_output=True, check=True).stdout
    assert keeper.output(group) == want


def test_terminal(keeper: Harness) -> None:
    group = keeper.spawn(
        "test -t 0 && test -t 1 && test -t 2 && echo hi >/dev/tty; stty size; read x; echo got $x;"
        "trap 'stty size; exit 4' WINCH; echo w; while :; do sleep 0.02; done",
        terminal=TerminalSize(40, 100),
    )
    keeper.prints(group, b"hi\r\n40 100\r\n")
    keeper.link.send(Input(group, 1, False, b"line\n"))
    keeper.prints(group, b"got line\r\nw\r\n")
    keeper.link.send(Resize(group, TerminalSize(50, 120)))
    assert keeper.link.wait(Exited, group).code == 4
    keeper.link.wait(Empty, group)
    assert keeper.output(group).endswith(b"50 120\r\n")


def test_terminal_end_of_input_and_last_words(keeper: Harness) -> None:
    group = keeper.started("cat; seq 1000", terminal=TerminalSize())
    keeper.link.send(Input(group, 1, True, b"x\n"))
    exited = keeper.link.wait(Exited, group)
    assert exited.code == 0
    out = keeper.output(group)
    assert out.endswith(b"999\r\n1000\r\n")
    assert exited.size == len(out)
    keeper.link.wait(Empty, group)


def test_terminal_of_a_background_child_is_hung_up(keeper: Harness, mark: str) -> None:
    exited = keeper.run(f"trap '' HUP; sleep {mark} & exit 0", terminal=TerminalSize())
    assert exited.code == 0
    keeper.stop(exited.group, 0)


def test_interrupt_key(keeper: Harness, mark: str) -> None:
    group = keeper.started(f"echo r; exec sleep {mark}", terminal=TerminalSize())
    keeper.prints(group, b"r")
    keeper.link.send(Input(group, 1, False, b"\x03"))
    assert keeper.link.wait(Exited, group).signal == 2
