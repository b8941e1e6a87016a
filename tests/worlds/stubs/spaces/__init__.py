"""Stands in for Hugging Face's package `spaces` on ZeroGPU: the same forked workers, pickled queues
and exceptions, without a GPU.

What the real one does is read from its version 0.51 (zero/wrappers.py). SPACES_ZERO_GPU=true makes
it lend; anything else hands functions back as they are. With SPACES_STUB_REFUSES it refuses in
these words. It lends to nobody without a request, as quotas are the visitors'.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from contextlib import suppress
from contextvars import copy_context
from functools import wraps
from multiprocessing.connection import wait
from queue import Queue

import gradio as gr
from gradio.context import LocalContext

fork = multiprocessing.get_context("fork")
lent: list[tuple[str | None, float]] = []  # to whom and for how many seconds
workers: list[Worker] = []
forked = False


def gradio_auto_wrap(task):
    return task


def GPU(task=None, *, duration=None, size=None):
    if task is None:
        return lambda task: GPU(task, duration=duration, size=size)
    if os.environ.get("SPACES_ZERO_GPU") != "true":
        return task

    @wraps(task)
    def lending(*args, **kwargs):
        request = LocalContext.request.get(None)
        if request is None:
            raise gr.Error(
                "Space app has reached its GPU limit. Try re-running outside of examples.",
                title="ZeroGPU quota exceeded",
            )
        if words := os.environ.get("SPACES_STUB_REFUSES"):
            raise gr.Error(words, title="ZeroGPU quota exceeded")
        lent.append((request.headers.get("x-ip-token"), duration(*args, **kwargs)))
        worker = next((w for w in workers if w.idle and w.process.is_alive()), None) or Worker(task)
        worker.idle = False
        worker.args.put((args, kwargs))
        told: Queue = Queue()

        def fill():
            while True:
                kind, value = worker.results.get()
                worker.idle = worker.idle or kind == "end"
                told.put((kind, value))
                if kind != "ok":
                    return

        filling = threading.Thread(target=copy_context().run, args=(fill,))
        filling.start()
        try:
            while True:
                kind, value = told.get()
                if kind == "aborted":
                    raise gr.Error("GPU task aborted", title="ZeroGPU worker error")
                if kind == "error":
                    raise gr.Error(value, title="ZeroGPU worker error")
                if kind == "end":
                    return
                try:
                    yield value
                except GeneratorExit:
                    worker.stop.set()
                    raise
        finally:
            filling.join()

    return lending


class Worker:
    def __init__(self, task):
        self.idle = True
        self.args, self.results, self.stop = fork.SimpleQueue(), fork.SimpleQueue(), fork.Event()
        self.process = fork.Process(target=self._serve, args=(task,), daemon=True)
        self.process.start()
        threading.Thread(target=self._watch, daemon=True).start()
        workers.append(self)

    def _watch(self):
        self.process.join()
        with suppress(ValueError):  # not held: the process did not die while it wrote
            self.results._wlock.release()
        self.results.put(("aborted", None))

    def _serve(self, task):
        global forked
        forked = True
        parent = multiprocessing.parent_process()
        # neither: the parent has ended
        while wait([self.args._reader, parent.sentinel]) and not self.args.empty():
            args, kwargs = self.args.get()
            self.stop.clear()
            thread = threading.Thread(target=self._iterate, args=(task(*args, **kwargs),))
            thread.start()
            thread.join()
            self.results.put(("end", None))

    def _iterate(self, values):
        try:
            for value in values:
                if self.stop.is_set():
                    values.close()
                    return
                self.results.put(("ok", value))
        except Exception as error:
            self.results.put(("error", type(error).__name__))
