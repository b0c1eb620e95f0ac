"""Signals that ask to stop, handled in this process; whole programs are in cli/test_signals."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from hadamard.core import stopping
from hadamard.core.stopping import SIGNALS, Stopped


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def slow_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these tests' own signals arrive."""
    monkeypatch.setattr(stopping, "_SECONDS_UNTIL_RAISED_AGAIN", 600.0)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)]


@pytest.mark.parametrize("number", SIGNALS)
def test_with_nothing_to_save_the_first_signal_raises(number: int) -> None:
    before = handlers()
    with pytest.raises(Stopped) as stopped, stopping.stop_at_once():
        send(number)
    assert (stopped.value.number, stopped.value.exit_code) == (number, 128 + number)
    assert str(stopped.value) == signal.Signals(number).name
    assert handlers() == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_further_signals_do_not_disturb_the_clean_up() -> None:
    cleaned = []

    def work() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            send(signal.SIGINT)
            send(signal.SIGHUP)
            cleaned.append(True)

    with pytest.raises(Stopped) as stopped, stopping.stop_at_once():
        work()
    assert cleaned
    assert stopped.value.number == signal.SIGTERM


def test_a_swallowed_stop_is_raised_again_by_the_timer() -> None:
    with stopping.stop_at_once():
        with suppress(Stopped):
            send(signal.SIGHUP)
        assert signal.getitimer(signal.ITIMER_REAL)[1] == 600.0
        with pytest.raises(Stopped) as stopped:
            send(signal.SIGALRM)  # as the timer does
    assert stopped.value.number == signal.SIGHUP


@pytest.mark.parametrize("number", SIGNALS)
def test_while_runs_are_trained_a_signal_is_a_flag(number: int) -> None:
    before = handlers()
    with stopping.stop_signals() as stop_requested:
        assert not stop_requested()
        send(number)
        assert stop_requested()
        send(signal.SIGTERM)  # asks for the same
    assert handlers() == before


@pytest.mark.parametrize("first", SIGNALS)
def test_an_interrupt_after_the_first_signal_ends_at_once(first: int) -> None:
    with stopping.stop_signals():
        send(first)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_a_stop_that_was_swallowed_before_training_is_known_to_it() -> None:
    with stopping.stop_at_once():
        with suppress(Stopped):
            send(signal.SIGTERM)
        with stopping.stop_signals() as stop_requested:
            assert stop_requested()
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        send(signal.SIGTERM)  # the program is about to end: not raised again


def test_a_program_that_is_ending_ignores_signals() -> None:
    with stopping.stop_at_once():
        stopping.ignore_signals()
        for number in SIGNALS:
            send(number)


def test_a_lost_terminal_stays_ignored_under_nohup(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping.stop_at_once(), stopping.stop_signals() as stop_requested:
            send(signal.SIGHUP)
            assert not stop_requested()
    finally:
        signal.signal(signal.SIGHUP, outer)
