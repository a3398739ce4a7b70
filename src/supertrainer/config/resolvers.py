"""OmegaConf resolvers that config files may use."""

from __future__ import annotations

from omegaconf import OmegaConf

from supertrainer.core.placement import placement


def register_resolvers() -> None:
    """Registers `${secret:NAME}` and `${processes:}`; doing it again changes nothing.

    `${secret:NAME}` resolves to its own text, so that a snapshot, a log and a printed config carry the name alone;
    `supertrainer.config.secrets.reveal` reads the environment variable when the value is used.
    `${processes:}` is the number of processes that train together: those of this start, or of the job that is planned.
    """
    OmegaConf.register_new_resolver("secret", lambda name: f"${{secret:{name}}}", replace=True)
    OmegaConf.register_new_resolver("processes", lambda: placement().processes, replace=True)
