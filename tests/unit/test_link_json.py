"""The daemon's quick JSON and the keeper's standard one read each other, whatever is in a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfoldd.keeper import messages as m
from pinfoldd.supervisor import QUICK_JSON

ANY_TEXT = st.text(st.characters(), max_size=30)  # lone surrogates among them


@given(label=ANY_TEXT, env=st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3), body=st.binary())
def test_an_order_of_the_daemon_reaches_the_keeper(
    label: str, env: dict[str, str], body: bytes
) -> None:
    order = m.Spawn(7, label=label, env=env, body=body, terminal=m.TerminalSize(3, 4))
    assert m.Decoder().feed(m.encode(order, QUICK_JSON)) == [order]


@given(reason=ANY_TEXT)
def test_a_report_of_the_keeper_reaches_the_daemon(reason: str) -> None:
    report = m.SpawnFailed(7, reason, 2, 1.5, 2.5)
    assert m.Decoder(QUICK_JSON).feed(m.encode(report)) == [report]


@pytest.mark.parametrize("text", ["…", "é" * 200, "\udcff", "a\0b", "\u2028"])
def test_texts_that_once_did_not(text: str) -> None:
    order = m.Spawn(7, label=text, cwd=text)
    assert m.Decoder().feed(m.encode(order, QUICK_JSON)) == [order]
