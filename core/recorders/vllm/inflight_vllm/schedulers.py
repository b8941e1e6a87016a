"""vLLM's schedulers with recording: the classes for `--scheduler-cls`."""

from collections.abc import Callable
from contextlib import suppress
from importlib import util
from typing import Any

from .recorder import Recorder
from .writer import log

_Scheduler: Any = object  # the vLLM scheduler behind the mixin


class RecordsSteps(_Scheduler):
    """A mixin for a vLLM scheduler that forwards each call unchanged and records it."""

    _recorder: Recorder | None = None
    requests: dict[str, Any]  # the scheduler's

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.record_anew()

    def record_anew(self, facts: dict[str, Any] | None = None) -> None:
        """End the current recording, if any, and begin one in the file that the environment names.
        Call it only while there are no requests.
        """
        try:
            self.recording_ends()
            theirs = next(
                cls.__name__ for cls in type(self).__mro__ if cls.__module__ != __name__
            )  # vLLM's class, or a user's subclass of ours
            self._recorder = Recorder(self, theirs, facts)
        except Exception as error:
            _give_up(error)

    def _tell(self, method: Callable[..., Any], *facts: Any) -> Any:
        """Call a method of the recorder; a failure in it never reaches the engine."""
        recorder = self._recorder
        if recorder is None:
            return None
        try:
            if recorder.writer.failure is not None:  # already logged
                self._recorder = None
                return None
            return method(recorder, *facts)
        except Exception as error:
            self._recorder = None
            _give_up(error)
            recorder.writer.end()
            return None

    def add_request(self, request: Any) -> None:
        """Overrides vLLM's method: calls it and records the request."""
        super().add_request(request)
        self._tell(Recorder.arrived, request)

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        self._tell(Recorder.preempted, request)  # before: preemption sets its counters to zero
        super()._preempt_request(request, *args, **kwargs)

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        """Overrides vLLM's method: calls it and records the requests that were there."""
        named = self.requests if request_ids is None else request_ids
        if isinstance(named, str):
            named = [named]
        ending = [request for request in named if request in self.requests]
        result = super().finish_requests(None if request_ids is None else ending, finished_status)
        if ending:
            self._tell(Recorder.aborted, ending, finished_status)
        return result

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Overrides vLLM's method: calls it, and records and times the step."""
        began = self._tell(Recorder.scheduling)
        output = super().schedule(*args, **kwargs)
        self._tell(Recorder.scheduled, began, output)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Overrides vLLM's method: calls it and records its results."""
        t_output = self._tell(Recorder.now)
        answers = super().update_from_output(scheduler_output, model_runner_output)
        self._tell(Recorder.computed, scheduler_output, model_runner_output, t_output, answers)
        return answers

    def recording_ends(self) -> None:
        """Write the remaining records, and record nothing more until `record_anew` is called."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.writer.close()

    def shutdown(self) -> None:
        """Overrides vLLM's method: calls it and ends the recording."""
        super().shutdown()
        self.recording_ends()


def _give_up(error: Exception) -> None:
    log.error(
        "Inflight stopped recording: %s: %s. The engine goes on.", type(error).__name__, error
    )


if util.find_spec("vllm") is not None:
    from vllm.v1.core.sched.scheduler import Scheduler

    class RecordingScheduler(RecordsSteps, Scheduler):
        """vLLM's scheduler, recorded."""

    with suppress(ImportError):  # some versions have none
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler

        class RecordingAsyncScheduler(RecordsSteps, AsyncScheduler):
            """vLLM's asynchronous scheduler, recorded."""
