"""What the catalogue knows by name."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from cost_models.specs.cluster import DeviceSpec
from service import problem_kinds as kinds
from service.problems import documented
from service.reading import StrictRoute

router = APIRouter(prefix="/v1", tags=["catalogue"], route_class=StrictRoute)
Text = Annotated[str, Query(description="only names that contain this", max_length=100)]


class ModelSummary(BaseModel):
    """A model preset."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    name: str
    parameters: int
    model_type: str
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    num_experts: int | None
    vocab_size: int


@router.get("/models", responses=documented(kinds.INVALID))
def list_models(text: Text = "") -> list[ModelSummary]:
    """Model presets, by name."""
    from cost_models import catalog
    from cost_models.parameters import total_parameters

    specs = [catalog.model(name) for name in catalog.models() if text.lower() in name]
    return [
        ModelSummary(
            name=spec.name,
            parameters=total_parameters(spec),
            model_type=spec.model_type,
            num_hidden_layers=spec.num_hidden_layers,
            hidden_size=spec.hidden_size,
            num_attention_heads=spec.num_attention_heads,
            num_key_value_heads=spec.num_key_value_heads,
            num_experts=spec.moe.num_experts if spec.moe is not None else None,
            vocab_size=spec.vocab_size,
        )
        for spec in specs
    ]


@router.get("/devices", responses=documented(kinds.INVALID))
def list_devices(text: Text = "") -> list[DeviceSpec]:
    """Devices, by name, with their published facts and sources."""
    from cost_models import catalog

    return [spec for spec in catalog.devices() if text.lower() in spec.name]
