# SPDX-License-Identifier: BSD-3-Clause
"""Events, and the stream that operations of a buffer run on beside the current one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

import torch

_cuda: Any = torch.cuda


class EventHandle:
    """An event on the current stream; on hosts, where calls return when they are done, nothing."""

    def __init__(self) -> None:
        self._event: Any = None
        self._tensors: tuple[Any, ...] = ()
        if _cuda.is_initialized():  # which takes less time than is_available()
            self._event = _cuda.Event()
            self._event.record()

    def current_stream_wait(self) -> None:
        """Have the current stream wait for the event."""
        self.wait_on(None)

    def wait_on(self, stream: Any) -> None:
        """Have a stream wait for the event: None is the current one."""
        if self._event is not None:
            (stream or torch.cuda.current_stream()).wait_event(self._event)

    def keep(self, tensors: Iterable[Any]) -> None:
        """Hold tensors that the work before the event uses, as long as the event is held."""
        self._tensors = tuple(tensors)


class EventOverlap:
    """An event, what to do once the current stream waits for it, and tensors that live so long."""

    def __init__(self, event: EventHandle | None = None, extra_tensors: Any = None) -> None:
        self.event = event
        self.extra_tensors = extra_tensors
        self.hook_after_wait: Callable[[], Any] | None = None
        self._release = False

    def current_stream_wait(self, release_handle: bool = False) -> None:
        """Have the current stream wait; with ``release_handle`` the event is dropped."""
        if self.event is None:
            raise AssertionError("there is no event: the call was not asynchronous")
        self.event.current_stream_wait()
        hook, self.hook_after_wait = self.hook_after_wait, None
        if hook is not None:
            hook()
        if release_handle:
            self.event = None

    def register_hook_after_wait(self, hook_after_wait: Callable[[], Any]) -> None:
        """Call this once, behind the next current_stream_wait()."""
        if self.hook_after_wait is not None:
            raise AssertionError("there is a hook already")
        self.hook_after_wait = hook_after_wait

    def __call__(self, release_handle: bool = False) -> EventOverlap:
        self._release = release_handle
        return self

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.event is not None:
            self.current_stream_wait(release_handle=self._release)
        self._release = False


Result = TypeVar("Result")
Previous = "EventHandle | EventOverlap | None"


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for each in value for tensor in _tensors_in(each)]
    routing = getattr(value, "routing", None)  # of a handle
    return [] if routing is None else _tensors_in(routing)


class Lane:
    """Where operations of a buffer run: on the current stream, or beside it on one of their own."""

    def __init__(self, on_device: bool) -> None:
        self.on_device = on_device
        self._stream: Any = None

    @property
    def stream(self) -> Any:
        """The stream of operations that are asynchronous; on hosts there is none."""
        if self._stream is None and self.on_device:
            self._stream = _cuda.Stream()
        return self._stream

    def run(
        self,
        operation: Callable[[], Result],
        given: Iterable[Any],
        is_async: bool,
        previous: Iterable[Any] = (),
    ) -> tuple[Result, EventOverlap]:
        """The results of an operation, and the event behind it, if it is asynchronous.

        Behind the events of ``previous``, if there is one, or the current stream.
        """
        if not torch.is_grad_enabled():
            return self._run(operation, given, is_async, previous)
        with torch.no_grad():  # results have no gradients: callers write their own backwards
            return self._run(operation, given, is_async, previous)

    def _run(
        self,
        operation: Callable[[], Result],
        given: Iterable[Any],
        is_async: bool,
        previous: Iterable[Any],
    ) -> tuple[Result, EventOverlap]:
        if not self.on_device:
            return operation(), EventOverlap(EventHandle() if is_async else None)
        events = [getattr(event, "event", event) for event in previous]
        events = [event for event in events if event is not None]
        if not is_async:
            for event in events:
                event.wait_on(None)
            return operation(), EventOverlap(None)
        return self._run_beside(operation, _tensors_in(tuple(given)), events)

    def _run_beside(
        self, operation: Callable[[], Result], given: list[torch.Tensor], events: list[Any]
    ) -> tuple[Result, EventOverlap]:
        current, stream = torch.cuda.current_stream(), self.stream
        for event in events:
            event.wait_on(stream)
        if not events:
            stream.wait_stream(current)
        with torch.cuda.stream(stream):
            made = operation()
            event = EventHandle()
        there = _tensors_in(made)
        if not torch.cuda.is_current_stream_capturing():
            for tensors, user in (given, stream), (there, current):
                for tensor in tensors:
                    if tensor.is_cuda:
                        tensor.record_stream(user)
        event.keep((*given, *there))
        return made, EventOverlap(event)
