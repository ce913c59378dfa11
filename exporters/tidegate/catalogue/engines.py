"""The engines Tidegate knows, by name."""

from tidegate.catalogue.engines_sglang import SGLANG
from tidegate.catalogue.engines_vllm import VLLM
from tidegate.catalogue.quantity import EngineCatalogue

ENGINES: dict[str, EngineCatalogue] = {VLLM.engine: VLLM, SGLANG.engine: SGLANG}
