"""A card that is not there: tensors that say they are on "cuda:0", with their numbers on the host.

Operators compute on the CPU, so text comes out, but under the rules of a card: a tensor of the host
in an operator over the card's is an error, the card's memory is not NumPy's to see, and every
answer that the host reads, and every copy to the card, is counted. What a twin cannot show is the
card's own: its kernels, their rounding, and when they end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)
# What torch's own code takes the card for: a build without CUDA has no guard for CUDA's devices.
META = torch.device("meta")
NAME, UUID, HELD_BYTES = "Twin 1000", "c0ffee", 12_345
PINNED = "pinned_for_the_twin"
COPIES = ("to", "_to_copy", "copy_")
INDEXED = ("index", "index_put", "index_put_")
# The size of their answer depends on numbers, for which the host therefore has to wait.
SIZED_BY_NUMBERS = ("nonzero", "masked_select", "unique", "_unique2", "unique_consecutive")


class MixedDevicesError(RuntimeError):
    """What CUDA says of an operator over tensors in two places."""


class CardTensor(Tensor):
    """On the card, it says; `numbers` are where the arithmetic is done."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    numbers: Tensor
    twin: DeviceTwin

    @staticmethod
    def __new__(cls, numbers: Tensor, twin: DeviceTwin) -> Self:
        """A handle of numbers on the host."""
        with torch.inference_mode(False):  # else no view of a lasting tensor could be made
            made: Self = torch.Tensor._make_wrapper_subclass(
                cls,
                numbers.size(),
                strides=numbers.stride(),
                storage_offset=numbers.storage_offset(),
                dtype=numbers.dtype,
                device=META,
            )
        made.numbers, made.twin = numbers, twin
        return made

    def __init__(self, numbers: Tensor, twin: DeviceTwin) -> None:
        """Everything is done in `__new__`."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it says it is."""
        return CARD

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        twin = next(leaf.twin for leaf in _leaves(args) if isinstance(leaf, CardTensor))
        return twin.run(func, args, kwargs or {})


@dataclass
class Traffic:
    """What went between host and card."""

    reads: int = 0
    """Answers that the host read, and with each of them a wait."""
    uploads: int = 0
    """Copies to the card."""
    blocking_uploads: int = 0
    """Those of them for which the host waits: not queued, or from memory that is not pinned."""
    waits: int = 0
    """Waits for the card without an answer."""


class DeviceTwin(TorchDispatchMode):
    """While it is entered, "cuda" is the card that is not there."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic = Traffic()
        # The place of torch's tensors without numbers: while it is taken no driver is looked for.
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, so the compiler need not even be imported."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.run(func, args, kwargs or {})

    @contextmanager
    def counted(self) -> Iterator[Traffic]:
        """The traffic within, known at its end."""
        before, inside = asdict(self.traffic), Traffic()
        yield inside
        for name, value in asdict(self.traffic).items():
            setattr(inside, name, value - before[name])

    def wait(self) -> None:
        """What a stream's `synchronize` is here."""
        self.traffic.waits += 1

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """An operator, as a card would take it."""
        name = func.overloadpacket.__name__
        if name in ("pin_memory", "_pin_memory"):
            pinned = args[0].clone()
            setattr(pinned, PINNED, True)
            return pinned
        if name == "is_pinned":
            return hasattr(args[0], PINNED)
        leaves = [*_leaves(args), *_leaves(kwargs.values())]
        of_card = [leaf for leaf in leaves if isinstance(leaf, CardTensor)]
        named = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
        if not of_card and (not named or named[0] == CPU):
            return func(*args, **kwargs)
        of_host = [
            leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, CardTensor)
        ]
        if name in COPIES:
            goal = self._copy(name, args, named, leaves)
        else:
            if of_card and any(tensor.dim() for tensor in of_host):
                raise MixedDevicesError(f"{func} over tensors of the card and of the host")
            goal = CPU if named and named[0] == CPU else CARD
            if name in SIZED_BY_NUMBERS or (name in INDEXED and _has_mask(args[1])):
                self.traffic.reads += 1
        below = {key: _beneath(value) for key, value in kwargs.items()}
        answer = func(*map(_beneath, args), **below)
        if any(isinstance(leaf, (bool, int, float)) for leaf in _leaves((answer,))):
            self.traffic.reads += 1
        if isinstance(answer, (list, tuple)):
            return type(answer)(self._place(one, goal, of_card, of_host) for one in answer)
        return self._place(answer, goal, of_card, of_host)

    def _place(
        self,
        answer: Any,
        goal: torch.device,
        of_card: Sequence[CardTensor],
        of_host: Sequence[Tensor],
    ) -> Any:
        """One answer of an operator where it belongs; never an alias across the border."""
        if not isinstance(answer, Tensor):
            return answer
        was_host = any(answer is tensor for tensor in of_host)
        if goal == CPU:
            return answer if was_host else answer.clone()
        for tensor in of_card:
            if answer is tensor.numbers:
                return tensor  # changed in place
        return CardTensor(answer.clone() if was_host else answer, self)

    def _copy(
        self, name: str, args: Sequence[Any], named: Sequence[torch.device], leaves: Sequence[Any]
    ) -> torch.device:
        """Where a copy goes to; counted if it crosses over."""
        source, goal = args[0], args[0].device
        if name == "copy_":
            source = args[1]
        elif named:
            goal = CPU if named[0] == CPU else CARD
        elif isinstance(args[-1], Tensor):  # to that one's device
            goal = args[-1].device
        if goal == CPU:
            self.traffic.reads += source.device != CPU
        elif source.device == CPU:
            self.traffic.uploads += 1
            queued = any(leaf is True for leaf in leaves)  # no other flag of a copy is set here
            self.traffic.blocking_uploads += not (queued and hasattr(source, PINNED))
        return goal


@contextmanager
def device_twin() -> Iterator[DeviceTwin]:
    """torch as on a machine with a card, of which it can tell name, UUID and memory."""
    twin = DeviceTwin()
    known: dict[str, Any] = {
        "is_available": lambda: True,
        "get_device_name": lambda device=None: NAME,
        "get_device_properties": lambda device: SimpleNamespace(name=NAME, uuid=UUID),
        "memory_allocated": lambda device=None: HELD_BYTES,
        "current_stream": lambda device=None: SimpleNamespace(synchronize=twin.wait),
    }
    with patch.multiple(torch.cuda, **known), twin:
        yield twin


def _leaves(values: Any) -> list[Any]:
    """Arguments or answers, those in lists one by one; no operator here nests deeper."""
    flat: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            flat.extend(value)
        else:
            flat.append(value)
    return flat


def _has_mask(indices: Sequence[Tensor | None]) -> bool:
    return any(index is not None and index.dtype == torch.bool for index in indices)


def _beneath(value: Any) -> Any:
    """What stands for an argument where the arithmetic is done."""
    if isinstance(value, CardTensor):
        return value.numbers
    if isinstance(value, (list, tuple)):
        return [_beneath(one) for one in value]
    return CPU if isinstance(value, torch.device) else value
