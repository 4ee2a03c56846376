"""Plans as people read them."""

from planner.cli.render.whole import artifact_text, estimate_view, plan_view, why_not_view

__all__ = ["artifact_text", "estimate_view", "plan_view", "why_not_view"]
