"""Snapshots of environments on replay: episodes, their counters, and who draws the next ones.

What is not named here as left out is carried. Whatever draws an environment's requests is given by
whoever made it; beyond the generator that it is handed it should remember nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import UserError
from engine.replay.fleet import snapshot as of_fleets
from engine.replay.recorded_request import RecordedRequest
from engine.sampling.params import SamplingParams
from engine.snapshot import put_back, take
from engine.snapshot_origin import Snapshot, check_origin, digest_of
from engine.snapshot_values import Carrier, LeftOut
from engine.viewing import build_view
from engine.workload.build import DrawnRequests, disturbances_of
from engine.workload.disturbances import Disturbance, Disturbances
from envs.fleet import ServeFleet, Step
from envs.observing import Aggregate, LearningToDraft, PerRequest
from envs.serve import ServeEnv
from envs.vector import ServeVectorEnv
from policies.actions import HeldPlan
from policies.forecast import Forecast
from policies.goodput_batch import GoodputBatch
from policies.shifts import Shifts
from policies.slack_priced import SlackPriced
from policies.steered import Steered

if TYPE_CHECKING:
    from engine.loop import Engine
    from policies.features import Observation

# What every Gymnasium environment has, and the shape of what goes in and out.
FACE = ("spec", "metadata", "render_mode", "closed", "observation_space", "action_space")
SETTINGS = ("actions", "observation", "features", "reward", "decide_every", "max_decisions")

SINGLE = Carrier(
    {
        ServeEnv: LeftOut(
            constant=(*FACE, *SETTINGS, "_make_engine", "_engine_for"),
            rebuilt=("engine", "_view"),
        ),
        Aggregate: LeftOut(constant=("features", "space", "_classes")),
        PerRequest: LeftOut(constant=("request_features",)),
        LearningToDraft: LeftOut(constant=("features", "space", "_layout")),
        Shifts: LeftOut(),
        HeldPlan: LeftOut(constant=("table", "lossless")),
        Steered: LeftOut(constant=("table",)),
        # What a step costs is asked anew with every plan.
        SlackPriced: LeftOut(rebuilt=("_table",)),
        Forecast: LeftOut(),
        GoodputBatch: LeftOut(),
    },
    records=(RecordedRequest, SamplingParams, Disturbance),
    rebuild={},
)
MANY = Carrier(
    {
        **of_fleets.CARRIER.left_out,
        ServeFleet: LeftOut(
            constant=(
                *(*FACE, *SETTINGS, "episodes", "replicas"),
                *("_scales", "request_features", "_tiers", "_pay"),
            ),
            rebuilt=("_step_all", "_show_requests", "_scratch", "_switched"),
        ),
        ServeVectorEnv: LeftOut(
            constant=(*FACE, "num_envs", "single_observation_space", "single_action_space")
        ),
    },
    records=(*of_fleets.CARRIER.records, Step),
    rebuild=of_fleets.CARRIER.rebuild,
)


def take_single(env: ServeEnv) -> Snapshot:
    """The environment and its episode. Raises UserError for one on a live engine."""
    engine, of_engine, requests = env.engine, None, None
    if engine is not None:
        taken = take(engine)
        of_engine = {"made_on": taken.made_on, "state": taken.state}
        requests = {
            "asked": SINGLE.pack(list(engine.requests)),
            "disturbances": SINGLE.pack(list(disturbances_of(engine.requests).of)),
        }
    state = {
        "env": SINGLE.pack(env, "env"),
        "engine": of_engine,
        "requests": requests,
        "is_due": env._view is not None,
    }
    return Snapshot("ServeEnv", _settings(env), state)


def put_back_single(env: ServeEnv, snapshot: Snapshot) -> Observation | None:
    """Make the environment what that one was, on an engine of its own; what was observed last.

    None where no episode had begun. Raises UserError where anything else was served.
    """
    check_origin(snapshot, "ServeEnv", _settings(env))
    state = snapshot.state
    engine: Engine | None = None
    if state["engine"] is not None:
        if env._engine_for is None:
            raise UserError(
                "the environment was made without `engine_for`, so it cannot serve a snapshot's "
                "requests; make it with `gymnasium.make` on replay"
            )
        asked = SINGLE.unpack(state["requests"]["asked"])
        wrong = Disturbances(SINGLE.unpack(state["requests"]["disturbances"]))
        engine = env._engine_for(DrawnRequests(asked, wrong))
        put_back(engine, Snapshot("Engine", **state["engine"]))
    SINGLE.unpack(state["env"], env)
    env.engine = engine
    env._view = build_view(engine) if engine is not None and state["is_due"] else None
    return None if engine is None else env._observation(engine, env._view_now(engine))


def take_many(env: ServeFleet | ServeVectorEnv) -> Snapshot:
    """All environments of a fleet, each in its own episode."""
    kind = type(env).__name__
    return Snapshot(kind, made_on_of(env), MANY.pack(env, kind))


def put_back_many(env: ServeFleet | ServeVectorEnv, snapshot: Snapshot) -> Observation:
    """Make them what those were; what was observed last, [R, F].

    Raises UserError where anything else was served.
    """
    check_origin(snapshot, type(env).__name__, made_on_of(env))
    MANY.unpack(snapshot.state, env)
    return serving_of(env).observe()


def made_on_of(env: ServeFleet | ServeVectorEnv) -> dict[str, str]:
    """What must be the same for a snapshot to be restored."""
    serving = serving_of(env)
    return of_fleets.made_on_of(serving.fleet) | _settings(serving)


def serving_of(env: ServeFleet | ServeVectorEnv) -> ServeFleet:
    """The environments behind a face, or themselves."""
    return env if isinstance(env, ServeFleet) else env.serving


def _settings(env: ServeEnv | ServeFleet) -> dict[str, str]:
    return {
        "action table": digest_of(env.actions),
        "features": digest_of(env.features),
        **{
            name: repr(getattr(env, name))
            for name in ("observation", "reward", "decide_every", "max_decisions")
        },
    }
