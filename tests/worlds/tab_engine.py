"""The engine in a tab, asked by messages as the page asks it, in any browser."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

# What a job says is kept whole: `deltas` of a job are read when it is done.
_WORLD = """(address) => {
    const worker = new Worker(address, { type: 'module' }), waiting = new Map();
    let last = 0;
    worker.onmessage = ({ data }) => {
        const of = waiting.get(data.id);
        if (data.kind === 'loading') of?.loading.push(data);
        else if (data.kind === 'delta') { of?.deltas.push(data.delta); if (data.delta.done) of?.done({ deltas: of.deltas }); }
        else if (data.kind === 'failed') of?.done({ failed: data.sentence, deltas: of.deltas });
        else of?.done({ ...data, loading: of.loading });
    };
    worker.onerror = event => { for (const of of waiting.values()) of.done({ failed: `the worker: ${event.message}` }); };
    const ask = message => new Promise(done => { const id = ++last; waiting.set(id, { done, deltas: [], loading: [] }); worker.postMessage({ id, ...message }); });
    window.tab = { worker, ask, cancel: of => worker.postMessage({ id: ++last, do: 'cancel', of }), get last() { return last; }, waiting };
}"""  # noqa: E501


class TabEngine:
    """A worker of its own in this page."""

    def __init__(self, page: Page, address: str) -> None:
        """address: of worker.js, from the page."""
        self.page = page
        page.evaluate(_WORLD, address)

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """What a message is answered with; fails where the worker says that it failed."""
        answer: dict[str, Any] = self.page.evaluate(
            "(message) => tab.ask(message)", {"do": do, **what}
        )
        assert "failed" not in answer, answer["failed"]
        return answer

    def load(self, model: str = "shakespeare-bpe") -> dict[str, Any]:
        """The facts with which it says that it is ready."""
        return self.ask("load", model=model)

    def call(self, name: str, *args: Any) -> Any:
        """One of the page's questions, answered in the tab."""
        return self.ask("call", name=name, args=list(args))["value"]

    def run(self, spec: dict[str, Any], kind: str = "run") -> list[dict[str, Any]]:
        """All deltas of a job."""
        deltas: list[dict[str, Any]] = self.ask("begin", kind=kind, spec=spec)["deltas"]
        return deltas

    def trace(self, spec: dict[str, Any]) -> list[str]:
        """A run's trace, as it is saved."""
        last = self.run(spec)[-1]
        assert "id" in last, last
        return self.call("document", self.call("export", "jsonl", last["id"])["url"]).splitlines()
