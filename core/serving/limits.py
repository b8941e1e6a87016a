"""What clients may ask of a server, as data."""

from __future__ import annotations

from dataclasses import dataclass

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServingLimits:
    """max_requests: in progress at once, including waiting ones; max_requests_per_client: of one
    address.

    max_prompt_tokens, max_new_tokens: of a request. max_choices: prompts times `n` in one call.
    max_stop_strings and max_stop_characters: of a request. max_body_bytes: of a call. body_s:
    seconds a call may take to arrive. send_s: seconds a client may take to read what it is sent.
    max_viewers: of the live events at once, of one address half. max_nickname_characters: of a
    client; max_system_characters: of what a teacher has the model told before each question.
    max_lanes, max_budget: the most that a teacher may set. kept_tokens: of the runs that
    can be saved. drain_s: seconds that requests in progress get to finish when the server shuts
    down.
    """

    max_requests: int = 1024
    max_requests_per_client: int = 1024
    max_prompt_tokens: int = 16_384
    max_new_tokens: int = 4096
    max_choices: int = 64
    max_stop_strings: int = 8
    max_stop_characters: int = 256
    max_body_bytes: int = 2**20
    body_s: float = 10.0
    send_s: float = 30.0
    max_viewers: int = 512
    max_nickname_characters: int = 24
    max_system_characters: int = 1000
    max_lanes: int = 256
    max_budget: int = 16_384
    kept_tokens: int = 100_000
    drain_s: float = 30.0
