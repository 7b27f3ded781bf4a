"""The metric families of a serving engine: every name, what it means, by which labels.

A `vllm:` or `sglang:` name is used only where the meaning is theirs (vLLM 0.33, SGLang 0.5.23;
research/engines.md §3); what they do not have is called `draftgym:`. When anything is counted is
decided in `metrics.py`.
"""

from __future__ import annotations

from typing import TypeVar

from engine.observability.exposition import Counter, Family, Gauge, Histogram

# vLLM's bounds, in seconds, so that its dashboards' quantiles mean the same.
FIRST_TOKEN_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_BOUNDS_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
REQUEST_BOUNDS_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
# Shares of the measured time; the profile's own bars, 5 and 12 %, are bounds.
ERROR_BOUNDS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 1.0)
BY_CLASS = ("slo_class",)

AnyFamily = TypeVar("AnyFamily", bound=Family)


class ServingFamilies:
    """One attribute a family; `families` has all of them in order of declaration."""

    def __init__(self) -> None:
        self.families: list[Family] = []

        def counter(name: str, explanation: str, *more: str) -> Counter:
            return self._add(Counter(f"{name}_total", explanation, (*BY_CLASS, *more)))

        def total(name: str, explanation: str, *labels: str) -> Counter:
            return self._add(Counter(f"{name}_total", explanation, labels))

        def gauge(name: str, explanation: str, *labels: str) -> Gauge:
            return self._add(Gauge(name, explanation, labels))

        def seconds(name: str, explanation: str, bounds: tuple[float, ...]) -> Histogram:
            return self._add(Histogram(f"{name}_seconds", explanation, bounds, BY_CLASS))

        self.running = gauge("vllm:num_requests_running", "Requests that hold a slot.", *BY_CLASS)
        self.waiting = gauge("vllm:num_requests_waiting", "Requests in the queue.", *BY_CLASS)
        self.kv_usage = gauge("vllm:kv_cache_usage_perc", "Share of KV pages in use, 0 to 1.")
        self.kv_fragmentation = gauge(
            "draftgym:kv_fragmentation", "Share of the owned KV rows that hold no committed token."
        )
        self.kv_tree_pages = gauge(
            "draftgym:kv_tree_pages", "KV pages owned beyond context and root, for trees alone."
        )
        self.overloads = gauge(
            "draftgym:overload_actions", "What the overload policy did so far.", *BY_CLASS, "action"
        )
        self.prompt_tokens = counter("vllm:prompt_tokens", "Prompt tokens processed.")
        self.generation_tokens = counter("vllm:generation_tokens", "Tokens emitted.")
        self.preemptions = counter("vllm:num_preemptions", "Slots that requests had to give up.")
        self.drafts = counter("vllm:spec_decode_num_drafts", "Verifications of drafts.")
        self.draft_tokens = counter("vllm:spec_decode_num_draft_tokens", "Drafts verified.")
        self.accepted_tokens = counter("vllm:spec_decode_num_accepted_tokens", "Drafts accepted.")
        self.accepted_per_pos = counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos", "Drafts accepted, by depth.", "position"
        )
        self.verify_calls = total("sglang:spec_verify_calls", "Iterations that verified drafts.")
        self.accept_length = gauge(
            "sglang:spec_accept_length", "Mean tokens a verification, the target's own included."
        )
        self.accept_rate = gauge("sglang:spec_accept_rate", "Accepted drafts over verified ones.")

        self.first_token = seconds(
            "vllm:time_to_first_token", "Arrival to first token.", FIRST_TOKEN_BOUNDS_S
        )
        self.token_gap = seconds(
            "vllm:inter_token_latency", "Gap between a request's emissions.", TOKEN_BOUNDS_S
        )
        self.token_gap_alias = seconds(
            "vllm:time_per_output_token",
            "The older name of vllm:inter_token_latency_seconds.",
            TOKEN_BOUNDS_S,
        )
        self.request_tpot = seconds(
            "vllm:request_time_per_output_token",
            "A request's decode time over its tokens after the first.",
            TOKEN_BOUNDS_S,
        )
        self.latency = seconds(
            "vllm:e2e_request_latency", "Arrival to last token.", REQUEST_BOUNDS_S
        )
        self.queue_time = seconds(
            "vllm:request_queue_time", "Arrival to the first slot.", REQUEST_BOUNDS_S
        )
        self.prefill_time = seconds(
            "vllm:request_prefill_time", "First slot to first token.", REQUEST_BOUNDS_S
        )
        self.decode_time = seconds(
            "vllm:request_decode_time", "First token to last.", REQUEST_BOUNDS_S
        )

        self.requests = counter("draftgym:requests", "Requests by how they ended.", "status")
        self.promised = counter("draftgym:slo_requests", "Ended requests with an objective.")
        self.attained = counter("draftgym:slo_attained", "Of these, those that met all.")
        self.valid_tokens = counter("draftgym:slo_valid_tokens", "Tokens that kept to the TPOT.")
        self.proposed_per_pos = counter(
            "draftgym:drafts_proposed_per_pos",
            "How often a depth was offered to the target.",
            "position",
        )
        self.drafted = counter("draftgym:drafted_tokens", "Candidates scored by the drafter.")
        self.wasted = counter("draftgym:wasted_tokens", "Drafted and not accepted.")
        self.let_through = counter("draftgym:let_through_tokens", "Accepted by the margin alone.")
        self.iterations = total("draftgym:iterations", "Iterations of the loop.")
        self.phase = total("draftgym:phase_seconds", "Engine time by kind of work.", "phase")
        self.predicted = total(
            "draftgym:predicted_seconds",
            "Engine time of all phases but the controller's, by the hardware profile.",
        )
        self.prediction_error = self._add(
            Histogram(
                "draftgym:prediction_error_ratio",
                "Predicted over measured iteration time, the distance from 1.",
                ERROR_BOUNDS,
            )
        )
        self.energy = total("draftgym:energy_joules", "Energy by where it is from.", "source")
        # Of a metered graphics card as a whole; NaN where it does not tell, or is lost.
        self.gpu_power = gauge("draftgym:gpu_power_watts", "Power of the card.")
        self.gpu_memory = gauge("draftgym:gpu_memory_bytes", "Memory of the card.", "kind")
        self.gpu_clock = gauge("draftgym:gpu_clock_hertz", "Clocks of the card.", "domain")
        self.gpu_temperature = gauge("draftgym:gpu_temperature_celsius", "Temperature of the card.")
        self.clipped = total("draftgym:clipped_plan_entries", "Plan entries outside the limits.")
        self.shrunk = total("draftgym:shrunk_nodes", "Kept nodes dropped to fit.")
        self.fallbacks = total(
            "draftgym:fallbacks",
            "Ordinary decoding in place of what failed or was missing: draft calls that raised "
            "(drafter_failed), decisions without a needed hardware profile (no_profile).",
            "reason",
        )

    def _add(self, family: AnyFamily) -> AnyFamily:
        self.families.append(family)
        return family
