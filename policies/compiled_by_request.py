"""An exported controller that observes requests one by one, decided in two compiled calls.

The first makes a summary of each class's requests (`policies.compiled_requests`) behind where the
second, `policies.compiled_decision`, puts the features; the network takes both. It decides as
`policies.learned.LearnedByRequest`, which needs NumPy alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.protocol import Limits, Plan, View
from policies.compiled_controller import CompiledController
from policies.compiled_requests import encoder_of, nobody, seen_requests, summarise
from policies.learned import LearnedController
from policies.manifest import Manifest
from policies.network import check_tensors
from policies.request_features import observe_requests, require_finite_rows


class CompiledByRequest(CompiledController):
    """As `LearnedByRequest`."""

    BY_REQUEST = True

    def __init__(self, manifest: Manifest, weights: Mapping[str, NDArray[np.float32]]) -> None:
        """`weights` named as in Manifest.tensor_shapes. Raises UserError when they misfit."""
        check_tensors(manifest.tensor_shapes(), weights)
        if manifest.requests is None:
            raise TypeError(f"{manifest.name}: observes no requests; take CompiledController")
        classes = len(manifest.class_names)
        self._encoder = encoder_of(manifest.requests, weights, classes)
        super().__init__(manifest, weights)

    @classmethod
    def kind_of(cls, manifest: Manifest) -> type[LearnedController]:
        """This one where requests are observed, else as of CompiledController."""
        return cls if manifest.requests is not None else CompiledController.kind_of(manifest)

    def reset(self, limits: Limits) -> None:
        """Start as in training. Behind the features the network is given the summary."""
        super().reset(limits)
        self._summary = self._own.observation[len(self.manifest.features) :]

    def plan(self, view: View) -> Plan:
        """Decide when the last decision has stood for `hold` iterations, else keep it."""
        if self._held == 0:
            if view.class_names != self.manifest.class_names:
                self.refuse_classes(view)
            if not summarise(seen_requests(view), self._encoder, self._summary):
                require_finite_rows(observe_requests(view)[0], self.manifest.request_features)
        return super().plan(view)

    def _load_kernels(self) -> None:
        """Observe nobody, so that loading the kernel is charged to no decision."""
        super()._load_kernels()
        summarise(nobody(), self._encoder, self._summary)
