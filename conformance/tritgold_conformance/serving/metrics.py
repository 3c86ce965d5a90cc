"""What a server counts, for Prometheus; a registry of its own, so that several servers share nothing."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """Counters and times. Names end as Prometheus wants them; all begin with ``tritgold_``."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("tritgold_requests", "Answered requests.", ["path", "status"], registry=registry)
        self.ended = Counter("tritgold_answers", "Texts that ended, by reason.", ["reason"], registry=registry)
        self.prompt_tokens = Counter("tritgold_prompt_tokens", "Tokens of prompts.", registry=registry)
        self.reused_tokens = Counter("tritgold_prompt_tokens_reused", "Of them found cached.", registry=registry)
        self.tokens = Counter("tritgold_generated_tokens", "Generated tokens.", registry=registry)
        self.first_token = Histogram(
            "tritgold_first_token_seconds", "From a request to its first token.", buckets=_SECONDS, registry=registry
        )
        self.seconds = Histogram(
            "tritgold_request_seconds", "From a request to the end of its answer.", buckets=_SECONDS, registry=registry
        )
        self.in_flight = Gauge("tritgold_requests_in_flight", "Requests that are being answered.", registry=registry)
        self.running = Gauge("tritgold_texts_running", "Texts in the model's passes.", registry=registry)
        self.waiting = Gauge("tritgold_texts_waiting", "Texts that wait for a place.", registry=registry)
        self.positions = Gauge("tritgold_kv_positions", "Positions of the KV cache in use.", registry=registry)
        self.crashes = Gauge("tritgold_engine_restarts", "Times that the engine was made again.", registry=registry)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)
